"""OVER … ROWS: adds to each row aggregates over the rows of its group at some positions before and after it."""

from collections.abc import Callable
from dataclasses import replace

from smile import limits
from smile.algebra import mmpl
from smile.algebra.heading import Heading, check_columns_exist, check_comparable, check_unique
from smile.errors import error
from smile.knowledge.aggregate_types import membership
from smile.knowledge.seals import Seal
from smile.knowledge.state_retention import StateRetention, of_each, unbounded_columns
from smile.knowledge.symbolic import Bound, tighter_bound
from smile.knowledge.types import ColumnType, Direction, MaskDirection, RelationType
from smile.operators.aggregates import aggregate_bottoms, aggregate_column_type, aggregate_type, map_arguments
from smile.operators.operator import (
    BottomRow,
    BottomRowLookup,
    GroupwiseOperator,
    HeadingLookup,
    StateLookup,
    TypeLookup,
)


class OverRowsOperator(GroupwiseOperator[mmpl.OverRows]):
    only_adds_columns = True

    def heading(self, rel: mmpl.OverRows, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist((*rel.per, rel.by), heading, rel.span)
        check_comparable(rel.per, heading, rel.span)
        if heading.key != (rel.by,) or heading.tick != heading.key:
            message = f"ROWS needs rows whose key is one tick, but {rel.by} is not their key"
            raise error("E043", message, rel.span, "Use RANGE, or a view over a stream.")
        if rel.first > rel.last:
            raise error("E046", "the frame ends before it begins", rel.span)
        reach = max(abs(rel.first), abs(rel.last))
        if reach > limits.window_frame_rows_max:
            message = f"the frame reaches {reach:,} rows, the maximum is {limits.window_frame_rows_max:,}"
            raise error("E046", message, rel.span, "Use RANGE INTERVAL … PRECEDING.")
        if any(a.function == "group" for _, a in rel.aggregates):
            raise error("E046", "GROUP cannot be used with ROWS", rel.span, "Use RANGE INTERVAL … PRECEDING.")
        new_columns = {name: aggregate_type(a, heading, rel.span) for name, a in rel.aggregates}
        check_unique((*heading.columns, *new_columns), rel.span)
        return replace(heading, columns={**heading.columns, **new_columns}, total=False)

    def relation_type(self, rel: mmpl.OverRows, lookup: TypeLookup) -> RelationType:
        """A frame without following rows is final with its row. Another one is final once its last row is known, which
        no tick bounds."""
        source = lookup.relation_type(rel.input)
        if not source.is_append_only or source.mask.direction is not MaskDirection.DECIDED:
            hint = "Use RANGE, or ROWS on a stream or on a view that restricts one or adds columns to it."
            raise error("E181", "LAG, LEAD and ROWS need rows that are final when they appear", rel.span, hint)
        members = tighter_bound(Bound.from_number(rel.last - rel.first + 1), source.rows)
        group = membership(source, (*rel.per, rel.by))
        group = replace(
            group, members=members, steps=tighter_bound(members * source.steps, source.events), is_single=False,
            displacement=None, is_always_shown=not rel.first <= 0 <= rel.last,
        )  # fmt: skip
        is_fixed = rel.last <= 0 and source.is_sealed_on_arrival
        columns = {n: _column_type(aggregate_column_type(a, source, group), is_fixed) for n, a in rel.aggregates}
        seals = source.seals if rel.last <= 0 else dict.fromkeys(source.seals, Seal.NEVER)
        return replace(
            source, heading=lookup.heading_of(rel), columns={**source.columns, **columns}, seals=seals,
            steps=source.steps + group.steps, reach={key: {} for key in source.reach},
        )  # fmt: skip

    def bottom_row(self, rel: mmpl.OverRows, lookup: BottomRowLookup) -> BottomRow:
        return lookup.bottom_row(rel.input) | aggregate_bottoms(rel, lookup)

    def map_expressions(self, rel: mmpl.OverRows, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.OverRows:
        return replace(rel, aggregates=map_arguments(rel.aggregates, change))

    def early_finals(self, rel: mmpl.OverRows, lookup: TypeLookup) -> list[str]:
        if rel.last <= 0:
            return []
        rows = "the next row is" if rel.last == 1 else f"the next {rel.last:,} rows are"
        return [f"the row once {rows} known"]

    def state(self, rel: mmpl.OverRows, lookup: StateLookup) -> list[StateRetention]:
        source, count = lookup.relation_type(rel.input), max(rel.last, 0) + max(-rel.first, 0)
        rows = "the last row" if count == 1 else f"the last {count:,} rows"
        unbounded = unbounded_columns(source, rel.per, " and ".join(source.seals))
        return [StateRetention(f"{rows}{of_each(rel.per)}", "the end", unbounded)]


def _column_type(column: ColumnType, is_fixed: bool) -> ColumnType:
    """Rows that come between others replace the members of a frame, so nothing bounds it until it is final."""
    domain, direction = ("once", Direction.FIXED) if is_fixed else ("range", Direction.EITHER)
    return replace(
        column, domain=domain, direction=direction, evolves=not is_fixed,
        null_evolves=column.nullable and not is_fixed, is_by_source=False,
    )  # fmt: skip
