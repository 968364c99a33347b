"""EXTEND: adds columns that are computed from the other columns of the row."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading, check_unique
from smile.algebra.time_forms import time_constraints
from smile.knowledge.expression_types import expression_type
from smile.knowledge.period_ends import named_time, period_constraints
from smile.knowledge.types import RelationType
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, RowWiseOperator, TypeLookup


class ExtendOperator(RowWiseOperator[mmpl.Extend]):
    only_adds_columns = True
    keeps_displacement = True
    keeps_sessions = True

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
        nulls = {n: _null_group(named_time(e, types), source, n) for n, e in rel.assignments}
        nulls = {n: group for n, group in nulls.items() if columns[n].nullable}
        new_constraints = (t for e in equations for t in time_constraints(e, types))
        constraints = source.constraints.with_constraints(new_constraints, nulls)
        constraints = constraints.with_constraints(
            period_constraints(((n, e) for n, e in _all_assignments(rel) if not columns[n].evolves), types)
        )
        reach = constraints.extend_reach(source.reach, columns)
        dependencies = source.dependencies
        for name, expr in rel.assignments:
            if not columns[name].evolves:
                dependencies = dependencies.add(trees.columns_in(expr), [name])
        for value, determinant in _comparable_pairs(rel.assignments):
            dependencies = dependencies.add(determinant, [value])
        return replace(
            source, heading=lookup.heading_of(rel), columns=columns, constraints=constraints, reach=reach,
            dependencies=dependencies,
        )  # fmt: skip

    def bottom_row(self, rel: mmpl.Extend, lookup: BottomRowLookup) -> BottomRow:
        new_cells = {n: lookup.expression_bottom(e, rel.input) for n, e in rel.assignments}
        return {**lookup.bottom_row(rel.input), **new_cells}

    def map_expressions(self, rel: mmpl.Extend, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Extend:
        return replace(rel, assignments=tuple((n, change(e)) for n, e in rel.assignments))


def _comparable_pairs(assignments: Sequence[tuple[str, mmpl.Expr]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """The columns x that pairs of columns `x IS NULL` and `COALESCE(x, …)` determine, with these pairs."""
    flags = {e.args[0]: n for n, e in assignments if isinstance(e, mmpl.Call) and e.function == "is null"}
    for name, expr in assignments:
        match expr:
            case mmpl.Call("coalesce", (mmpl.ColumnRef(column) as arg, mmpl.Constant())) if arg in flags:
                yield column, (flags[arg], name)


def _all_assignments(rel: mmpl.Extend) -> tuple[tuple[str, mmpl.Expr], ...]:
    """Those of an EXTEND and of the ones directly below."""
    below = _all_assignments(rel.input) if isinstance(rel.input, mmpl.Extend) else ()
    return (*below, *rel.assignments)


def _null_group(time: mmpl.Expr, source: RelationType, name: str) -> str:
    """The group of columns that are NULL together with a time, and with the beginning of its day, hour or other period.
    A time with an offset is NULL when its column is, unless it can overflow."""
    column_names = trees.columns_in(time)
    if len(column_names) != 1:
        return name
    (column,) = column_names
    is_shifted = isinstance(time, mmpl.Call) and time.function in ("+", "-")
    if is_shifted and expression_type(time, {column: replace(source.columns[column], nullable=False)}).nullable:
        return name
    return source.constraints.nulls.get(column, name) if is_shifted or isinstance(time, mmpl.ColumnRef) else name
