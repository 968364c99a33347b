"""The running example of the paper on republishers: every configuration, meta plan and plan that it prints."""

from typing import Final

import pytest

from smile.algebra.types import FLOAT, INT, STRING
from smile.registry.conditions import parse_condition
from smile.registry.explain import explain_plan
from smile.registry.hierarchy import build_hierarchy, find_circles, republisher_query
from smile.registry.maintenance import PlanMaintenance
from smile.registry.planner import (
    Query,
    QueryPlan,
    choose_plan,
    decide_subsumed,
    is_compatible,
    is_relevant,
    plan_from_scratch,
)
from smile.registry.publishers import StreamPublisher
from smile.registry.schema import GlobalSchema

NTP: Final = GlobalSchema(
    "ntp", "timestamp", (("from", STRING), ("to", STRING), ("tool", STRING), ("psize", INT)), (("latency", FLOAT),)
)
VIEWS: Final = {
    "S1": "from = 'hw' AND tool = 'udpmon'",
    "S2": "from = 'hw' AND tool = 'ping'",
    "S3": "from = 'ral' AND tool = 'ping'",
    "S4": "from = 'ral' AND tool = 'udpmon'",
    "R1": "from = 'hw'",
    "R2": "from = 'ral'",
    "R3": "TRUE",
    "R4": "tool = 'ping'",
}
PUBLISHERS: Final = {
    name: StreamPublisher(name, "producer" if name.startswith("S") else "republisher", "b", parse_condition(NTP, text))
    for name, text in VIEWS.items()
}
Q1: Final = Query(parse_condition(NTP, "from = 'hw' AND psize >= 1024"))
Q1_TEXT: Final = "from = 'hw' AND psize >= 1024"
R3: Final = republisher_query(PUBLISHERS["R3"])

S: Final = ("S1", "S2", "S3", "S4")
P1: Final = (*S, "R1", "R2", "R3")
P2: Final = (*P1, "R4")
P3: Final = tuple(name for name in P2 if name != "R1")


def members(names: tuple[str, ...]) -> dict[str, StreamPublisher]:
    return {name: PUBLISHERS[name] for name in names}


def plan_text(query: Query, names: tuple[str, ...], running: QueryPlan | None = None) -> str:
    meta = plan_from_scratch(query, members(names).values())
    return str(choose_plan(query, meta, PUBLISHERS, running))


@pytest.mark.parametrize(
    ("query", "names", "meta", "plan"),
    [
        pytest.param(Q1, S, "(∅, {S1, S2})", f"σ[{Q1_TEXT}](S1) ⊎ σ[{Q1_TEXT}](S2)", id="2.2: q1 in S1"),
        pytest.param(Q1, P1, "({{R1, R3}}, ∅)", f"σ[{Q1_TEXT}](R1)", id="2.4: q1 in P1"),
        pytest.param(Q1, P2, "({{R1, R3}}, ∅)", f"σ[{Q1_TEXT}](R1)", id="3.3: q1 in P2"),
        pytest.param(Q1, P3, "({{R3}}, ∅)", f"σ[{Q1_TEXT}](R3)", id="3.4: q1 in P3"),
        pytest.param(R3, ("S1", "R3"), "(∅, {S1})", "σ[TRUE](S1)", id="4.1: R3 in P0"),
        pytest.param(R3, ("S1", "R3", "R1"), "({{R1}}, ∅)", "σ[TRUE](R1)", id="4.3: R3 in P0'"),
        pytest.param(
            republisher_query(PUBLISHERS["R1"]),
            ("S1", "R3", "R1"),
            "(∅, {S1})",
            "σ[from = 'hw'](S1)",
            id="4.3: R1 in P0'",
        ),
        pytest.param(
            R3,
            P1,
            "({{R1}, {R2}}, ∅)",
            "σ[TRUE](R1) ⊎ σ[from IS DISTINCT FROM 'hw'](R2)",
            id="R3 in P1",
        ),
        pytest.param(
            R3,
            P2,
            "({{R1}, {R2}, {R4}}, ∅)",
            "σ[TRUE](R1) ⊎ σ[from IS DISTINCT FROM 'hw'](R2) ⊎ "
            "σ[from IS DISTINCT FROM 'hw' AND from IS DISTINCT FROM 'ral'](R4)",
            id="4.3: R3 in P2",
        ),
        pytest.param(
            R3,
            P3,
            "({{R2}, {R4}}, {S1})",
            "σ[TRUE](R2) ⊎ σ[from IS DISTINCT FROM 'ral'](R4) ⊎ "
            "σ[from IS DISTINCT FROM 'ral' AND tool IS DISTINCT FROM 'ping'](S1)",
            id="4.3: R3 in P3",
        ),
    ],
)
def test_the_plans_are_those_of_the_paper(query: Query, names: tuple[str, ...], meta: str, plan: str) -> None:
    assert str(plan_from_scratch(query, members(names).values())) == meta
    assert plan_text(query, names) == plan


