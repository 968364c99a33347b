"""Bugs to plant, one at a time: each is a patch of the transforms, the state or the engine that breaks a promise.

The product has no switches for them. What a bug does is its name; it is undone with the patch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from smile.algebra.types import INT_MAX, INT_MIN
from smile.analysis import type_analysis
from smile.columns import masks
from smile.columns.timed_values import TimedValues
from smile.columns.values import ValueColumn, concat, ranks
from smile.encoding import json_changes
from smile.engine import exchange, local, plan
from smile.horizons import END, HORIZON_MIN, split_name
from smile.kernels import best, last, materialized_view, ordering, row_wise, seals, session, silence, ungroup, values
from smile.kernels.aggregates import (
    contributions,
    count_distinct,
    counts,
    exact_sums,
    group_extremes,
    joined_values,
    latest,
    ordered_multiset,
    sums,
    value_seals as value_seal_index,
)
from smile.kernels.delta import RowGroups
from smile.kernels.expressions import choices, compile as expression_compiler, logic, operands
from smile.kernels.expressions.column_functions import is_less
from smile.kernels.joins import asof_join, inner_join, join_sides, kleene
from smile.kernels.over import rows as over_rows, windows as over_windows
from smile.knowledge import aggregate_types, implied_values, value_seals
from smile.knowledge.values import nested
from smile.knowledge.values.latest import LatestValue
from smile.log.input_batch import InputBatch
from smile.operators import best as best_operator
from smile.state import run, store, table, visibility
from tests.engine import intake

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True)
class Canary:
    plant: Plant
    promise: str
    """What it must break."""

    @property
    def name(self) -> str:
        return self.plant.__name__


CANARIES: list[Canary] = []


def canary(promise: str = "same_as_reference") -> Callable[[Plant], Plant]:
    def note(plant: Plant) -> Plant:
        CANARIES.append(Canary(plant, promise))
        return plant

    return note


# ── what leaves, changes or comes twice ─────────────────────────────────────────────────────────────────────────────


@canary()
def sum_adds_what_leaves(patch: Patch) -> None:
    real = exact_sums.add_exactly
    patch.setattr(exact_sums, "add_exactly", lambda a, b, _sign: real(a, b, 1))


@canary()
def count_keeps_what_leaves(patch: Patch) -> None:
    def absorb(self: counts.RetractableCount, rows: Any, batch: contributions.MemberDelta, place: Any) -> Any:
        return real(self, rows, replace(batch, delta=replace(batch.delta, old=None)), place)

    real = counts.RetractableCount.absorb
    patch.setattr(counts.RetractableCount, "absorb", absorb)


@canary()
def max_stays_when_the_greatest_leaves(patch: Patch) -> None:
    patch.setattr(group_extremes, "_groups_to_rescan", lambda *_: np.zeros(0, np.int64))


@canary()
def latest_is_what_came_last(patch: Patch) -> None:
    patch.setattr(latest, "is_later", lambda a, _b: a.tick.is_valid())


@canary()
def latest_does_not_say_of_which_source_it_is(patch: Patch) -> None:
    """Neither the engine nor the reference does: only what is said of two events at one tick shows it."""

    def cell(bounds: Any, value: Any, tick: Any, _source: int) -> Any:
        return real_cell(bounds, value, tick, 0)

    def wire(self: LatestValue) -> Any:
        return {word: value for word, value in real_wire(self).items() if word != "source"}

    real_cell, real_wire = json_changes._latest_cell_json, LatestValue.wire
    patch.setattr(json_changes, "_latest_cell_json", cell)
    patch.setattr(LatestValue, "wire", wire)


@canary()
def latest_of_two_at_one_tick_is_what_came_last(patch: Patch) -> None:
    def is_later(a: TimedValues, b: TimedValues) -> Any:
        return a.tick.is_valid() & ((a.tick.data >= b.tick.data) | b.tick.is_null())

    patch.setattr(latest, "is_later", is_later)


@canary()
def row_of_a_nested_relation_is_always_final(patch: Patch) -> None:
    """Engine and reference encode it alike: only what is said later of the rows shows it."""
    patch.setattr(nested, "_row_state", lambda _row: "final")


@canary()
def distinct_value_counts_again_in_each_frame(patch: Patch) -> None:
    def absorb(self: count_distinct.AppendOnlyCountDistinct, rows: Any, batch: Any, place: Any) -> Any:
        return real(
            self, rows, batch, replace(place, tables={n: table.StateTable(s) for n, s in self.table_schemas.items()})
        )

    real = count_distinct.AppendOnlyCountDistinct.absorb
    patch.setattr(count_distinct.AppendOnlyCountDistinct, "absorb", absorb)


@canary()
def netting_keeps_one_half(patch: Patch) -> None:
    def netted(self: Any) -> Any:
        delta = real(self)
        if delta is None:
            return None
        who, value, _ = delta
        every = np.concatenate(self.groups)
        first = RowGroups([ValueColumn(every), concat(self.values)], len(every)).first
        return who, value, [np.concatenate(c)[first] for c in zip(*self.changes, strict=True)]

    real = count_distinct._ValueCountChanges.net
    patch.setattr(count_distinct._ValueCountChanges, "net", netted)


@canary()
def percentile_counts_values_that_have_left(patch: Patch) -> None:
    def add(self: ordered_multiset.OrderedMultiset, place: Any, groups: Any, codes: Any, changes: Any) -> Any:
        return real(self, place, groups, codes, {name: np.maximum(change, 0) for name, change in changes.items()})

    real = ordered_multiset.OrderedMultiset.add
    patch.setattr(ordered_multiset.OrderedMultiset, "add", add)


@canary()
def texts_are_joined_in_one_direction_only(patch: Patch) -> None:
    patch.setattr(joined_values, "_sort_ranks", lambda values, _: ranks(values))


@canary()
def elements_of_an_array_that_changes_are_certain(patch: Patch) -> None:
    real = ungroup.UngroupTransform._column
    patch.setattr(
        ungroup.UngroupTransform,
        "_column",
        lambda self, now, is_final: real(self, now, np.ones(len(is_final), bool)),
    )


@canary()
def event_known_already_is_taken_again(patch: Patch) -> None:
    real = local.events_delta
    patch.setattr(local, "events_delta", lambda events, _horizon: real(events, HORIZON_MIN))


@canary()
def last_of_the_written_rows_is_lost(patch: Patch) -> None:
    def initial_rows(self: values.ValuesTransform) -> Any:
        rows = real(self)
        return rows.take(np.arange(len(rows) - 1))

    real = values.ValuesTransform.initial_rows
    patch.setattr(values.ValuesTransform, "initial_rows", initial_rows)


@canary()
def deleted_row_of_a_table_is_not_known_to_be_gone(patch: Patch) -> None:
    """A deletion that is the last change of its key is no different from any other text."""

    def possible_distinct(args: Any) -> Any:
        is_distinct, _ = real(args)
        return np.ones_like(is_distinct), np.zeros_like(is_distinct)

    real = logic._possible_distinct
    patch.setattr(logic, "_possible_distinct", possible_distinct)


# ── horizons and edges ──────────────────────────────────────────────────────────────────────────────────────────────


@canary()
def horizon_alone_wakes_nothing(patch: Patch) -> None:
    real = table.StateTable.rows_between
    patch.setattr(table.StateTable, "rows_between", lambda self, order, after, _upto: real(self, order, after, after))


def earlier(horizons: seals.Horizons) -> dict[str, int]:
    return {s: h if h >= END else h + 1 for s, h in horizons.items()}


@canary()
def seal_is_reached_one_tick_early(patch: Patch) -> None:
    real = seals.Seals.is_sealed
    patch.setattr(seals.Seals, "is_sealed", lambda self, horizons, *rest: real(self, earlier(horizons), *rest))


@canary("safe")
def row_is_sealed_from_the_beginning(patch: Patch) -> None:
    patch.setattr(seals.Seals, "is_sealed", lambda _self, _horizons, _columns, count: np.ones(count, bool))


@canary("safe")
def least_time_is_final_one_tick_early(patch: Patch) -> None:
    """Neither the engine nor the reference is right: only what happens later shows it."""

    def early(expr: Any, source: Any) -> Any:
        return {s: seal.delay(-1) for s, seal in real(expr, source).items()}

    real = value_seals.value_seals
    patch.setattr(value_seals, "value_seals", early)


@canary("safe")
def group_is_closed_by_what_its_key_determines_one_tick_early(patch: Patch) -> None:
    """Neither the engine nor the reference is right: only what happens later shows it."""

    def early(seal: Any, source: Any, per: Any, columns: Any) -> Any:
        by_group = source.constraints.express_seal(seal, per)
        return real(seal, source, per, columns).delay(-1 if by_group.is_never else 0)

    real = aggregate_types._earliest_seal
    patch.setattr(aggregate_types, "_earliest_seal", early)


@canary("safe")
def first_rows_of_a_group_are_thought_to_be_fewer(patch: Patch) -> None:
    """Neither the engine nor the reference is right: only what happens later shows it."""
    real = best_operator._displacement
    patch.setattr(best_operator, "_displacement", lambda rel: replace(real(rel), rows_max=1))


@canary()
def least_time_is_final_only_when_its_group_changes(patch: Patch) -> None:
    patch.setattr(value_seal_index.ValueSealIndex, "find_sealed_rows", lambda _self, table, _advance: table.no_rows())


@canary()
def group_of_first_rows_is_forgotten_when_they_are_final(patch: Patch) -> None:
    def forget(self: best.BestTransform, *args: Any) -> None:
        real(self, *args)
        self.closing_index = self.seal_index

    real = best.BestTransform.__init__
    patch.setattr(best.BestTransform, "__init__", forget)


@canary()
def window_has_its_end_and_not_its_start(patch: Patch) -> None:
    def apply(self: row_wise.HopTransform, changes: Any) -> Any:
        delta = real(self, changes)
        if self.on not in delta.fixed:
            return delta
        start = delta.fixed["window_start"].data
        back = np.where(delta.fixed[self.on].data == start, self.slide, 0)
        moved = {c: ValueColumn(delta.fixed[c].data - back) for c in ("window_start", "window_end")}
        return replace(delta, fixed={**delta.fixed, **moved})

    real = row_wise.HopTransform.apply
    patch.setattr(row_wise.HopTransform, "apply", apply)


@canary()
def last_is_left_one_tick_late(patch: Patch) -> None:
    real = last.LastTransform._leave_ticks
    patch.setattr(last.LastTransform, "_leave_ticks", lambda self, *rows: seals.shift_ticks(real(self, *rows), 1))


@canary()
def silence_is_decided_one_tick_early(patch: Patch) -> None:
    def least_advance(self: silence.SilenceTransform, advance: seals.HorizonAdvance) -> seals.HorizonAdvance:
        return real(self, seals.HorizonAdvance(earlier(advance.before), earlier(advance.after)))

    real = silence.SilenceTransform._least_advance
    patch.setattr(silence.SilenceTransform, "_least_advance", least_advance)


@canary()
def a_session_ends_one_tick_early(patch: Patch) -> None:
    real = session.SessionTransform.__init__

    def begin(self: session.SessionTransform, rel: Any, source: Any, output: Any) -> None:
        real(self, replace(rel, gap=rel.gap - 1), source, output)

    patch.setattr(session.SessionTransform, "__init__", begin)


@canary()
def rows_do_not_move_to_the_earlier_session(patch: Patch) -> None:
    real = session._Rows.changes
    patch.setattr(session._Rows, "changes", lambda self: real(self)[:1])


@canary()
def range_leaves_its_first_tick_out(patch: Patch) -> None:
    def of(group: Any, by: Any, asked: Any, span: int | None) -> Any:
        return real(group, by, asked, None if span is None else span - 1)

    real = over_windows.RowWindows.for_rows
    patch.setattr(over_windows.RowWindows, "for_rows", staticmethod(of))


@canary()
def a_frame_of_rows_forgets_its_first_row(patch: Patch) -> None:
    real = over_rows._Positions.frames

    def frames(self: Any, first: int, last: int) -> Any:
        lo, hi = real(self, first, last)
        return np.minimum(lo + 1, hi), hi

    patch.setattr(over_rows._Positions, "frames", frames)


@canary()
def rows_before_a_frame_are_forgotten_too_early(patch: Patch) -> None:
    real = over_rows._GroupRows.store

    def store(self: Any, table: Any) -> Any:
        return real(self, table) if self.transform.first >= 0 else real_with(self, table)

    def real_with(self: Any, table: Any) -> Any:
        first, self.transform.first = self.transform.first, self.transform.first + 1
        stored = real(self, table)
        self.transform.first = first
        return stored

    patch.setattr(over_rows._GroupRows, "store", store)


@canary()
def asof_leaves_its_own_tick_out(patch: Patch) -> None:
    def by_order(self: asof_join.AsofJoin, asking: join_sides.JoinRows, others: Any) -> Any:
        at = self.rel.ticks[0]
        moment = asking.fixed[at]
        return real(
            self, replace(asking, fixed={**asking.fixed, at: ValueColumn(moment.data - 1, moment.valid)}), others
        )

    real = asof_join.AsofJoin._match_by_order
    patch.setattr(asof_join.AsofJoin, "_match_by_order", by_order)


@canary()
def upper_bound_is_off_by_one(patch: Patch) -> None:
    patch.setattr(logic, "is_at_least", lambda a, b: is_less(b, a))


# ── masks and knowledge ─────────────────────────────────────────────────────────────────────────────────────────────


@canary()
def either_side_must_stay_for_both(patch: Patch) -> None:
    patch.setattr(
        masks, "any_of", lambda a, b: ((a | b) & (masks.MAY_SHOW | masks.SHOWN_NOW)) | ((a | b) & masks.MAY_HIDE)
    )


@canary()
def row_is_final_while_its_columns_evolve(patch: Patch) -> None:
    patch.setattr(json_changes, "is_row_final", lambda _layout, changes: changes.new.mask == masks.T)


@canary()
def sum_is_thought_to_rise_only(patch: Patch) -> None:
    real = sums._open_directions
    patch.setattr(sums, "_open_directions", lambda argument: (False, real(argument)[1]))


@canary()
def case_is_within_its_present_branch(patch: Patch) -> None:
    class Branches(choices._Branches):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.possible = self.current

    patch.setattr(choices, "_Branches", Branches)


@canary()
def member_that_may_leave_is_within_its_cell_only(patch: Patch) -> None:
    patch.setattr(contributions.Contributions, "within", lambda self, _domain, _data: self)


@canary("safe")
def condition_that_fails_is_thought_to_exclude_its_bound(patch: Patch) -> None:
    patch.setitem(implied_values._NEGATED_COMPARISONS, "<", ">")
    patch.setitem(implied_values._NEGATED_COMPARISONS, ">", "<")


@canary("safe")
def either_condition_is_thought_to_hold_as_both(patch: Patch) -> None:
    patch.setattr(implied_values._Implication, "_any_of", lambda _, parts: implied_values._all_of(parts))


@canary()
def no_match_is_decided_while_one_may_come(patch: Patch) -> None:
    real = kleene.has_match
    patch.setattr(kleene, "has_match", lambda matches, more: real(matches, np.zeros(len(more), bool)))


@canary()
def row_hidden_for_now_is_forgotten(patch: Patch) -> None:
    patch.setattr(masks, "is_permanently_hidden", lambda codes: ~masks.is_shown(codes))


@canary()
def tie_goes_to_the_greater_key(patch: Patch) -> None:
    real = ordering._unique_ranks
    patch.setattr(ordering, "_unique_ranks", lambda columns, keys, count: real(columns, [-k for k in keys], count))


# ── overflow ────────────────────────────────────────────────────────────────────────────────────────────────────────


@canary("safe")
def what_has_no_bound_does_not_overflow(patch: Patch) -> None:
    real = operands.operand_limits
    patch.setattr(expression_compiler, "operand_limits", lambda limits, types, _: real(limits, types, False))


@canary("safe")
def sum_is_thought_to_fit(patch: Patch) -> None:
    for accumulator in (sums.AppendOnlySum, sums.RetractableSum):
        _assume_that_sums_fit(patch, accumulator)


def _assume_that_sums_fit(patch: Patch, accumulator: Any) -> None:
    real = accumulator.__init__
    patch.setattr(
        accumulator,
        "__init__",
        lambda self, prefix, argument, **_: real(self, prefix, argument, can_overflow=False),
    )


@canary()
def sum_has_more_digits_than_its_type(patch: Patch) -> None:
    patch.setattr(exact_sums.IntegerSum, "value", lambda self, rows: ValueColumn(rows[self.column].data))


@canary()
def window_reaches_beyond_the_year_9999(patch: Patch) -> None:
    patch.setattr(row_wise, "INTEGER_RANGES", dict.fromkeys(("time", "timestamp"), (INT_MIN, INT_MAX)))


# ── joins ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@canary()
def join_does_not_heed_changes_of_its_right_side(patch: Patch) -> None:
    def step(self: inner_join.InnerJoin, state: Any, inputs: Sequence[Any], moved: Any) -> Any:
        lefts, rights = inputs
        if rights is None or rights.old is None:
            return real(self, state, inputs, moved)
        state, _ = real(self, state, [None, rights], moved)
        return real(self, state, [lefts, None], moved)

    real = inner_join.InnerJoin.step
    patch.setattr(inner_join.InnerJoin, "step", step)


@canary()
def rows_of_one_frame_do_not_meet(patch: Patch) -> None:
    nothing = np.zeros(0, np.int64)
    patch.setattr(inner_join, "equal_pairs", lambda *_: (nothing, nothing))


@canary()
def null_joins_null(patch: Patch) -> None:
    def match(self: table.StateTable, on: Any, asked: Sequence[ValueColumn], *_: Any, **__: Any) -> Any:
        every, count = self.scan(), len(asked[0])
        who, at = np.repeat(np.arange(count), every.row_count), np.tile(np.arange(every.row_count), count)
        alike = [every[name].take(at).same(column.take(who)) for name, column in zip(on, asked, strict=True)]
        row_numbers = np.flatnonzero(np.logical_and.reduce(alike))
        return who[row_numbers], every.take(at[row_numbers])

    patch.setattr(table.StateTable, "match", match)
    patch.setattr(inner_join, "_rows_without_null", lambda _: None)
    patch.setattr(
        inner_join,
        "needs_no_storage",
        lambda side, delta, moved: delta and side.has_final_matches(delta.fixed, len(delta), moved.after),
    )


@canary()
def joined_row_is_forgotten_one_tick_early(patch: Patch) -> None:
    def is_met(self: join_sides.JoinSide, fixed: Any, count: int, horizons: Any) -> Any:
        return real(self, fixed, count, earlier(horizons))

    real = join_sides.JoinSide.has_final_matches
    patch.setattr(join_sides.JoinSide, "has_final_matches", is_met)


# ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@canary()
def index_finds_older_versions_too(patch: Patch) -> None:
    patch.setattr(visibility.RowVisibility, "is_hidden", lambda *_: None)


@canary("same_in_any_batches")
def version_that_branches_hides_in_the_other(patch: Patch) -> None:
    def after(self: visibility.RowVisibility, version: int, places: Any) -> visibility.RowVisibility:
        self.latest = version
        return real(self, version, places)

    real = visibility.RowVisibility.at_next_version
    patch.setattr(visibility.RowVisibility, "at_next_version", after)


@canary()
def compaction_keeps_the_older_version(patch: Patch) -> None:
    def merge(shape: Any, runs: Sequence[Any], live: Sequence[Any], is_oldest: bool) -> Any:
        marks = [np.concatenate([r.hashes for r in runs[n + 1 :]] or [runs[0].hashes[:0]]) for n in range(len(runs))]
        return real(shape, runs, [~np.isin(r.hashes, m) for r, m in zip(runs, marks, strict=True)], is_oldest)

    real = run.merge_runs
    patch.setattr(table, "merge_runs", merge)


@canary("same_after_a_crash")
def compaction_forgets_what_is_gone(patch: Patch) -> None:
    real = run.merge_runs
    patch.setattr(table, "merge_runs", lambda shape, runs, live, _is_oldest: real(shape, runs, live, True))


@canary("same_after_a_crash")
def state_is_read_with_its_oldest_run_first(patch: Patch) -> None:
    def read(self: store.StateStore, *rest: Any) -> store.StoredVersion:
        lookup = real(self, *rest)
        turned = {name: table.StateTable(t.schema, t.runs[::-1]) for name, t in lookup.tables.items()}
        return replace(lookup, tables=turned)

    real = store.StateStore.read
    patch.setattr(store.StateStore, "read", read)


@canary("same_after_a_crash")
def state_says_it_has_heard_a_tick_more(patch: Patch) -> None:
    def save(self: store.StateStore, number: int, horizons: Any, tables: Any) -> int:
        return real(self, number, earlier(horizons), tables)

    real = store.StateStore.save
    patch.setattr(store.StateStore, "save", save)


@canary("same_in_any_batches")
def row_that_is_hidden_is_still_shown(patch: Patch) -> None:
    def step(self: materialized_view.MaterializedView, state: Any, inputs: Sequence[Any], moved: Any) -> Any:
        (changes,) = inputs
        kept = None if changes is None else changes.take(np.flatnonzero(masks.is_shown(changes.new.mask)))
        return real(self, state, [kept], moved)

    real = materialized_view.MaterializedView.step
    patch.setattr(materialized_view.MaterializedView, "step", step)


@canary("same_in_any_order")
def frame_ends_a_tick_too_late(patch: Patch) -> None:
    def frame(self: intake.Intake) -> Any:
        frame_bounds = real(self)
        return None if frame_bounds is None else replace(frame_bounds, horizons=earlier(frame_bounds.horizons))

    real = intake.Intake.next_batch
    patch.setattr(intake.Intake, "next_batch", frame)


@canary("rewritten")
def restriction_is_pushed_past_default_rows(patch: Patch) -> None:
    rule = import_module("smile.rules.push_down")  # the package has the rule itself by this name
    patch.setattr(rule, "_can_hold_of_default", lambda *_: False)


# ── streams with many origins ───────────────────────────────────────────────────────────────────────────────────────


@canary()
def rows_of_many_origins_are_taken_for_ordered(patch: Patch) -> None:
    real = type_analysis.stream_type
    patch.setattr(type_analysis, "stream_type", lambda stream: replace(real(stream), has_early_rows=False))


@canary()
def the_greatest_origin_is_the_horizon(patch: Patch) -> None:
    def advance_horizons(before: seals.Horizons, batch: InputBatch) -> seals.HorizonAdvance:
        advance = real(before, batch)
        return replace(advance, before=greatest(advance.before), after=greatest(advance.after))

    def greatest(horizons: seals.Horizons) -> seals.Horizons:
        raised = dict(horizons)
        for name, tick in horizons.items():
            stream, _ = split_name(name, ())
            if stream in horizons:
                raised[stream] = max(raised[stream], tick)
        return raised

    real = local.advance_horizons
    patch.setattr(local, "advance_horizons", advance_horizons)


@canary()
def rows_below_another_origin_are_dropped_as_late(patch: Patch) -> None:
    def input_deltas(kernels: Any, batch: InputBatch, horizons: seals.Horizons) -> Any:
        def greatest(name: str) -> int:
            stream, _ = split_name(name, kernels.inputs)
            return max(tick for other, tick in horizons.items() if split_name(other, kernels.inputs)[0] == stream)

        return real(kernels, batch, {**horizons, **{name: greatest(name) for name in batch.events}})

    real = local.input_deltas
    patch.setattr(local, "input_deltas", input_deltas)


@canary()
def what_is_known_of_an_origin_is_forgotten(patch: Patch) -> None:
    def input_deltas(kernels: Any, batch: InputBatch, horizons: seals.Horizons) -> Any:
        return real(kernels, batch, {n: t for n, t in horizons.items() if split_name(n, ())[0] not in horizons})

    real = local.input_deltas
    patch.setattr(local, "input_deltas", input_deltas)


# ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────────


@canary("same_in_partitions")
def rows_go_anywhere(patch: Patch) -> None:
    patch.setattr(plan, "partition_of", lambda _columns, count, partitions: np.arange(count) % partitions)


@canary("same_in_partitions")
def every_partition_passes_on_what_all_have(patch: Patch) -> None:
    patch.setattr(plan.ExecutableStage, "_share", lambda _self, changes, _by, _partition: changes)


@canary("same_in_partitions")
def what_is_one_row_is_one_in_each_partition(patch: Patch) -> None:
    real = plan.ExecutableStage.step
    patch.setattr(plan.ExecutableStage, "step", lambda self, *args: real(replace(self, single=frozenset()), *args))


@canary("same_in_partitions")
def the_old_half_is_not_sent(patch: Patch) -> None:
    real = exchange.ExchangeMessageBuilder.add
    patch.setattr(
        exchange.ExchangeMessageBuilder,
        "add",
        lambda self, name, layout, c: real(self, name, layout, replace(c, old=None)),
    )
