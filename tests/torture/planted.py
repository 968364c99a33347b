"""Bugs to plant in a broker, one at a time. Each is a patch of a running process; the product has no switches for them.

What a bug does is its name. `kills` is how many it takes for it to be found: most show without any.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from smile import limits
from smile.broker import broker, broker_log
from smile.broker.maintenance.local_executor import LocalExecutor
from smile.broker.maintenance.local_generation import LocalGeneration
from smile.broker.publishing import commit_group, published_events, publisher
from smile.broker.publishing.publication import Publication
from smile.broker.views import view
from smile.columns import masks
from smile.log.storage import durable

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True)
class Canary:
    """`symptom` is what the checker must say of it, among other things."""

    plant: Plant
    symptom: str
    kills: int

    @property
    def name(self) -> str:
        return self.plant.__name__


PLANTED: dict[str, Canary] = {}


def canary(symptom: str, kills: int = 0) -> Callable[[Plant], Plant]:
    def note(plant: Plant) -> Plant:
        PLANTED[plant.__name__] = Canary(plant, symptom, kills)
        return plant

    return note


def once_in(count: int) -> Callable[[], bool]:
    """True every so many times."""
    times = [0]

    def is_time() -> bool:
        times[0] += 1
        return times[0] % count == 0

    return is_time


# ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@canary("the log has it at None", kills=4)
def acknowledges_before_the_commit(patch: Patch) -> None:
    real = publisher.Publisher._commit

    def commit(self: publisher.Publisher, group: commit_group.CommitGroup) -> None:
        for future, published in group.answers:
            future.set_result(published)
        group.answers = []
        time.sleep(0.2)
        real(self, group)

    patch.setattr(publisher.Publisher, "_commit", commit)


@canary("the log has it at None", kills=2)
def loses_the_last_commit_when_it_starts(patch: Patch) -> None:
    real = broker_log.open_log

    def opened(path: str, *more: Any) -> durable.DurableLog:
        log = real(path, *more)

        def drop(db: Any) -> None:
            ((seq,),) = db.execute("SELECT coalesce(max(seq), 0) FROM commits WHERE rows > 0").fetchall()
            ((piece,),) = db.execute("SELECT coalesce(min(id), 1 << 60) FROM pieces WHERE seq >= ?", (seq,)).fetchall()
            if seq:
                db.execute("DELETE FROM commits WHERE seq >= ?", (seq,))
                db.execute("DELETE FROM pieces WHERE id >= ?", (piece,))

        log._transact(drop)
        return log

    patch.setattr(broker, "open_log", opened)


@canary("is in the log twice")
def logs_some_events_twice(patch: Patch) -> None:
    real, is_time = commit_group.CommitGroup._add_events, once_in(20)

    def take(self: commit_group.CommitGroup, order: Publication, rows: Any, ticks: Any, before: int) -> None:
        real(self, order, rows, ticks, before)
        if is_time() and not self.published.log.schemas[order.stream].stream.publisher_timed:
            real(self, Publication(order.stream, rows), rows, self.published.ticks.take(len(rows)), 0)

    patch.setattr(commit_group.CommitGroup, "_add_events", take)


@canary("was refused")
def takes_repeats_for_new(patch: Patch) -> None:
    patch.setattr(published_events.PublishedEvents, "find_repeats", lambda *_: [])


@canary("the log has it at None")
def drops_the_last_event_of_some_batches(patch: Patch) -> None:
    real, is_time = commit_group._StreamEvents.add, once_in(10)

    def add(self: commit_group._StreamEvents, rows: Any, ticks: Any, *more: Any) -> None:
        less = len(rows) - (is_time() and len(rows) > 1)
        real(self, rows[:less], ticks[:less], *more)

    patch.setattr(commit_group._StreamEvents, "add", add)


# ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────────────


@canary("and true is")
def keeps_a_stale_row(patch: Patch) -> None:
    real, is_time = view.View._apply, once_in(15)

    def take_in(self: view.View, changes: Any) -> None:
        real(self, changes.take(range(1, len(changes))) if is_time() else changes)

    patch.setattr(view.View, "_apply", take_in)


@canary("and true is None")
def forgets_to_say_that_rows_are_gone(patch: Patch) -> None:
    real = view.View._apply

    def take_in(self: view.View, changes: Any) -> None:
        real(self, changes.take(masks.is_shown(changes.new.mask).nonzero()[0]))

    patch.setattr(view.View, "_apply", take_in)


@canary("and true is")
def tells_progress_before_the_rows(patch: Patch) -> None:
    real = view.View.deliver

    def deliver(self: view.View, changes: Any, horizons: Any) -> None:
        if changes is not None and len(changes) and self._store.last_change:
            with self._lock:
                self._advance(horizons)
            for subscription in list(self._subscriptions):
                subscription.channel.waiting.discard(subscription)
                subscription.progress_due = 0.0
                subscription.waker()
            time.sleep(0.02)
        real(self, changes, horizons)

    patch.setattr(view.View, "deliver", deliver)


@canary("and true is")
def goes_on_from_tokens_as_if_nothing_had_changed(patch: Patch) -> None:
    real = view.View.subscribe

    def subscribe(self: view.View, condition: Any, waker: Any, resume: Any = None, after: Any = None) -> Any:
        subscription = real(self, condition, waker, resume, after)
        if resume is not None:
            subscription.last_change = self._store.last_change
        return subscription

    patch.setattr(view.View, "subscribe", subscribe)


@canary("was known up to", kills=6)
def shows_less_than_the_token_says(patch: Patch) -> None:
    """What it has computed so far is shown at once, though the subscriber knew more."""
    takes_long_to_catch_up(patch)
    real = view.View.subscribe

    def subscribe(self: view.View, condition: Any, waker: Any, resume: Any = None, after: Any = None) -> Any:
        subscription = real(self, condition, waker, resume, after)
        subscription.required_horizons = {}
        return subscription

    patch.setattr(view.View, "subscribe", subscribe)


@canary("and true is", kills=3)
def skips_what_came_after_the_checkpoint(patch: Patch) -> None:
    writes_checkpoints_all_the_time(patch)
    real = LocalGeneration.open

    def opened(generation: Any, store: Any, log: Any, clock: Any) -> Any:
        kept, problems = real(generation, store, log, clock)
        if kept.version:
            kept.position = log.newest()
        return kept, problems

    patch.setattr(LocalGeneration, "open", staticmethod(opened))


# ── no bugs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def takes_long_to_catch_up(patch: Patch) -> None:
    """In every other life subscribers come back before the broker knows what it knew."""
    real, is_new = LocalExecutor.advance, [True]

    def step(self: LocalExecutor) -> bool:
        if is_new.pop():
            time.sleep(random.choice((0.0, 1.5)))
        is_new.append(False)
        return real(self)

    patch.setattr(LocalExecutor, "advance", step)


def writes_checkpoints_all_the_time(patch: Patch) -> None:
    """It is killed while it writes them, and goes on from them."""
    patch.setattr(limits, "checkpoint_s_max", 0.1)


def waits_long_for_clients_when_it_stops(patch: Patch) -> None:
    """A client that is not disconnected delays the end by ten minutes."""
    patch.setattr(limits, "stop_s_max", 1200)


HARMLESS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (takes_long_to_catch_up, writes_checkpoints_all_the_time, waits_long_for_clients_when_it_stops)
}
"""What makes a broker slow or busy, and is no bug."""
