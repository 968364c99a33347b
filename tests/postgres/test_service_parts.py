"""Parts of the service without a database: delays, the order of publications, and what happens if the broker refuses."""

from concurrent.futures import Future
from random import Random
from threading import Event

import pytest

from smile.algebra import mmpl
from smile.algebra.types import INT
from smile.broker.backoff import Backoff
from smile.broker.publishing.publication import AtomicPublication, Publication, PublishResult
from smile.broker.publishing.submission import StoppedPublishing
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError, error
from smile.postgres.capture.event_publisher import EventPublisher, Refusal, chunk_transactions
from smile.postgres.capture.program_types import add_missing_streams
from smile.postgres.capture.queued_events import QueuedEvent, group_transactions
from smile.postgres.catalogue import EventType, parse_type
from smile.postgres.database import Database

STREAMS = [mmpl.StreamDef("A", "tick", (("n", INT),)), mmpl.StreamDef("B", "tick", (("n", INT),))]


def test_delays_grow_from_short_to_64_seconds() -> None:
    backoff = Backoff(Random(0))
    delays = [backoff.next_delay_s() for _ in range(12)]
    assert delays[0] < 0.2
    assert all(4 * 0.8 <= delay <= 64 for delay in delays[3:])
    assert min(delays[7:]) > 64 * 0.8 - 1
    backoff.reset()
    assert backoff.next_delay_s() < 0.2


def events(*transactions: tuple[int, int]) -> list[QueuedEvent]:
    """Events of transactions, which are given by id and size, with consecutive numbers."""
    queued, number = [], 10
    for xid, size in transactions:
        for _ in range(size):
            queued.append(QueuedEvent(xid, number, 1 + number % 2, f'{{"n":{number}}}', number))
            number += 1
    return queued


def chunks(transactions: list[tuple[int, int]], events_max: int, *boundaries: int) -> list[list[int]]:
    found = chunk_transactions(group_transactions(events(*transactions)), events_max, boundaries)
    return [list(dict.fromkeys(event.xid for event in chunk)) for chunk, _ in found]


def test_transactions_are_never_divided() -> None:
    assert chunks([(1, 2), (2, 2), (3, 9), (4, 1)], 4) == [[1, 2], [3], [4]]
    assert chunks([(1, 2), (2, 2), (3, 1), (5, 1)], 100, 2) == [[1, 2], [3, 5]]
    assert chunks([(1, 2), (5, 1)], 100, 3) == [[1], [5]]
    assert chunks([(1, 2), (5, 1)], 100, 0, 9) == [[1, 5]]
    assert chunks([], 100) == []


class FakeBroker:
    """Takes publications, after it has raised the given errors."""

    def __init__(self, *problems: SmileError) -> None:
        self.problems = list(problems)
        self.decoder = EventDecoder(STREAMS)
        self.published: list[AtomicPublication] = []

    def publish(self, publication: Publication | AtomicPublication, /) -> "Future[PublishResult]":
        if self.problems:
            raise self.problems.pop(0)
        assert isinstance(publication, AtomicPublication)
        self.published.append(publication)
        future: Future[PublishResult] = Future()
        future.set_result(PublishResult([0] * sum(len(part.rows) for part in publication.parts)))
        return future


def publisher(broker: FakeBroker, refused: list[Refusal], stopping: Event | None = None) -> EventPublisher:
    made = EventPublisher(broker, "db", refused.extend, stopping or Event())
    made.streams = {1: "A", 2: "B", 3: error("E163", "no stream")}
    return made


def test_a_broker_without_room_is_asked_again() -> None:
    refused: list[Refusal] = []
    broker = FakeBroker(error("E092", "too much waits"), error("E084", "the disk is full"))
    assert publisher(broker, refused).publish(events((1, 4))) == 4
    assert refused == []
    (publication,) = broker.published
    assert [(part.stream, part.sequence.seq) for part in publication.parts if part.sequence] == [
        ("A", 10), ("B", 11), ("A", 12), ("B", 13)
    ]  # fmt: skip


def test_a_service_that_stops_gives_up_waiting() -> None:
    stopping = Event()
    stopping.set()
    with pytest.raises(StoppedPublishing):
        publisher(FakeBroker(error("E092", "too much waits")), [], stopping).publish(events((1, 1)))


def test_events_that_do_not_fit_are_refused_alone() -> None:
    refused: list[Refusal] = []
    broker = FakeBroker()
    queued = [*events((1, 2)), QueuedEvent(1, 12, 1, '{"n":"x"}', 12), QueuedEvent(1, 13, 3, "{}", 13)]
    queued.append(QueuedEvent(1, 14, 99, "{}", 14))  # of a type that was dropped
    queued.append(QueuedEvent(1, 15, 1, '{"n":15}', 15))
    assert publisher(broker, refused).publish(queued) == 3
    assert sorted(event.seq for event, _ in refused) == [12, 13]
    (publication,) = broker.published
    assert [part.rows for part in publication.parts] == [[(10,)], [(11,)], [(15,)]]


def test_numbers_that_stand_for_something_else_stop_the_capture() -> None:
    with pytest.raises(SmileError) as failure:
        publisher(FakeBroker(error("E096", "something else as number 10")), []).publish(events((1, 1)))
    assert failure.value.diagnostics[0].code == "E164"


class FakeProgram:
    def __init__(self, *streams: mmpl.StreamDef) -> None:
        self.program = mmpl.Program(tuple(streams), (), ())
        self.taken = {"Taken"}

    def add_streams(self, streams: list[mmpl.StreamDef]) -> None:
        if {stream.name for stream in streams} & self.taken:
            raise error("E102", "the stream Taken is in the log, and its definition cannot change")
        self.program = mmpl.Program((*self.program.streams, *streams), (), ())


def test_a_type_without_a_stream_does_not_concern_others() -> None:
    broker = FakeProgram(*STREAMS, mmpl.StreamDef("T", "t", (("n", INT),), publisher_timed=True))
    types = [EventType(i, name, (("n", INT),)) for i, name in enumerate(["a", "New", "Taken", "T", "Newer"])]
    types.append(EventType(9, "B", (("other", INT),)))
    types.append(EventType(10, "A", (("n", INT),), is_table=True))
    found = add_missing_streams(broker, types, {})
    assert {i: s for i, s in found.items() if isinstance(s, str)} == {0: "A", 1: "New", 4: "Newer"}
    problems = {i: s.diagnostics[0].code for i, s in found.items() if isinstance(s, SmileError)}
    assert problems == dict.fromkeys((2, 3, 9, 10), "E163")


def test_types_of_the_catalogue() -> None:
    assert str(parse_type("decimal(10, 2)")) == "decimal(10, 2)"
    assert parse_type("int") == INT


def test_no_message_has_a_password() -> None:
    database = Database("postgresql://u:s3cret@127.0.0.1:1/x?connect_timeout=1")
    with pytest.raises(SmileError) as failure:
        database.connect("test")
    assert failure.value.diagnostics[0].code == "E166"
    assert "s3cret" not in str(failure.value)
    assert database.safe_text("it is\n s3cret") == "it is …"
    with pytest.raises(SmileError):
        Database("not a connection string")
