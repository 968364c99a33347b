"""Bugs to plant, one at a time: each is a patch of the transforms, the state or the engine that breaks a promise.

The product has no switches for them. What a bug does is its name; it is undone with the patch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from smile.columns import masks
from smile.columns.values import Values, concat
from smile.engine import exchange, intake, local, messages, plan
from smile.kernels import last, ordering, over_windows, rows, seals, shown, silence
from smile.kernels.aggregates import counts, distincts, exact, latests, parts, peaks, sums
from smile.kernels.changes import Groups
from smile.kernels.expressions import choices, logic
from smile.kernels.expressions.plain import less
from smile.kernels.joins import asof, kleene, pairs, sides
from smile.kernels.kept import least
from smile.log.frame import END, NOTHING
from smile.state import hiding, run, store, table

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


def canary(promise: str = "beside") -> Callable[[Plant], Plant]:
    def note(plant: Plant) -> Plant:
        CANARIES.append(Canary(plant, promise))
        return plant

    return note


# ── what leaves, changes or comes twice ─────────────────────────────────────────────────────────────────────────────


@canary()
def sum_adds_what_leaves(patch: Patch) -> None:
    real = exact.summed
    patch.setattr(exact, "summed", lambda a, b, _sign: real(a, b, 1))


@canary()
def count_keeps_what_leaves(patch: Patch) -> None:
    def absorb(self: counts.Count, rows: Any, batch: parts.Batch, place: Any) -> Any:
        return real(self, rows, replace(batch, changes=replace(batch.changes, old=None)), place)

    real = counts.Count.absorb
    patch.setattr(counts.Count, "absorb", absorb)


@canary()
def max_stays_when_the_greatest_leaves(patch: Patch) -> None:
    patch.setattr(peaks, "_lost", lambda *_: np.zeros(0, np.int64))


@canary()
def latest_is_what_came_last(patch: Patch) -> None:
    patch.setattr(latests, "is_later", lambda a, _b: a.tick.there())


@canary()
def distinct_value_counts_again_in_each_frame(patch: Patch) -> None:
    def absorb(self: distincts.PlainCountDistinct, rows: Any, batch: Any, place: Any) -> Any:
        return real(self, rows, batch, replace(place, tables={n: table.Table(s) for n, s in self.shapes.items()}))

    real = distincts.PlainCountDistinct.absorb
    patch.setattr(distincts.PlainCountDistinct, "absorb", absorb)


@canary()
def netting_keeps_one_half(patch: Patch) -> None:
    def netted(self: Any) -> Any:
        found = real(self)
        if found is None:
            return None
        who, value, _ = found
        every = np.concatenate(self.who)
        first = Groups([Values(every), concat(self.values)], len(every)).first
        return who, value, [np.concatenate(c)[first] for c in zip(*self.changes, strict=True)]

    real = distincts._Entries.netted
    patch.setattr(distincts._Entries, "netted", netted)


@canary()
def event_known_already_is_taken_again(patch: Patch) -> None:
    real = local.heard_of
    patch.setattr(local, "heard_of", lambda events, _horizon: real(events, NOTHING))


# ── horizons and edges ──────────────────────────────────────────────────────────────────────────────────────────────


@canary()
def horizon_alone_wakes_nothing(patch: Patch) -> None:
    real = table.Table.between
    patch.setattr(table.Table, "between", lambda self, order, after, _upto: real(self, order, after, after))


def earlier(horizons: seals.Horizons) -> dict[str, int]:
    return {s: h if h >= END else h + 1 for s, h in horizons.items()}


@canary("safe")
def seal_is_reached_one_tick_early(patch: Patch) -> None:
    real = seals.Seals.reached
    patch.setattr(seals.Seals, "reached", lambda self, horizons, *rest: real(self, earlier(horizons), *rest))


@canary()
def window_has_its_end_and_not_its_start(patch: Patch) -> None:
    def apply(self: rows.Windows, changes: Any) -> Any:
        found = real(self, changes)
        if self.on not in found.fixed:
            return found
        start = found.fixed["window_start"].data
        back = np.where(found.fixed[self.on].data == start, self.slide, 0)
        moved = {c: Values(found.fixed[c].data - back) for c in ("window_start", "window_end")}
        return replace(found, fixed={**found.fixed, **moved})

    real = rows.Windows.apply
    patch.setattr(rows.Windows, "apply", apply)


@canary()
def last_is_left_one_tick_late(patch: Patch) -> None:
    real = last.Last._until
    patch.setattr(last.Last, "_until", lambda self, fixed: seals.later(real(self, fixed), 1))


@canary()
def silence_is_decided_one_tick_early(patch: Patch) -> None:
    real = least
    patch.setattr(silence, "least", lambda horizons, streams: real(earlier(horizons), streams))


@canary()
def range_leaves_its_first_tick_out(patch: Patch) -> None:
    def of(group: Any, by: Any, asked: Any, span: int | None) -> Any:
        return real(group, by, asked, None if span is None else span - 1)

    real = over_windows.Windows.of
    patch.setattr(over_windows.Windows, "of", staticmethod(of))


@canary()
def asof_leaves_its_own_tick_out(patch: Patch) -> None:
    def by_order(self: asof.AsOf, asking: sides.Rows, others: Any) -> Any:
        at = self.rel.at[0]
        moment = asking.fixed[at]
        return real(self, replace(asking, fixed={**asking.fixed, at: Values(moment.data - 1, moment.valid)}), others)

    real = asof.AsOf._by_order
    patch.setattr(asof.AsOf, "_by_order", by_order)


@canary()
def upper_bound_is_off_by_one(patch: Patch) -> None:
    patch.setattr(logic, "at_least", lambda a, b: less(b, a))


# ── masks and knowledge ─────────────────────────────────────────────────────────────────────────────────────────────


@canary()
def either_side_must_stay_for_both(patch: Patch) -> None:
    patch.setattr(masks, "any_of", lambda a, b: ((a | b) & (masks.CAN | masks.NOW)) | ((a | b) & masks.CANNOT))


@canary()
def row_is_final_while_its_columns_evolve(patch: Patch) -> None:
    patch.setattr(messages, "finals", lambda _layout, changes: changes.new.mask == masks.T)


@canary()
def sum_is_thought_to_rise_only(patch: Patch) -> None:
    real = sums._open
    patch.setattr(sums, "_open", lambda argument: (False, real(argument)[1]))


@canary()
def case_is_within_its_present_branch(patch: Patch) -> None:
    class Branches(choices._Branches):
        def __init__(self, conditions: Any, count: int) -> None:
            super().__init__(conditions, count)
            self.reached = self.current

    patch.setattr(choices, "_Branches", Branches)


@canary()
def no_match_is_decided_while_one_may_come(patch: Patch) -> None:
    real = kleene.any_of
    patch.setattr(kleene, "any_of", lambda found, more: real(found, np.zeros(len(more), bool)))


@canary()
def row_hidden_for_now_is_forgotten(patch: Patch) -> None:
    patch.setattr(masks, "gone", lambda codes: ~masks.shown(codes))


@canary()
def tie_goes_to_the_greater_key(patch: Patch) -> None:
    real = ordering._ranked
    patch.setattr(ordering, "_ranked", lambda columns, keys, count: real(columns, [-k for k in keys], count))


# ── joins ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@canary()
def join_does_not_heed_changes_of_its_right_side(patch: Patch) -> None:
    def step(self: pairs.Pairs, state: Any, inputs: Sequence[Any], moved: Any) -> Any:
        lefts, rights = inputs
        if rights is None or rights.old is None:
            return real(self, state, inputs, moved)
        state, _ = real(self, state, [None, rights], moved)
        return real(self, state, [lefts, None], moved)

    real = pairs.Pairs.step
    patch.setattr(pairs.Pairs, "step", step)


@canary()
def rows_of_one_frame_do_not_meet(patch: Patch) -> None:
    nothing = np.zeros(0, np.int64)
    patch.setattr(pairs, "meeting", lambda *_: (nothing, nothing))


@canary()
def null_joins_null(patch: Patch) -> None:
    def match(self: table.Table, on: Any, asked: Sequence[Values], *_: Any, **__: Any) -> Any:
        every, count = self.scan(), len(asked[0])
        who, at = np.repeat(np.arange(count), len(every)), np.tile(np.arange(len(every)), count)
        alike = [every[name].take(at).same(column.take(who)) for name, column in zip(on, asked, strict=True)]
        found = np.flatnonzero(np.logical_and.reduce(alike))
        return who[found], every.take(at[found])

    patch.setattr(table.Table, "match", match)
    patch.setattr(pairs, "_there", lambda _: None)
    patch.setattr(pairs, "done", lambda side, told, moved: told and side.is_met(told.fixed, len(told), moved.after))


@canary()
def joined_row_is_forgotten_one_tick_early(patch: Patch) -> None:
    def is_met(self: sides.Side, fixed: Any, count: int, horizons: Any) -> Any:
        return real(self, fixed, count, earlier(horizons))

    real = sides.Side.is_met
    patch.setattr(sides.Side, "is_met", is_met)


# ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@canary()
def index_finds_older_versions_too(patch: Patch) -> None:
    patch.setattr(hiding.Hiding, "hides", lambda *_: None)


@canary("same_however_cut")
def version_that_branches_hides_in_the_other(patch: Patch) -> None:
    def after(self: hiding.Hiding, version: int, places: Any) -> hiding.Hiding:
        self.latest = version
        return real(self, version, places)

    real = hiding.Hiding.after
    patch.setattr(hiding.Hiding, "after", after)


@canary()
def compaction_keeps_the_older_version(patch: Patch) -> None:
    def merge(shape: Any, runs: Sequence[Any], live: Sequence[Any], is_oldest: bool) -> Any:
        marks = [np.concatenate([r.hashes for r in runs[n + 1 :]] or [runs[0].hashes[:0]]) for n in range(len(runs))]
        return real(shape, runs, [~np.isin(r.hashes, m) for r, m in zip(runs, marks, strict=True)], is_oldest)

    real = run.merge
    patch.setattr(table, "merge", merge)


@canary("same_after_a_crash")
def compaction_forgets_what_is_gone(patch: Patch) -> None:
    real = run.merge
    patch.setattr(table, "merge", lambda shape, runs, live, _is_oldest: real(shape, runs, live, True))


@canary("same_after_a_crash")
def state_is_read_with_its_oldest_run_first(patch: Patch) -> None:
    def read(self: store.Store, *rest: Any) -> store.Saved:
        found = real(self, *rest)
        turned = {name: table.Table(t.shape, t.runs[::-1]) for name, t in found.tables.items()}
        return replace(found, tables=turned)

    real = store.Store.read
    patch.setattr(store.Store, "read", read)


@canary("same_after_a_crash")
def state_says_it_has_heard_a_tick_more(patch: Patch) -> None:
    def save(self: store.Store, number: int, horizons: Any, tables: Any) -> int:
        return real(self, number, earlier(horizons), tables)

    real = store.Store.save
    patch.setattr(store.Store, "save", save)


@canary("same_however_cut")
def row_that_is_hidden_is_still_shown(patch: Patch) -> None:
    def step(self: shown.Shown, state: Any, inputs: Sequence[Any], moved: Any) -> Any:
        (changes,) = inputs
        kept = None if changes is None else changes.take(np.flatnonzero(masks.shown(changes.new.mask)))
        return real(self, state, [kept], moved)

    real = shown.Shown.step
    patch.setattr(shown.Shown, "step", step)


@canary("same_however_told")
def frame_ends_a_tick_too_late(patch: Patch) -> None:
    def frame(self: intake.Intake) -> Any:
        found = real(self)
        return None if found is None else replace(found, horizons=earlier(found.horizons))

    real = intake.Intake.frame
    patch.setattr(intake.Intake, "frame", frame)


@canary("rewritten")
def restriction_is_pushed_past_default_rows(patch: Patch) -> None:
    rule = import_module("smile.algebra.rules.push_down")  # the package has the rule itself by this name
    patch.setattr(rule, "_may_hold_of_default", lambda *_: False)


# ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────────


@canary("same_in_partitions")
def rows_go_anywhere(patch: Patch) -> None:
    patch.setattr(plan, "partition_of", lambda _columns, count, partitions: np.arange(count) % partitions)


@canary("same_in_partitions")
def every_partition_passes_on_what_all_have(patch: Patch) -> None:
    patch.setattr(plan.Work, "_share", lambda _self, changes, _by, _partition: changes)


@canary("same_in_partitions")
def what_is_one_row_is_one_in_each_partition(patch: Patch) -> None:
    real = plan.Work.step
    patch.setattr(plan.Work, "step", lambda self, *args: real(replace(self, single=frozenset()), *args))


@canary("same_in_partitions")
def the_old_half_is_not_sent(patch: Patch) -> None:
    real = exchange.Outgoing.add
    patch.setattr(
        exchange.Outgoing, "add", lambda self, name, layout, c: real(self, name, layout, replace(c, old=None))
    )
