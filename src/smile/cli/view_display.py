"""Draws a view in a terminal: as many rows as fit, ordered by key, with a legend. Of more rows, those are chosen that
have changed last, and among them some that are final. Rows that are gone for good are shown a moment longer.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from datetime import datetime
from itertools import islice
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smile.client import Change, Rows
from smile.client.changes import Key
from smile.client.ticks import TICKS_PER_SECOND
from smile.errors import SmileError
from smile.horizons import CLOCK_TICK_MIN

HIGHLIGHT_S = 0.7
"""How long a changed row is highlighted."""
GONE_S = 2.5
"""How long a row is shown that is gone for good."""
NON_ROW_LINES = 6
"""Lines that are not rows: the header, the number of omitted rows, legend and footer, the cursor, and a spare line."""
LEGEND = "≥ may grow  ≤ may fall  ~ may rise and fall  = exact  ✓ final  ✗ gone for good"
FINAL_STYLE, GONE_STYLE = "green", "dim strike"
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
        self._last_rows: dict[Key, Change] = {}
        """The rows of `_change_times` as they were last, to show those that go."""
        self._gone: dict[Key, tuple[float, Change]] = {}
        """The last rows that are gone for good, and since when."""
        self._last_drawn = (0.0, False, 0)
        self._frame_count = 0

    def record_changes(self, changes: Sequence[Change]) -> None:
        now = self.clock()
        for change in changes:
            self._change_times.pop(change.id, None)
            last = self._last_rows.pop(change.id, None)
            if not change.deleted:
                self._change_times[change.id], self._last_rows[change.id] = now, change
            elif change.final and last is not None:
                self._gone[change.id] = now, last
        for key in list(islice(self._change_times, max(0, len(self._change_times) - CHANGE_TIMES_MAX))):
            del self._change_times[key], self._last_rows[key]
        self._gone = {key: gone for key, gone in self._gone.items() if now - gone[0] < GONE_S}
        self._frame_count += 1

    def recent_rows(self, count: int) -> list[Change]:
        """The rows that are shown if there is room for so many, without those that are gone."""
        rows = self._select_recent(self.rows.rows, dict(self._change_times), count)
        return sorted(rows, key=lambda row: _sort_key(row.id))

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
        gone = [] if height is None else [row for since, row in list(self._gone.values()) if now - since < GONE_S]
        gone = gone[-max(1, room // 4) :]
        room_for_rows = max(1, room - len(gone))
        is_cut = len(rows) > room_for_rows
        visible_rows = self._select_recent(rows, change_times, room_for_rows) if is_cut else rows
        parts: list[Any] = [self._table([*visible_rows, *gone], {row.id for row in gone}, change_times, now, width)]
        if is_cut:
            parts.append(Text(f"… and {len(rows) - len(visible_rows):,} more", style="dim"))
        legend = Text(LEGEND, style="dim", no_wrap=True, overflow="ellipsis")
        return Group(*parts, legend, self._footer(rows, now, width))

    def _table(
        self,
        rows: Sequence[Change],
        gone_ids: AbstractSet[Key],
        change_times: Mapping[Key, float],
        now: float,
        width: int,
    ) -> Table:
        schema, today = self.rows.schema, datetime.fromtimestamp(now).date()
        rows = sorted(rows, key=lambda row: _sort_key(row.id))
        evolving = {name for row in rows for name in row.knowledge}
        cells = [[row.column_text(name, today) for name in schema.columns] for row in rows]
        is_nested = [column.kind == "relation" for column in schema.columns.values()]
        cells = _shorten_times(list(schema.columns), cells, is_nested, width)
        cells = _shorten_nested(list(schema.columns), cells, is_nested, width)
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        for name, column in schema.columns.items():
            is_number = column.kind in ("int", "decimal", "float", "time", "interval")
            is_right = is_number or (name in evolving and column.kind != "relation")
            table.add_column(name, justify="right" if is_right else "left", no_wrap=True)
        for row, texts in zip(rows, cells, strict=True):
            is_gone, is_recent = row.id in gone_ids, now - change_times.get(row.id, 0.0) < HIGHLIGHT_S
            style = GONE_STYLE if is_gone else FINAL_STYLE if row.final else "bold" if is_recent else ""
            mark = Text("✗", style="red") if is_gone else Text("✓" if row.final else "", style=FINAL_STYLE)
            table.add_row(mark, *(Text(text, style=style) for text in texts))
        return table

    def _select_recent(self, rows: Sequence[Change], change_times: Mapping[Key, float], room: int) -> list[Change]:
        """The rows that changed last, and others if there is room. Up to a third of them are final."""
        recent = [row for key in reversed(list(change_times)) if (row := self.rows.get(key)) is not None]
        final_rows = [row for row in recent if row.final][: room // 3]
        open_rows = [row for row in recent if not row.final][: room - len(final_rows)]
        chosen = {row.id: row for row in (*final_rows, *open_rows)}
        other_rows = (row for row in (*recent, *rows) if row.id not in chosen)
        for row in other_rows:
            if len(chosen) >= room:
                break
            chosen[row.id] = row
        return list(chosen.values())

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


_FRACTION = re.compile(r"(?<=\d\d:\d\d:\d\d)(\.\d{3})\d*")


def _shorten_times(
    names: Sequence[str], cells: list[list[str]], is_nested: Sequence[bool], width: int
) -> list[list[str]]:
    """In a narrow terminal, times have milliseconds only, or seconds."""
    for fraction in (r"\1", ""):
        if _plain_width(names, cells, is_nested) <= width:
            break
        cells = [[_FRACTION.sub(fraction, text) for text in row] for row in cells]
    return cells


def _plain_width(names: Sequence[str], cells: Sequence[Sequence[str]], is_nested: Sequence[bool]) -> int:
    """The width of the table without nested relations."""
    columns = list(zip(names, *cells, strict=True))
    plain_width = sum(max(map(len, texts)) for texts, nested in zip(columns, is_nested, strict=True) if not nested)
    return plain_width + CHECK_MARK_WIDTH + COLUMN_GAP * len(names)


def _shorten_nested(
    names: Sequence[str], cells: list[list[str]], is_nested: Sequence[bool], width: int
) -> list[list[str]]:
    """Nested relations have the room that the other columns leave, so that these stay readable."""
    if not any(is_nested):
        return cells
    room = width - _plain_width(names, cells, is_nested)
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
