"""A view as a picture in a terminal: the rows that changed last, in the order of their keys, as many as fit."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smile.client import Change, Rows
from smile.client.changes import Key
from smile.client.knowledge import text_of

BRIGHT_S = 2.0
"""So long a row that changed stands out."""
AROUND = 5
"""Lines that are not rows: the head, its rule, what is left out, the footer, and one for the cursor."""
CLOCK_MIN = 2**50
"""A tick of a clock is microseconds times 1,024; what is less was given by a publisher."""
CLOCK_MAX = 2**62
"""Beyond the year 2112 it is the end of time."""
EPOCH = datetime(1970, 1, 1)
TICKS_PER_S = 1_024_000_000
TOUCHED_MAX = 1_000
"""Rows of which it is remembered when they changed: more than a terminal has lines."""


class Picture:
    """`touch` tells it what changed; `clock` gives seconds since 1970."""

    def __init__(self, rows: Rows, connected: Callable[[], bool], clock: Callable[[], float]) -> None:
        self.rows, self.connected, self.clock = rows, connected, clock
        self._touched: dict[Key, float] = {}
        self._drawn = (0.0, False, 0)
        self._changes = 0

    def touch(self, changes: Sequence[Change]) -> None:
        now = self.clock()
        for change in changes:
            self._touched.pop(change.id, None)
            if not change.deleted:
                self._touched[change.id] = now
        for key in list(islice(self._touched, max(0, len(self._touched) - TOUCHED_MAX))):
            del self._touched[key]
        self._changes += 1

    def is_stale(self) -> bool:
        """Whether it is worth drawing again: something has changed, or time goes on."""
        at, connected, changes = self._drawn
        return changes != self._changes or connected != self.connected() or self.clock() - at >= 1

    def table(self, width: int, height: int | None) -> Group:
        """Without `height` all rows are shown."""
        self._drawn = self.clock(), self.connected(), self._changes
        rows, now = self.rows.rows, self.clock()
        touched = dict(self._touched)
        room = len(rows) if height is None else max(1, height - AROUND)
        chosen = rows if len(rows) <= room else self._latest(rows, touched, room)
        chosen = sorted(chosen, key=lambda row: _in_order(row.id))
        schema = self.rows.schema
        evolving = {name for row in chosen for name in row.knowledge}
        cells = self._cells(chosen, width)
        found = Table(box=None, pad_edge=False, header_style="bold")
        found.add_column("")
        for name, column in schema.columns.items():
            number = column.kind in ("int", "decimal", "float", "time", "interval")
            found.add_column(name, justify="right" if number or name in evolving else "left", no_wrap=True)
        for row, texts in zip(chosen, cells, strict=True):
            bright = now - touched.get(row.id, 0.0) < BRIGHT_S
            style = "bold yellow" if bright else "dim" if row.final else ""
            mark = Text("✓" if row.final else "", style="green")
            found.add_row(mark, *(Text(text, style=style) for text in texts))
        parts: list[Any] = [found]
        if len(rows) > room:
            parts.append(Text(f"… and {len(rows) - room:,} more", style="dim"))
        return Group(*parts, self._footer(rows, now, width))

    def _cells(self, rows: Sequence[Change], width: int) -> list[list[str]]:
        """Ticks as they are, where there is room for them; else as the time of day that they are."""
        names = list(self.rows.schema.columns)
        found = [[_cell(row, name, str) for name in names] for row in rows]
        if sum(max(map(len, column)) + 2 for column in zip(names, *found, strict=True) if column) <= width:
            return found
        return [[_cell(row, name, time_of) for name in names] for row in rows]

    def _latest(self, rows: Sequence[Change], touched: Mapping[Key, float], room: int) -> list[Change]:
        """Those that changed last, and others if there is room."""
        last = (self.rows.get(key) for key in reversed(list(touched)))
        found = {row.id: row for row in islice((row for row in last if row is not None), room)}
        others = (row for row in rows if row.id not in found)
        return [*found.values(), *islice(others, room - len(found))]

    def _footer(self, rows: Sequence[Change], now: float, width: int) -> Text:
        final = sum(row.final for row in rows)
        rows_told = f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}, {final:,} final"
        text = Text(f"{self.rows.schema.view}: {rows_told}", style="dim")
        if not self.connected():
            text.append(" · the broker is lost; waiting for it", style="bold red")
        if self.rows.progress:
            text.append(f" · known up to {known_up_to(self.rows.progress, now)}")
        text.truncate(width, overflow="ellipsis")
        return text


def _cell(row: Change, name: str, tick: Callable[[int], str]) -> str:
    is_tick = row.schema.columns[name].kind == "time"
    known = row[name]
    if known.kind == "unknown" and known.value is not None:
        return f"{text_of(known.value)} ?"
    if known.kind == "latest" and known.at is not None:
        return f"{text_of(known.latest)}@{tick(known.at)}"
    if name in row.knowledge:
        return str(known)
    return tick(known.value) if is_tick and known.value is not None else text_of(known.value)


def time_of(tick: int) -> str:
    """The time of day in UTC, if it is a clock's; no two of an origin share a microsecond."""
    if not CLOCK_MIN <= tick < CLOCK_MAX:
        return str(tick)
    return (EPOCH + timedelta(microseconds=tick >> 10)).strftime("%H:%M:%S.%f")


def known_up_to(progress: Mapping[str, int], now: float) -> str:
    """By the stream that is known least far: an age, where ticks are a clock's."""
    stream, tick = min(progress.items(), key=lambda item: item[1])
    if tick < 0:
        return f"nothing of {stream}"
    if tick < CLOCK_MIN:
        return f"tick {tick:,} of {stream}"
    age = now - tick / TICKS_PER_S
    return f"the end of {stream}" if age < -60 else f"{_age(max(0.0, age))} ago"


def _age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds // size:,.0f} {unit}"
    raise AssertionError(seconds)


def _in_order(key: Key) -> list[tuple[bool, Any]]:
    """NULLs last."""
    return [(part is None, 0 if part is None else part) for part in key]
