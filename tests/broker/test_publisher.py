"""Whatever a publisher answered is in the log, once, with those ticks; what it refused is not there."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

import pytest

from smile import limits
from smile.algebra import mmpl
from smile.algebra.types import STRING, TIME
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.imports.receipt import Receipt
from smile.broker.publishing.publication import Publication, PublishResult, SilencePublication
from smile.broker.publishing.publisher import Publisher
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN
from smile.log.clock import TickGenerator, wall_clock
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from tests.broker.publishing import STREAMS, answer, as_batch, content, numbered, publisher_at, taken
from tests.processes import WAIT_S, clean_environment

PAST = 10**15


def code(failure: pytest.ExceptionInfo[SmileError]) -> str:
    return failure.value.diagnostics[0].code


# ── ticks, horizons, silence ────────────────────────────────────────────────────────────────────────────────────────


def test_a_publisher_works_without_its_thread(tmp_path: Path) -> None:
    """A simulation calls the steps itself, at the times of its own clock."""
    now = 0.0
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    publisher = Publisher(log, TickGenerator(0, lambda: PAST + int(now)), 1000, 5000, STREAMS, clock=lambda: now)
    assert publisher.due_at == 5.0
    published = publisher.submit(Publication("R", [(1, "a")]))
    assert publisher.due_at == 0.0
    publisher.step()
    assert list(published.result(0).ticks) == [PAST * 1024]
    assert publisher.due_at == 1.0, "the other streams follow soon"
    now = 1.0
    publisher.step()
    assert publisher.horizons["S"] == (PAST + 1) * 1024
    assert publisher.due_at == 6.0
    log.close()


def test_events_have_the_ticks_that_were_answered(tmp_path: Path) -> None:
    with publisher_at(tmp_path / "log", lambda: PAST, origin=5) as publisher:
        one = taken(publisher, Publication("R", [(1, "a")]))
        many = taken(publisher, Publication("S", as_batch([(2, "b"), (3, None)], "S")))
        assert not taken(publisher, Publication("R", [])).ticks
    first, *others = [*one.ticks, *many.ticks]
    assert first == PAST * 1024 + 5
    assert all(b - a >= 1024 and b % 1024 == 5 for a, b in pairwise([first, *others]))
    assert content(tmp_path / "log", "R") == {first: (1, "a")}
    assert content(tmp_path / "log", "S") == dict(zip(others, [(2, "b"), (3, None)], strict=True))


def test_a_clock_that_steps_back_or_stands_still_gives_higher_ticks_even_after_a_restart(tmp_path: Path) -> None:
    now, ticks = [PAST], list[int]()
    for step in (0, 0, -(10**9), 5, -1):
        with publisher_at(tmp_path / "log", lambda: now[0], silence_ms=0, idle_ms=1) as publisher:
            for _ in range(3):
                now[0] += step
                ticks += taken(publisher, Publication("R", [(len(ticks), "x")])).ticks
                horizons = publisher.horizons
                assert horizons["R"] >= ticks[-1]
                assert horizons["T"] == HORIZON_MIN
    assert all(b - a >= 1024 for a, b in pairwise(ticks))
    assert list(content(tmp_path / "log", "R")) == ticks


def until(publisher: Publisher, stream: str, tick: int) -> None:
    """Waits until the horizon of the stream has reached the tick."""
    commits = threading.Event()
    publisher._on_commit = commits.set
    for _ in range(100):
        if publisher.horizons[stream] >= tick:
            return
        assert commits.wait(WAIT_S)
        commits.clear()
    raise AssertionError


def test_idle_streams_advance_with_the_clock_and_what_is_told_is_on_the_disk(tmp_path: Path) -> None:
    now = [PAST]
    with publisher_at(tmp_path / "log", lambda: now[0], silence_ms=0, idle_ms=5) as publisher:
        until(publisher, "S", PAST * 1024)
        reader = DurableLog(str(tmp_path / "log"), STREAMS)
        for now[0] in (PAST + 7, PAST + 900):
            until(publisher, "R", now[0] * 1024)
            assert reader.newest().stream_horizons() == {"R": now[0] * 1024, "S": now[0] * 1024, "T": HORIZON_MIN}
        commits = publisher.status()["commits"]
        now[0] -= 500
        taken(publisher, SilencePublication("T", 3))
        assert publisher.horizons == {"R": (PAST + 900) * 1024, "S": (PAST + 900) * 1024, "T": 3}
        assert publisher.status()["commits"] == commits + 1
        reader.close()


def test_soon_after_an_event_the_other_streams_are_known_as_far(tmp_path: Path) -> None:
    with publisher_at(tmp_path / "log", lambda: PAST, silence_ms=20, idle_ms=600_000) as publisher:
        (tick,) = taken(publisher, Publication("R", [(1, "a")])).ticks
        until(publisher, "S", tick)


def test_streams_that_come_later_can_be_published_to(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS[:1], flush=False)
    publisher = Publisher(log, TickGenerator(0, wall_clock), 50, 10_000, STREAMS[:1])
    publisher.start()
    taken(publisher, Publication("R", [(1, "a")]))
    with pytest.raises(SmileError, match="there is no stream T"):
        publisher.submit(Publication("T", [(4, 1, "a")]))
    log.add_streams(STREAMS)
    publisher.set_streams(STREAMS[1:])
    assert list(taken(publisher, Publication("T", [(4, 1, "a")])).ticks) == [4]
    taken(publisher, Publication("S", [(2, "b")]))
    with pytest.raises(SmileError, match="there is no stream R"):
        publisher.submit(Publication("R", [(1, "a")]))
    publisher.stop()
    assert DurableLog.read_definitions(log.path) == STREAMS
    log.close()
    assert [len(content(tmp_path / "log", stream)) for stream in "RST"] == [1, 1, 1]


def test_origins_of_one_log_have_ticks_of_their_own(tmp_path: Path) -> None:
    rows_by_tick: dict[int, tuple[int, str]] = {}
    for turn in range(6):
        with publisher_at(tmp_path / "log", lambda: PAST, origin=turn % 2) as publisher:
            for n in range(3):
                row = (turn, str(n))
                (tick,) = taken(publisher, Publication("R", [row])).ticks
                assert tick not in rows_by_tick and tick % 1024 == turn % 2
                rows_by_tick[tick] = row
    with publisher_at(tmp_path / "log", lambda: PAST + 50, origin=0) as publisher:
        taken(publisher, Publication("R", [(9, "z")]))
        other = publisher.horizons["R"]
    assert other == max(tick for tick in rows_by_tick if tick % 1024 == 1)  # the stream is known as far as both of them
    assert content(tmp_path / "log", "R") == {tick: row for tick, row in rows_by_tick.items() if tick <= other}


# ── streams whose publishers give the ticks ─────────────────────────────────────────────────────────────────────────


def test_a_publishers_own_ticks_ascend(tmp_path: Path) -> None:
    with publisher_at(tmp_path / "log", silence_ms=0, idle_ms=1) as publisher:
        assert list(taken(publisher, Publication("T", [(4, 1, "a"), (9, 2, "b")])).ticks) == [4, 9]
        assert taken(publisher, SilencePublication("T", 20)) == PublishResult(())
        assert publisher.horizons["T"] == 20
        assert taken(publisher, SilencePublication("T", 7)) == PublishResult(())
        for rows, expected in [
            ([(4, 1, "a"), (9, 2, "b")], ([4, 9], 2)),
            ([(9, 2, "b"), (21, 3, "c")], ([9, 21], 1)),
            ([(9, 2, "other"), (25, 3, "c")], "E082"),
            ([(5, 2, "b")], "E081"),
            ([(4, 1, "a"), (21, 3, "c")], ([4, 21], 2)),
            ([(30, 1, "a"), (30, 1, "a")], "E079"),
            ([(31, 1, "a"), (30, 1, "a")], "E079"),
        ]:
            for given in (rows, as_batch(rows, "T")):
                assert answer(publisher.submit(Publication("T", given))) in (expected, ([9, 21], 2))
        taken(publisher, SilencePublication("T", END))
        assert answer(publisher.submit(Publication("T", [(4, 1, "a"), (21, 3, "c")]))) == ([4, 21], 2)
        with pytest.raises(SmileError, match="T is finished: it takes no more events") as failure:
            taken(publisher, Publication("T", [(21, 3, "c"), (40, 1, "a")]))
        assert code(failure) == "E081"
    assert list(content(tmp_path / "log", "T")) == [4, 9, 21]


def test_ticks_that_are_known_and_numbers_that_are_new_go_together(tmp_path: Path) -> None:
    with publisher_at(tmp_path / "log") as publisher:
        taken(publisher, numbered("T", [(4, 1, "a"), (9, 2, "b")], 0, "first"))
        rows = [(9, 2, "b"), (11, 3, "c")]
        for expected in (([9, 11], 1), ([9, 11], 2)):
            assert answer(publisher.submit(numbered("T", rows, 0, "second"))) == expected
        assert answer(publisher.submit(numbered("T", [(9, 2, "b")], 5, "third"))) == ([9], 1)
        assert answer(publisher.submit(numbered("T", [(9, 2, "b"), (11, 9, "c")], 0, "second"))) == "E096"
    assert list(content(tmp_path / "log", "T")) == [4, 9, 11]


def test_what_is_wrong_in_itself_is_refused_at_once(tmp_path: Path) -> None:
    with publisher_at(tmp_path / "log") as publisher:
        wrong: list[tuple[Publication | SilencePublication, str]] = [
            (Publication("Q", [(1, "a")]), "E076"),
            (SilencePublication("R", 5), "E079"),
            (SilencePublication("T", -1), "E079"),
            (Publication("T", as_batch([(1, "a")], "R")), "E088"),
            (numbered("R", [(1, "a")], -1), "E096"),
            (numbered("R", [(1, "a")], 2**63), "E096"),
            (numbered("R", [(1, "a")], 1, ""), "E096"),
            (numbered("R", [(1, "a")], 1, "\ud800"), "E096"),
            (numbered("R", [(1, "a")], 1, "p" * 1000), "E096"),
        ]
        for order, expected in wrong:
            with pytest.raises(SmileError) as failure:
                publisher.submit(order)
            assert code(failure) == expected
        assert publisher.status()["publications"] == 0


# ── limits, the end, failures ───────────────────────────────────────────────────────────────────────────────────────


def test_what_waits_is_bounded_and_refused_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "publisher_events_max", 10)
    monkeypatch.setattr(limits, "publisher_bytes_max", 20_000)
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    publisher = Publisher(log, TickGenerator(0, wall_clock), 50, 10_000, STREAMS)
    kept = [publisher.submit(Publication("R", [(n, "a")] * 5)) for n in range(2)]
    for rows in ([(1, "a")], [(1, "x" * 20_000)]):
        with pytest.raises(SmileError, match="10 events are waiting") as failure:
            publisher.submit(Publication("R", rows))
        assert code(failure) == "E092"
    cancelled = publisher.submit(Publication("R", []))
    assert cancelled.cancel()
    publisher.start()
    assert all(len(future.result(WAIT_S).ticks) == 5 for future in kept)
    large = taken(publisher, Publication("R", [(1, "x" * 50_000)]))  # alone it may be as large as it likes
    publisher.stop()
    with pytest.raises(SmileError, match="stopping") as failure:
        publisher.submit(Publication("R", [(1, "a")]))
    assert code(failure) == "E098"
    assert publisher.status()["waiting_events"] == publisher.status()["waiting_bytes"] == 0
    log.close()
    assert len(content(tmp_path / "log", "R")) == 10 + len(large.ticks)


def test_what_was_submitted_is_finished_at_the_end(tmp_path: Path) -> None:
    with publisher_at(tmp_path / "log") as publisher:
        futures = [publisher.submit(Publication("R", [(n, "a")])) for n in range(500)]
    assert all(future.done() and len(future.result().ticks) == 1 for future in futures)
    assert len(content(tmp_path / "log", "R")) == 500


def test_a_check_of_the_tick_refuses_one_publication_alone(tmp_path: Path) -> None:
    check = mmpl.Call("<=", (mmpl.ColumnRef("v"), mmpl.ColumnRef("t")))
    stream = replace(STREAMS[0], columns=(("v", TIME), ("w", STRING)), checks=(check,))
    log = DurableLog.open_or_create(str(tmp_path / "log"), [stream], flush=False)
    publisher = Publisher(log, TickGenerator(0, lambda: 100), 50, 10_000, [stream])
    futures = [publisher.submit(Publication("R", [(v, "a"), (v, "b")])) for v in (5, 2**50, 6)]
    futures.append(publisher.submit(Publication("R", as_batch([(2**50, "a")], "R"))))
    publisher.start()
    answers = [answer(future) for future in futures]
    assert [isinstance(f, str) for f in answers] == [False, True, False, True]
    assert answers[1] == answers[3] == "E080"
    with pytest.raises(SmileError, match="event 1: R requires v <= t, but t is 10"):
        futures[1].result()
    publisher.stop()
    log.close()


CHECKS = (
    mmpl.Call("<>", (mmpl.ColumnRef("w"), mmpl.Constant("bad", STRING))),
    mmpl.Call("<=", (mmpl.ColumnRef("v"), mmpl.ColumnRef("t"))),
)
CHECKED = [replace(stream, columns=(("v", TIME), ("w", STRING)), checks=CHECKS) for stream in STREAMS]


@contextmanager
def checked_publisher(path: Path) -> Iterator[Publisher]:
    """Not started, so that everything submitted before is one group."""
    log = DurableLog.open_or_create(str(path), CHECKED, flush=False)
    publisher = Publisher(log, TickGenerator(0, wall_clock), 50, 10_000, CHECKED)
    yield publisher
    publisher.stop()
    log.close()


@pytest.mark.parametrize(
    ("stream", "rows", "message"),
    [
        ("R", [(1, "a"), (2, None), (3, "bad"), (2**62, "")], "event 3: R requires w <> 'bad', but w is bad"),
        ("T", [(9, None, ""), (10, 11, ""), (11, 1, "bad")], "event 2: T requires v <= t, but t is 10, v is 11"),
    ],
)
def test_a_violated_check_is_reported_with_its_first_event(
    tmp_path: Path, stream: str, rows: list[tuple[Any, ...]], message: str
) -> None:
    with checked_publisher(tmp_path / "log") as publisher:
        futures = [publisher.submit(Publication(stream, form)) for form in (rows, as_batch(rows, stream))]
        publisher.start()
        for future in futures:
            with pytest.raises(SmileError) as failure:
                future.result(WAIT_S)
            assert (code(failure), failure.value.diagnostics[0].message) == ("E080", message)
        assert publisher.status()["refused"] == 2
        assert content(tmp_path / "log", stream, CHECKED) == {}


def test_a_violated_check_refuses_one_publication_of_a_group(tmp_path: Path) -> None:
    good, more = [(0, "a"), (1, "b")], [(2, "c"), (3, "d")]
    submitted: list[Publication | SilencePublication] = [
        numbered("R", good, 0),
        numbered("R", [(2, "c"), (3, "bad")], 2),
        numbered("R", more, 2),
        Publication("S", as_batch([(5, "e"), (6, "bad")], "S")),
        Publication("S", as_batch([(6, "g")], "S")),
        Publication("T", [(5, 1, "h")]),
        Publication("T", [(7, 8, "i")]),
        Publication("T", [(6, 1, "j")]),
        SilencePublication("T", 20),
    ]
    with checked_publisher(tmp_path / "log") as publisher:
        futures = [publisher.submit(publication) for publication in submitted]
        publisher.start()
        is_refused = [answer(future) == "E080" for future in futures]
        assert is_refused == [False, True, False, True, False, False, True, False, False]
        repeat = publisher.submit(numbered("R", [*good, *more, (4, "bad")], 0))
        with pytest.raises(SmileError, match="event 5: R requires w <> 'bad', but w is bad"):
            repeat.result(WAIT_S)
        assert publisher.horizons["T"] == 20
        ticks = [*futures[0].result().ticks, *futures[2].result().ticks]
        assert content(tmp_path / "log", "R", CHECKED) == dict(zip(ticks, [*good, *more], strict=True))
        assert list(content(tmp_path / "log", "S", CHECKED).values()) == [(6, "g")]
        assert content(tmp_path / "log", "T", CHECKED) == {5: (1, "h"), 6: (1, "j")}


def test_a_full_disk_refuses_what_does_not_fit_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "log"
    model: dict[int, tuple[Any, ...]] = {}
    with publisher_at(path) as publisher:
        log, seq, refused = publisher._log, 0, 0
        pages = 40
        for turn in range(60):
            writer = log._writer
            if writer is not None:
                writer.execute(f"PRAGMA max_page_count = {pages}")
            rows = [(turn, "x" * 900), (turn, "y" * 900)]
            result = answer(publisher.submit(numbered("R", rows, seq)))
            if result == "E084":
                refused += 1
                assert publisher.status()["trouble"]
                pages += 8  # somebody makes room
                continue
            assert not isinstance(result, str)
            assert result[1] == 0
            model.update(zip(result[0], rows, strict=True))
            seq += 2
        assert refused >= 2
        assert publisher.status()["refused"] == refused
        again = answer(publisher.submit(numbered("R", rows, seq - 2)))
        assert again == (result[0], 2)
    assert content(path, "R") == model


def test_a_commit_that_failed_and_yet_happened_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with publisher_at(tmp_path / "log") as publisher:
        append = publisher._log.append

        def failing(*given: Any) -> int:
            append(*given)
            raise error("E084", "the disk says that it did not write")

        for stream, row, other in (("T", (5, 1, "a"), (5, 1, "b")), ("R", (1, "a"), (1, "b"))):
            monkeypatch.setattr(publisher._log, "append", failing)
            assert answer(publisher.submit(numbered(stream, [row], 0, stream))) == "E084"
            monkeypatch.setattr(publisher._log, "append", append)
            assert answer(publisher.submit(numbered(stream, [other], 0, stream))) == "E096"
            result = answer(publisher.submit(numbered(stream, [row], 0, stream)))
            assert result[1] == 1
        assert answer(publisher.submit(Publication("T", [(5, 1, "b")]))) == "E082"
    assert [len(content(tmp_path / "log", stream)) for stream in "RT"] == [1, 1]


def test_a_log_that_cannot_be_read_any_more_refuses_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with publisher_at(tmp_path / "log", idle_ms=5) as publisher:
        taken(publisher, Publication("R", [(1, "a")]))
        holder = sqlite3.connect(tmp_path / "log", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        publisher._log.close()
        monkeypatch.setattr("smile.log.storage.database.BUSY_S", 0.01)
        assert answer(publisher.submit(Publication("R", [(2, "b")]))) == "E084"
        holder.execute("ROLLBACK")
        holder.close()
        taken(publisher, Publication("R", [(3, "c")]))
    assert list(content(tmp_path / "log", "R").values()) == [(1, "a"), (3, "c")]


def test_events_of_a_finished_stream_are_refused(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    log.append([StreamPiece("R", "0", HORIZON_MIN, END)])
    log.close()
    for _ in range(2):
        with publisher_at(tmp_path / "log", lambda: PAST) as publisher:
            futures = [
                publisher.submit(SilencePublication("T", END)),
                publisher.submit(Publication("T", [(1, 1, "a")])),
            ]
            assert [answer(future) for future in futures] == [([], 0), "E081"]
            assert answer(publisher.submit(Publication("R", [(1, "a")]))) == "E081"
            (tick,) = taken(publisher, Publication("S", [(1, "a")])).ticks
            assert tick < 2 * PAST * 1024
            assert publisher.horizons["T"] == END
    with publisher_at(tmp_path / "log", lambda: 2**60) as publisher:  # a clock at the end of time
        assert answer(publisher.submit(Publication("S", [(1, "a")]))) == "E079"


# ── a process that is killed ────────────────────────────────────────────────────────────────────────────────────────

WRITER = """
import sys, json, random
from collections import deque
from smile.broker.publishing.publication import ProducerSequence, Publication
from smile.broker.publishing.publisher import Publisher
from smile.log.clock import TickGenerator, wall_clock
from smile.log.storage.durable import DurableLog
from tests.broker.publishing import STREAMS, as_batch
path, seq = sys.argv[1], int(sys.argv[2])
log = DurableLog.open_or_create(path, STREAMS)
publisher = Publisher(log, TickGenerator(0, wall_clock), 5, 5, STREAMS)
publisher.start()
under_way = deque()
while True:
    rows = [(n, "x") for n in range(seq, seq + random.choice([1, 1, 3, 50]))]
    stream = random.choice("RS")
    print(json.dumps({"sent": seq, "stream": stream, "rows": len(rows)}), flush=True)
    given = as_batch(rows, stream) if len(rows) > 3 else rows
    under_way.append((seq, publisher.submit(Publication(stream, given, ProducerSequence("anna", "p", seq)))))
    seq += len(rows)
    if len(under_way) > 40:
        first, future = under_way.popleft()
        found = future.result(30)
        print(json.dumps({"done": first, "ticks": list(found.ticks)}), flush=True)
