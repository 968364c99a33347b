"""How far the start of the engine is, and how long it usually takes: so that whoever waits knows what for."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

_STARTS_KEPT = 5


class StartProgress:
    """The duration of the last starts is in the file. `clock` returns monotonic seconds. `observe` is called by one
    thread, `report` by any."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._began_at: float | None = None
        self._phase = ""
        self._took_s: float | None = None
        self._earlier_s = _read(path)

    def observe(self, phase: str) -> None:
        """`phase` says what the engine is doing before it runs; empty if it runs."""
        if phase and self._began_at is None:
            self._began_at = self._clock()
        elif not phase and self._began_at is not None:
            self._took_s, self._began_at = self._clock() - self._began_at, None
            self._earlier_s = [*self._earlier_s, self._took_s][-_STARTS_KEPT:]
            _write(self._path, self._earlier_s)
        self._phase = phase

    def report(self) -> dict[str, Any]:
        """`usual_s` is null before the first start."""
        began_at = self._began_at
        return {
            "phase": self._phase or None,
            "for_s": None if began_at is None else round(self._clock() - began_at, 3),
            "took_s": None if self._took_s is None else round(self._took_s, 3),
            "usual_s": round(median(self._earlier_s), 3) if self._earlier_s else None,
        }


def _read(path: Path) -> list[float]:
    """No durations if there are none, or the file is damaged: they are only for people."""
    try:
        stored = json.loads(path.read_text())
        return [float(seconds) for seconds in stored][-_STARTS_KEPT:]
    except (OSError, ValueError, TypeError):
        return []


def _write(path: Path, durations_s: list[float]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([round(seconds, 3) for seconds in durations_s]))
    except OSError:
        return  # there may be no space; the next start tries again
