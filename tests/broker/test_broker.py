"""A broker in this process: after a restart it has everything that it acknowledged. When its program changes, unchanged
views continue."""

import json
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from smile.broker.broker import Broker
from smile.broker.publishing.publication import ProducerSequence, Publication
from smile.broker.views.condition import ViewCondition
from smile.broker.views.view import ViewSubscription
from smile.errors import SmileError, error
from smile.gateway.frames import row_messages
from smile.source import Source
from tests.brokers import open_broker
from tests.processes import WAIT_S, wait_until

Json = dict[str, Any]

BIDS = "CREATE STREAM Bids (t: time -> issue: string, shares: int);\n"
TALKS = "CREATE STREAM Talks (t: time -> issue: string);\n"
COUNTS = "CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;\n"
SUMS = "CREATE VIEW Sums AS SELECT issue, SUM(shares) AS total FROM Bids GROUP BY issue;\n"
MAXES = "CREATE VIEW Sums AS SELECT issue, MAX(shares) AS total FROM Bids GROUP BY issue;\n"
TALKED = "CREATE VIEW Talked AS SELECT issue, COUNT(*) AS n FROM Talks GROUP BY issue;\n"


def source(*parts: str) -> Source:
    return Source("floor.smile", "".join(parts))


def opened(data: Path, program: Source | None, **settings: Any) -> AbstractContextManager[Broker]:
    return open_broker(data, program, idle_ms=20, silence_ms=10, **settings)


def publish(broker: Broker, stream: str, *rows: tuple[Any, ...]) -> dict[str, int]:
    return {stream: max(broker.publish(Publication(stream, rows)).result(WAIT_S).ticks)}


def rows_of(broker: Broker, view: str, after: dict[str, int], rows_max: int = 1000) -> list[Json]:
    """What the view shows once it knows that."""
    woken = Event()
    subscription = broker.view(view).subscribe(ViewCondition(), woken.set, after=after)
    try:
        while (frame := subscription.next_frame(rows_max)) is None:
            assert woken.wait(WAIT_S)
            woken.clear()
        return [json.loads(message) for message in row_messages(frame)]
    finally:
        subscription.close()


def values(rows: list[Json]) -> dict[str, Any]:
    return {row["key"]["issue"]: next(iter(row["row"].values())) for row in rows}


def code_of(problem: pytest.ExceptionInfo[SmileError]) -> str:
    return problem.value.diagnostics[0].code


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        after = publish(broker, "Bids", ("IBM", 1), ("IBM", 2), ("HAL", 3))
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 2, "HAL": 1}
    with opened(tmp_path, None) as broker:
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 2, "HAL": 1}
        assert publish(broker, "Bids", ("IBM", 4))["Bids"] > after["Bids"]


def test_a_repeat_has_the_ticks_that_it_had(tmp_path: Path) -> None:
    numbered = Publication("Bids", [("IBM", 1), ("HAL", 2)], ProducerSequence("anna", "me", 7))
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        first = broker.publish(numbered).result(WAIT_S)
    with opened(tmp_path, None) as broker:
        again = broker.publish(numbered).result(WAIT_S)
        assert list(again.ticks) == list(first.ticks)
        assert again.repeated == 2
        assert values(rows_of(broker, "Counts", {"Bids": max(again.ticks)})) == {"IBM": 1, "HAL": 1}


def test_a_commit_that_fails_in_a_way_nobody_foresaw_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        with monkeypatch.context() as broken:
            broken.setattr(broker.log, "append", lambda *_: 1 // 0)
            with pytest.raises(SmileError) as refused:
                publish(broker, "Bids", ("IBM", 1))
        assert code_of(refused) == "E084"
        after = publish(broker, "Bids", ("IBM", 2))
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 1}


