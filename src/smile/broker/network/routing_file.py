"""The file `routing.json` of a broker's directory: what it advertises, the producers that it has registered, and what
its neighbours have said."""

from pathlib import Path

import msgspec

from smile.broker.directory import write_file
from smile.errors import error
from smile.horizons import HORIZON_MIN
from smile.links.routing.router import RoutingState
from smile.registry.epochs import ClosedEpoch


class AdvertisementChoice(msgspec.Struct, frozen=True):
    """What was decided for a stream by a command: it overrides the setting `advertise`."""

    is_advertised: bool
    condition: str = ""


class ProducerView(msgspec.Struct, frozen=True):
    """A producer of a global stream, with its condition."""

    relation: str
    condition: str


class RegisteredProducers(msgspec.Struct, frozen=True):
    """The producers of a global stream that others were told of: their conditions by name. Up to tick `withdrawn_to`
    there may have been others. Nothing was published at or below tick `begins`."""

    version: int = 0
    producers: dict[str, str] = msgspec.field(default_factory=dict)
    withdrawn_to: int = HORIZON_MIN
    begins: int = HORIZON_MIN


class RoutingFile(msgspec.Struct):
    """What the broker's directory has of routing. `absent_us` is since when neighbours have no link, in microseconds
    since 1970. `producers` are those that commands have added, by name. `registered` has those that others were told
    of, by global stream. `declared` are the closed epochs that this broker has declared, and `followed` those that it
    has confirmed, or that it is no member of."""

    format: int = 1
    choices: dict[str, AdvertisementChoice] = msgspec.field(default_factory=dict)
    state: RoutingState = msgspec.field(default_factory=RoutingState)
    absent_us: dict[str, int] = msgspec.field(default_factory=dict)
    producers: dict[str, ProducerView] = msgspec.field(default_factory=dict)
    registered: dict[str, RegisteredProducers] = msgspec.field(default_factory=dict)
    declared: dict[str, ClosedEpoch] = msgspec.field(default_factory=dict)
    followed: dict[str, ClosedEpoch] = msgspec.field(default_factory=dict)


class StoredRouting:
    """The content of the file, and the file. Used under the lock of its `Routing`. Without a path, nothing is
    written."""

    def __init__(self, path: Path | None) -> None:
        self._path, self.content = path, _read(path)
        self._written = self._encode()
        self._saved_version: int | None = 0

    def changed(self) -> None:
        """Something besides the state of the router has changed."""
        self._saved_version = None

    def save(self, version: int | None) -> None:
        """Writes what has changed. `version` is that of the router; None: write it whatever that is."""
        if self._path is None or (self._saved_version == version and version is not None):
            return
        text, self._saved_version = self._encode(), version
        if text != self._written:
            write_file(self._path, text)
            self._written = text

    def _encode(self) -> str:
        return msgspec.json.encode(self.content).decode()


def _read(path: Path | None) -> RoutingFile:
    if path is None or not path.exists():
        return RoutingFile()
    try:
        return msgspec.json.decode(path.read_bytes(), type=RoutingFile)
    except (OSError, msgspec.MsgspecError) as problem:
        hint = "Delete it: neighbours send what they advertise again. Repeat `smile advertise` where it was used."
        raise error("E105", f"{path} is damaged: {problem}", hint=hint) from None
