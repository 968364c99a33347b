"""ASOF JOIN: each left row with the latest right row that has the same key and is not after it.

The match is provisional while a later one may come. A left row is stored with its output until it is final. A right row
expires once a later right row with the same key is settled and not after any left row, stored or to come. If the right
side is a history, the match is found by sorting. Else all right rows with the same key are tried, or all right rows if
key columns evolve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import TICKS_PER_MICROSECOND, TIMESTAMP
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.horizons import END
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.joins import kleene
from smile.kernels.joins.join_sides import JoinRows, JoinSides
from smile.kernels.joins.latest_matches import Columns, LatestMatches, latest_match_column, latest_match_kind
from smile.kernels.joins.pair_match_counter import cross_rows
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.row_encoding import StoredEvolvingColumns, encode_rows, stored_column, table_columns
from smile.kernels.seals import LEAST, HorizonAdvance, Horizons, SealIndex
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

LEFT, RIGHT = "left", "right"
OUTPUT_MATCH, OUTPUT_STEPS = "told match", "told steps"
"""Columns of a stored left row: the mask that says whether it has a match, and the steps of its matches. The names are
part of the stored format."""


@dataclass(frozen=True)
class AsofMatches:
    """The match of each left row: its columns, the mask that says whether there is one, and its steps."""

    columns: dict[str, KnowledgeColumn]
    mask: masks.MaskCodes
    steps: Array


Candidates = tuple[dict[str, LatestMatches], JoinRows, masks.MaskCodes, Array]
"""The latest matches by output column (or under "" for all columns), the right rows whose numbers they contain, the
masks that say whether there is a match, and the steps of the matches."""


class AsofJoin(Transform):
    def __init__(self, rel: mmpl.Asof, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        is_not_after = mmpl.Call("<=", (mmpl.ColumnRef(rel.ticks[1]), mmpl.ColumnRef(rel.ticks[0])))
        self.rel, self.output = rel, output
        self.sides = JoinSides(mmpl.Join("left", rel.left, rel.right, rel.on, is_not_after), left, right, output)
        self.left, self.right = self.sides.left, self.sides.right
        self.tick_columns = right.type.heading.order_by(rel.ticks[1])
        left_layout, columns = left.layout, output.type.columns
        self.right_columns = {
            c: EvolvingColumnLayout(latest_match_kind(t), t.data)
            for c, t in columns.items()
            if c not in left.type.columns
        }
        self.layout = Layout(
            left_layout.key,
            left_layout.fixed,
            {**left_layout.evolving, **self.right_columns},
            left_layout.certain and rel.kind == "left",
            output.includes_permanently_hidden,
        )
        self.right_layout = Layout((), {}, self.right_columns)
        self.can_match_by_order = (
            right.layout.certain and not self.right.layout.evolving
            and not self.sides.has_evolving_keys and rel.ticks[0] in left_layout.fixed
        )  # fmt: skip
        index = () if self.sides.has_evolving_keys or not rel.on else (self.left.index,)
        left_schema, right_schema = self.left.table_schema, self.right.table_schema
        output_columns = {OUTPUT_MATCH: pa.uint8(), OUTPUT_STEPS: pa.int64()}
        left_columns = {**table_columns(self.right_layout), **left_schema.columns, **output_columns}
        types = right.type.heading.columns
        self.time_index = SealIndex({LEAST: Seal.from_column(rel.ticks[1])}, types, stored_column(rel.ticks[1]))
        """The right rows by their own time."""
        self.table_schemas = {
            LEFT: TableSchema(left_schema.key, left_columns, index, left_schema.tick_indexes),
            RIGHT: TableSchema(
                right_schema.key, right_schema.columns, right_schema.indexes, tuple(self.time_index.column_types)
            ),
        }
        self.table_sources = self.sides.table_sources
        self.lateness = self._lateness_by_stream(left)

    def _lateness_by_stream(self, left: InputRelation) -> dict[str, int] | None:
        """For each stream, how long after its own time a left row can still come; None if there is no limit."""
        name = self.rel.ticks[0]
        if name not in self.left.fixed:
            return None
        lateness = {}
        for stream, seal in left.type.seals.items():
            terms = dict(left.type.constraints.express_seal_in_order(seal, name).terms)
            if set(terms) != {name}:
                return None
            lateness[stream] = terms[name]
        return lateness

    # ── processing a batch ──────────────────────────────────────────────────────────────────────────────────────────

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        if self.left.match_seals.can_seal_rows(advance):
            return True
        return self.lateness is not None and self.time_index.can_seal_rows(self._frontier_advance(advance))

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        left_delta, right_delta = inputs
        table, right_rows = state[LEFT], self.right.update_table(state[RIGHT], right_delta)
        affected = table.no_rows() if right_delta is None else self._affected_left_rows(table, right_delta)
        sealed = [self.left.rows_with_final_matches(table, advance)] if advance.has_moved else []
        other_rows = RowLookup.union(table, [affected, *sealed])
        parts, removed_parts, left_table = [], [], table
        if left_delta is not None:
            left_delta, stored = self.left.find_stored(table, left_delta)
            other_rows = other_rows if stored is None else other_rows.without(stored)
            if len(left_delta):
                part, left_table, removed = self._update_left_rows(left_table, left_delta, stored, right_rows, advance)
                parts.append(part)
                removed_parts.append(removed)
        if other_rows.row_count:
            rows = self.left.decode_rows(other_rows)
            unchanged = Delta(rows.fixed, rows.knowledge, rows.knowledge)
            part, left_table, removed = self._update_left_rows(left_table, unchanged, other_rows, right_rows, advance)
            parts.append(part)
            removed_parts.append(removed)
        if all(h >= END for h in advance.after.values()):
            tables = {name: StateTable(schema) for name, schema in self.table_schemas.items()}
        else:
            removed_left = RowLookup.union(table, [d for d in removed_parts if d is not None])
            right_rows = self._expire_right_rows(right_rows, left_table, right_delta, removed_left, advance)
            tables = {LEFT: left_table, RIGHT: right_rows}
        if not parts:
            return tables, None
        output = drop_unchanged_rows(concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden)
        return tables, output if len(output) else None

    def _affected_left_rows(self, table: StateTable, right_delta: Delta) -> RowLookup:
        """The stored left rows that the changed right rows may match."""
        if self.sides.has_evolving_keys or not table.runs:
            return table.scan()
        right_times = right_delta.fixed[self.rel.ticks[1]].data
        right_key = [right_delta.fixed[c] for c in self.right.on]
        groups = RowGroups(right_key, len(right_delta))
        earliest = np.minimum.reduceat(right_times[groups.order], groups.starts)
        group_numbers, lookup = self.left.match_lookup(table, [c.take(groups.first) for c in right_key], groups.count)
        if self.rel.ticks[0] not in self.left.layout.fixed:
            return lookup
        left_times = lookup[stored_column(self.rel.ticks[0])]
        return lookup.take(np.flatnonzero(left_times.is_valid() & (left_times.data >= earliest[group_numbers])))

    def _update_left_rows(
        self,
        table: StateTable,
        left_delta: Delta,
        stored_rows: RowLookup | None,
        right_rows: StateTable,
        advance: HorizonAdvance,
    ) -> tuple[Delta, StateTable, RowLookup | None]:
        """The output of these left rows, the updated table of left rows, and the rows removed from it."""
        rows = JoinRows(left_delta.fixed, left_delta.new)
        match = self._find_matches(rows, right_rows, advance.after)
        new = self._row_knowledge(left_delta.new, match.columns, match.mask, match.steps)
        old = None
        if left_delta.old is not None and stored_rows is not None:
            old_columns = StoredEvolvingColumns(self.right_layout, stored_rows)
            stored_mask, old_steps = stored_rows[OUTPUT_MATCH], stored_rows[OUTPUT_STEPS].data
            old_mask = stored_mask.data
            if stored_mask.valid is not None:
                old_mask = np.where(stored_mask.valid, old_mask, 0).astype(np.uint8)
            old = self._row_knowledge(left_delta.old, old_columns, old_mask, old_steps)
        is_settled = new.mask == masks.T
        for name in self.layout.evolving:
            is_settled = is_settled & k.is_final(new.columns[name])
        keep = masks.can_be_shown(new.mask) & ~is_settled
        is_stored = np.zeros(len(rows), bool) if stored_rows is None else stored_rows.run_numbers >= 0
        removed = None if stored_rows is None else stored_rows.take(np.flatnonzero(is_stored & ~keep))
        delta = Delta(left_delta.fixed, old, new)
        stored_indices = np.flatnonzero(keep | is_stored)
        if len(stored_indices):
            stored_columns = {c: match.columns[c].take(stored_indices) for c in self.right_columns}
            left_knowledge = left_delta.new.take(stored_indices)
            right_knowledge = RowKnowledge(stored_columns, left_knowledge.mask, left_knowledge.steps)
            encoded = {
                **encode_rows(self.right_layout, {}, right_knowledge),
                **self.left.encode_rows(rows.take(stored_indices).fixed, left_knowledge),
                OUTPUT_MATCH: ValueColumn(match.mask[stored_indices]),
                OUTPUT_STEPS: ValueColumn(match.steps[stored_indices]),
            }
            table = table.with_rows(encoded, None if keep[stored_indices].all() else ~keep[stored_indices])
        return delta, table, removed

    def _row_knowledge(
        self, knowledge: RowKnowledge, right_columns: Columns, match_mask: masks.MaskCodes, steps: Array
    ) -> RowKnowledge:
        columns: dict[str, KnowledgeColumn] = {
            c: right_columns[c] if c in self.right_columns else knowledge.columns[c] for c in self.layout.evolving
        }
        mask = knowledge.mask
        if self.rel.kind == "inner":
            mask = np.where(masks.is_present(mask), masks.all_of(mask, match_mask), np.uint8(masks.ABSENT))
        return RowKnowledge(columns, mask, knowledge.steps + steps)

    # ── matching ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _find_matches(self, rows: JoinRows, right_rows: StateTable, horizons: Horizons) -> AsofMatches:
        can_gain = self._can_gain_match(rows, horizons)
        find_candidates = self._match_by_order if self.can_match_by_order else self._match_all_pairs
        latest_by_column, candidates, match_mask, steps = find_candidates(rows, right_rows)
        is_certain = masks.is_permanently_shown(match_mask)
        match_mask = np.where(can_gain, masks.any_of(match_mask, masks.full(masks.HIDDEN, len(rows))), match_mask)
        columns: dict[str, KnowledgeColumn] = {}
        for name, evolving in self.right_columns.items():
            latest = latest_by_column[name] if name in latest_by_column else latest_by_column[""]
            domain = self.right.source.bottoms[name]
            columns[name] = latest_match_column(
                latest, candidates.column(name), ~can_gain, is_certain, evolving.data, domain
            )
        return AsofMatches(columns, match_mask, steps)

    def _can_gain_match(self, rows: JoinRows, horizons: Horizons) -> Bools:
        """Whether an absent right row may still come and match."""
        can_gain = ~self.left.has_final_matches(rows.fixed, len(rows), horizons) & self.left.can_match(rows)
        left_time = rows.column(self.rel.ticks[0])
        return can_gain & ~(k.is_final(left_time) & k.current_values(left_time).is_null())

    def _order_columns(self, right_rows: JoinRows) -> tuple[Array, Array, list[Array]]:
        """The tick, the source, and the ranks that order rows of the same tick: the row with the smaller key is
        later."""
        tick = right_rows.fixed[self.tick_columns[0]].data
        source = (
            right_rows.fixed[self.tick_columns[1]].data
            if len(self.tick_columns) > 1
            else np.zeros(len(right_rows), np.int64)
        )
        tie_breakers = [-v.ranks(right_rows.fixed[c]) for c in self.right.key if c not in self.tick_columns]
        return tick, source, tie_breakers

    def _match_by_order(self, rows: JoinRows, right_rows: StateTable) -> Candidates:
        """For a right side that is a history: the match is the last right row that is not after the left row, and it is
        settled."""
        count = len(rows)
        left_keys = self.left.join_key(rows.fixed)
        groups = RowGroups(left_keys, count)
        right_groups, lookup = self.right.match_lookup(
            right_rows, [c.take(groups.first) for c in left_keys], groups.count
        )
        matches = self.right.decode_rows(lookup)
        tick, source, tie_breakers = self._order_columns(matches)
        left_times = rows.fixed[self.rel.ticks[0]]
        is_left = np.repeat([False, True], [len(matches), count])
        zeros = np.zeros(count, np.int64)
        order = np.lexsort(
            (
                *(np.concatenate([r, zeros]) for r in reversed(tie_breakers)),
                np.concatenate([source, zeros]),
                is_left,
                np.concatenate([tick, left_times.data]),
                np.concatenate([right_groups, groups.group_numbers]),
            )
        )
        # The last right row before each left row. If the left row's group has none, it is a row of another group.
        last_right_positions = np.maximum.accumulate(np.where(is_left[order], -1, np.arange(len(order))))
        last = np.full(len(order), -1)
        last[order] = np.where(last_right_positions >= 0, order[np.maximum(last_right_positions, 0)], -1)
        last = last[len(matches) :]
        if len(matches):
            has_match = (
                (last >= 0) & left_times.is_valid() & (right_groups[np.maximum(last, 0)] == groups.group_numbers)
            )
        else:
            has_match = np.zeros(count, bool)
        last = np.where(has_match, last, -1)
        chosen = LatestMatches(last, last, last, tick, source)
        steps = np.where(has_match, matches.knowledge.steps[np.maximum(last, 0)] if len(matches) else 0, 0)
        return {"": chosen}, matches, np.where(has_match, np.uint8(masks.T), np.uint8(masks.F)), steps

    def _match_all_pairs(self, rows: JoinRows, right_rows: StateTable) -> Candidates:
        """For any right side: every pair of rows has a mask. The current match is the last that is shown; the last that
        is settled is a bound."""
        count = len(rows)
        if self.sides.has_evolving_keys:
            left_numbers, lookup = cross_rows(np.arange(count), right_rows.scan())
        else:
            left_numbers, lookup = self.right.match_lookup(right_rows, self.left.join_key(rows.fixed), count)
        candidates, left_rows = self.right.decode_rows(lookup), rows.take(left_numbers)
        left_tick, right_tick = self.rel.ticks
        left_times, right_times = left_rows.column(left_tick), candidates.column(right_tick)
        is_not_after = kleene.compare_columns("<=", right_times, left_times)
        equalities = self.rel.on if self.sides.has_evolving_keys else ()
        match = self.sides.match_codes(left_rows, candidates, equalities, uses_condition=False)
        match = masks.all_of(match, kleene.as_filter(is_not_after))
        pair_codes = masks.all_of(candidates.knowledge.mask, match)
        tick, source, tie_breakers = self._order_columns(candidates)
        order = np.lexsort((*reversed(tie_breakers), source, tick, left_numbers))
        ordered_left = left_numbers[order]
        certain = masks.is_permanently_shown(pair_codes)[order]
        last_shown = _last_chosen(ordered_left, order, masks.is_shown(pair_codes)[order], count)
        last_present = _last_chosen(ordered_left, order, masks.can_be_shown(pair_codes)[order], count)
        chosen = {}
        for name in self.right_columns:
            settled = certain & k.is_final(candidates.column(name))[order]
            chosen[name] = LatestMatches(
                last_shown, _last_chosen(ordered_left, order, settled, count), last_present, tick, source
            )
        counts = np.zeros((count, kleene.COUNTERS_PLAIN), np.int64)
        np.add.at(counts, left_numbers, kleene.counter_increments(pair_codes))
        steps = np.zeros(count, np.int64)
        np.add.at(steps, left_numbers, np.where(masks.can_be_shown(match), candidates.knowledge.steps, 0))
        match_mask = kleene.as_filter(kleene.has_match(counts, np.zeros(count, bool)))
        return chosen, candidates, match_mask, steps

    # ── expiry of right rows ────────────────────────────────────────────────────────────────────────────────────────

    def _expire_right_rows(
        self,
        right_rows: StateTable,
        left_rows: StateTable,
        right_delta: Delta | None,
        removed_left_rows: RowLookup,
        advance: HorizonAdvance,
    ) -> StateTable:
        """Removes right rows that can match no left row, stored or to come, because a later right row is settled."""
        if self.lateness is None or self.sides.has_evolving_keys:
            return right_rows
        frontier = self._frontier_advance(advance)
        passed = self.time_index.find_sealed_rows(right_rows, frontier)
        key_parts = [[passed[stored_column(c)] for c in self.right.on]] if passed.row_count else []
        if right_delta is not None:
            # A late right row may be behind the frontier already.
            late = np.flatnonzero(right_delta.fixed[self.rel.ticks[1]].data <= frontier.before[LEAST])
            key_parts += [[right_delta.fixed[c].take(late) for c in self.right.on]] if len(late) else []
        if removed_left_rows.row_count:
            key_parts.append([removed_left_rows[stored_column(c)] for c in self.left.on])
        if not key_parts:
            return right_rows
        key = [v.concat(list(columns)) for columns in zip(*key_parts, strict=True)] if self.right.on else []
        groups = RowGroups(key, len(key[0]) if key else 1)
        key = [c.take(groups.first) for c in key]
        bound = np.full(groups.count, frontier.after[LEAST])
        if left_rows.runs:
            group_numbers, stored_left = self.left.match_lookup(left_rows, key, groups.count)
            left_times = stored_left[stored_column(self.rel.ticks[0])]
            np.minimum.at(bound, group_numbers, np.where(left_times.is_valid(), left_times.data, frontier.after[LEAST]))
        group_numbers, lookup = self.right.match_lookup(right_rows, key, groups.count)
        rows = self.right.decode_rows(lookup)
        tick, source, tie_breakers = self._order_columns(rows)
        order = np.lexsort((*reversed(tie_breakers), source, tick, group_numbers))
        is_hiding = (rows.knowledge.mask == masks.T) & (tick <= bound[group_numbers])
        for name in self.right.layout.evolving:
            is_hiding &= k.is_final(rows.knowledge.columns[name])
        last = _last_chosen(group_numbers[order], np.arange(len(order)), is_hiding[order], groups.count)
        hidden_rows = order[np.arange(len(order)) < last[group_numbers[order]]]
        return self.right.remove_rows(right_rows, lookup.take(hidden_rows))

    def _frontier_advance(self, advance: HorizonAdvance) -> HorizonAdvance:
        return HorizonAdvance(*({LEAST: self._left_frontier(h)} for h in (advance.before, advance.after)))

    def _left_frontier(self, horizons: Horizons) -> int:
        """The time up to which no more left rows can come, in the unit of the left rows' time column."""
        assert self.lateness is not None
        ends = [END if horizons[s] >= END else horizons[s] - d for s, d in self.lateness.items()]
        unit = TICKS_PER_MICROSECOND if self.left.source.layout.fixed[self.rel.ticks[0]] == TIMESTAMP else 1
        return min(ends, default=END) // unit


def _last_chosen(groups: Indices, numbers: Array, chosen: Bools, count: int) -> Indices:
    """For each group the number of its last chosen row, -1 if there is none. Rows are sorted by group."""
    last_numbers = np.full(count, -1)
    chosen_rows = np.flatnonzero(chosen)
    # NumPy keeps the last of several assignments to one index.
    last_numbers[groups[chosen_rows]] = numbers[chosen_rows]
    return last_numbers
