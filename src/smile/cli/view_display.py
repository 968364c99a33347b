"""Draws a view in a terminal: the rows that changed last, ordered by key, as many as fit."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smile.client import Change, Rows
from smile.client.changes import Key
from smile.client.ticks import CLOCK_TICK_MIN, TICKS_PER_SECOND
from smile.errors import SmileError

HIGHLIGHT_S = 2.0
"""How long a changed row is highlighted."""
NON_ROW_LINES = 5
"""Lines that are not rows: the header, the number of omitted rows, the footer, the cursor, and one spare line."""
CHECK_MARK_WIDTH = 1
COLUMN_GAP = 2
NESTED_WIDTH_MIN = 8
CHANGE_TIMES_MAX = 1_000
"""Number of rows whose last change is stored: more than a terminal has lines."""


class ViewDisplay:
    """`record_changes` must be called with all changes. `clock` returns seconds since 1970."""

    def __init__(
        self,
        rows: Rows,
        connected: Callable[[], bool],
        clock: Callable[[], float],
        paused: Callable[[], SmileError | None] = lambda: None,
    ) -> None:
        self.rows, self.connected, self.clock, self.paused = rows, connected, clock, paused
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
        today = datetime.fromtimestamp(now).date()
        cells = [[row.column_text(name, today) for name in schema.columns] for row in visible_rows]
        is_nested = [column.kind == "relation" for column in schema.columns.values()]
        cells = _shorten_nested(list(schema.columns), cells, is_nested, width)
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        for name, column in schema.columns.items():
            is_number = column.kind in ("int", "decimal", "float", "time", "interval")
            is_right = is_number or (name in evolving and column.kind != "relation")
            table.add_column(name, justify="right" if is_right else "left", no_wrap=True)
        for row, texts in zip(visible_rows, cells, strict=True):
            is_recent = now - change_times.get(row.id, 0.0) < HIGHLIGHT_S
            style = "bold yellow" if is_recent else "dim" if row.final else ""
            check_mark = Text("✓" if row.final else "", style="green")
            table.add_row(check_mark, *(Text(text, style=style) for text in texts))
        parts: list[Any] = [table]
        if len(rows) > room:
            parts.append(Text(f"… and {len(rows) - room:,} more", style="dim"))
        return Group(*parts, self._footer(rows, now, width))

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
        if (pause := self.paused()) is not None:
            text.append(f" · {pause}", style="bold red")
        if self.rows.progress:
            text.append(f" · known up to {progress_text(self.rows.progress, now)}")
        text.truncate(width, overflow="ellipsis")
        return text


def _shorten_nested(
    names: Sequence[str], cells: list[list[str]], is_nested: Sequence[bool], width: int
) -> list[list[str]]:
    """Nested relations have the room that the other columns leave, so that these stay readable."""
    if not any(is_nested):
        return cells
    columns = list(zip(names, *cells, strict=True))
    plain_width = sum(max(map(len, texts)) for texts, nested in zip(columns, is_nested, strict=True) if not nested)
    room = width - plain_width - CHECK_MARK_WIDTH - COLUMN_GAP * len(names)
    longest = max(NESTED_WIDTH_MIN, room // sum(is_nested))
    return [
        [
            f"{text[: longest - 1]}…" if nested and len(text) > longest else text
            for text, nested in zip(row, is_nested, strict=True)
        ]
        for row in cells
    ]


def progress_text(progress: Mapping[str, int], now: float) -> str:
    """The least horizon: as an age if its ticks are a clock's, and otherwise as a tick."""
    stream, tick = min(progress.items(), key=lambda item: item[1])
    if tick < 0:
        return f"nothing of {stream}"
    if tick < CLOCK_TICK_MIN:
        return f"tick {tick:,} of {stream}"
    age = now - tick / TICKS_PER_SECOND
    return f"the end of {stream}" if age < -60 else f"{age_text(max(0.0, age))} ago"


def age_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds // size:,.0f} {unit}"
    raise AssertionError(seconds)


def _sort_key(key: Key) -> list[tuple[bool, Any]]:
    """NULLs last."""
    return [(part is None, 0 if part is None else part) for part in key]
