"""EXTEND: adds columns that are computed from the other columns of the row."""

from collections.abc import Callable
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading, check_unique
from smile.knowledge.constraints import time_constraints
from smile.knowledge.expression_types import expression_type
from smile.knowledge.seals import TimeConstraints
from smile.knowledge.types import RelationType
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, RowWiseOperator, TypeLookup


class ExtendOperator(RowWiseOperator[mmpl.Extend]):
    only_adds_columns = True

    def heading(self, rel: mmpl.Extend, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        new_columns = {name: type_of(e, heading.columns) for name, e in rel.assignments}
        check_unique((*heading.columns, *(name for name, _ in rel.assignments)), rel.span)
        return replace(heading, columns={**heading.columns, **new_columns})

    def relation_type(self, rel: mmpl.Extend, lookup: TypeLookup) -> RelationType:
        source = lookup.relation_type(rel.input)
        columns = {**source.columns, **{n: expression_type(e, source.columns) for n, e in rel.assignments}}
        types = {n: c.data for n, c in columns.items()}
        equations = [mmpl.Call("=", (mmpl.ColumnRef(n), e)) for n, e in rel.assignments if not columns[n].evolves]
        nulls = {n: _null_group(e, source.constraints, n) for n, e in rel.assignments if columns[n].nullable}
        new_constraints = (t for e in equations for t in time_constraints(e, types))
        constraints = source.constraints.with_constraints(new_constraints, nulls)
        reach = constraints.extend_reach(source.reach, columns)
        return replace(source, heading=lookup.heading_of(rel), columns=columns, constraints=constraints, reach=reach)

    def bottom_row(self, rel: mmpl.Extend, lookup: BottomRowLookup) -> BottomRow:
        new_cells = {n: lookup.expression_bottom(e, rel.input) for n, e in rel.assignments}
        return {**lookup.bottom_row(rel.input), **new_cells}

    def map_expressions(self, rel: mmpl.Extend, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Extend:
        return replace(rel, assignments=tuple((n, change(e)) for n, e in rel.assignments))


def _null_group(expr: mmpl.Expr, constraints: TimeConstraints, name: str) -> str:
    """The group of columns that are NULL together with `expr`. A time with an offset is NULL when its column is."""
    column_names = trees.columns_in(expr)
    is_shifted = isinstance(expr, mmpl.ColumnRef) or (isinstance(expr, mmpl.Call) and expr.function in ("+", "-"))
    return constraints.nulls.get(next(iter(column_names)), name) if is_shifted and len(column_names) == 1 else name
