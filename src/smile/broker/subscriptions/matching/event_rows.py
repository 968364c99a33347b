"""Rows of a relation that events are matched with: their columns and ticks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from smile.broker.subscriptions.matching.row_expressions import RowExpressions, RowValue
from smile.columns.values import Array, Indices, ValueColumn


@dataclass(frozen=True, eq=False)
class EventRows:
    columns: Mapping[str, ValueColumn]
    ticks: Array
    _values: dict[int, list[tuple[RowValue, ...]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ticks)

    def take(self, indices: Indices, names: frozenset[str]) -> dict[str, ValueColumn]:
        """These rows, with the columns of these names."""
        return {name: self.columns[name].take(indices) for name in names}

    def values(self, expressions: RowExpressions) -> list[tuple[RowValue, ...]]:
        """The values of the expressions, computed once."""
        key = id(expressions)
        if key not in self._values:
            self._values[key] = expressions.compute_rows(self.columns, len(self))
        return self._values[key]
