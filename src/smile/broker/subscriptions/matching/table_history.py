"""The contents of a table over a range of ticks, from the stream of its changes.

A table is a multiset of rows: a row is in it while it was inserted more often than deleted. Its history has, for each
row, the periods of ticks in which it is in the table. It is complete from `floor` to `horizon`: as of every tick t in
between, the contents after all changes with ticks up to t.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import DataType
from smile.broker.subscriptions.matching.row_expressions import Columns, RowValue, value_column
from smile.broker.views.condition import row_values
from smile.columns.values import ValueColumn, to_arrow
from smile.engine.local import events_delta
from smile.horizons import END, HORIZON_MIN

INSERT: Final = "insert"
DELETE: Final = "delete"
COMPACTION_ROWS_MIN: Final = 1_000
"""Rows that have left the table for good are removed when there are so many, and more than half of all."""

Row = tuple[RowValue, ...]


class Periods:
    """Periods [start, end) in ascending order. The last one ends at END if it has not ended yet."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def begin(self, tick: int) -> None:
        if self.ends and self.ends[-1] == tick:
            self.ends[-1] = END
        else:
            self.starts.append(tick)
            self.ends.append(END)

    def finish(self, tick: int) -> None:
        if self.starts[-1] == tick:
            self.starts.pop()
            self.ends.pop()
        else:
            self.ends[-1] = tick

    def contain(self, tick: int) -> bool:
        """The last periods are looked at first: most ticks are recent."""
        for start, end in zip(reversed(self.starts), reversed(self.ends), strict=True):
            if start <= tick:
                return tick < end
        return False

    def forget_before(self, tick: int) -> None:
        """Removes periods that have ended by this tick."""
        count = sum(end <= tick for end in self.ends)
        del self.starts[:count], self.ends[:count]


class HistoryObserver(Protocol):
    """Is told of rows that enter and leave the table, in the order of ticks."""

    def reset(self) -> None:
        """Everything follows again, with other numbers of rows."""

    def rows_added(self, rows: Columns, count: int) -> None:
        """These rows get the next numbers."""

    def row_entered(self, number: int, tick: int) -> None: ...

    def row_left(self, number: int, tick: int) -> None: ...

    def forget_before(self, tick: int) -> None:
        """Earlier ticks are not asked for any more."""


