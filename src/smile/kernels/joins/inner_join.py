"""Inner joins: all pairs of rows that match.

A batch produces each pair at most once: changed rows with the unchanged rows of the other side, and the changed rows of
both sides with each other. So the output needs no netting.
"""

from collections.abc import Sequence

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.hashing import hashes
from smile.columns.masks import MaskCodes
from smile.columns.row_limit import check_row_count
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.kernels.delta import Delta, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides
from smile.kernels.seals import HorizonAdvance
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.state.run import build_hash_index, find_matches

LEFT, RIGHT = "left", "right"


class InnerJoin(Transform):
    """A pair is present while both of its rows are present and may match."""

    def __init__(self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        self.sides = sides = JoinSides(rel, left, right, output)
        self.is_condition_exact = sides.condition is None or sides.condition.kind == "exact"
        certain = left.layout.certain and right.layout.certain and self.is_condition_exact
        self.layout = sides.output_layout(output.type.heading.key, certain, output.includes_permanently_hidden)
        self.table_schemas = {LEFT: sides.left.table_schema, RIGHT: sides.right.table_schema}
        self.table_sources = sides.table_sources

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        left, right = self.sides.left, self.sides.right
        left_delta, right_delta = inputs
        left_hashes = None if left_delta is None else left.key_hashes(left_delta.fixed, len(left_delta))
        right_hashes = None if right_delta is None else right.key_hashes(right_delta.fixed, len(right_delta))
        unchanged_left, left_table = left.split_and_update(
            state[LEFT], left_delta, needs_no_storage(left, left_delta, advance), left_hashes
        )
        unchanged_right, right_table = right.split_and_update(
            state[RIGHT], right_delta, needs_no_storage(right, right_delta, advance), right_hashes
        )
        parts = []
        if left_delta is not None:
            row_numbers, matches = right.match_rows(
                unchanged_right, left.join_key(left_delta.fixed), len(left_delta), False, left_hashes
            )
            if len(row_numbers):
                unchanged = Delta(matches.fixed, matches.knowledge, matches.knowledge)
                parts.append(self.join_pairs(left_delta.take(row_numbers), unchanged))
        if right_delta is not None:
            row_numbers, matches = left.match_rows(
                unchanged_left, right.join_key(right_delta.fixed), len(right_delta), False, right_hashes
            )
            if len(row_numbers):
                unchanged = Delta(matches.fixed, matches.knowledge, matches.knowledge)
                parts.append(self.join_pairs(unchanged, right_delta.take(row_numbers)))
        if left_delta is not None and right_delta is not None:
            left_numbers, right_numbers = equal_pairs(
                left.join_key(left_delta.fixed),
                right.join_key(right_delta.fixed),
                len(left_delta),
                len(right_delta),
                left_hashes,
                right_hashes,
            )
            if len(left_numbers):
                parts.append(self.join_pairs(left_delta.take(left_numbers), right_delta.take(right_numbers)))
        tables = {LEFT: left.expire_rows(left_table, advance), RIGHT: right.expire_rows(right_table, advance)}
        parts = [p for p in parts if len(p)]
        return tables, drop_unchanged_rows(
            concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden
        ) if parts else None

    def join_pairs(self, left: Delta, right: Delta) -> Delta:
        """The output of pairs of rows whose keys are equal: row i of `left` with row i of `right`."""
        if self.is_condition_exact and self.sides.condition is not None:
            codes = self.sides.evaluate_condition(JoinRows(left.fixed, left.new), JoinRows(right.fixed, right.new))
            assert codes is not None
            matching_rows = true_indices(codes == masks.T)
            if len(matching_rows) < len(codes):
                left, right = left.take(matching_rows), right.take(matching_rows)
        old = None
        if left.old is not None and right.old is not None:
            old = self._row_knowledge(JoinRows(left.fixed, left.old), JoinRows(right.fixed, right.old))
        new = self._row_knowledge(JoinRows(left.fixed, left.new), JoinRows(right.fixed, right.new))
        return Delta(self.sides.pair_fixed_columns(self.layout, left.fixed, right.fixed), old, new)

    def _row_knowledge(self, left: JoinRows, right: JoinRows) -> RowKnowledge:
        a, b = left.knowledge, right.knowledge
        columns = self.sides.pair_evolving_columns(self.layout, a.columns, b.columns)
        return RowKnowledge(columns, pair_masks(self.sides, left, right, self.is_condition_exact), a.steps + b.steps)


def pair_masks(sides: JoinSides, left: JoinRows, right: JoinRows, is_condition_exact: bool) -> MaskCodes:
    """The masks of pairs: shown if both rows are and the condition holds. Pairs that cannot match are absent."""
    a, b = left.knowledge.mask, right.knowledge.mask
    both = masks.all_of(a, b)
    if not (sides.left.layout.certain and sides.right.layout.certain) or not (a.all() and b.all()):
        absent = (a == masks.ABSENT) | (b == masks.ABSENT)
        if absent.any():
            both[absent] = masks.ABSENT
    if is_condition_exact:
        return both
    present_rows = true_indices(both)
    codes = sides.evaluate_condition(left.take(present_rows), right.take(present_rows))
    assert codes is not None
    both[present_rows] = np.where(codes == masks.F, np.uint8(masks.ABSENT), masks.all_of(both[present_rows], codes))
    return both


def needs_no_storage(side: JoinSide, delta: Delta | None, advance: HorizonAdvance) -> Bools | None:
    """The changed rows that need not be stored: no row of the other side that they can match can come or change."""
    if delta is None:
        return None
    is_unneeded = side.has_final_matches(delta.fixed, len(delta), advance.after)
    for column in side.join_key(delta.fixed):
        if column.valid is not None:
            is_unneeded = is_unneeded | ~column.valid
    return is_unneeded


def equal_pairs(
    left_key: Sequence[ValueColumn],
    right_key: Sequence[ValueColumn],
    left_count: int,
    right_count: int,
    left_hashes: Array | None = None,
    right_hashes: Array | None = None,
) -> tuple[Indices, Indices]:
    """The numbers of all pairs of rows that are equal in all columns, none of them NULL. `left_hashes` and
    `right_hashes` are the hashes of the keys, if they are known."""
    if not left_key:
        check_row_count(left_count * right_count, "pairs of rows")
        return np.repeat(np.arange(left_count), right_count), np.tile(np.arange(right_count), left_count)
    if left_hashes is not None and right_hashes is not None:
        return find_matches(build_hash_index(right_hashes), right_key, left_hashes, left_key)
    a, b = _rows_without_null(left_key), _rows_without_null(right_key)
    right_values, left_values = (
        [c if b is None else c.take(b) for c in right_key],
        [c if a is None else c.take(a) for c in left_key],
    )
    index = build_hash_index(hashes(right_values, len(right_values[0])))
    left_numbers, right_numbers = find_matches(
        index, right_values, hashes(left_values, len(left_values[0])), left_values
    )
    return (left_numbers if a is None else a[left_numbers]), (right_numbers if b is None else b[right_numbers])


def _rows_without_null(columns: Sequence[ValueColumn]) -> Indices | None:
    """The rows without NULL; None: all rows."""
    if all(c.valid is None for c in columns):
        return None
    return true_indices(np.logical_and.reduce([c.is_valid() for c in columns]))
