"""Outer joins: the pairs of an inner join, and an unmatched row for each row of a preserved side.

An unmatched row is shown while its row has no match. It has NULL in all columns of the other side, also in the key. A
pair with a row whose part of the key is NULL throughout would have the same key: then the one of the two that is shown
is output.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks, values as v
from smile.columns.masks import MaskCodes
from smile.columns.values import Indices, ValueColumn
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.joins.join_sides import JoinSide, JoinSides
from smile.kernels.joins.match_tracker import MatchDelta, MatchTracker
from smile.kernels.layout import Layout
from smile.kernels.row_wise import lift_columns
from smile.kernels.seals import HorizonAdvance
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.kernels.unsupported_join import UnsupportedJoinError

PAIRS_PREFIX = "pairs: "
PRESERVED_SIDES: Mapping[str, tuple[str, ...]] = {"left": ("left",), "right": ("right",), "full": ("left", "right")}


class OuterJoin(Transform):
    """`inner_join` produces the pairs."""

    def __init__(
        self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation, inner_join: Transform
    ) -> None:
        self.inner_join = inner_join
        sides = JoinSides(rel, left, right, output)
        self.preserved_sides = [s for s in (sides.left, sides.right) if s.name in PRESERVED_SIDES[rel.kind]]
        for side in self.preserved_sides:
            if all(c in side.source.type.columns for c in output.type.heading.key):
                raise UnsupportedJoinError(
                    rel, "rows of the outer join that have no match would share a key with pairs"
                )
        self.match_trackers = [MatchTracker(sides, s, "anti", sides.other(s).total) for s in self.preserved_sides]
        self.layout = self._layout(output)
        self.table_schemas = {PAIRS_PREFIX + name: schema for name, schema in inner_join.table_schemas.items()}
        self.table_sources = {PAIRS_PREFIX + name: source for name, source in inner_join.table_sources.items()}
        for side, tracker in zip(self.preserved_sides, self.match_trackers, strict=True):
            self.table_schemas |= {f"{side.name}: {name}": schema for name, schema in tracker.table_schemas.items()}
            self.table_sources |= {f"{side.name}: {name}": source for name, source in tracker.table_sources.items()}
        self.can_share_key = any(can_share_key(s, sides.other(s), output) for s in self.preserved_sides)

    def _layout(self, output: OutputRelation) -> Layout:
        """The layout of the pairs, except that a column that evolves in unmatched rows evolves in all rows."""
        pair_layout = self.inner_join.layout
        fixed, evolving = dict(pair_layout.fixed), dict(pair_layout.evolving)
        for side in self.preserved_sides:
            for name, side_column in side.source.layout.evolving.items():
                if name in fixed:
                    evolving[name] = side_column
                    del fixed[name]
                elif name in evolving:
                    evolving[name] = evolving[name].common_with(side_column)
        return Layout(pair_layout.key, fixed, evolving, False, output.includes_permanently_hidden)

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return self.inner_join.has_sealing_rows(advance) or any(t.can_seal_rows(advance) for t in self.match_trackers)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        left, right = inputs
        after, pairs = self.inner_join.step(_tables_with_prefix(state, PAIRS_PREFIX), inputs, advance)
        tables = {PAIRS_PREFIX + name: table for name, table in after.items()}
        parts = [] if pairs is None else [self._lift_pairs(pairs)]
        for side, match_tracker in zip(self.preserved_sides, self.match_trackers, strict=True):
            prefix = f"{side.name}: "
            probe_delta, build_delta = (left, right) if side.name == "left" else (right, left)
            own_state = _tables_with_prefix(state, prefix)
            after, match_deltas = match_tracker.step(own_state, probe_delta, build_delta, advance)
            tables |= {prefix + name: table for name, table in after.items()}
            parts += [self._unmatched_rows(match_tracker, d) for d in match_deltas]
        parts = [p for p in parts if len(p)]
        if not parts:
            return tables, None
        output = concat_deltas(self.layout, parts)
        output = drop_unchanged_rows(
            deduplicate_keys(self.layout, output) if self.can_share_key else output,
            self.layout.includes_permanently_hidden,
        )
        return tables, output if len(output) else None

    # ── building the output ─────────────────────────────────────────────────────────────────────────────────────────

    def _lift_pairs(self, pairs: Delta) -> Delta:
        """The pairs in the output's layout: columns that evolve only in unmatched rows become knowledge columns."""
        old = None if pairs.old is None else self._row_knowledge(pairs.fixed, pairs.old, pairs.old.mask)
        return Delta(pairs.fixed, old, self._row_knowledge(pairs.fixed, pairs.new, pairs.new.mask))

    def _unmatched_rows(self, match_tracker: MatchTracker, match_delta: MatchDelta) -> Delta:
        delta = match_delta.delta
        count = len(delta)
        fixed = {
            c: delta.fixed[c] if c in delta.fixed else v.nulls(data, count) for c, data in self.layout.fixed.items()
        }
        old = None
        if delta.old is not None:
            old = self._row_knowledge(
                delta.fixed, delta.old, _restrict_mask(delta.old, match_tracker.shown_codes(match_delta.had_match))
            )
        new = self._row_knowledge(
            delta.fixed, delta.new, _restrict_mask(delta.new, match_tracker.shown_codes(match_delta.has_match))
        )
        return Delta(fixed, old, new)

    def _row_knowledge(
        self, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge, mask: MaskCodes
    ) -> RowKnowledge:
        return RowKnowledge(lift_columns(self.layout, fixed, knowledge), mask, knowledge.steps)


def can_share_key(side: JoinSide, other: JoinSide, output: OutputRelation) -> bool:
    """Whether an unmatched row of a side may have the key of a pair: all key columns of the other side are nullable."""
    own_columns, other_columns = side.source.type.columns, other.source.type.columns
    return all(c in own_columns or other_columns[c].nullable for c in output.type.heading.key)


def deduplicate_keys(layout: Layout, delta: Delta) -> Delta:
    """The delta with each key once: of several rows with one key, the one that is shown before, and the one that is
    shown after."""
    groups = RowGroups([delta.fixed[c] for c in layout.key], len(delta))
    if groups.count == len(delta):
        return delta
    new = _best_row_per_group(groups, delta.new.mask)
    if delta.old is None:
        return delta.take(new)
    old = _best_row_per_group(groups, delta.old.mask)
    fixed = delta.take(np.where(masks.is_present(delta.new.mask[new]), new, old)).fixed
    return Delta(fixed, delta.old.take(old), delta.new.take(new))


def _tables_with_prefix(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): table for name, table in state.items() if name.startswith(prefix)}


def _restrict_mask(knowledge: RowKnowledge, shown: MaskCodes) -> MaskCodes:
    codes = masks.all_of(knowledge.mask, shown)
    return np.where(masks.is_present(knowledge.mask), codes, np.uint8(masks.ABSENT))


def _best_row_per_group(groups: RowGroups, mask: MaskCodes) -> Indices:
    """For each group the row that is shown, else one that can be shown, else one that is present, else any."""
    rank = masks.is_shown(mask) * 4 + masks.can_be_shown(mask) * 2 + masks.is_present(mask)
    order = np.lexsort((rank, groups.group_numbers))
    ends = np.append(groups.starts[1:], len(order)) - 1
    return order[ends]
