"""Bugs of plans and of their switching that the simulator must find. Each one is planted into the product for a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from smile.broker.global_streams.global_import import GlobalImport
from smile.broker.global_streams.known_publishers import KnownPublishers
from smile.broker.global_streams.relation_planning import PlannedSource
from smile.broker.imports.exported_stream import ExportedStream
from smile.broker.network.producer_registry import ProducerRegistry
from smile.horizons import HORIZON_MIN
from smile.registry.assembly import Assembly

Patch = pytest.MonkeyPatch


def new_plan_leaves_a_gap(patch: Patch) -> None:
    """Its sources begin at the greatest horizon that was passed on, and nobody notices."""
    begin = Assembly.begin

    def begin_late(assembly: Assembly[Any], plan: Iterable[Any]) -> None:
        since, present = max(assembly.horizons.values(), default=HORIZON_MIN), assembly.sources
        begin(assembly, [s if s in present else msgspec.structs.replace(s, since=since) for s in plan])

    patch.setattr(Assembly, "begin", begin_late)
    where_sources_begin_is_ignored(patch)


def number_that_changes_hands_is_continued(patch: Patch) -> None:
    """Events of two brokers with one number are taken for those of one."""
    patch.setattr(GlobalImport, "_find_displaced", lambda _: {})


def broker_that_is_held_back_publishes(patch: Patch) -> None:
    patch.setattr(ProducerRegistry, "_number_problem", lambda *_: None)


def where_sources_begin_is_ignored(patch: Patch) -> None:
    create = Assembly.__init__

    def create_without(assembly: Assembly[Any], may_have: Any, _begins_at: Any, *others: Any) -> None:
        create(assembly, may_have, lambda _: HORIZON_MIN, *others)

    patch.setattr(Assembly, "__init__", create_without)


def what_is_registered_is_ignored(patch: Patch) -> None:
    """An origin is passed on, although a source has known of more producers there than this broker."""

    def reached(import_: GlobalImport, source: ExportedStream) -> dict[str, int]:
        horizons, membership = source.horizons(), source.membership()
        members = {} if membership is None else membership.members
        return {o: horizons[o] for o in members if o in import_._registrations.origins and o in horizons}

    patch.setattr(GlobalImport, "_reached", reached)


def earlier_plan_counts_for_new_producers(patch: Patch) -> None:
    patch.setattr(GlobalImport, "_has_all", lambda *_: True)


def condition_of_the_old_plan_is_kept(patch: Patch) -> None:
    """A source that stays is asked for what it was asked for before."""
    set_plan = GlobalImport.set_plan

    def set_with_old(import_: GlobalImport, planned: Sequence[PlannedSource]) -> bool:
        old = {(s.host, s.stream): s.condition for s in import_.plan}
        return set_plan(import_, [p._replace(condition=old.get((p.host, p.stream), p.condition)) for p in planned])

    patch.setattr(GlobalImport, "set_plan", set_with_old)


def dead_republisher_is_trusted(patch: Patch) -> None:
    """A republisher stays in the plans when it cannot be reached."""
    create = KnownPublishers.__init__

    def create_trusting(known: KnownPublishers, find_entries: Callable[[], Any], *others: Any) -> None:
        create(known, lambda: [(entry, True) for entry, _ in find_entries()], *others)

    patch.setattr(KnownPublishers, "__init__", create_trusting)


def withdrawn_producers_are_forgotten(patch: Patch) -> None:
    """What they have published and is not here yet is not waited for."""
    patch.setattr(GlobalImport, "_has_withdrawn", lambda *_: False)


def switch_waits_for_the_absent(patch: Patch) -> None:
    patch.setattr(GlobalImport, "_has_absent_host", lambda *_: False)


def one_source_is_enough(patch: Patch) -> None:
    """An origin is passed on as far as any source has it."""

    def reach(assembly: Assembly[Any], plan: Sequence[Any], origin: str, reached: Mapping[Any, Any]) -> int:
        needed = [source for source in plan if assembly._may_have(source, origin)]
        return max((reached.get(source, {}).get(origin, HORIZON_MIN) for source in needed), default=HORIZON_MIN)

    patch.setattr(Assembly, "_reach", reach)


def later_producer_of_a_channel_publishes(patch: Patch) -> None:
    patch.setattr(ProducerRegistry, "_rivalry", lambda *_: None)


def epoch_is_adopted_without_its_members(patch: Patch) -> None:
    """Whoever hears of a closed epoch takes it for confirmed."""
    patch.setattr("smile.registry.epochs.missing_members", lambda *_: [])


BUGS: list[Callable[[Patch], None]] = [
    number_that_changes_hands_is_continued,
    broker_that_is_held_back_publishes,
    new_plan_leaves_a_gap,
    where_sources_begin_is_ignored,
    what_is_registered_is_ignored,
    earlier_plan_counts_for_new_producers,
    condition_of_the_old_plan_is_kept,
    dead_republisher_is_trusted,
    withdrawn_producers_are_forgotten,
    switch_waits_for_the_absent,
    one_source_is_enough,
    later_producer_of_a_channel_publishes,
    epoch_is_adopted_without_its_members,
]
