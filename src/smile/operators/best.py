"""BEST: the first k rows of each group in an order."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading, check_columns_exist, check_comparable
from smile.algebra.types import json_hint
from smile.errors import error
from smile.knowledge.expression_types import conjunction_mask
from smile.knowledge.seals import Seal
from smile.knowledge.state_retention import (
    StateRetention,
    has_open_seal,
    of_each,
    seal_condition,
    unbounded_columns,
    unsealed_stream,
)
from smile.knowledge.symbolic import Bound
from smile.knowledge.types import Displacement, MaskDirection, MaskType, RelationType
from smile.operators.operator import (
    BottomRow,
    BottomRowLookup,
    GroupwiseOperator,
    HeadingLookup,
    StateLookup,
    TypeLookup,
    input_cells,
)


class BestOperator(GroupwiseOperator[mmpl.Best]):
    has_rows_of_input = True
    keeps_displacement = True

    def heading(self, rel: mmpl.Best, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist(rel.per, heading, rel.span)
        check_comparable(rel.per, heading, rel.span)
        if rel.k < 1:
            raise error("E033", "the number of rows must be a positive whole number", rel.span)
        for e, _ in rel.by:
            t = type_of(e, heading.columns)
            if not t.is_ordered:
                raise error("E031", f"rows cannot be ordered by a {t.name}", e.span, json_hint([t]))
        return replace(heading, total=False)

    def relation_type(self, rel: mmpl.Best, lookup: TypeLookup) -> RelationType:
        source = lookup.relation_type(rel.input)
        ordering = {c for e, _ in rel.by for c in trees.columns_in(e)} | set(rel.per)
        is_order_fixed = source.never_leaves and not any(source.columns[c].evolves for c in ordering)
        rank = (
            MaskType(MaskDirection.FALLS, Bound.from_number(2))
            if is_order_fixed
            else MaskType(MaskDirection.EITHER, source.events)
        )
        seals = _rank_seals(rel, source)
        can_be_final = source.mask.can_be_final_true and not has_open_seal(seals)
        mask = replace(conjunction_mask([source.mask, rank]), can_be_final_true=can_be_final)
        reach = source.constraints.extend_reach(source.reach, _fixed_group_columns(rel, source))
        displacement = _displacement(rel) if is_order_fixed and not source.can_become_absent else None
        return replace(
            source, heading=lookup.heading_of(rel), mask=mask, seals=seals, reach=reach, displacement=displacement
        )

    def bottom_row(self, rel: mmpl.Best, lookup: BottomRowLookup) -> BottomRow:
        return input_cells(rel, lookup)

    def map_expressions(self, rel: mmpl.Best, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Best:
        return replace(rel, by=tuple((change(e), descending) for e, descending in rel.by))

    def state(self, rel: mmpl.Best, lookup: StateLookup) -> list[StateRetention]:
        source, best = lookup.relation_type(rel.input), lookup.relation_type(rel)
        closing_seals = group_closing_seals(rel, source)
        per, stream = of_each(rel.per), unsealed_stream(closing_seals)
        if not has_open_seal(closing_seals):
            return [StateRetention(f"each row{per}", seal_condition(closing_seals))]
        ranked = f"the best {rel.k} rows{per}"
        unbounded = unbounded_columns(source, rel.per, stream)
        if best.mask.falls_for_good and source.never_leaves:
            return [StateRetention(ranked, "the end", unbounded)]
        if not has_open_seal(source.seals) and not lookup.is_transient(rel.input):
            # A sealed row is final: it is among the best or not.
            return [StateRetention(f"{ranked}, and those that may change", "the end", unbounded)]
        return [lookup.row_state(f"each row{per}", rel.input, stream)]


def group_closing_seals(rel: mmpl.Best, source: RelationType) -> Mapping[str, Seal]:
    """The last tick of each stream that can affect the row or any other row of its group."""
    fixed = _fixed_group_columns(rel, source)
    return {s: seal.latest(source.constraints.express_seal(seal, fixed)) for s, seal in source.seals.items()}


def _rank_seals(rel: mmpl.Best, source: RelationType) -> Mapping[str, Seal]:
    """The last tick of each stream that can affect the rank of the row. Only rows of its group that precede it do so.
    If the first order is by a time, ascending, these are no later than the row itself, and neither are their seals."""
    closing_seals = group_closing_seals(rel, source)
    expr, descending = rel.by[0]
    if descending or not isinstance(expr, mmpl.ColumnRef) or source.columns[expr.name].evolves:
        return closing_seals
    seals = {}
    for stream, seal in source.seals.items():
        preceding = seal.latest(source.constraints.express_seal_in_order(seal, expr.name))
        is_better = not preceding.is_never and source.constraints.is_no_later(preceding, closing_seals[stream])
        seals[stream] = preceding if is_better else closing_seals[stream]
    return seals


def _displacement(rel: mmpl.Best) -> Displacement:
    """How rows leave if the rows of the input never leave, and their order never changes."""
    expr, descending = rel.by[0]
    order = expr.name if isinstance(expr, mmpl.ColumnRef) else None
    return Displacement(frozenset(rel.per), rel.k, order, descending)


def _fixed_group_columns(rel: mmpl.Best, source: RelationType) -> list[str]:
    return [c for c in rel.per if not source.columns[c].evolves]