"""


@pytest.mark.slow
def test_a_publisher_that_is_killed_keeps_what_it_acknowledged_once(tmp_path: Path) -> None:
    """Events that were not acknowledged are sent again. Then each event is in the log once."""
    path, random = tmp_path / "log", Random(7)
    acknowledged: dict[int, tuple[str, int]] = {}
    sent: dict[int, tuple[str, int]] = {}
    begin = 0
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(path), str(begin)]
        environment = clean_environment(PYTHONPATH=str(Path(__file__).parents[2]))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            left = random.randrange(50, 250)
            for line in writer.stdout:
                if not line.endswith("\n"):
                    break
                said = json.loads(line)
                if "sent" in said:
                    sent[said["sent"]] = (said["stream"], said["rows"])
                else:
                    for n, tick in enumerate(said["ticks"], said["done"]):
                        acknowledged[n] = (sent[said["done"]][0], tick)
                left -= 1
                if left == 0:
                    writer.send_signal(signal.SIGKILL)
        with publisher_at(path) as publisher:
            horizon = max(publisher.horizons.values())
            for seq, (stream, count) in sorted(sent.items()):
                result = taken(publisher, numbered(stream, [(n, "x") for n in range(seq, seq + count)], seq))
                for n, tick in enumerate(result.ticks, seq):
                    assert acknowledged.setdefault(n, (stream, tick)) == (stream, tick)
                    if n - seq >= result.repeated:
                        assert tick > horizon
        for stream in "RS":
            expected = {tick: (n, "x") for n, (of, tick) in acknowledged.items() if of == stream}
            assert content(path, stream) == expected
        begin = max(acknowledged) + 1
        sent.clear()


def test_futures_of_one_commit_are_answered_together(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    publisher = Publisher(log, TickGenerator(0, wall_clock), 50, 10_000, STREAMS)
    futures: list[Future[PublishResult]] = [publisher.submit(Publication("R", [(n, "a")])) for n in range(100)]
    publisher.start()
    assert not wait(futures, WAIT_S).not_done
    assert publisher.status()["commits"] == 1
    publisher.stop()
    log.close()


class ImportCacheModel:
    """Takes everything, and has nothing for the log."""

    has_whole_commits: Final = False
    log_horizons: Final = MappingProxyType[str, int]({})

    def take(self, data: Any) -> tuple[Receipt, list[StreamPiece]]:
        return Receipt.APPENDED, []

    def record_commit(self) -> None:
        return

    def discard_taken(self) -> None:
        raise AssertionError("the log was not written")


def test_what_was_imported_waits_as_long_as_a_batch_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publication does not wait, and takes what was imported with it."""
    monkeypatch.setattr(limits, "import_wait_s_max", 3600.0)
    with publisher_at(tmp_path / "log", batch_s=lambda: 1800.0) as publisher:
        imported = publisher.submit_imported(CacheAppend("X", ImportCacheModel(), None, 1, 0))
        assert 1700 < publisher.due_at - time.monotonic() < 1900
        assert taken(publisher, Publication("R", [(1, "a")])).ticks
        imported.result(WAIT_S)
        assert publisher.status()["commits"] == 1


def test_what_was_imported_waits_no_longer_than_a_bound(tmp_path: Path) -> None:
    with publisher_at(tmp_path / "log", batch_s=lambda: 1800.0) as publisher:
        publisher.submit_imported(CacheAppend("X", ImportCacheModel(), None, 1, 0)).result(WAIT_S)