def test_relevance_and_subsumption_in_section_2_4() -> None:
    """In P1, S1, S2, R1 and R3 are relevant for q1, and R1 and R3 are equivalent. A producer subsumes nobody."""
    assert {name for name, p in members(P1).items() if is_relevant(p, Q1)} == {"S1", "S2", "R1", "R3"}
    for name in ("S1", "S2", "R1"):
        assert decide_subsumed(PUBLISHERS[name], PUBLISHERS["R3"], Q1) is True
    assert decide_subsumed(PUBLISHERS["R3"], PUBLISHERS["R1"], Q1) is True
    assert decide_subsumed(PUBLISHERS["R3"], PUBLISHERS["R1"], R3) is False


def test_the_steps_from_p1_to_p3_touch_whom_the_paper_says() -> None:
    plans = PlanMaintenance()
    for publisher in members(P1).values():
        plans.add_publisher(publisher)
    plans.add_query(Q1)
    plans.add_query(R3)
    assert set(plans.add_publisher(PUBLISHERS["R4"])) == {R3}  # case 1 of Proposition 3 for q1, case 3 for R3
    assert set(plans.remove_publisher("R1")) == {Q1, R3}  # case 2 of Proposition 4 for q1, case 3 for R3
    assert str(plans.meta_plan(Q1)) == "({{R3}}, ∅)"
    assert str(plans.meta_plan(R3)) == "({{R2}, {R4}}, {S1})"


def test_a_plan_that_the_new_meta_plan_allows_is_kept() -> None:
    """Sections 3.2 and 3.5: R1 leaves the class {R1, R3}, and a consumer that uses R3 does not notice."""
    meta = plan_from_scratch(Q1, members(P2).values())
    cheap = PUBLISHERS | {"R1": StreamPublisher("R1", "republisher", "b", PUBLISHERS["R1"].condition, cost=5)}
    running = choose_plan(Q1, meta, cheap)
    assert running.representatives == ("R3",)
    after = plan_from_scratch(Q1, members(P3).values())
    assert meta != after
    assert is_compatible(running, after)
    assert choose_plan(Q1, after, PUBLISHERS, running) is running
    # R1 is cheaper again, but nobody switches for that.
    assert choose_plan(Q1, meta, PUBLISHERS, running) is running


def test_without_strong_relevance_republishers_feed_each_other() -> None:
    """Section 4.1: planned like consumers, R1 and R3 feed from each other, and neither from S1."""
    names = ("S1", "R3", "R1")
    others = {
        name: plan_from_scratch(Query(PUBLISHERS[name].condition), [p for n, p in members(names).items() if n != name])
        for name in ("R1", "R3")
    }
    assert {name: str(meta) for name, meta in others.items()} == {"R1": "({{R3}}, ∅)", "R3": "({{R1}}, ∅)"}
    assert find_circles({name: meta.publishers for name, meta in others.items()}) == [["R1", "R3", "R1"]]
    hierarchy = build_hierarchy(members(names).values())
    assert hierarchy.logical_edges == {"R1": ["S1"], "R3": ["R1"]}
    assert find_circles(hierarchy.logical_edges) == []
    assert hierarchy.depth == 2


def test_reasons() -> None:
    explanation = explain_plan(Q1, members(P2).values())
    assert explanation.reasons == {
        "R1": "in: maximal, chosen of its class; equivalent: R3",
        "R2": "out: irrelevant, no event satisfies its condition and that of the query",
        "R3": "out: equivalent to R1, which was chosen",
        "R4": "out: subsumed by R1",
        "S1": "out: subsumed by R1",
        "S2": "out: subsumed by R1",
        "S3": "out: irrelevant, no event satisfies its condition and that of the query",
        "S4": "out: irrelevant, no event satisfies its condition and that of the query",
    }
    slow = StreamPublisher("R5", "republisher", "b", parse_condition(NTP, "latency > FLOAT '100'"))
    assert explain_plan(Q1, [slow]).reasons == {
        "R5": "out: irrelevant, since it lacks measurements: TRUE does not entail latency > FLOAT '100'"
    }
