"""OVER: adds to each row aggregates over the rows of its group in the range before it."""

from collections.abc import Callable
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.coercions import interval_text
from smile.algebra.heading import Heading, check_columns_exist, check_comparable, check_unique
from smile.algebra.types import TIME
from smile.errors import error
from smile.knowledge.aggregate_types import membership
from smile.knowledge.state_retention import StateRetention, has_open_seal, of_each, unbounded_columns, unsealed_stream
from smile.knowledge.symbolic import Bound, tighter_bound
from smile.knowledge.types import RelationType
from smile.operators.aggregates import (
    AGGREGATES,
    aggregate_bottoms,
    aggregate_column_type,
    aggregate_type,
    map_arguments,
)
from smile.operators.operator import (
    BottomRow,
    BottomRowLookup,
    GroupwiseOperator,
    HeadingLookup,
    StateLookup,
    TypeLookup,
)


class OverOperator(GroupwiseOperator[mmpl.Over]):
    only_adds_columns = True
    keeps_sessions = True

    def heading(self, rel: mmpl.Over, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist((*rel.per, rel.by), heading, rel.span)
        check_comparable(rel.per, heading, rel.span)
        if heading.tick[:1] != (rel.by,) and (rel.by not in heading.key or heading.columns[rel.by] != TIME):
            message = f"OVER must be ordered by the tick of the relation or a time in its key, and {rel.by} is neither"
            hint = "Order by the tick, or by the window_end of windows. For the first rows in another order, use BEST."
            raise error("E043", message, rel.span, hint)
        new_columns = {name: aggregate_type(a, heading, rel.span) for name, a in rel.aggregates}
        check_unique((*heading.columns, *(name for name, _ in rel.aggregates)), rel.span)
        return replace(heading, columns={**heading.columns, **new_columns}, total=False)

    def relation_type(self, rel: mmpl.Over, lookup: TypeLookup) -> RelationType:
        source = lookup.relation_type(rel.input)
        if source.columns[rel.by].evolves or source.columns[rel.by].nullable:
            message = f"OVER needs rows whose {rel.by} is known and stays the same"
            raise error("E043", message, rel.span, "Group by the window_end of TUMBLE or HOP on the tick.")
        peers = membership(source, (*rel.per, rel.by))
        members = (
            source.rows
            if rel.range is None
            else tighter_bound(Bound.from_number(rel.range + 1) * peers.members, source.rows)
        )
        steps = tighter_bound(members * source.steps, source.events)
        group = replace(peers, members=members, steps=steps, is_single=False, displacement=None)
        columns = {**source.columns, **{n: aggregate_column_type(a, source, group) for n, a in rel.aggregates}}
        seals = {
            s: seal.latest(source.constraints.express_seal_in_order(seal, rel.by)) for s, seal in source.seals.items()
        }
        # An event affects later rows up to the length of the window.
        reach = {
            s: {c: d + rel.range for c, d in distances.items()} if rel.range is not None else {}
            for s, distances in source.constraints.extend_reach(source.reach, [rel.by]).items()
        }
        heading = lookup.heading_of(rel)
        return replace(source, heading=heading, columns=columns, seals=seals, steps=group.steps, reach=reach)

    def bottom_row(self, rel: mmpl.Over, lookup: BottomRowLookup) -> BottomRow:
        return lookup.bottom_row(rel.input) | aggregate_bottoms(rel, lookup)

    def narrow_shown_row(self, rel: mmpl.Over, row: BottomRow, lookup: BottomRowLookup) -> BottomRow:
        """A row is in its own range."""
        return row | aggregate_bottoms(rel, lookup, has_member=True)

    def map_expressions(self, rel: mmpl.Over, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Over:
        return replace(rel, aggregates=map_arguments(rel.aggregates, change))

    def state(self, rel: mmpl.Over, lookup: StateLookup) -> list[StateRetention]:
        per, source = of_each(rel.per), lookup.relation_type(rel.input)
        stream = unsealed_stream(source.seals)
        if has_open_seal(source.seals):
            return [lookup.row_state(f"the rows{per}", rel.input, stream)]
        if rel.range is not None:
            return [StateRetention(f"the rows{per}", f"the horizon reaches {rel.by} + {interval_text(rel.range)}")]
        has_totals_only = all(AGGREGATES[a.function].stores == "totals" for _, a in rel.aggregates)
        if source.is_append_only and has_totals_only:
            return [StateRetention(f"running totals{per}", "the end", unbounded_columns(source, rel.per, stream))]
        return [lookup.row_state(f"the rows{per}", rel.input, stream)]
