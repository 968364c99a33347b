"""The directory that grows: each row of each file is logged once, whenever it was written and however the broker ends."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smile.connectors.sources import directory as directory_module
from smile.connectors.sources.directory import DirectorySource
from smile.connectors.sources.event_source import PartPosition, SourceBatch
from smile.errors import SmileError
from tests.connectors.serving import logged, serving
from tests.processes import wait_until
from tests.repeatable import scaled


class LoggedPositions:
    """What a log would know of a source."""

    def __init__(self) -> None:
        self.positions: dict[str, PartPosition] = {}
        self.texts: list[str] = []

    def log(self, batch: SourceBatch, count: int) -> None:
        """The first events of a batch are in the log."""
        known = self.positions.get(batch.part)
        assert known is None or batch.first > known.number, "an event comes again"
        self.texts += [batch.events.content(i).decode() for i in range(count)]
        if count:
            self.positions[batch.part] = PartPosition(batch.first + count - 1, batch.note(count))


def read_all(source: DirectorySource, positions: LoggedPositions) -> None:
    while (batch := source.next_batch()) is not None:
        positions.log(batch, len(batch.events))
        source.accept(batch)


def opened(folder: Path, positions: LoggedPositions) -> DirectorySource:
    source = DirectorySource(str(folder))
    source.open(positions.positions.get)
    return source


def test_complete_lines_are_read_and_the_rest_waits(tmp_path: Path) -> None:
    positions = LoggedPositions()
    file = tmp_path / "a.ndjson"
    file.write_text('{"n":1}\n\n{"n":2}\n{"n":')
    source = opened(tmp_path, positions)
    read_all(source, positions)
    assert positions.texts == ['{"n":1}', '{"n":2}']
    assert [p.code for p in source.problems().values()] == ["E203"]
    with file.open("a") as f:
        f.write("3}\n")
    read_all(source, positions)
    assert positions.texts[2:] == ['{"n":3}'] and not source.problems()
    read_all(opened(tmp_path, positions), positions)
    assert len(positions.texts) == 3


def test_records_of_csv_may_have_several_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfitem,n\r\n"a\nb ""c""",1\r\n\r\nd,2\r\n"e\n')
    positions = LoggedPositions()
    source = opened(tmp_path, positions)
    read_all(source, positions)
    assert positions.texts == ['item,n\n"a\nb ""c""",1', "item,n\nd,2"]
    assert "no line feed" in next(iter(source.problems().values())).message


def test_hidden_and_other_files_are_left_out(tmp_path: Path) -> None:
    for name in (".a.csv", "_b.csv", "c.csv.tmp", "_part/d.csv", "sub/e.ndjson"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"n":1}\n')
    positions = LoggedPositions()
    source = opened(tmp_path, positions)
    read_all(source, positions)
    assert positions.texts == ['{"n":1}']
    assert source.status() == {"files": 1, "ignored_files": 1, "waiting_bytes": 0}


