"""A producer's numbers identify the events that they were appended with, whatever happens to the log afterwards."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from smile.errors import SmileError
from smile.horizons import HORIZON_MIN
from smile.log.storage import producers
from smile.log.storage.durable import DurableLog
from smile.log.storage.producers import ProducerRecord
from tests.log.test_durable import STREAMS, piece
from tests.repeatable import scaled


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    durable_log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    yield durable_log
    durable_log.close()


def record(producer: str, first: int, last: int, tick: int) -> ProducerRecord:
    return ProducerRecord(producer, first, last, "R", "0", tick, tick + last - first)


@pytest.mark.parametrize("seed", range(scaled(10)))
def test_records_are_found_by_any_of_their_numbers(log: DurableLog, seed: int) -> None:
    random, known = Random(seed), dict[str, list[ProducerRecord]]()
    for tick in range(40):
        records = []
        for _ in range(random.randrange(4)):
            producer = random.choice(["p", "q", "é☃"])
            earlier = known.setdefault(producer, [])
            first = (earlier[-1].last if earlier else random.randrange(3)) + random.choice([1, 1, 1, 5])
            records.append(record(producer, first, first + random.randrange(4), 2**62 + tick))
            earlier.append(records[-1])
        log.append([piece(tick - 1, tick, tick)], records, time_us=tick)
    for producer, expected in known.items():
        assert log.last_number(producer) == expected[-1].last
        for _ in range(30):
            first = random.randrange(expected[-1].last + 3)
            last = first + random.randrange(8)
            assert log.records(producer, first, last) == [r for r in expected if r.last >= first and r.first <= last]
    assert log.last_number("nobody") is None
    assert log.records("nobody", 0, 10) == []


def test_numbers_that_were_not_committed_are_not_known(log: DurableLog) -> None:
    log.append([piece(HORIZON_MIN, 4, 2)], [record("p", 1, 1, 2)])
    with pytest.raises(SmileError, match="nothing is known of ticks above 4 up to 9"):
        log.append([piece(9, 12, 10)], [record("p", 2, 2, 10)])
    assert log.last_number("p") == 1
    with pytest.raises(SmileError):
        log.append([piece(4, 12, 10)], [record("p", 1, 1, 10)])  # a number twice
    assert log.newest().stream_horizons()["R"] == 4
    log.append([piece(4, 12, 10)], [record("p", 2, 2, 10)])
    assert log.last_number("p") == 2


def test_numbers_of_known_events_need_no_commit_and_belong_to_the_next(log: DurableLog) -> None:
    first = log.append([piece(HORIZON_MIN, 4, 2)], [record("p", 1, 1, 2)])
    assert log.append([], [record("q", 5, 5, 2)]) == first
    assert log.append([piece(HORIZON_MIN, 4, 2)], [record("q", 6, 6, 2)]) == first
    log.append([piece(4, 5)])
    log.append([piece(5, 6)], [record("q", 7, 7, 2), record("p", 2, 2, 6)])
    log.truncate({"R": 4, "S": 4})
    assert [r.first for r in log.records("q", 0, 9)] == [5, 6, 7]
    log.truncate({"R": 5, "S": 5})
    assert [r.first for r in log.records("q", 0, 9)] == [7]
    assert [r.first for r in log.records("p", 0, 9)] == [2]
    reopened = DurableLog(log.path, STREAMS)
    reopened.verify()
    assert reopened.last_number("q") == 7
    reopened.close()


def test_deleting_records_leaves_the_last_of_each_producer(log: DurableLog) -> None:
    for n in range(6):
        log.append([piece(n - 1, n, n)], [record("p", n, n, n), *([record("q", 0, 0, n)] if n == 0 else [])])
    db = sqlite3.connect(log.path, isolation_level=None)
    producers.delete_records(db, 4)
    db.close()
    assert [r.first for r in log.records("p", 0, 9)] == [3, 4, 5]
    assert log.records("q", 0, 0) == [record("q", 0, 0, 0)]


def test_damaged_numbers_are_reported(log: DurableLog) -> None:
    log.append([piece(HORIZON_MIN, 4, 2)], [record("p", 1, 3, 2)])
    with sqlite3.connect(log.path) as db:
        db.execute("UPDATE producers SET last = 4")
    db.close()
    for query in (lambda: log.last_number("p"), lambda: log.records("p", 2, 2)):
        with pytest.raises(SmileError, match="damaged: the numbers of a producer") as failure:
            query()
        assert failure.value.diagnostics[0].code == "E085"
