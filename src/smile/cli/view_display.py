"""Draws a view in a terminal: the rows that changed last, ordered by key, as many as fit."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smile.client import Change, Rows
from smile.client.changes import Key
from smile.client.knowledge import value_text

HIGHLIGHT_S = 2.0
"""How long a changed row is highlighted."""
NON_ROW_LINES = 5
"""Lines that are not rows: the header, the number of omitted rows, the footer, the cursor, and one spare line."""
CLOCK_TICK_MIN = 2**50
"""A clock's tick is microseconds since 1970 times 1,024. Smaller ticks were chosen by a publisher."""
CLOCK_TICK_MAX = 2**62
"""Ticks from here on, after the year 2112, mean the end of the stream."""
EPOCH = datetime(1970, 1, 1)
TICKS_PER_S = 1_024_000_000
CHANGE_TIMES_MAX = 1_000
"""Number of rows whose last change is stored: more than a terminal has lines."""


class ViewDisplay:
    """`record_changes` must be called with all changes. `clock` returns seconds since 1970."""

    def __init__(self, rows: Rows, connected: Callable[[], bool], clock: Callable[[], float]) -> None:
        self.rows, self.connected, self.clock = rows, connected, clock
        self._change_times: dict[Key, float] = {}
        self._last_drawn = (0.0, False, 0)
        self._frame_count = 0

    def record_changes(self, changes: Sequence[Change]) -> None:
        now = self.clock()
        for change in changes:
            self._change_times.pop(change.id, None)
            if not change.deleted:
                self._change_times[change.id] = now
        for key in list(islice(self._change_times, max(0, len(self._change_times) - CHANGE_TIMES_MAX))):
            del self._change_times[key]
        self._frame_count += 1

    def is_stale(self) -> bool:
        """Whether to draw again: something has changed, or a second has passed."""
        drawn_at, connected, frame_count = self._last_drawn
        return frame_count != self._frame_count or connected != self.connected() or self.clock() - drawn_at >= 1

    def render(self, width: int, height: int | None) -> Group:
        """Without `height` all rows are shown."""
        self._last_drawn = self.clock(), self.connected(), self._frame_count
        rows, now = self.rows.rows, self.clock()
        change_times = dict(self._change_times)
        room = len(rows) if height is None else max(1, height - NON_ROW_LINES)
        visible_rows = rows if len(rows) <= room else self._select_recent(rows, change_times, room)
        visible_rows = sorted(visible_rows, key=lambda row: _sort_key(row.id))
        schema = self.rows.schema
        evolving = {name for row in visible_rows for name in row.knowledge}
        cells = self._cell_texts(visible_rows, width)
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        for name, column in schema.columns.items():
            is_number = column.kind in ("int", "decimal", "float", "time", "interval")
            table.add_column(name, justify="right" if is_number or name in evolving else "left", no_wrap=True)
        for row, texts in zip(visible_rows, cells, strict=True):
            is_recent = now - change_times.get(row.id, 0.0) < HIGHLIGHT_S
            style = "bold yellow" if is_recent else "dim" if row.final else ""
            check_mark = Text("✓" if row.final else "", style="green")
            table.add_row(check_mark, *(Text(text, style=style) for text in texts))
        parts: list[Any] = [table]
        if len(rows) > room:
            parts.append(Text(f"… and {len(rows) - room:,} more", style="dim"))
        return Group(*parts, self._footer(rows, now, width))

    def _cell_texts(self, rows: Sequence[Change], width: int) -> list[list[str]]:
        """Ticks are numbers if all columns fit the width, and otherwise times of day."""
        names = list(self.rows.schema.columns)
        texts = [[_cell_text(row, name, str) for name in names] for row in rows]
        if sum(max(map(len, column)) + 2 for column in zip(names, *texts, strict=True) if column) <= width:
            return texts
        return [[_cell_text(row, name, tick_text) for name in names] for row in rows]

    def _select_recent(self, rows: Sequence[Change], change_times: Mapping[Key, float], room: int) -> list[Change]:
        """The rows that changed last, and others if there is room."""
        recent_first = (self.rows.get(key) for key in reversed(list(change_times)))
        recent = {row.id: row for row in islice((row for row in recent_first if row is not None), room)}
        other_rows = (row for row in rows if row.id not in recent)
        return [*recent.values(), *islice(other_rows, room - len(recent))]

    def _footer(self, rows: Sequence[Change], now: float, width: int) -> Text:
        final = sum(row.final for row in rows)
        row_counts = f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}, {final:,} final"
        text = Text(f"{self.rows.schema.view}: {row_counts}", style="dim")
        if not self.connected():
            text.append(" · connection lost; waiting for the broker", style="bold red")
        if self.rows.progress:
            text.append(f" · known up to {progress_text(self.rows.progress, now)}")
        text.truncate(width, overflow="ellipsis")
        return text


def _cell_text(row: Change, name: str, format_tick: Callable[[int], str]) -> str:
    is_tick = row.schema.columns[name].kind == "time"
    known = row[name]
    if known.kind == "unknown" and known.value is not None:
        return f"{value_text(known.value)} ?"
    if known.kind == "latest" and known.at is not None:
        return f"{value_text(known.latest)}@{format_tick(known.at)}"
    if name in row.knowledge:
        return str(known)
    return format_tick(known.value) if is_tick and known.value is not None else value_text(known.value)


def tick_text(tick: int) -> str:
    """The time of day in UTC, if the tick is a clock's. It is unique: an origin has one tick a microsecond."""
    if not CLOCK_TICK_MIN <= tick < CLOCK_TICK_MAX:
        return str(tick)
    return (EPOCH + timedelta(microseconds=tick >> 10)).strftime("%H:%M:%S.%f")


def progress_text(progress: Mapping[str, int], now: float) -> str:
    """The least horizon: as an age if its ticks are a clock's, and otherwise as a tick."""
    stream, tick = min(progress.items(), key=lambda item: item[1])
    if tick < 0:
        return f"nothing of {stream}"
    if tick < CLOCK_TICK_MIN:
        return f"tick {tick:,} of {stream}"
    age = now - tick / TICKS_PER_S
    return f"the end of {stream}" if age < -60 else f"{_age_text(max(0.0, age))} ago"


def _age_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds // size:,.0f} {unit}"
    raise AssertionError(seconds)


def _sort_key(key: Key) -> list[tuple[bool, Any]]:
    """NULLs last."""
    return [(part is None, 0 if part is None else part) for part in key]