def test_a_file_that_cannot_be_read_does_not_hold_up_others(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 half")
    (tmp_path / "b.ndjson").write_text('{"n":1}\n')
    positions = LoggedPositions()
    source = opened(tmp_path, positions)
    read_all(source, positions)
    assert positions.texts == ['{"n":1}'] and [p.code for p in source.problems().values()] == ["E202"]
    pq.write_table(pa.table({"n": [7, 8]}), tmp_path / "a.parquet")
    read_all(source, positions)
    assert positions.texts[1:] == ['{"n":7}', '{"n":8}'] and not source.problems()


def test_a_file_that_has_become_shorter_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "a.ndjson"
    file.write_text('{"n":1}\n{"n":2}\n')
    positions = LoggedPositions()
    source = opened(tmp_path, positions)
    read_all(source, positions)
    file.write_text('{"n":3}\n')
    read_all(source, positions)
    assert len(positions.texts) == 2 and "shorter" in next(iter(source.problems().values())).message


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    source = opened(tmp_path / "none", LoggedPositions())
    with pytest.raises(SmileError) as problem:
        source.next_batch()
    assert problem.value.code == "E201"
    with pytest.raises(SmileError):
        DirectorySource("nowhere://a/b").open(lambda _: None)


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_random_growth_and_restarts(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are created, grow in pieces of any length, and the source is closed after any part of a batch. Whatever was
    logged comes once and in the order of its file."""
    random = Random(seed)
    monkeypatch.setattr(directory_module, "BATCH_EVENTS", 3)
    positions, written = LoggedPositions(), dict[str, list[str]]()
    pending: dict[str, bytes] = {}
    source, number = opened(tmp_path, positions), 0
    for step in range(60):
        action = random.random()
        if action < 0.25:
            kind = random.choice(["csv", "ndjson", "parquet"])
            name, values = f"{random.randrange(100):02}-{step}.{kind}", list[str]()
            for _ in range(random.randrange(9)):
                number += 1
                values.append(f"v{number}" + random.choice(["", "\n", ' "q"', ","]))
            if kind == "parquet":
                pq.write_table(pa.table({"s": pa.array(values, pa.string())}), tmp_path / name, row_group_size=2)
            elif kind == "csv":
                quoted = ('"' + value.replace('"', '""') + '"' for value in values)
                pending[name] = ("s\n" + "".join(f"{text}\n" for text in quoted)).encode()
            else:
                pending[name] = "".join(json.dumps({"s": value}) + "\n" for value in values).encode()
            written[name] = values
        elif action < 0.55 and pending:
            name = random.choice(sorted(pending))
            size = random.randrange(1, 30)
            with (tmp_path / name).open("ab") as file:
                file.write(pending[name][:size])
            pending[name] = pending[name][size:]
            if not pending[name]:
                del pending[name]
        elif action < 0.8:
            batch = source.next_batch()
            if batch is not None:
                positions.log(batch, len(batch.events))
        else:
            batch = source.next_batch()
            if batch is not None:
                positions.log(batch, random.randrange(len(batch.events) + 1))
            source.close()
            source = opened(tmp_path, positions)
    for name, rest in pending.items():
        with (tmp_path / name).open("ab") as file:
            file.write(rest)
    source = opened(tmp_path, positions)
    read_all(source, positions)
    values = [_value(text) for text in positions.texts]
    assert sorted(values) == sorted(v for vs in written.values() for v in vs), f"seed {seed}"
    for name, expected in written.items():
        assert [v for v in values if v in set(expected)] == expected, f"seed {seed}: the order of {name}"
    assert not source.problems()


def _value(text: str) -> str:
    if text.startswith("{"):
        return str(json.loads(text)["s"])
    return text.removeprefix("s\n")[1:-1].replace('""', '"')


def orders(folder: Path) -> dict[str, dict[str, Any]]:
    return {"orders": {"kind": "directory", "url": str(folder), "stream": "Orders"}}


def test_events_are_logged_once_and_refused_ones_are_dead_letters(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("item,n\nnail,5\nscrew,-1\nbolt,x\nnut,7\n")
    (folder / "b.ndjson").write_text('{"item":"nail","n":1}\n{"item":"nail","m":1}\n')
    pq.write_table(pa.table({"item": ["pin", "rod"], "n": [3, -4]}), folder / "c.parquet")
    expected = [("nail", 5), ("nut", 7), ("nail", 1), ("pin", 3)]
    with serving(tmp_path, orders(folder)) as (broker, service):
        wait_until(lambda: len(logged(broker)) == 4 and len(service.list_letters(0, 10)) == 4, "events and letters")
        assert logged(broker) == expected
        letters = service.list_letters(0, 10)
        assert [(letter.subject, letter.code) for letter in letters] == [
            ("a.csv, event 2", "E080"),
            ("a.csv, event 3", "E078"),
            ("b.ndjson, event 2", "E077"),
            ("c.parquet, event 2", "E080"),
        ]
        assert [letter.body for letter in letters] == [
            "item,n\nscrew,-1",
            "item,n\nbolt,x",
            '{"item":"nail","m":1}',
            '{"item":"rod","n":-4}',
        ]
        status = service.status()["sources"]["orders"]
        assert (status["events"], status["refused"], status["dead_letters"]) == (4, 4, 4)
        assert any(trouble.subject == "source orders, dead letters" for trouble in service.troubles())
        with (folder / "a.csv").open("a") as file:
            file.write("nail,9\n")
        wait_until(lambda: len(logged(broker)) == 5, "the file has grown")
    with serving(tmp_path, orders(folder)) as (broker, service):
        (folder / "d.ndjson").write_text('{"item":"last"}\n')
        wait_until(lambda: len(logged(broker)) == 6, "the new file")
        assert logged(broker) == [*expected, ("nail", 9), ("last", None)]
        assert len(service.list_letters(0, 10)) == 4
        assert service.status()["sources"]["orders"]["repeated"] == 0


def test_a_dead_letter_is_published_once_when_it_is_retried(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("item,n\nscrew,-1\n")
    program = "CREATE STREAM Orders (t TIME KEY, item string NOT NULL, n int CHECK (n >= 0));"
    with serving(tmp_path, orders(folder), program=program) as (_, service):
        wait_until(lambda: service.list_letters(0, 10), "the letter")
        (letter,) = service.list_letters(0, 10)
        with pytest.raises(SmileError) as problem:
            service.retry_letter(letter.id)
        assert problem.value.code == "E080" and len(service.list_letters(0, 10)) == 1
        service.letters.add(letter.connector, letter.subject, "item,n\nscrew,1", _diagnostic(letter), "csv")
        service.retry_letter(letter.id)
        assert logged(service._broker) == [("screw", 1)] and not service.list_letters(0, 10)
        with pytest.raises(SmileError) as problem:
            service.retry_letter(letter.id)
        assert problem.value.code == "E208"


def test_a_dead_letter_is_the_event_that_was_refused(tmp_path: Path) -> None:
    """What JSON does not have, such as NaN, and what is not UTF-8, is refused again when it is retried."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.ndjson").write_bytes(b'{"item":"caf\xe9"}\n')
    (folder / "b.csv").write_bytes(b"item\ncaf\xe9\n")
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"caf\xe9"]).buffers())
    time = pa.array([1], pa.timestamp("ns"))
    for name, column in (("x", pa.array([float("nan")])), ("item", text), ("w", time), ("y", pa.array([b"\x00"]))):
        pq.write_table(pa.table({name: column, "n": [-1]}), folder / f"c-{name}.parquet")
    program = """CREATE STREAM Orders
        (t TIME KEY, item string, n int CHECK (n >= 0), x float, y bytes, w timestamp);"""
    with serving(tmp_path, orders(folder), program=program) as (broker, service):
        wait_until(lambda: len(service.list_letters(0, 10)) == 6, "the letters")
        letters = {letter.subject: letter for letter in service.list_letters(0, 10)}
        for letter in letters.values():
            with pytest.raises(SmileError):
                service.retry_letter(letter.id)
        assert letters["a.ndjson, event 1"].content == b'{"item":"caf\xe9"}'
        assert letters["c-x.parquet, event 1"].body == '{"x":NaN,"n":-1}'
        assert letters["c-y.parquet, event 1"].body == '{"y":"\\\\x00","n":-1}'
        assert letters["c-item.parquet, event 1"].content == b'{"item":"caf\xe9","n":-1}'
        assert "00.000000001" in letters["c-w.parquet, event 1"].body
        assert len(service.list_letters(0, 10)) == 6 and not logged(broker)


