"""Events of several streams that are published as one: all of them are logged in one commit, or none of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from smile import limits
from smile.algebra import mmpl
from smile.algebra.parser import parse_expression
from smile.broker.publishing.publication import AtomicPublication, AtomicRefusal, Publication
from smile.broker.publishing.publisher import Publisher
from smile.errors import SmileError
from smile.horizons import END
from smile.log.position import BatchLimit
from smile.log.storage import durable
from smile.log.storage.durable import DurableLog
from smile.log.storage.piece_log import ticks_of
from tests.broker.publishing import COLUMNS, STREAMS, content, numbered, publisher_at
from tests.processes import WAIT_S

CHECKED = [
    *STREAMS,
    mmpl.StreamDef("Small", "t", COLUMNS, checks=(parse_expression("v < 10"),), unique=(("v",),)),
]


def transaction(*parts: tuple[str, list[tuple[Any, ...]]], seq: int | None = 0) -> AtomicPublication:
    """Parts with consecutive numbers."""
    publications, number = list[Publication](), seq
    for stream, rows in parts:
        publications.append(Publication(stream, rows) if number is None else numbered(stream, rows, number))
        number = None if number is None else number + len(rows)
    return AtomicPublication(publications)


def ticks(publisher: Publisher, publication: AtomicPublication) -> Sequence[int]:
    return publisher.submit(publication).result(WAIT_S).ticks


def refusal(publisher: Publisher, publication: AtomicPublication) -> SmileError:
    with pytest.raises(SmileError) as failure:
        publisher.submit(publication).result(WAIT_S)
    return failure.value


def test_its_events_have_rising_ticks_in_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with publisher_at(path) as publisher:
        published = ticks(publisher, transaction(("R", [(1, "a")]), ("S", [(2, "b"), (3, "c")]), ("R", [(4, "d")])))
    assert list(published) == sorted(set(published))
    assert content(path, "R") == {published[0]: (1, "a"), published[3]: (4, "d")}
    assert content(path, "S") == {published[1]: (2, "b"), published[2]: (3, "c")}


def test_no_batch_divides_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with publisher_at(path) as publisher:
        published = ticks(publisher, transaction(("R", [(n, "r") for n in range(50)]), ("S", [(1, "s")])))
        publisher.submit(Publication("R", [(n, "later") for n in range(50)])).result(WAIT_S)
        log = DurableLog(str(path), STREAMS)
        end = log.after(log.start(), BatchLimit(rows=7))
        assert log.read("R", log.start(), end).num_rows == 50
        assert log.read("S", log.start(), end).num_rows == 1
        assert end.stream_horizons()["R"] >= published[49]
        rest = log.after(end, BatchLimit(rows=7))
        assert 0 < log.read("R", end, rest).num_rows < 50, "an ordinary publication is divided"
        log.close()


def test_no_range_of_a_link_ends_within_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is too large for one piece of the log has several, and a range has all of them."""
    monkeypatch.setattr(durable, "COMMIT_ROWS_MAX", 10)
    path = tmp_path / "log"
    with publisher_at(path) as publisher:
        ticks(publisher, transaction(("R", [(0, "before")])))
        published = ticks(publisher, transaction(("R", [(n, "r") for n in range(100)]), seq=1))
        log = DurableLog(str(path), STREAMS)
        piece = log.read_range("R", "0", published[0] - 1, bytes_max=1)
        assert piece is not None and piece.events is not None
        assert list(ticks_of(piece.events)) == list(published)
        log.close()


def test_it_is_published_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    both = transaction(("R", [(1, "a")]), ("S", [(2, "b")]), ("R", [(3, "c")]))
    with publisher_at(path) as publisher:
        first = publisher.submit(both)
        second = publisher.submit(both)
        assert list(first.result(WAIT_S).ticks) == list(second.result(WAIT_S).ticks)
        assert second.result(WAIT_S).repeated == 3
    with publisher_at(path) as publisher:
        again = publisher.submit(both).result(WAIT_S)
        assert list(again.ticks) == list(first.result(WAIT_S).ticks)
        longer = transaction(("R", [(1, "a")]), ("S", [(2, "b")]), ("R", [(3, "c"), (4, "d")]))
        assert publisher.submit(longer).result(WAIT_S).repeated == 3
    assert len(content(path, "R")) == 3
    assert len(content(path, "S")) == 1


def test_a_number_that_stands_for_something_else_refuses_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with publisher_at(path) as publisher:
        ticks(publisher, transaction(("R", [(1, "a")]), ("R", [(2, "b")])))
        problem = refusal(publisher, AtomicPublication([Publication("S", [(7, "new")]), numbered("R", [(9, "x")], 1)]))
        assert problem.diagnostics[0].code == "E096"
    assert content(path, "S") == {}


def test_a_violation_refuses_all_of_it_and_names_the_part(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with publisher_at(path, streams=CHECKED) as publisher:
        parts = (("R", [(1, "a")]), ("Small", [(1, "s")]), ("Small", [(11, "s")]), ("Small", [(12, "s")]))
        beside = publisher.submit(Publication("R", [(5, "beside")]))
        problem = refusal(publisher, transaction(*parts))
        assert isinstance(problem, AtomicRefusal)
        assert sorted(problem.problems) == [2, 3]
        assert [p.diagnostics[0].code for p in problem.problems.values()] == ["E080", "E080"]
        assert beside.result(WAIT_S).ticks
        ticks(publisher, transaction(("R", [(1, "a")]), ("Small", [(1, "s")])))
        problem = refusal(
            publisher, transaction(("R", [(2, "b")]), ("Small", [(3, "s")]), ("Small", [(1, "s")]), seq=2)
        )
        assert isinstance(problem, AtomicRefusal)
        assert [(part, p.diagnostics[0].code) for part, p in problem.problems.items()] == [(2, "E110")]
    assert sorted(content(path, "R", CHECKED).values()) == [(1, "a"), (5, "beside")]
    assert list(content(path, "Small", CHECKED).values()) == [(1, "s")]


def test_a_stream_with_ticks_of_its_publisher_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with publisher_at(path) as publisher:
        problem = refusal(publisher, AtomicPublication([Publication("R", [(1, "a")]), Publication("T", [(5, 1, "a")])]))
        assert problem.diagnostics[0].code == "E079"
    assert content(path, "R") == {}


def test_it_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "publication_events_max", 3)
    with publisher_at(tmp_path / "log") as publisher:
        problem = refusal(publisher, transaction(("R", [(1, "a"), (2, "b")]), ("S", [(1, "a"), (2, "b")])))
        assert problem.diagnostics[0].code == "E092"


def test_what_is_noted_of_a_commit_is_removed_with_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with publisher_at(path) as publisher:
        ticks(publisher, transaction(("R", [(1, "a")]), ("S", [(2, "b")])))
        log = DurableLog.open_or_create(str(path), STREAMS, flush=False)
        assert log._select("SELECT count(*) FROM whole_commits") == [(1,)]
        log.truncate({"R": publisher.horizons["R"], "S": publisher.horizons["S"], "T": END})
        assert log._select("SELECT count(*) FROM whole_commits") == [(0,)]
        log.close()