def test_the_program_changes_and_unchanged_views_go_on(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, COUNTS, SUMS)) as broker:
        publish(broker, "Bids", ("IBM", 5), ("IBM", 6))
        counts, sums = broker.view("Counts"), broker.view("Sums")
        woken = Event()
        followed: list[ViewSubscription] = [v.subscribe(ViewCondition(), woken.set) for v in (counts, sums)]
        new = source(BIDS, TALKS, COUNTS, MAXES, TALKED)
        difference = broker.difference(new)
        assert (difference.added, difference.changed, difference.unchanged) == (("Talked",), ("Sums",), ("Counts",))
        assert (difference.streams_added, difference.streams_dropped) == (("Talks",), ())
        assert broker.apply(new) == difference
        assert broker.view("Counts") is counts
        assert followed[0].ended is None
        assert followed[1].ended is not None
        assert followed[1].ended.diagnostics[0].code == "E095"
        after = publish(broker, "Bids", ("IBM", 1)) | publish(broker, "Talks", ("IBM",))
        assert values(rows_of(broker, "Counts", {"Bids": after["Bids"]})) == {"IBM": 3}
        assert values(rows_of(broker, "Sums", {"Bids": after["Bids"]})) == {"IBM": 6}
        assert values(rows_of(broker, "Talked", after)) == {"IBM": 1}
    # What was applied goes on, though the file that is served is the old one.
    with opened(tmp_path, source(BIDS, COUNTS, SUMS)) as broker:
        assert values(rows_of(broker, "Talked", after)) == {"IBM": 1}
        assert values(rows_of(broker, "Sums", {})) == {"IBM": 6}


def test_a_file_that_changed_is_applied_when_it_is_served(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, TALKS, COUNTS, TALKED)) as broker:
        after = publish(broker, "Bids", ("IBM", 5)) | publish(broker, "Talks", ("IBM",))
    with opened(tmp_path, source(BIDS, SUMS)) as broker:
        assert set(broker.views) == {"Sums"}
        assert values(rows_of(broker, "Sums", {"Bids": after["Bids"]})) == {"IBM": 5}
        with pytest.raises(SmileError) as refused:
            publish(broker, "Talks", ("IBM",))
        assert code_of(refused) == "E076"
    # A stream that was dropped comes back with all it had.
    with opened(tmp_path, source(BIDS, TALKS, TALKED)) as broker:
        assert values(rows_of(broker, "Talked", {"Talks": after["Talks"]})) == {"IBM": 1}


def test_a_change_that_was_cut_short_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        after = publish(broker, "Bids", ("IBM", 5))

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(type(broker._maintainer), "add", killed)
        with pytest.raises(KeyboardInterrupt):
            broker.apply(source(BIDS, COUNTS, SUMS))
    monkeypatch.undo()
    with opened(tmp_path, None) as broker:
        assert values(rows_of(broker, "Sums", after)) == {"IBM": 5}
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 1}


def test_a_program_that_cannot_follow_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        for wrong, code in (
            (source(BIDS.replace("shares: int", "shares: string"), COUNTS), "E102"),
            (source(BIDS, COUNTS.replace("issue,", "isue,")), "E022"),
            (source(""), "E004"),
        ):
            with pytest.raises(SmileError) as refused:
                broker.apply(wrong)
            assert code_of(refused) == code
        after = publish(broker, "Bids", ("IBM", 5))
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 1}


def test_a_change_that_fails_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, source(BIDS, COUNTS, SUMS)) as broker:
        after = publish(broker, "Bids", ("IBM", 5))
        keeper = type(broker._maintainer)
        add = keeper.add

        def fails(self: Any, generation: Any, log: Any) -> None:
            if "Maxes" in generation.views:
                raise error("E051", "rows of a join would share a key")
            add(self, generation, log)

        monkeypatch.setattr(keeper, "add", fails)
        with pytest.raises(SmileError) as refused:
            broker.apply(source(BIDS, COUNTS, MAXES, MAXES.replace("Sums", "Maxes")))
        assert code_of(refused) == "E051"
        assert set(broker.views) == {"Counts", "Sums"}
        assert values(rows_of(broker, "Sums", after)) == {"IBM": 5}
    with opened(tmp_path, None) as broker:
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 1}
        assert values(rows_of(broker, "Sums", after)) == {"IBM": 5}


