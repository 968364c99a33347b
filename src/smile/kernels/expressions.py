"""Expressions over columns of knowledge: of every row what `smile.knowledge.transfer.know` says of that row alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from smile.algebra import mmpl, trees
from smile.algebra.scalars import type_of
from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k
from smile.columns.knowledge import Column, Kind
from smile.columns.values import Values
from smile.kernels.layout import Layout
from smile.knowledge.cells import as_operand
from smile.knowledge.known import Known
from smile.knowledge.transfer import know


@dataclass(frozen=True)
class Expression:
    """`kind` is exact if it is made of fixed columns alone."""

    expr: mmpl.Expr
    kind: Kind
    data: DataType
    layout: Layout
    bottoms: Mapping[str, Known]

    def __call__(self, fixed: Mapping[str, Values], columns: Mapping[str, Column], count: int) -> Column:
        types = self.layout.types
        points = []
        for i in range(count):
            row = {}
            for c in trees.columns_in(self.expr):
                found = k.known(fixed[c] if c in self.layout.fixed else columns[c], i, types[c])
                row[c] = as_operand(found, self.bottoms[c], types[c])
            points.append(know(self.expr, row, types))
        return k.of_points(points, self.kind, self.data)


def compile_expression(expr: mmpl.Expr, layout: Layout, bottoms: Mapping[str, Known]) -> Expression:
    data = type_of(expr, layout.types)
    exact = all(c in layout.fixed for c in trees.columns_in(expr))
    kind: Kind = "exact" if exact else "mask" if data == BOOL else "object" if data.name == "relation" else "range"
    return Expression(expr, kind, data, layout, bottoms)
