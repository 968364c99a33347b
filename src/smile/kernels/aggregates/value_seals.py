"""Value seals of many groups at once: when an aggregate is final although its group is still open.

The least time of a group is final once no new member can have a lower one. Each stream has passed either that value or
the whole group by then.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smile.algebra import mmpl
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.seals import Horizons, SealIndex, Seals
from smile.kernels.transform import InputRelation, OutputRelation
from smile.knowledge.value_seals import VALUE, passed_value
from smile.state.run import TableRows


@dataclass(frozen=True)
class ValueSealIndex(SealIndex):
    """An index of groups by the ticks at which the value in their column `passed_column` is passed. `by_stream` has the
    value seals, and where they are never, the seals of the group."""

    group_seals: Seals
    passed_column: str

    def ticks(self, stream: str, columns: Mapping[str, ValueColumn], count: int) -> Array:
        return np.minimum(super().ticks(stream, columns, count), self.group_seals.ticks(stream, columns, count))

    def value_columns(self, key: Mapping[str, ValueColumn], rows: TableRows) -> dict[str, ValueColumn]:
        """The columns that the ticks of these groups depend on."""
        return {**key, VALUE: rows[self.passed_column]}

    def passed_groups(self, horizons: Horizons, key: Mapping[str, ValueColumn], rows: TableRows) -> Bools:
        """The groups whose value is passed at these horizons."""
        values = self.value_columns(key, rows)
        return self.is_sealed(horizons, values, len(values[VALUE]))


def compile_value_seals(
    passed_column: str, call: mmpl.Aggregate, source: InputRelation, output: OutputRelation
) -> ValueSealIndex | None:
    """None if the horizons never pass a value before its group is sealed."""
    deciding = passed_value(call, source.type)
    if deciding is None:
        return None
    group_seals, types = output.type.seals, output.type.heading.columns
    by_stream = {s: group_seals[s] if seal.is_never else seal for s, seal in deciding.seals.items()}
    value_types = {**types, VALUE: deciding.type}
    prefix = f"{passed_column}@"
    return ValueSealIndex(by_stream, value_types, prefix, Seals(group_seals, types), passed_column)