class TableHistory:
    """Not thread-safe. `version` changes with the contents."""

    def __init__(self, stream: mmpl.StreamDef, rows: Mapping[Row, int] | None = None, floor: int = HORIZON_MIN) -> None:
        """`rows` are the rows of the table as of the tick `floor`, and how often each was inserted."""
        self.name = stream.name
        self.types: dict[str, DataType] = table_columns(stream)
        self._names = [name for name, _ in stream.columns]
        self.floor = self.horizon = floor
        self.version = 0
        self._numbers: dict[Row, int] = {}
        self._rows: list[Row] = []
        self._counts: list[int] = []
        self._floor_counts: list[int] = []
        self._changes: deque[tuple[int, int, int]] = deque()
        """The tick, the row and the step of each change after the floor."""
        self._periods: list[Periods] = []
        self._observers: list[HistoryObserver] = []
        for row, count in (rows or {}).items():
            number = self._number(row)
            self._counts[number] = self._floor_counts[number] = count
            if count > 0:
                self._periods[number].begin(floor)

    def observe(self, observer: HistoryObserver) -> None:
        """The observer is told of everything that the history has, and of later changes."""
        self._observers.append(observer)
        self._replay(observer)

    def stop_observing(self, observer: HistoryObserver) -> None:
        self._observers.remove(observer)

    def advance(self, changes: Sequence[pa.RecordBatch], horizon: int) -> None:
        """Applies changes with ticks in (self.horizon, horizon], in any order of the batches. Afterwards the history is
        complete up to `horizon`."""
        transitions = self._order(changes)
        first_new = len(self._rows)
        numbered = [(tick, self._number(row), step) for tick, row, step in transitions]
        added = self._rows[first_new:]
        if added:
            columns = self._columns(added)
            for observer in self._observers:
                observer.rows_added(columns, len(added))
        for change in numbered:
            self._apply(*change)
        self._changes.extend(numbered)
        self.horizon = max(self.horizon, horizon)

    def move_floor(self, tick: int) -> None:
        """Forgets the contents as of earlier ticks. It is at most the horizon."""
        if tick <= self.floor:
            return
        self.floor = tick
        while self._changes and self._changes[0][0] <= tick:
            _, number, step = self._changes.popleft()
            self._floor_counts[number] += step
        for periods in self._periods:
            periods.forget_before(tick)
        for observer in self._observers:
            observer.forget_before(tick)
        needed = {number for _, number, _ in self._changes}
        needed |= {number for number, count in enumerate(self._floor_counts) if count}
        gone = len(self._rows) - len(needed)
        if gone >= COMPACTION_ROWS_MIN and gone > len(needed):
            self._compact(sorted(needed))

    def floor_rows(self) -> dict[Row, int]:
        """The rows as of `floor`, and how often each was inserted more than deleted."""
        return {row: count for row, count in zip(self._rows, self._floor_counts, strict=True) if count}

    def emptying_changes(self) -> pa.RecordBatch:
        """The changes that leave no row in the table, after its horizon: a batch of its stream's columns without the
        tick."""
        numbers = [number for number, count in enumerate(self._counts) for _ in range(abs(count))]
        columns = self._columns([self._rows[number] for number in numbers])
        changes = pa.array([DELETE if self._counts[number] > 0 else INSERT for number in numbers], pa.string())
        arrays = {name: to_arrow(columns[name], arrow_type(data)) for name, data in self.types.items()}
        return pa.RecordBatch.from_pydict({name: {**arrays, mmpl.CHANGE_COLUMN: changes}[name] for name in self._names})

    def _compact(self, needed: Sequence[int]) -> None:
        numbers = {number: n for n, number in enumerate(needed)}
        self._rows = [self._rows[number] for number in needed]
        self._counts = [self._counts[number] for number in needed]
        self._floor_counts = [self._floor_counts[number] for number in needed]
        self._periods = [self._periods[number] for number in needed]
        self._numbers = {row: number for number, row in enumerate(self._rows)}
        self._changes = deque((tick, numbers[number], step) for tick, number, step in self._changes)
        for observer in self._observers:
            observer.reset()
            self._replay(observer)

    def _order(self, changes: Sequence[pa.RecordBatch]) -> list[tuple[int, Row, int]]:
        transitions: list[tuple[int, Row, int]] = []
        for batch in changes:
            columns = events_delta(batch, HORIZON_MIN).fixed
            ticks = np.asarray(columns[batch.schema.names[0]].data).tolist()
            kinds = columns[mmpl.CHANGE_COLUMN].data.to_pylist()
            rows = row_values([columns[name] for name in self.types]) if self.types else [()] * len(ticks)
            steps = ({INSERT: 1, DELETE: -1}.get(kind, 0) for kind in kinds)
            transitions += zip(ticks, rows, steps, strict=True)
        if len(changes) > 1:
            transitions.sort(key=lambda transition: transition[0])
        return transitions

    def _apply(self, tick: int, number: int, step: int) -> None:
        count = self._counts[number] = self._counts[number] + step
        if step > 0 and count == 1:
            self._periods[number].begin(tick)
            self.version += 1
            for observer in self._observers:
                observer.row_entered(number, tick)
        elif step < 0 and count == 0:
            self._periods[number].finish(tick)
            self.version += 1
            for observer in self._observers:
                observer.row_left(number, tick)

    def _number(self, row: Row) -> int:
        number = self._numbers.get(row)
        if number is None:
            number = self._numbers[row] = len(self._rows)
            self._rows.append(row)
            self._counts.append(0)
            self._floor_counts.append(0)
            self._periods.append(Periods())
        return number

    def _columns(self, rows: Sequence[Row]) -> dict[str, ValueColumn]:
        by_column = zip(*rows, strict=True) if rows else ([] for _ in self.types)
        return {
            name: value_column(list(values), data)
            for (name, data), values in zip(self.types.items(), by_column, strict=True)
        }

    def _replay(self, observer: HistoryObserver) -> None:
        observer.rows_added(self._columns(self._rows), len(self._rows))
        transitions = [
            (tick, is_end, number)
            for number, periods in enumerate(self._periods)
            for is_end, ticks in ((False, periods.starts), (True, periods.ends))
            for tick in ticks
            if tick < END
        ]
        for tick, is_end, number in sorted(transitions):
            if is_end:
                observer.row_left(number, tick)
            else:
                observer.row_entered(number, tick)


def table_columns(stream: mmpl.StreamDef) -> dict[str, DataType]:
    """The columns of the table whose changes a stream has."""
    return {name: data for name, data in stream.columns if name != mmpl.CHANGE_COLUMN}
