"""The benchmark of the registry counts what its hierarchies save, measures memory as it is now, and finds the first event
that came after a death."""

import mmap
from random import Random

import pytest

from bench import registry
from bench.republisher_death import Arrivals, measure_deaths


def test_a_hierarchy_relieves_the_producers() -> None:
    """The measurement checks itself that every consumer has all of its events, once."""
    random = Random(0)
    producers = [registry._producer(number, random, 4) for number in range(30)]
    queries = [registry._query(random, 4) for _ in range(30)]
    depths, counts = zip(
        *(registry.measure_links(producers, registry._republishers(n, 4), queries) for n in (0, 1, 14)), strict=True
    )
    alone, merged, layered = counts
    assert depths == (0, 1, 2)
    assert alone.of_busiest_producer > merged.of_busiest_producer == 1
    # With one republisher, each producer sends its event once, and each consumer receives all ranges in one message.
    assert (merged.by_producers, merged.round.data) == (30, 30 + 30)
    assert (merged.of_consumer, merged.connections) == (1, 60)
    # Each connection has greetings, a request, its answer, who the origins are, and a confirmation.
    assert 6 * merged.connections <= merged.opening <= 9 * merged.connections
    assert merged.round.data < alone.round.data and layered.rows >= merged.rows
    # While nothing is published, a producer sends one message a second, and the republisher at most one each quarter.
    assert merged.idle.data <= 30 * 1 + 30 * 4
    assert 0.4 < alone.lag_s < 0.5 + 0.25 + 0.1 and merged.lag_s < 0.5 + 2 * 0.25 + 0.1
    assert "instead of" in registry.explain_links({"none": alone, "one": merged, "layers": layered})


def test_links_that_lose_an_event_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.hierarchy_links.is_consistent", lambda *_: False)
    random = Random(0)
    producers = [registry._producer(number, random, 4) for number in range(10)]
    with pytest.raises(AssertionError, match="instead of"):
        registry.measure_links(producers, registry._republishers(1, 4), [registry._query(random, 4)])


def test_memory_that_is_freed_does_not_count() -> None:
    before, size = registry._memory_bytes(), 2**26
    with mmap.mmap(-1, size) as memory:
        memory.write(b"x" * size)
        assert registry._memory_bytes() > before + size * 0.9
    assert registry._memory_bytes() < before + size * 0.9


def test_the_first_event_by_the_new_plan_was_published_after_the_death() -> None:
    arrivals = Arrivals()
    arrivals.published |= {1: 10.0, 2: 11.0, 3: 12.0, 4: 13.0}
    arrivals.arrived |= {1: 10.5, 2: 13.5, 4: 14.5, 3: 15.0}
    assert arrivals.wait_for_later(11.5) == 14.5


@pytest.mark.slow
@pytest.mark.nightly
def test_a_death_loses_and_doubles_nothing() -> None:
    times, comparison = measure_deaths(1)
    assert len(times) == 1 and 0 < times[0] < 60
    assert comparison.published > 100
    assert (comparison.lost, comparison.doubled) == (0, 0)
