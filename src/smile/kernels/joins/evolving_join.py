"""Joins on columns that evolve: every pair of rows may match, each pair with its own mask.

There is no index on such columns. A changed row is compared with all rows of the other side, and a row whose matches
may have changed is compared with all of them again. The work of a batch is proportional to the affected rows times the
stored rows. Pairs are compared in columns, a bounded number at a time. No row expires when horizons advance: a row is
removed only if it becomes absent or permanently hidden.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.columns import knowledge as k, masks, values as v
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_kind
from smile.columns.row_limit import check_row_count
from smile.columns.values import Bools, Indices, ValueColumn, true_indices
from smile.kernels.delta import (
    Delta,
    RowConcatenation,
    RowGroups,
    RowKnowledge,
    concat_knowledge,
    drop_unchanged_rows,
)
from smile.kernels.joins import kleene
from smile.kernels.joins.column_hulls import clipped_column, domain_column, null_column
from smile.kernels.joins.inner_join import equal_pairs
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides
from smile.kernels.joins.lookup_join import find_by_key
from smile.kernels.joins.matches import MatchChoice, Matches, Pairs, concat_pairs
from smile.kernels.joins.optional_rows import optional_kinds
from smile.kernels.joins.outer_join import PRESERVED_SIDES, can_share_key, deduplicate_keys
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.kernels.unsupported_join import UnsupportedJoinError
from smile.state.table import StateTable

PAIRS_MAX = 1 << 16
"""How many pairs of rows are compared at once. Bounds memory."""


@dataclass(frozen=True)
class SideRows:
    """All rows of one side at one time. Rows have the same numbers before and after a batch: first those that the batch
    does not change, then those of its delta. `present` are the numbers of the rows that are present."""

    rows: JoinRows
    present: Indices
    unchanged_count: int

    @staticmethod
    def of(fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge, unchanged_count: int) -> "SideRows":
        return SideRows(JoinRows(fixed, knowledge), true_indices(masks.is_present(knowledge.mask)), unchanged_count)

    def changed(self) -> Indices:
        return self.present[self.present >= self.unchanged_count]

    def unchanged(self) -> Indices:
        return self.present[self.present < self.unchanged_count]


@dataclass(frozen=True)
class Snapshot:
    """All rows of both sides, by the name of the side, before or after a batch."""

    sides: Mapping[str, SideRows]
    horizons: Horizons


class EvolvingJoin(Transform):
    def __init__(self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        self.sides = sides = JoinSides(rel, left, right, output)
        self.both_sides = (sides.left, sides.right)
        self.rel, self.output = rel, output
        self.probe: JoinSide | None = None
        """The side whose rows have at most one match, if the join outputs one row for each of them."""
        if sides.right.covers_key and rel.kind in ("inner", "left"):
            self.probe = sides.left
        elif sides.left.covers_key and rel.kind == "right":
            self.probe = sides.right
        self.preserved_sides = [s for s in self.both_sides if s.name in PRESERVED_SIDES.get(rel.kind, ())]
        self.can_share_key = any(can_share_key(s, sides.other(s), output) for s in self.preserved_sides)
        self.layout = self._layout()
        self.match_seals = {str(side.name): self._match_seals(side) for side in self.both_sides}
        self.table_schemas = {"left": sides.left.table_schema, "right": sides.right.table_schema}
        self.table_sources = sides.table_sources

    def _match_seals(self, side: JoinSide) -> Seals:
        """When no more rows of the other side can come and match. Uses all columns whose type never evolves, even if
        the layout has them among the evolving columns."""
        fixed = [c for c, t in side.source.type.columns.items() if not t.evolves and c in side.layout.types]
        seals = self.sides.other(side).source.type.seals
        expressed = {s: self.sides.ties.express_seal(seal, fixed) for s, seal in seals.items()}
        return Seals(expressed, side.source.type.heading.columns)

    def _layout(self) -> Layout:
        key, includes_permanently_hidden = self.output.type.heading.key, self.output.includes_permanently_hidden
        if self.probe is None and not self.preserved_sides:
            return self.sides.output_layout(key, False, includes_permanently_hidden)
        fixed, evolving = {}, dict[str, EvolvingColumnLayout]()
        for name, column_side in self.sides.column_sides.items():
            # A key column with the same name on both sides is the probe row's; without a probe side, that of the row
            # that is present.
            sources = [side for side in (column_side, self.sides.other(column_side)) if name in side.layout.types]
            if self.probe is not None:
                sources = [self.probe] if self.probe in sources else sources
            evolving_side = next((side for side in sources if name in side.layout.evolving), None)
            if name in key or (evolving_side is None and (self.probe is None or sources == [self.probe])):
                fixed[name] = column_side.layout.types[name]
            else:
                evolving[name] = optional_kinds((evolving_side or column_side).layout)[name]
        return Layout(key, fixed, evolving, False, includes_permanently_hidden)

    # ── processing a batch ──────────────────────────────────────────────────────────────────────────────────────────

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        tables, before, after = {}, {}, {}
        for side, delta in zip(self.both_sides, inputs, strict=True):
            unchanged, tables[str(side.name)] = side.split_and_update(state[side.name], delta)
            before[str(side.name)], after[str(side.name)] = self._read_side(side, state[side.name], unchanged, delta)
        old, new = Snapshot(before, advance.before), Snapshot(after, advance.after)
        if self.probe is not None:
            numbers = self._affected_rows(self.probe, old, new)
            old_rows, new_rows = ([self._lookup_rows(self.probe, numbers, s)] for s in (old, new))
        else:
            old_rows, new_rows = self._pair_rows(old, new)
            unmatched_rows = []
            for side in self.preserved_sides:
                numbers = self._affected_rows(side, old, new)
                old_rows.append(self._unmatched_rows(side, numbers, old))
                unmatched_rows.append(self._unmatched_rows(side, numbers, new))
            self._reject_shared_keys(new_rows, unmatched_rows)
            new_rows += unmatched_rows
        return tables, self._output_delta(old_rows, new_rows)

    def _read_side(
        self, side: JoinSide, table: StateTable, unchanged: StateTable, delta: Delta | None
    ) -> tuple[SideRows, SideRows]:
        """All rows of a side before and after the batch. Rows that have just become permanently hidden are no longer
        stored, but are among them once more."""
        rows = side.decode_rows(unchanged.scan())
        if delta is None:
            side_rows = SideRows.of(rows.fixed, rows.knowledge, len(rows))
            return side_rows, side_rows
        fixed = RowConcatenation(side.layout.fixed, [rows.fixed, delta.fixed])
        stored = side.decode_rows(find_by_key(table, [delta.fixed[c] for c in side.key], len(delta)))
        before, after = (concat_knowledge(side.layout, [rows.knowledge, d]) for d in (stored.knowledge, delta.new))
        return SideRows.of(fixed, before, len(rows)), SideRows.of(fixed, after, len(rows))

    def _affected_rows(self, side: JoinSide, old: Snapshot, new: Snapshot) -> Indices:
        """The rows of a side that changed, that a changed row of the other side may match, or that no new row can match
        any more."""
        other = self.sides.other(side)
        rows, unchanged_count = old.sides[side.name].rows, old.sides[side.name].unchanged_count
        if other.total and old.horizons != new.horizons:
            return np.arange(len(rows))
        is_affected = np.ones(len(rows), bool)
        unchanged = rows.take(np.arange(unchanged_count))
        is_open = [self._is_open(side, unchanged, s.horizons) for s in (old, new)]
        is_affected[:unchanged_count] = is_open[0] != is_open[1]
        for snapshot in (old, new):
            side_rows, other_rows = snapshot.sides[side.name], snapshot.sides[other.name]
            pairs = self._compare(side, side_rows.rows, other_rows.rows, side_rows.unchanged(), other_rows.changed())
            is_affected[pairs.first] = True
        return true_indices(is_affected)

    def _is_open(self, side: JoinSide, rows: JoinRows, horizons: Horizons) -> Bools:
        """Whether new rows of the other side may match these rows."""
        seals = self.match_seals[side.name]
        values = {c: k.current_values(rows.column(c)) for c in seals.seal_columns}
        return ~seals.is_sealed(horizons, values, len(rows))

    # ── matches ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _compare(
        self,
        side: JoinSide,
        rows: JoinRows,
        others: JoinRows,
        row_numbers: Indices,
        other_numbers: Indices,
        includes_impossible: bool = False,
    ) -> Pairs:
        """Compares all pairs of the given rows of `side` and of the other side. Returns those that match or may match;
        if `includes_impossible`, all of them."""
        parts, count = [], 0
        for first, second in _cross_product(row_numbers, other_numbers):
            codes = self._match_codes(side, rows.take(first), others.take(second))
            if not includes_impossible:
                possible = true_indices(codes != masks.F)
                first, second, codes = first[possible], second[possible], codes[possible]
            parts.append(Pairs(first, second, codes))
            count += len(first)
            check_row_count(count, "pairs of rows that may match")
        return concat_pairs(parts)

    def _match_codes(self, side: JoinSide, rows: JoinRows, others: JoinRows) -> MaskCodes:
        """Masks that say whether rows of `side` match rows of the other side, each with the one of the same number."""
        left, right = (rows, others) if side is self.sides.left else (others, rows)
        return self.sides.match_codes(left, right, self.rel.on)

    def _find_matches(self, side: JoinSide, numbers: Indices, snapshot: Snapshot) -> Matches:
        """The matches of rows of `side`."""
        other = self.sides.other(side)
        side_rows, other_rows = snapshot.sides[side.name], snapshot.sides[other.name]
        rows, candidates = side_rows.rows.take(numbers), other_rows.rows.take(other_rows.present)
        pairs = self._compare(side, rows, candidates, np.arange(len(rows)), np.arange(len(candidates)))
        codes = pairs.codes
        if not other.total:
            codes = masks.all_of(codes, candidates.knowledge.mask[pairs.second])
        matches = Matches(
            Pairs(pairs.first, pairs.second, codes),
            candidates,
            self._can_gain_match(side, rows, candidates, snapshot.horizons),
        )
        return self._with_default_matches(side, rows, matches, snapshot.horizons) if other.total else matches

    def _lookup_keys(self, side: JoinSide, rows: JoinRows) -> list[ValueColumn]:
        """The key of the other side that each row looks up at present. The join must cover that key."""
        other = self.sides.other(side)
        source = dict(zip(other.on, side.on, strict=True))
        return [k.current_values(rows.column(source[c])) for c in other.key]

    def _is_present(self, side: JoinSide, rows: JoinRows, candidates: JoinRows) -> Bools:
        """Whether the row of the other side with the key that a row looks up is present."""
        keys = [candidates.fixed[c] for c in self.sides.other(side).key]
        is_present = np.zeros(len(rows), bool)
        is_present[equal_pairs(self._lookup_keys(side, rows), keys, len(rows), len(candidates))[0]] = True
        return is_present

    def _with_default_matches(self, side: JoinSide, rows: JoinRows, matches: Matches, horizons: Horizons) -> Matches:
        """Adds default rows of the other side, which is total, for lookup keys whose row is absent."""
        other = self.sides.other(side)
        lookup_keys = self._lookup_keys(side, rows)
        is_looked_up = ~self._is_present(side, rows, matches.candidates)
        for column in lookup_keys:
            is_looked_up &= column.is_valid()
        numbers = true_indices(is_looked_up)
        transform = other.source.transform
        assert transform is not None, "a stream is never total"
        key = {c: column.take(numbers) for c, column in zip(other.key, lookup_keys, strict=True)}
        delta = transform.default_rows(key, len(numbers), horizons)
        defaults = JoinRows(delta.fixed, delta.new)
        codes = self._match_codes(side, rows.take(numbers), defaults)
        possible = true_indices(codes != masks.F)
        candidate_count = len(matches.candidates)
        pairs = Pairs(
            np.concatenate([matches.pairs.first, numbers[possible]]),
            np.concatenate([matches.pairs.second, candidate_count + possible]),
            np.concatenate([matches.pairs.codes, codes[possible]]),
        )
        fixed = RowConcatenation(other.layout.fixed, [matches.candidates.fixed, defaults.fixed])
        knowledge = concat_knowledge(other.layout, [matches.candidates.knowledge, defaults.knowledge])
        return Matches(pairs, JoinRows(fixed, knowledge), matches.can_gain)

    def _can_gain_match(self, side: JoinSide, rows: JoinRows, candidates: JoinRows, horizons: Horizons) -> Bools:
        other = self.sides.other(side)
        can_gain = self._is_open(side, rows, horizons)
        is_key_final = np.logical_and.reduce([k.is_final(rows.column(c)) for c in side.on])
        if other.excludes_others and other.covers_key:
            is_present = np.ones(len(rows), bool) if other.total else self._is_present(side, rows, candidates)
            can_gain &= ~(is_key_final & is_present)
        if other.total:
            can_gain |= ~is_key_final
        return can_gain & side.can_match(rows)

    # ── output rows ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _lookup_rows(self, probe: JoinSide, numbers: Indices, snapshot: Snapshot) -> JoinRows:
        """The output rows of those of these probe rows that are present, each with its one match or none."""
        numbers, rows = self._take_present(probe, numbers, snapshot)
        matches = self._find_matches(probe, numbers, snapshot)
        mask = rows.knowledge.mask
        if not self.preserved_sides:
            mask = masks.all_of(mask, kleene.as_filter(matches.has_match()))
        steps = rows.knowledge.steps.copy()
        np.add.at(steps, matches.pairs.first, matches.candidates.knowledge.steps[matches.pairs.second])
        build = self.sides.other(probe)
        choice = MatchChoice.among(matches, bool(self.preserved_sides), len(rows))
        build_types = build.source.type.columns
        looked_up = {b: a for a, b in zip(probe.on, build.on, strict=True) if not build_types[b].evolves}
        columns = {}
        for name, evolving in self.layout.evolving.items():
            if self.sides.column_sides[name] is probe or (name in probe.on and name in build.on):
                columns[name] = to_kind(rows.column(name), evolving.kind, evolving.data)
                continue
            candidates = to_kind(matches.candidates.column(name), evolving.kind, evolving.data)
            if name in looked_up:
                # An absent row that comes has the value that the probe row looks up.
                to_come = rows.column(looked_up[name])
                if evolving.data != BOOL:
                    to_come = clipped_column(to_come, build.source.bottoms[name], evolving.data)
                to_come = to_kind(to_come, evolving.kind, evolving.data)
                columns[name] = choice.column(candidates, to_come, True, evolving)
            else:
                to_come = domain_column(build.source.bottoms[name], evolving)
                columns[name] = choice.column(candidates, to_come, False, evolving)
        return JoinRows({c: rows.fixed[c] for c in self.layout.fixed}, RowKnowledge(columns, mask, steps))

    def _take_present(self, side: JoinSide, numbers: Indices, snapshot: Snapshot) -> tuple[Indices, JoinRows]:
        rows = snapshot.sides[side.name].rows
        numbers = numbers[masks.is_present(rows.knowledge.mask[numbers])]
        return numbers, rows.take(numbers)

    def _pair_rows(self, old: Snapshot, new: Snapshot) -> tuple[list[JoinRows], list[JoinRows]]:
        """The pairs of which a row changed, before and after the batch."""
        changed_pairs = [self._changed_pairs(s) for s in (old, new)]
        right_count = len(old.sides["right"].rows)
        ids = np.unique(np.concatenate([p.first * right_count + p.second for p in changed_pairs]))
        rows = []
        for snapshot, pairs in zip((old, new), changed_pairs, strict=True):
            codes = masks.full(masks.F, len(ids))
            codes[ids.searchsorted(pairs.first * right_count + pairs.second)] = pairs.codes
            left_masks, right_masks = (snapshot.sides[s.name].rows.knowledge.mask for s in self.both_sides)
            first, second = np.divmod(ids, max(right_count, 1))
            present = true_indices(masks.is_present(left_masks[first]) & masks.is_present(right_masks[second]))
            first, second, codes = first[present], second[present], codes[present]
            left, right = snapshot.sides["left"].rows.take(first), snapshot.sides["right"].rows.take(second)
            rows.append([self._join_pairs(left, right, codes), *self._default_pair_rows(snapshot)])
        return rows[0], rows[1]

    def _changed_pairs(self, snapshot: Snapshot) -> Pairs:
        """The pairs of which a row changed and that may match. All such pairs, if a reader distinguishes those that
        never match from absent ones, or an unmatched row may have the key of one."""
        includes_impossible = self.layout.includes_permanently_hidden or self.can_share_key
        left, right = snapshot.sides["left"], snapshot.sides["right"]
        parts = [
            self._compare(self.sides.left, left.rows, right.rows, *numbers, includes_impossible)
            for numbers in ((left.changed(), right.present), (left.unchanged(), right.changed()))
        ]
        return concat_pairs(parts)

    def _default_pair_rows(self, snapshot: Snapshot) -> Iterator[JoinRows]:
        """The pairs with default rows of a total side. They may change whenever a row or a horizon does."""
        for side in self.both_sides:
            other = self.sides.other(side)
            if other.total:
                other_rows = snapshot.sides[other.name]
                _, rows = self._take_present(side, snapshot.sides[side.name].present, snapshot)
                candidates = other_rows.rows.take(other_rows.present)
                no_matches = Matches(concat_pairs([]), candidates, np.zeros(len(rows), bool))
                matches = self._with_default_matches(side, rows, no_matches, snapshot.horizons)
                own, defaults = rows.take(matches.pairs.first), matches.candidates.take(matches.pairs.second)
                left, right = (own, defaults) if side is self.sides.left else (defaults, own)
                yield self._join_pairs(left, right, matches.pairs.codes)

    def _join_pairs(self, left: JoinRows, right: JoinRows, codes: MaskCodes) -> JoinRows:
        """The output rows of pairs of rows; `codes` are the masks that say whether they match."""
        left_mask, right_mask = left.knowledge.mask, right.knowledge.mask
        if self.sides.left.total and self.sides.right.total:
            codes = masks.all_of(codes, masks.any_of(left_mask, right_mask))
        elif self.sides.left.total or self.sides.right.total:
            codes = masks.all_of(codes, right_mask if self.sides.left.total else left_mask)
        else:
            codes = masks.all_of(codes, masks.all_of(left_mask, right_mask))
        sources = {c: (left if s is self.sides.left else right).column(c) for c, s in self.sides.column_sides.items()}
        fixed = {c: k.current_values(sources[c]) for c in self.layout.fixed}
        columns = {c: to_kind(sources[c], e.kind, e.data) for c, e in self.layout.evolving.items()}
        return JoinRows(fixed, RowKnowledge(columns, codes, left.knowledge.steps + right.knowledge.steps))

    def _unmatched_rows(self, side: JoinSide, numbers: Indices, snapshot: Snapshot) -> JoinRows:
        """The output rows of those of these rows that are present, for the case that they have no match."""
        numbers, rows = self._take_present(side, numbers, snapshot)
        matches = self._find_matches(side, numbers, snapshot)
        is_unmatched = kleene.as_filter(kleene.negation(matches.has_match()))
        fixed = {
            c: k.current_values(rows.column(c)) if c in side.layout.types else v.nulls(data, len(rows))
            for c, data in self.layout.fixed.items()
        }
        columns = {
            c: to_kind(rows.column(c), e.kind, e.data) if c in side.layout.types else null_column(e, len(rows))
            for c, e in self.layout.evolving.items()
        }
        mask = masks.all_of(rows.knowledge.mask, is_unmatched)
        return JoinRows(fixed, RowKnowledge(columns, mask, rows.knowledge.steps))

    def _reject_shared_keys(self, pairs: Sequence[JoinRows], unmatched: Sequence[JoinRows]) -> None:
        if not self.can_share_key:
            return
        parts = [*pairs, *unmatched]
        counts = [sum(map(len, p)) for p in (pairs, unmatched)]
        key = [v.concat([p.fixed[c] for p in parts]) for c in self.layout.key]
        groups = RowGroups(key, sum(counts))
        group_sizes = np.bincount(groups.group_numbers, minlength=groups.count)
        if (group_sizes[groups.group_numbers[counts[0] :]] > 1).any():
            raise UnsupportedJoinError(
                self.rel, "a row of the outer join has NULL for a key, as rows without a match do"
            )

    def _output_delta(self, old: Sequence[JoinRows], new: Sequence[JoinRows]) -> Delta | None:
        """The delta from the old to the new output rows."""
        parts = [*old, *new]
        if not sum(map(len, parts)):
            return None
        fixed = RowConcatenation(self.layout.fixed, [p.fixed for p in parts])
        knowledge = concat_knowledge(self.layout, [p.knowledge for p in parts])
        is_old = np.arange(len(knowledge)) < sum(map(len, old))
        before, after = (
            RowKnowledge(knowledge.columns, np.where(present, knowledge.mask, np.uint8(masks.ABSENT)), knowledge.steps)
            for present in (is_old, ~is_old)
        )
        delta = deduplicate_keys(self.layout, Delta(fixed, before, after))
        return drop_unchanged_rows(delta, self.layout.includes_permanently_hidden)


def _cross_product(first: Indices, second: Indices) -> Iterator[tuple[Indices, Indices]]:
    """All pairs of two sets of numbers, at most PAIRS_MAX at a time, unless the second set alone has more."""
    if len(second):
        size = max(1, PAIRS_MAX // len(second))
        for start in range(0, len(first), size):
            chunk = first[start : start + size]
            yield np.repeat(chunk, len(second)), np.tile(second, len(chunk))
