"""ASOF JOIN: each left row with the latest right row that is equated and not later."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.heading import ColumnNames, Heading, check_pairs, check_unique
from smile.algebra.types import TIME, TIMESTAMP
from smile.errors import error
from smile.knowledge.aggregate_types import membership
from smile.knowledge.expression_types import conjunction_mask
from smile.knowledge.join_types import (
    as_evolving,
    as_nullable,
    equality_constraints,
    express_seals,
    has_evolving_keys,
    latest_seals,
)
from smile.knowledge.seals import union_reach
from smile.knowledge.state_retention import (
    StateRetention,
    format_columns,
    has_open_seal,
    seal_condition,
    unbounded_columns,
    unsealed_stream,
)
from smile.knowledge.symbolic import ONE
from smile.knowledge.types import MaskDirection, MaskType, RelationType
from smile.knowledge.values.cells import optional_cell
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, Operator, StateLookup, TypeLookup


class AsofOperator(Operator[mmpl.Asof]):
    def heading(self, rel: mmpl.Asof, lookup: HeadingLookup) -> Heading:
        left, right = lookup.heading_of(rel.left), lookup.heading_of(rel.right)
        check_pairs((*rel.on, rel.ticks), left, right, rel.span)
        for side, column in ((left, rel.ticks[0]), (right, rel.ticks[1])):
            if side.columns[column] not in (TIME, TIMESTAMP):
                raise error("E043", f"ASOF JOIN needs a time, but {column} is {side.columns[column]}", rel.span)
        if right.tick[:1] != (rel.ticks[1],) and rel.ticks[1] not in right.key:
            message = f"{rel.ticks[1]} is not the tick of the joined relation, nor a part of its key"
            raise error("E043", message, rel.span)
        merged = [r for a, r in (*rel.on, rel.ticks) if a == r]
        right_columns = {c: t for c, t in right.columns.items() if c not in merged and c not in right.hidden}
        check_unique((*left.columns, *right_columns), rel.span)
        return replace(left, columns={**left.columns, **right_columns}, total=False)

    def relation_type(self, rel: mmpl.Asof, lookup: TypeLookup) -> RelationType:
        """The match may change until the right side is known up to the left tick."""
        left, right, heading = lookup.relation_type(rel.left), lookup.relation_type(rel.right), lookup.heading_of(rel)
        order = right.heading.order_by(rel.ticks[1])
        equated = tuple(b for _, b in rel.on)
        if order != right.heading.tick:
            _check_order(rel, right, equated)
        elif membership(right, equated).shares_ticks:
            message = "ASOF JOIN needs rows of which no two have one tick, but rows of HOP do"
            raise error(
                "E043", message, rel.span, "Equate the ends of the windows as well, or join the rows before HOP."
            )
        columns = dict(left.columns)
        for name in heading.columns:
            if name not in columns:
                domain = "relation" if right.columns[name].data.name == "relation" else "latest"
                columns[name] = replace(
                    as_nullable(right.columns[name]),
                    domain=domain,
                    nullable=right.columns[name].nullable or rel.kind == "left",
                    is_by_source=domain == "latest" and len(order) > 1,
                )
        constraints = left.constraints.merge(right.constraints).where_not_null(
            c for pair in (*rel.on, rel.ticks) for c in pair
        )
        constraints = constraints.with_constraints(equality_constraints(rel.on, left, right)).with_constraints(
            [(rel.ticks[1], rel.ticks[0], 0)]
        )
        fixed = [c for c, t in left.columns.items() if not t.evolves]
        seals = latest_seals(left.seals, express_seals(right.seals, constraints, fixed))
        keys_evolve = has_evolving_keys((*rel.on, rel.ticks), left, right)
        if keys_evolve:
            columns |= {n: as_evolving(c) for n, c in columns.items() if n not in left.columns}
        is_match_permanent = right.never_leaves and not keys_evolve
        match_mask = (
            MaskType(MaskDirection.RISES, ONE)
            if is_match_permanent
            else MaskType(MaskDirection.EITHER, left.steps + right.events)
        )
        mask = conjunction_mask([left.mask, match_mask]) if rel.kind == "inner" else left.mask
        # A right row is the match of every later left row until another replaces it, so no distance bounds its reach.
        reach = union_reach(left.reach, {stream: {} for stream in right.reach})
        return replace(
            left, heading=heading, columns=columns, mask=mask, seals=seals,
            steps=left.steps + right.events, events=left.events + left.rows * right.events, reach=reach,
            has_early_rows=left.has_early_rows or right.has_early_rows,
        )  # fmt: skip

    def bottom_row(self, rel: mmpl.Asof, lookup: BottomRowLookup) -> BottomRow:
        left, right = lookup.bottom_row(rel.left), lookup.bottom_row(rel.right)
        columns = lookup.heading_of(rel).columns
        return {c: left[c] if c in left else optional_cell(t, [right[c]]) for c, t in columns.items()}

    def state(self, rel: mmpl.Asof, lookup: StateLookup) -> list[StateRetention]:
        left, right = lookup.relation_type(rel.left), lookup.relation_type(rel.right)
        left_state = self._left_state(rel, lookup)
        per = [b for _, b in rel.on]
        stream = " and ".join(left.seals)
        keys_evolve = has_evolving_keys((*rel.on, rel.ticks), left, right)
        left_can_be_late = any(
            left.constraints.express_seal_in_order(seal, rel.ticks[0]).is_never for seal in left.seals.values()
        )
        if keys_evolve or left_can_be_late or has_open_seal(right.seals) or lookup.is_transient(rel.right):
            # No right row is known to replace the earlier ones for all left rows to come.
            return [left_state, lookup.row_state("each row of the right side", rel.right, stream)]
        per_key = f" for each {format_columns(per)}" if per else ""
        description = f"the latest row of the right side{per_key}, and those after it"
        return [left_state, StateRetention(description, "the end", unbounded_columns(right, per, stream))]

    def _left_state(self, rel: mmpl.Asof, lookup: StateLookup) -> StateRetention:
        """Left rows are needed as long as their result can change."""
        left, seals = lookup.relation_type(rel.left), lookup.relation_type(rel).seals
        if not has_open_seal(seals):
            return StateRetention("each row of the left side", seal_condition(seals))
        unbounded = unbounded_columns(left, left.heading.key, unsealed_stream(seals))
        return StateRetention("each row of the left side", "the end", unbounded)

    def input_storage_reason(self, rel: mmpl.Asof) -> str:
        return "looks up its rows"

    def partition_columns(self, rel: mmpl.Asof, heading: Heading) -> list[ColumnNames]:
        return list(rel.on)


def _check_order(rel: mmpl.Asof, right: RelationType, equated: ColumnNames) -> None:
    """Of the rows that may match, no two have the same time, and their times do not change."""
    time = right.columns[rel.ticks[1]]
    if time.evolves or time.nullable or not membership(right, (*equated, rel.ticks[1])).is_single:
        message = f"{rel.ticks[1]} does not order the rows of the joined relation"
        hint = f"Equate the other columns of its key, which is {', '.join(right.heading.key)}."
        raise error("E043", message, rel.span, hint)
