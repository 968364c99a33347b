"""Publishing to a stream with UNIQUE columns: each value is accepted once, whatever is published at the same time."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from smile.algebra import mmpl
from smile.algebra.types import INT, STRING
from smile.broker.publishing.publication import ProducerSequence, Publication
from smile.broker.publishing.publisher import Publisher
from smile.errors import SmileError
from smile.log.clock import TickGenerator, wall_clock
from smile.log.storage.durable import DurableLog
from tests.broker.publishing import answer, publisher_at
from tests.processes import WAIT_S

CHECK = mmpl.Call(">", (mmpl.ColumnRef("n"), mmpl.Constant(0, INT)))
ORDERS = mmpl.StreamDef("Orders", "t", (("id", STRING), ("n", INT)), (CHECK,), unique=(("id",),))


def orders_publisher(path: Path) -> AbstractContextManager[Publisher]:
    return publisher_at(path, streams=[ORDERS])


def order(*rows: tuple[str | None, int]) -> Publication:
    return Publication("Orders", list(rows), None)


def test_a_used_value_is_refused_and_the_publication_with_it(tmp_path: Path) -> None:
    with orders_publisher(tmp_path / "log") as publisher:
        (first,) = publisher.submit(order(("a", 1))).result(WAIT_S).ticks
        with pytest.raises(SmileError) as caught:
            publisher.submit(order(("b", 1), ("a", 2))).result(WAIT_S)
        (problem,) = caught.value.diagnostics
        assert problem.code == "E110"
        assert problem.message == f"event 2: Orders has this id already: the event at tick {first} has it"
        assert problem.hint is not None and "UNIQUE" in problem.hint
        publisher.submit(order(("b", 1), (None, 1), (None, 1))).result(WAIT_S)  # b was not logged
    with orders_publisher(tmp_path / "log") as publisher:
        assert answer(publisher.submit(order(("b", 1)))) == "E110"


def test_of_publications_in_one_commit_the_first_is_accepted(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), [ORDERS], flush=False)
    publisher = Publisher(log, TickGenerator(0, wall_clock), 50, 10_000, [ORDERS])
    # Nothing is committed before all are there. The first violates the CHECK, so its value is free.
    futures = [
        publisher.submit(o) for o in (order(("a", 0)), order(("a", 1)), order(("a", 2)), order(("b", 1), ("b", 2)))
    ]
    publisher.start()
    assert [answer(f) if isinstance(answer(f), str) else "logged" for f in futures] == [
        "E080",
        "logged",
        "E110",
        "E110",
    ]
    assert answer(publisher.submit(order(("b", 3)))) != "E110"
    publisher.stop()
    log.close()


def test_an_event_that_is_sent_again_is_not_a_second_one(tmp_path: Path) -> None:
    with orders_publisher(tmp_path / "log") as publisher:
        numbered = Publication("Orders", [("a", 1)], ProducerSequence("anna", "p", 0))
        first, again = (publisher.submit(numbered).result(WAIT_S) for _ in range(2))
        assert (list(again.ticks), again.repeated) == (list(first.ticks), 1)