def test_a_directory_has_one_broker(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, COUNTS)):
        with pytest.raises(SmileError) as refused, opened(tmp_path, None):
            pass
        assert code_of(refused) == "E101"


def test_a_directory_without_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SmileError) as refused, opened(tmp_path, None):
        pass
    assert code_of(refused) == "E105"


def test_damage_to_the_note_is_told_and_can_be_mended(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        after = publish(broker, "Bids", ("IBM", 5))
    note = tmp_path / "broker.json"
    whole = note.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"[]", b"null", b'{"format":1}', b"\xff\xfe"):
        note.write_bytes(damaged)
        with pytest.raises(SmileError) as refused, opened(tmp_path, None):
            pass
        assert code_of(refused) == "E105"
    note.unlink()
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 1}


@pytest.mark.parametrize("origin", [0, 1])
def test_tokens_are_good_from_the_first_event_on(tmp_path: Path, origin: int) -> None:
    """Whatever the broker's origin, and although nobody has logged the stream before."""
    with opened(tmp_path, source(BIDS, COUNTS), origin=origin) as broker:
        after = publish(broker, "Bids", ("IBM", 5))
        rows_of(broker, "Counts", after)
        assert broker.log_horizons["Bids"] >= after["Bids"]


@pytest.mark.parametrize("journal_mode", ["WAL", None])
def test_a_broker_killed_while_it_creates_its_log_can_be_started_again(
    tmp_path: Path, journal_mode: str | None
) -> None:
    """The file is there then, and has no tables."""
    if journal_mode is None:
        (tmp_path / "log").touch()
    else:
        sqlite3.connect(tmp_path / "log").execute(f"PRAGMA journal_mode = {journal_mode}").connection.close()
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        after = publish(broker, "Bids", ("IBM", 5))
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 1}


@pytest.mark.slow
def test_the_log_is_cut_where_no_view_needs_it(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, COUNTS), keep="1 second") as broker:
        after = publish(broker, "Bids", *[("IBM", n) for n in range(100)])
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 100}

        def is_cut() -> bool:
            broker.truncate_log()
            return broker.log.truncated_to("Bids") is not None

        wait_until(is_cut, "the log is not cut")
        assert not broker.warnings
        with pytest.raises(SmileError) as refused:
            broker.apply(source(BIDS, COUNTS, SUMS))
        assert code_of(refused) == "E097"
        after = publish(broker, "Bids", ("IBM", 1))
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 101}
        # A view of a stream that is new needs nothing that was cut.
        asks = BIDS.replace("Bids", "Asks") + COUNTS.replace("Bids", "Asks").replace("Counts", "Offers")
        broker.apply(source(BIDS, COUNTS, asks))
        asked = publish(broker, "Asks", ("IBM", 1), ("SUN", 2))
        assert values(rows_of(broker, "Offers", asked)) == {"IBM": 1, "SUN": 1}
    with opened(tmp_path, None, keep="1 second") as broker:
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 101}
        assert values(rows_of(broker, "Offers", asked)) == {"IBM": 1, "SUN": 1}


def test_unknown_names_are_told_with_what_is_near(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, COUNTS, SUMS, "SUBSCRIBE Counts;")) as broker:
        for name, hint in (("Count", "Did you mean Counts?"), ("Sums", "SUBSCRIBE Sums"), ("x" * 10_000, "There are")):
            with pytest.raises(SmileError) as refused:
                broker.view(name)
            assert code_of(refused) == "E021"
            assert hint in (refused.value.diagnostics[0].hint or "")
            assert len(str(refused.value)) < 200
        with pytest.raises(SmileError, match=r"Bids is a stream, and no view\n.*AS SELECT t, … FROM Bids") as refused:
            broker.view("Bids")
        with pytest.raises(SmileError) as refused:
            broker.decoder.schema("Bid")
        assert refused.value.diagnostics[0].hint == "Did you mean Bids?"
