"""EARLIEST: the value of the earliest member, by tick and source. It is the mirror of LATEST.

In mirrored time, the earliest member is the latest one. Members that appear later are later, so the value is final as
soon as the earliest member is settled and the horizons have passed its tick.
"""

from collections.abc import Mapping
from typing import ClassVar

from smile.columns.knowledge import KnowledgeColumn
from smile.columns.timed_values import TimedValues
from smile.columns.values import Bools, ValueColumn
from smile.kernels.aggregates.accumulator import GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, range_or_mask
from smile.kernels.aggregates.latest import AppendOnlyTimed, LatestColumns, RetractableLatest
from smile.state.run import TableRows


def _mirrored(timed: TimedValues) -> TimedValues:
    """The same values in the opposite order. `~` reverses the order of integers and cannot overflow."""
    return TimedValues(ValueColumn(~timed.tick.data, timed.tick.valid), ~timed.source, timed.value)


class EarliestColumns(LatestColumns):
    """Stores ticks as they are, and reads them mirrored."""

    def read(self, rows: TableRows) -> TimedValues:
        return _mirrored(super().read(rows))

    def write(self, latest: TimedValues) -> dict[str, ValueColumn]:
        return super().write(_mirrored(latest))


class AppendOnlyEarliest(AppendOnlyTimed):
    """EARLIEST of members that never leave, with values that never change."""

    stored_columns: ClassVar[type[LatestColumns]] = EarliestColumns

    def __init__(self, prefix: str, argument: AggregateArgument, tick: tuple[str, ...]) -> None:
        super().__init__(prefix, argument, tick)
        self.passed_column = self.last.tick

    def _timed_values(self, fixed: Mapping[str, ValueColumn], value: ValueColumn) -> TimedValues:
        return _mirrored(super()._timed_values(fixed, value))

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        return range_or_mask(self._latest_values(rows, sealed).bounds, self.argument.data)


class RetractableEarliest(RetractableLatest):
    """EARLIEST of members that may leave or change."""

    stored_columns: ClassVar[type[LatestColumns]] = EarliestColumns

    def __init__(self, prefix: str, argument: AggregateArgument, tick: tuple[str, ...]) -> None:
        super().__init__(prefix, argument, tick)
        self.passed_column = self.settled.tick

    def _timed_values(self, fixed: Mapping[str, ValueColumn], value: ValueColumn) -> TimedValues:
        return _mirrored(super()._timed_values(fixed, value))

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        return range_or_mask(self._latest_values(rows, sealed).bounds, self.argument.data)
