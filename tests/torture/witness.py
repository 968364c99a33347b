"""What clients know of a broker: what they sent, what was acknowledged, and what they received. Nothing else counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.torture.floor import Event

Json = dict[str, Any]
Horizons = Mapping[str, int]
Name = tuple[str, int]
"""An event's own: who made it, and which of theirs it is."""


def name_of(event: Mapping[str, Any]) -> Name:
    return event["who"], event["n"]


def key_of(message: Json) -> str:
    return str(sorted((column, str(value)) for column, value in message["key"].items()))


@dataclass
class Session:
    """A subscription from one connection to its loss. `base` are the rows that the subscriber had when it came: those
    of the token that it resumed from, and none if it had no token. `entries` are in the order in which they came: True
    for a reset, a row's message, or horizons as progress."""

    who: str
    view: str
    where: Json
    base: dict[str, Json] = field(default_factory=dict)
    progress: Horizons | None = None
    """Of the token."""
    entries: list["Json | Progress | Reset"] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    horizons: Horizons


class Reset:
    """The subscriber must forget what it received before."""


class Table:
    """The rows that follow from what a subscriber received."""

    def __init__(self, rows: dict[str, Json] | None = None) -> None:
        self.rows = dict(rows or {})
        self._old: dict[str, Json] | None = None

    def take(self, entry: "Json | Progress | Reset") -> tuple[Json | None, Json | None]:
        """What was known of the row before, and what is now."""
        if isinstance(entry, Reset):
            self._old = {**(self._old or {}), **self.rows}
            self.rows = {}
            return None, None
        if isinstance(entry, Progress):
            self._old = None
            return None, None
        key = key_of(entry)
        before = self.rows.get(key) or (self._old or {}).get(key)
        if "deleted" in entry:
            self.rows.pop(key, None)
        else:
            self.rows[key] = entry
        return before, entry

    def vanishing(self) -> list[Json]:
        """At progress: rows from before a reset that were not sent again."""
        return [row for key, row in (self._old or {}).items() if key not in self.rows]


@dataclass
class Witness:
    sent: dict[Name, tuple[str, Event]] = field(default_factory=dict)
    """All that a broker may have got, whether it answered or not, with the stream."""
    acknowledged: dict[Name, tuple[str, int]] = field(default_factory=dict)
    """With the stream and the tick."""
    silences: dict[str, int] = field(default_factory=dict)
    """Of publisher-timed streams, what was acknowledged as silent."""
    sessions: list[Session] = field(default_factory=list)
    heard: dict[str, int] = field(default_factory=dict)
    """Of each stream, the greatest horizon that anybody was told."""
    problems: list[str] = field(default_factory=list)
    """What was seen to be wrong at once."""
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def wrong(self, what: str) -> None:
        self.problems.append(what)

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def sending(self, stream: str, events: Iterable[Event]) -> None:
        for event in events:
            self.sent[name_of(event)] = stream, event

    def answered(self, stream: str, events: list[Event], ticks: list[int], repeated: int, above: int | None) -> None:
        """An acknowledgement. `above` is the progress of the stream that had been received before the events were first
        sent, if they were."""
        if len(ticks) != len(events):
            self.wrong(f"{len(events)} events of {stream} were acknowledged with {len(ticks)} ticks")
        self.count("acknowledged", len(ticks))
        self.count("repeated", repeated)
        for event, tick in zip(events, ticks, strict=False):
            name = name_of(event)
            known = self.acknowledged.setdefault(name, (stream, tick))
            if known != (stream, tick):
                self.wrong(f"{name} was acknowledged with tick {known[1]}, and later with {tick}")
            if above is not None and tick <= above:
                self.wrong(
                    f"{name} has tick {tick}, and {stream} was told to be known up to {above} before it was sent"
                )

    def last_ticks(self) -> dict[str, int]:
        ticks = dict(self.silences)
        for stream, tick in self.acknowledged.values():
            ticks[stream] = max(tick, ticks.get(stream, -1))
        return ticks

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, horizons: Horizons) -> None:
        for stream, tick in horizons.items():
            self.heard[stream] = max(tick, self.heard.get(stream, -1))
