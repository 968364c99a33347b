"""Functions of one latest column and fixed columns. They are latest values too: a function of the value at a tick.

In every row the result is that of `knowledge.values.transfer.latest_expression_knowledge`.
"""

from collections.abc import Mapping

from smile.algebra import mmpl, trees
from smile.columns.knowledge import ColumnKind, KnowledgeColumn, LatestColumn, current_values
from smile.columns.ranges import to_range_column
from smile.columns.values import ValueColumn
from smile.kernels.delta import ColumnOverlay
from smile.kernels.expressions.compile import compile_expression
from smile.kernels.layout import Layout
from smile.knowledge.values.transfer import ColumnLimits


class LatestExpression:
    """`column` is the latest column. Bounds are computed from its bounds, the value from its value. The types of all
    other columns never evolve, but the layout may have them among the evolving columns: their values are the current
    ones."""

    kind: ColumnKind = "latest"

    def __init__(self, expr: mmpl.Expr, column: str, layout: Layout, limits: ColumnLimits) -> None:
        self.column = column
        self._of_bounds = compile_expression(expr, layout, limits)
        self.data = self._of_bounds.data
        self._others = tuple(sorted(c for c in trees.columns_in(expr) if c in layout.evolving and c != column))
        types = {c: layout.types[c] for c in (column, *self._others)}
        self._of_values = compile_expression(expr, Layout(layout.key, {**layout.fixed, **types}))

    def __call__(
        self, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn], count: int
    ) -> LatestColumn:
        latest = columns[self.column]
        assert isinstance(latest, LatestColumn)
        bounds = to_range_column(self._of_bounds(fixed, columns, count))
        if latest.value is latest.bounds.now:
            return LatestColumn(bounds, bounds.now, latest.tick, latest.source)
        others = {c: current_values(columns[c]) for c in self._others}
        value = self._of_values(ColumnOverlay(fixed, {**others, self.column: latest.value}), {}, count)
        assert isinstance(value, ValueColumn)
        return LatestColumn(bounds, value, latest.tick, latest.source)
