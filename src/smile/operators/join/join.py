"""JOIN, LEFT, RIGHT and FULL JOIN, SEMIJOIN, ANTIJOIN and MATCH."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import expect_type
from smile.algebra.heading import ColumnNames, Heading, check_pairs, check_unique, is_key_equated
from smile.algebra.types import BOOL
from smile.errors import error
from smile.knowledge.state_retention import StateRetention
from smile.knowledge.types import RelationType
from smile.knowledge.values.cells import optional_cell
from smile.knowledge.values.mask import Mask
from smile.operators.join.state import is_joined_to_one_row, join_state
from smile.operators.join.type import join_type
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, Operator, StateLookup, TypeLookup


class JoinOperator(Operator[mmpl.Join]):
    def heading(self, rel: mmpl.Join, lookup: HeadingLookup) -> Heading:
        left, right = lookup.heading_of(rel.left), lookup.heading_of(rel.right)
        check_pairs(rel.on, left, right, rel.span)
        if rel.when is not None:
            expect_type(rel.when, BOOL, {**right.columns, **left.columns})
        if rel.kind in ("semi", "anti"):
            return replace(left, total=False)
        if rel.kind == "match":
            assert rel.match_column is not None
            check_unique((*left.columns, rel.match_column), rel.span)
            return replace(left, columns={**left.columns, rel.match_column: BOOL}, total=False)
        merged = [r for a, r in rel.on if a == r]
        check_unique((*left.columns, *(c for c in right.columns if c not in merged)), rel.span)
        key, tick = _key_and_tick(rel, left, right)
        on_keys = {a for a, _ in rel.on} == set(left.key) and {b for _, b in rel.on} == set(right.key)
        # If the key has the columns of both sides, no row exists for keys in which they differ.
        one_key = len(key) == len(left.key)
        total = left.total and right.total and on_keys and one_key and rel.when is None
        columns = {**left.columns, **{c: t for c, t in right.columns.items() if c not in merged}}
        hidden = (left.hidden | right.hidden) - (set(left.visible) | set(right.visible))
        dropped = hidden - set(key)
        columns = {c: t for c, t in columns.items() if c not in dropped}
        return Heading(columns, key, hidden - dropped, tick, total)

    def relation_type(self, rel: mmpl.Join, lookup: TypeLookup) -> RelationType:
        left, right = lookup.relation_type(rel.left), lookup.relation_type(rel.right)
        return join_type(rel, left, right, lookup.heading_of(rel))

    def bottom_row(self, rel: mmpl.Join, lookup: BottomRowLookup) -> BottomRow:
        left, right = lookup.bottom_row(rel.left), lookup.bottom_row(rel.right)
        if rel.kind in ("semi", "anti"):
            return left
        if rel.kind == "match":
            assert rel.match_column is not None
            return {**left, rel.match_column: Mask.bottom()}
        columns = lookup.heading_of(rel).columns
        # The default row of a total relation has the key that the other side looks up.
        sources = [left, right, {b: left[a] for a, b in rel.on}, {a: right[b] for a, b in rel.on}]
        return {c: optional_cell(t, [s[c] for s in sources if c in s]) for c, t in columns.items()}

    def map_expressions(self, rel: mmpl.Join, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Join:
        return rel if rel.when is None else replace(rel, when=change(rel.when))

    def state(self, rel: mmpl.Join, lookup: StateLookup) -> list[StateRetention]:
        return join_state(rel, lookup)

    def input_use(self, rel: mmpl.Join) -> str:
        return "looks up its rows"

    def has_expiring_rows(self, rel: mmpl.Join, inputs: Sequence[bool]) -> bool:
        if rel.kind in ("right", "full"):
            return False
        return any(inputs) if rel.kind == "inner" else inputs[0]

    def hiding_condition(self, rel: mmpl.Join, source: mmpl.Rel, of_group: bool, lookup: StateLookup) -> str | None:
        return lookup.hiding_condition(rel) if of_group and is_joined_to_one_row(source, rel, lookup) else None

    def partition_columns(self, rel: mmpl.Join, heading: Heading) -> list[ColumnNames]:
        # With NULL AWARE, a NULL on the right side affects every row of the left.
        return [] if rel.null_aware else list(rel.on)

    def output_partition_columns(self, rel: mmpl.Join, chosen: list[ColumnNames]) -> list[ColumnNames] | None:
        if rel.kind == "full" and any(a != b for a, b in rel.on):
            return None
        sides = {"inner": slice(2), "right": slice(1, 2)}.get(rel.kind, slice(1))
        return [pair[sides] for pair in chosen]


def _key_and_tick(rel: mmpl.Join, left: Heading, right: Heading) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A side whose whole key is equated adds nothing to the key, if every joined row has a row of the other side."""
    if rel.kind in ("inner", "left") and is_key_equated(right, (b for _, b in rel.on)):
        return left.key, left.tick
    if rel.kind == "right" and is_key_equated(left, (a for a, _ in rel.on)):
        return right.key, right.tick
    if rel.kind == "full" and rel.when is not None and any(a == b for a, b in rel.on):
        hint = "Rename the column on the right side, and equate the two columns."
        raise error("E040", "rows of a FULL JOIN with WHEN cannot share a column of the key", rel.span, hint)
    return (*left.key, *(c for c in right.key if c not in left.key)), ()
