"""JOIN, LEFT, RIGHT and FULL JOIN, SEMIJOIN, ANTIJOIN and MATCH."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import expect_type
from smile.algebra.heading import ColumnNames, Heading, check_pairs, check_unique, is_key_equated
from smile.algebra.types import BOOL
from smile.errors import error
from smile.knowledge.join_types import match_predicate
from smile.knowledge.state_retention import StateRetention
from smile.knowledge.types import RelationType
from smile.knowledge.values.cells import cell_hull, narrow_cells, optional_cell
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.transfer import unknown_operand
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
        if rel.kind in ("semi", "anti"):
            return lookup.bottom_row(rel.left)
        if rel.kind == "match":
            assert rel.match_column is not None
            return {**lookup.bottom_row(rel.left), rel.match_column: Mask.bottom()}
        left, right = _side_rows(rel, lookup)
        columns = lookup.heading_of(rel).columns
        return {c: optional_cell(t, [s[c] for s in (left, right) if c in s]) for c, t in columns.items()}

    def narrow_shown_row(self, rel: mmpl.Join, row: BottomRow, lookup: BottomRowLookup) -> BottomRow:
        """A match satisfies the conditions. A row of a preserved side is shown without a match too, and the columns of
        the other side are then NULL."""
        if rel.kind not in ("inner", "left", "right", "semi"):
            return row
        left, right = _side_rows(rel, lookup)
        types = {**lookup.heading_of(rel.right).columns, **lookup.heading_of(rel.left).columns}
        pair = narrow_cells({**right, **left}, match_predicate(rel), types)
        if rel.kind in ("inner", "semi"):
            return {c: pair[c] for c in row}
        preserved = left if rel.kind == "left" else right
        return {c: cell if c in preserved else optional_cell(types[c], [pair[c]]) for c, cell in row.items()}

    def map_expressions(self, rel: mmpl.Join, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Join:
        return rel if rel.when is None else replace(rel, when=change(rel.when))

    def state(self, rel: mmpl.Join, lookup: StateLookup) -> list[StateRetention]:
        return join_state(rel, lookup)

    def input_storage_reason(self, rel: mmpl.Join) -> str:
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


def _side_rows(rel: mmpl.Join, lookup: BottomRowLookup) -> tuple[BottomRow, BottomRow]:
    """The bottom rows of both sides. Tests are about rows that exist; other joins also see default rows."""
    left, right = lookup.bottom_row(rel.left), lookup.bottom_row(rel.right)
    if rel.kind == "semi":
        return left, right
    flipped = [(b, a) for a, b in rel.on]
    return _with_default_row(rel.left, rel.on, right, lookup), _with_default_row(rel.right, flipped, left, lookup)


def _with_default_row(
    side: mmpl.Rel, on: Sequence[tuple[str, str]], other: BottomRow, lookup: BottomRowLookup
) -> BottomRow:
    """The bottom row of a side. If it is total, it has a row for every key that the other side looks up, whether the
    group is shown or not. `on` are columns of this side, each with the column of the other."""
    heading = lookup.heading_of(side)
    if not (heading.total and is_key_equated(heading, (own for own, _ in on))):
        return lookup.bottom_row(side)
    columns = lookup.relation_type(side).columns
    row = dict(lookup.every_row.bottom_row(side))
    keys = {own: cell_hull([row[own], other[name]], None, columns[own].data) for own, name in on}
    for name, column in columns.items():
        if column.follows_group_key:
            is_key = name in heading.key
            row[name] = keys[name] if is_key else unknown_operand(column.data, nullable=True, now=None)
    return row


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
