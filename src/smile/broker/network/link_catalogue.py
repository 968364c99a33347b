"""The links of a broker: the neighbours that it calls. Those of the settings are read-only; others are added and
dropped while the broker runs, and stored in its directory. Tokens are never shown."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from smile import limits
from smile.broker.directory import write_file
from smile.errors import did_you_mean, error
from smile.settings import NEIGHBOUR_SETTINGS, SETTINGS, InvalidSetting, NeighbourSettings

_PRIVATE_MODE = 0o600


class LinkCatalogue:
    """Thread-safe. `path` is where added links are stored."""

    def __init__(self, broker: str, settings: Mapping[str, NeighbourSettings], path: Path) -> None:
        self._broker, self._settings, self._path = broker, settings, path
        self._lock = Lock()
        self._added = _read_links(path)
        self.on_change: Callable[[], None] = lambda: None
        """Called when a link was added or dropped, by any thread."""

    @property
    def neighbours(self) -> Mapping[str, NeighbourSettings]:
        """All neighbours, by name. Those of the settings take precedence."""
        return {**self._added, **self._settings}

    @property
    def added(self) -> Mapping[str, NeighbourSettings]:
        """Those that were added while the broker ran."""
        return self._added

    def add(self, name: str, url: str, token: str = "", ca: str = "") -> None:
        """Adds a link, or changes one that was added. Returns when it is stored. `token` is that of this broker at
        the neighbour."""
        neighbour = _check_link(name, url, token, ca)
        if name == self._broker:
            raise error("E131", f"{name} is this broker itself", hint="Give the name of the other one.")
        with self._lock:
            self._refuse_settings(name)
            if self._added.get(name) == neighbour:
                return
            if name not in self._added and len(self._added) >= limits.links_max:
                raise error("E092", f"there are {len(self._added):,} links already", hint="Drop some.")
            self._store({**self._added, name: neighbour})
        self.on_change()

    def drop(self, name: str) -> None:
        """Drops a link that was added. Returns when that is stored."""
        with self._lock:
            self._refuse_settings(name)
            if name not in self._added:
                hint = did_you_mean(name[:100], self._added) or "`smile link list` shows all of them."
                raise error("E132", f"there is no link {name[:100]}", hint=hint)
            self._store({other: link for other, link in self._added.items() if other != name})
        self.on_change()

    def _refuse_settings(self, name: str) -> None:
        if name in self._settings:
            hint = f"Change [brokers.{name}] there, and restart the broker."
            raise error("E131", f"the link {name} is one of the settings", hint=hint)

    def _store(self, links: Mapping[str, NeighbourSettings]) -> None:
        fields = {name: {"url": list(n.url), "token": n.token, "ca": n.ca} for name, n in links.items()}
        # The file that replaces it is private from the beginning, whatever the umask is.
        new_path = self._path.with_name(f"{self._path.name}.new")
        new_path.unlink(missing_ok=True)
        os.close(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE))
        write_file(self._path, json.dumps(fields, indent=1))
        self._added = dict(links)

    def status(self) -> list[dict[str, Any]]:
        """All links, without their tokens."""
        return [
            {
                "name": name,
                "url": list(neighbour.url),
                "ca": neighbour.ca or None,
                "has_token": bool(neighbour.token),
                "from_settings": name in self._settings,
            }
            for name, neighbour in sorted(self.neighbours.items())
        ]


def _check_link(name: str, url: str, token: str, ca: str) -> NeighbourSettings:
    try:
        SETTINGS["name"].convert(name)
        values = {"url": (url,), "token": token, "ca": ca}
        checked: dict[str, Any] = {field: NEIGHBOUR_SETTINGS[field].convert(value) for field, value in values.items()}
    except InvalidSetting as problem:
        raise error("E131", f"this cannot be a link: {problem}", hint=problem.hint) from None
    return NeighbourSettings(**checked)


def _read_links(path: Path) -> dict[str, NeighbourSettings]:
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, NeighbourSettings])
    except (OSError, msgspec.MsgspecError) as problem:
        raise error("E105", f"{path} is damaged: {problem}", hint="Delete it, and add its links again.") from None
