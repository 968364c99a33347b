"""Plans against every row of a small domain with NULL, without the planner's own decisions: which publishers have a row,
and which sources of the plan deliver it, is found by evaluating conditions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra.types import Value
from smile.registry import planner
from smile.registry.conditions import decide_consistent
from smile.registry.hierarchy import build_hierarchy, find_circles, find_hierarchy, republisher_query
from smile.registry.maintenance import PlanMaintenance
from smile.registry.planner import (
    Query,
    QueryPlan,
    Rank,
    RankedPublishers,
    choose_plan,
    is_compatible,
    meta_plan,
    plan_from_scratch,
)
from smile.registry.publishers import StreamPublisher
from tests.registry.random_registry import (
    CHANNELS,
    OPAQUE_RATE,
    ROWS,
    condition,
    random_producer,
    random_query_text,
    random_republisher,
    with_other_condition,
)
from tests.repeatable import scaled

Channel = frozenset[tuple[str, object]]
Owners = Mapping[Channel, str]
"""The producer of each channel that has one."""


def channel_of(row: Mapping[str, object]) -> Channel:
    return frozenset((name, row[name]) for name in CHANNELS[0])


def random_owners(random: Random, publishers: Sequence[StreamPublisher]) -> Owners:
    """Each channel belongs to one producer at most, whose condition accepts it: producers are channel disjoint."""
    owners = {}
    for channel in CHANNELS:
        row = {**channel, "latency": None, "t": 0}
        may_own = [p.name for p in publishers if p.is_producer and p.condition.is_true_of(row)]
        if may_own and random.random() < 0.8:
            owners[channel_of(channel)] = random.choice(may_own)
    return owners


def random_publishers(random: Random, producers: int, republishers: int) -> list[StreamPublisher]:
    return [
        *(random_producer(random, f"S{i}") for i in range(random.randrange(1, producers + 1))),
        *(random_republisher(random, f"R{i}") for i in range(random.randrange(republishers + 1))),
    ]


def has_row(publisher: StreamPublisher, row: Mapping[str, Value], owners: Owners) -> bool:
    """A producer has the rows of its channels; a republisher has every row of a producer that satisfies its view."""
    owner = owners.get(channel_of(row))
    if publisher.is_producer:
        return owner == publisher.name
    return owner is not None and publisher.condition.is_true_of(row)


def check_plan(query: Query, plan: QueryPlan, publishers: Mapping[str, StreamPublisher], owners: Owners) -> None:
    """Every wanted row comes from exactly one source, and the rows of a channel all from the same one."""
    source_of: dict[Channel, str] = {}
    for row in ROWS:
        sources = [
            s.publisher
            for s in plan.sources
            if s.condition.is_true_of(row) and has_row(publishers[s.publisher], row, owners)
        ]
        is_wanted = query.condition.is_true_of(row) and channel_of(row) in owners
        assert len(sources) == int(is_wanted), (row, sources)
        if sources:
            assert source_of.setdefault(channel_of(row), sources[0]) == sources[0], row


def run_case(seed: int) -> None:
    random = Random(seed)
    publishers = {p.name: p for p in random_publishers(random, 4, 5)}
    owners = random_owners(random, list(publishers.values()))
    query = Query(condition(random_query_text(random, OPAQUE_RATE)), random.random() < 0.3)
    meta = plan_from_scratch(query, publishers.values())
    running = choose_plan(query, meta, publishers)
    assert is_compatible(running, meta)
    check_plan(query, running, publishers, owners)
    # A publisher leaves: what remains of the running plan is kept, and the plan is complete without its channels.
    gone = publishers.pop(random.choice(sorted(publishers)))
    owners = {channel: owner for channel, owner in owners.items() if owner != gone.name}
    meta = plan_from_scratch(query, publishers.values())
    plan = choose_plan(query, meta, publishers, running)
    assert is_compatible(plan, meta)
    assert plan is running or not is_compatible(running, meta)
    for names in meta.classes:
        kept = [name for name in names if name in running.representatives]
        assert not kept or set(kept) & set(plan.representatives)
    check_plan(query, plan, publishers, owners)
    # Publishers change their conditions under their names, often without another meta plan.
    for _ in range(3):
        if not publishers:
            break
        name = random.choice([*sorted(publishers), *plan.representatives])
        publishers[name] = with_other_condition(random, publishers[name])
        owners = random_owners(random, list(publishers.values()))
        plan = choose_plan(query, plan_from_scratch(query, publishers.values()), publishers, plan)
        check_plan(query, plan, publishers, owners)


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(30))
def test_every_row_comes_from_exactly_one_source(seed: int) -> None:
    run_case(seed)


def test_a_publisher_that_changes_its_condition_changes_the_plan() -> None:
    """The meta plan has the same names before and after. What R1 does not have any more is asked of R2; a producer that
    was left out, since R1 had all of its channels, is asked for those that R1 does not have."""
    texts = {"R1": "site = 'hw'", "R2": "tool = 'udp' OR site = 'ral'"}
    publishers = {n: StreamPublisher(n, "republisher", "b", condition(text)) for n, text in texts.items()}
    query = Query(condition("TRUE"))
    running = choose_plan(query, plan_from_scratch(query, publishers.values()), publishers)
    assert str(running) == "σ[TRUE](R1) ⊎ σ[site IS DISTINCT FROM 'hw'](R2)"
    publishers["R1"] = replace(publishers["R1"], condition=condition("site = 'hw' AND tool = 'ping'"))
    meta = plan_from_scratch(query, publishers.values())
    assert is_compatible(running, meta)
    plan = choose_plan(query, meta, publishers, running)
    assert (
        str(plan) == "σ[TRUE](R1) ⊎ σ[site IS DISTINCT FROM 'hw' OR site = 'hw' AND tool IS DISTINCT FROM 'ping'](R2)"
    )
    assert choose_plan(query, meta, publishers, plan) is plan


def test_the_load_decides_between_equally_near_republishers_once() -> None:
    query = Query(condition("TRUE"))
    publishers = {n: StreamPublisher(n, "republisher", "b", condition("TRUE"), load=2) for n in ("R1", "R2")}
    publishers["R2"] = replace(publishers["R2"], load=1)
    meta = plan_from_scratch(query, publishers.values())
    running = choose_plan(query, meta, publishers)
    assert running.representatives == ("R2",)
    publishers["R2"] = replace(publishers["R2"], load=8)
    assert choose_plan(query, meta, publishers, running) is running
    assert choose_plan(query, meta, publishers).representatives == ("R1",)


def no_negation(
    query: Query, representatives: Sequence[StreamPublisher], producers: Sequence[StreamPublisher]
) -> QueryPlan:
    sources = [planner.QuerySource(p.name, query.condition) for p in (*representatives, *producers)]
    conditions = tuple(p.condition for p in (*representatives, *producers))
    return QueryPlan(
        tuple(sources), tuple(r.name for r in representatives), tuple(p.name for p in producers), conditions
    )


def all_equivalent(a: StreamPublisher, b: StreamPublisher, query: Query) -> Rank:
    return Rank.EQUIVALENT


def all_subsumed(publisher: StreamPublisher, republisher: StreamPublisher, query: Query) -> bool:
    return True


def without_entailment_of_measurements(publisher: StreamPublisher, query: Query) -> bool:
    return decide_consistent(publisher.condition, query.condition) is not False


PLANTED_BUGS: list[tuple[str, Callable[..., object]]] = [
    ("canonical_plan", no_negation),
    ("rank", all_equivalent),
    ("decide_subsumed", all_subsumed),
    ("is_relevant", without_entailment_of_measurements),
]


@pytest.mark.parametrize(("function", "bug"), PLANTED_BUGS, ids=[name for name, _ in PLANTED_BUGS])
def test_planted_bugs_are_found(function: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, function, bug)

    def run_cases() -> None:
        for seed in range(200):
            run_case(seed)

    with pytest.raises(AssertionError):
        run_cases()


# ── hierarchies ─────────────────────────────────────────────────────────────────────────────────────────────────────


def run_hierarchy(publishers: Sequence[StreamPublisher], owners: Owners) -> dict[str, set[int]]:
    """What each republisher has, as indexes of ROWS, when its plan is run until nothing more comes."""
    hierarchy, by_name = build_hierarchy(publishers), {p.name: p for p in publishers}
    assert find_circles(hierarchy.logical_edges) == []
    assert find_circles(hierarchy.physical_edges) == []
    rows = {p.name: {i for i, row in enumerate(ROWS) if p.is_producer and has_row(p, row, owners)} for p in publishers}
    while True:
        before = {name: set(indexes) for name, indexes in rows.items()}
        for name, plan in hierarchy.plans.items():
            parts = [{i for i in rows[s.publisher] if s.condition.is_true_of(ROWS[i])} for s in plan.sources]
            assert sum(map(len, parts)) == len(set().union(*parts)), f"{name} receives a row twice"
            rows[name] = set().union(*parts)
        if rows == before:
            return {name: rows[name] for name in by_name if not by_name[name].is_producer}


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(15))
def test_hierarchies_deliver_the_union_of_the_producers(seed: int) -> None:
    random = Random(seed)
    publishers = random_publishers(random, 5, 7)
    owners = random_owners(random, publishers)
    for name, indexes in run_hierarchy(publishers, owners).items():
        view = next(p.condition for p in publishers if p.name == name)
        wanted = {i for i, row in enumerate(ROWS) if channel_of(row) in owners and view.is_true_of(row)}
        assert indexes == wanted, name


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(6))
def test_a_hierarchy_does_not_depend_on_its_history(seed: int) -> None:
    check_histories(Random(seed))


def check_histories(random: Random) -> None:
    """Republishers that join in any order, while others join, change their conditions and leave again, have the meta
    plans of the hierarchy that is built at once."""
    publishers = random_publishers(random, 5, 7)
    metas = build_hierarchy(publishers).metas
    assert find_hierarchy({p.name: p for p in publishers}, {}) == build_hierarchy(publishers)
    for _ in range(2):
        plans = PlanMaintenance()
        visitors = [replace(p, name=f"Q{n}") for n, p in enumerate(random_publishers(random, 2, 4))]
        for publisher in random.sample([*publishers, *visitors], len(publishers) + len(visitors)):
            if not publisher.is_producer:
                plans.add_query(republisher_query(publisher))
            if random.random() < 0.3:
                plans.add_publisher(with_other_condition(random, publisher))
                plans.remove_publisher(publisher.name)
            plans.add_publisher(publisher)
        for visitor in visitors:
            plans.remove_publisher(visitor.name)
        assert {p.name: plans.meta_plan(republisher_query(p)) for p in publishers if not p.is_producer} == metas


def test_a_hierarchy_that_depends_on_its_history_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a republisher that joins after those that it subsumes leaves them in the meta plans."""
    with_republisher = PlanMaintenance._with_republisher

    def keeps_all(self: PlanMaintenance, query: Query, added: StreamPublisher, *near: Any) -> RankedPublishers:
        before, after = self.meta_plan(query), with_republisher(self, query, added, *near)
        classes = [names for names in before.classes if not set(names) & after.meta.publishers]
        return replace(after, meta=meta_plan([*after.meta.classes, *classes], after.meta.producers))

    monkeypatch.setattr(PlanMaintenance, "_with_republisher", keeps_all)

    def run_cases() -> None:
        for seed in range(100):
            check_histories(Random(seed))

    with pytest.raises(AssertionError):
        run_cases()


def test_hierarchies_are_several_deep() -> None:
    texts = ("TRUE", "site = 'hw'", "site = 'hw' AND tool = 'ping'")
    publishers = [StreamPublisher(f"R{i}", "republisher", "b", condition(text)) for i, text in enumerate(texts)]
    publishers.append(StreamPublisher("S1", "producer", "b", condition("site = 'hw' AND tool = 'ping' AND psize = 1")))
    hierarchy = build_hierarchy(publishers)
    assert hierarchy.depth == 3
    assert hierarchy.physical_edges == {"R0": ["R1"], "R1": ["R2"], "R2": ["S1"]}