def test_a_file_with_other_columns_is_one_dead_letter(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"item": ["a", "b", "c"], "n": [[1], [2], [3]]}), folder / "a.parquet")
    pq.write_table(pa.table({"item": ["d", "e"], "m": [4, 5]}), folder / "b.parquet")
    with serving(tmp_path, orders(folder)) as (broker, service):
        wait_until(lambda: len(service.list_letters(0, 10)) == 2, "the letters")
        first, second = service.list_letters(0, 10)
        assert (first.subject, first.code) == ("a.parquet, events 1 to 3", "E078")
        assert (second.subject, second.code) == ("b.parquet, events 1 to 2", "E077")
        assert second.body == '[{"item":"d","m":4},\n{"item":"e","m":5}]'
        assert service.status()["sources"]["orders"]["refused"] == 5
        mended = second.body.replace('"m"', '"n"')
        service.letters.add(second.connector, second.subject, mended, _diagnostic(second))
        service.retry_letter(second.id)
        assert logged(broker) == [("d", 4), ("e", 5)]


def _diagnostic(letter: Any) -> Any:
    from smile.errors import Diagnostic  # noqa: PLC0415

    return Diagnostic(letter.code, letter.message)


def test_a_stream_that_is_missing_is_a_trouble_and_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.ndjson").write_text('{"item":"nail"}\n')
    sources = {"orders": {"kind": "directory", "url": str(folder), "stream": "Nothing"}}
    with serving(tmp_path, sources) as (broker, service):
        wait_until(lambda: any(t.code == "E076" for t in service.troubles()), "the trouble")
        assert logged(broker) == [] and not service.list_letters(0, 10)
    with serving(tmp_path, orders(folder)) as (broker, _):
        wait_until(lambda: logged(broker) == [("nail", None)], "the event")
