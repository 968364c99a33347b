"""Recorded events become the same rows as in the reference's history, in batches of any size."""

import gzip
import io
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from smile import limits
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError
from smile.horizons import END
from smile.log.lines import open_events
from smile.log.recorded_events import EventReader
from smile.reference.history import History, read_events
from tests.log.reading import KINDS, STREAMS, event_reader, rows_by_tick, tolerant_reader
from tests.programs.reader import programs
from tests.reference.histories import Histories

pytestmark = pytest.mark.slow

PROGRAMS = programs()


@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32), st.integers(1, 9))
@settings(max_examples=300)
def test_rows_are_the_references(name: str, seed: int, lines_max: int) -> None:
    program = PROGRAMS[name]
    histories = Histories(program, Random(seed))
    text = "\n".join(json.dumps(histories.line(), default=str) for _ in range(Random(seed).randint(0, 30)))
    history = History.from_lines(program, read_events(text))
    read = event_reader(text, program.streams)
    batches = list(read.batches(lines_max))
    assert rows_by_tick(batches, program.streams) == history.events
    assert read.horizons == history.horizons
    assert read.events == sum(map(len, history.events.values()))
    assert (read.bad, read.duplicates) == (0, 0)
    for batch in batches:
        for stream, events in batch.events.items():
            assert events.column(0)[-1].as_py() <= batch.horizons[stream]


@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32))
def test_each_line_can_be_a_batch(name: str, seed: int) -> None:
    """With batches of one line, the horizons after each line are those of the reference."""
    program = PROGRAMS[name]
    histories = Histories(program, Random(seed))
    lines = [histories.line() for _ in range(8)]
    history = History.from_lines(program)
    expected = []
    for line in read_events("\n".join(json.dumps(line, default=str) for line in lines)):
        before = dict(history.horizons)
        history.add(line)
        if history.horizons != before:
            expected.append(dict(history.horizons))
    text = "\n".join(json.dumps(line, default=str) for line in lines)
    assert [batch.horizons for batch in event_reader(text, program.streams).batches(1)] == expected


@given(st.integers(0, 2**32), st.integers(1, 9))
def test_repeated_lines_are_dropped_and_counted(seed: int, lines_max: int) -> None:
    random = Random(seed)
    lines: list[str] = []
    histories = Histories(PROGRAMS["programs/tradefloor"], random)
    repeated = 0
    for _ in range(20):
        events = [line for line in lines if '"event"' in line]
        if events and random.random() < 0.4:
            repeated += 1
            lines.append(random.choice(events).replace(":", " : "))
        else:
            lines.append(json.dumps(histories.line()))
    streams = PROGRAMS["programs/tradefloor"].streams
    read = event_reader("\n".join(lines), streams)
    once = event_reader("\n".join(line for line in lines if " : " not in line), streams)
    assert rows_by_tick(list(read.batches(lines_max)), streams) == rows_by_tick(list(once.batches(lines_max)), streams)
    assert read.duplicates == repeated


def event(**values: Any) -> str:
    return json.dumps({"stream": "Kinds", "event": values})


@pytest.mark.parametrize(
    ("column", "written", "value"),
    [
        ("o", "true", True), ("o", "null", None),
        ("i", "-9223372036854775808", -(2**63)), ("i", "9223372036854775807", 2**63 - 1), ("i", '"9007199254740993"', 2**53 + 1),
        ("i", '"-12"', -12), ("i", "-0", 0),
        ("x", "1", 1.0), ("x", "0.1", 0.1), ("x", "1E+3", 1000.0), ("x", "5e-324", 5e-324), ("x", "1" + "0" * 300, 1e300),
        ("d", "0.10", "0.10"), ("d", "123.456", "123.46"), ("d", "1e2", "100.00"), ("d", '"-999.99"', "-999.99"), ("d", "-0.005", "-0.01"),
        ("d", "0.29", "0.29"),
        ("s", '"a\\"b\\u00e9\\ud83d\\ude00"', 'a"bé😀'), ("s", '"i"', "i"), ("s", '""', ""), ("s", '"\\u0000"', "\0"),
        ("y", '"\\\\x00ff"', b"\x00\xff"),
        ("p", "0", 0), ("p", '"0"', 0),
        ("m", "7", 7), ("m", '"2 milliseconds"', 2 * 1000 * 1024), ("m", "\"INTERVAL '3' TICK\"", 3),
        ("ts", "5", 5), ("ts", '"1970-01-01 00:00:01"', 1_000_000), ("ts", '"1970-01-01T01:00:00+01:00"', 0),
        ("day", "-1", -1), ("day", '"1970-01-03"', 2),
    ],
)  # fmt: skip
def test_values(column: str, written: str, value: Any) -> None:
    line = f'{{"stream":"Kinds","event":{{"{column}":{written}}}}}'
    row = rows_by_tick(list(event_reader(line).batches(10)))["Kinds"][0]
    parsed = row.pop(column)
    assert (str(parsed) if column == "d" else parsed) == value
    assert type(parsed) is not bool or column == "o"
    assert set(row.values()) == {0, None}
    assert list(rows_by_tick(list(event_reader(line).batches(10)))["Kinds"][0]) == [
        KINDS.tick,
        *(n for n, _ in KINDS.columns),
    ]


def ticks(text: str) -> dict[str, list[int]]:
    return {name: list(rows) for name, rows in rows_by_tick(list(event_reader(text).batches(100))).items()}


def test_ticks_count_up_over_all_streams() -> None:
    text = """
        {"stream":"Kinds","event":{}}
        {"stream":"Bids","event":{}}

        {"stream":"Bids","at":17,"event":{}}
        {"stream":"Kinds","at":5,"event":{}}
        {"stream":"Kinds","event":{}}
        {"stream":"Kinds","at":"9007199254740993","event":{}}
        {"event":{},"stream":"Kinds"}
        """
    assert ticks(text) == {"Kinds": [0, 5, 18, 2**53 + 1, 2**53 + 2], "Bids": [1, 17]}


def test_ticks_without_at_pass_over_silence() -> None:
    text = """{"stream":"Kinds","at":3,"event":{}}
        {"stream":"Bids","silence_to":500}
        {"stream":"Kinds","event":{}}
        {"stream":"Bids","event":{}}"""
    assert ticks(text) == {"Kinds": [3, 4], "Bids": [501]}


def test_silence() -> None:
    text = """{"silence_to":5}
        {"stream":"Bids","silence_to":"9"}
        {"silence_to":3}
        {"stream":"Bids","silence_to":9223372036854775807}"""
    batches = list(event_reader(text).batches(1))
    assert [batch.horizons for batch in batches] == [
        {"Bids": 5, "Kinds": 5},
        {"Bids": 9, "Kinds": 5},
        {"Bids": END, "Kinds": 5},
    ]
    assert all(batch.events == {} for batch in batches)


def test_counters() -> None:
    lines = [
        '{"stream":"Kinds","at":3,"event":{"i":-1}}',
        '{"stream":"Kinds","at":3,"event":{"i":-1,"s":null}}',
        '{"stream":"Kinds","at":3,"event":{"i":-2}}',
        "nonsense",
        '{"stream":"Kinds","at":2,"event":{"i":-1}}',
        '{"stream":"Kinds","at":4,"event":{"i":-1}}',
    ]
    read, bad = tolerant_reader("\n".join(lines))
    assert list(rows_by_tick(list(read.batches(100)))["Kinds"]) == [3, 4]
    assert (read.events, read.duplicates, read.bad, read.lines) == (2, 1, 3, 6)
    assert [(b.number, b.raw.decode(), b.diagnostic.code) for b in bad] == [
        (3, lines[2], "E082"),
        (4, lines[3], "E073"),
        (5, lines[4], "E081"),
    ]
    assert read.bytes_read == len("\n".join(lines))
    assert read.bytes_total is None


def test_numbers_with_the_same_python_hash_are_distinguished() -> None:
    for first, second in ((-1, -2), (0, 2**61 - 1)):
        text = (
            f'{{"stream":"Kinds","at":3,"event":{{"i":{first}}}}}\n{{"stream":"Kinds","at":3,"event":{{"i":{second}}}}}'
        )
        with pytest.raises(SmileError) as failure:
            list(event_reader(text).batches(1))
        assert failure.value.diagnostics[0].code == "E082"


def test_a_refused_event_leaves_no_trace() -> None:
    text = """{"stream":"Kinds","at":3,"event":{}}
        {"stream":"Kinds","at":10,"event":{"p":11}}
        {"stream":"Kinds","at":5,"event":{}}
        {"stream":"Kinds","event":{}}"""
    read, bad = tolerant_reader(text)
    assert list(rows_by_tick(list(read.batches(2)))["Kinds"]) == [3, 5, 6]
    assert [b.diagnostic.code for b in bad] == ["E080"]


def test_a_check_is_evaluated_with_the_tick_that_follows_from_the_lines_before() -> None:
    lines = [
        '{"stream":"Kinds","at":3,"event":{"p":3}}',
        '{"stream":"Kinds","event":{"p":5}}',
        '{"stream":"Kinds","event":{"p":4}}',
        '{"stream":"Kinds","at":4,"event":{"p":4}}',
        '{"stream":"Kinds","at":9,"event":{"p":10}}',
        '{"stream":"Kinds","event":{"p":5}}',
    ]
    read, bad = tolerant_reader("\n".join(lines))
    rows = rows_by_tick(list(read.batches(100)))["Kinds"]
    assert {tick: row["p"] for tick, row in rows.items()} == {3: 3, 4: 4, 5: 5}
    assert [(b.number, b.diagnostic.message) for b in bad] == [
        (2, "Kinds requires p <= t, but t is 4, p is 5"),
        (5, "Kinds requires p <= t, but t is 9, p is 10"),
    ]
    assert read.duplicates == 1


@pytest.mark.parametrize("text", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_batch(text: bytes) -> None:
    assert list(event_reader(text).batches(5)) == []


def test_line_ends_and_marks_of_other_systems() -> None:
    text = b'\xef\xbb\xbf{"stream":"Kinds","event":{}}\r\n\r\n{"stream":"Kinds","event":{}}\r\n'
    assert list(rows_by_tick(list(event_reader(text).batches(5)))["Kinds"]) == [0, 1]


@pytest.mark.parametrize("block", [1, 2, 7, 64, 10_000])
def test_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "events_block_bytes_max", block)
    monkeypatch.setattr(limits, "event_line_bytes_max", 60)
    good = "".join(f'{{"stream":"Kinds","event":{{"i":{i}}}}}\n' for i in range(20))
    long = f'{{"stream":"Kinds","event":{{"s":"{"x" * 200}"}}}}\n'
    for text in (f"{good}{long}{good}{long}", f"{good}{long}{good}{long}"[:-1]):
        read, bad = tolerant_reader(text)
        assert [row["i"] for row in rows_by_tick(list(read.batches(7)))["Kinds"].values()] == [*range(20), *range(20)]
        assert [(b.number, b.diagnostic.code) for b in bad] == [(21, "E071"), (42, "E071")]
        assert max(len(b.raw) for b in bad) <= 60 + 1 + block


def test_long_lines_end_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "input_batch_bytes_max", 100)
    monkeypatch.setattr(limits, "events_block_bytes_max", 50)
    assert len(list(event_reader(f"{event(i=1)}\n" * 12).batches(1000))) > 2


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"{event(i=i, s='x' * (i % 7))}\n" for i in range(10_000)).encode()
    (tmp_path / "events.ndjson").write_bytes(text)
    (tmp_path / "events.ndjson.gz").write_bytes(gzip.compress(text))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    for path in (tmp_path / "events.ndjson", tmp_path / "events.ndjson.gz", "-"):
        with open_events(str(path)) as file:
            read = EventReader(EventDecoder(STREAMS), file, str(path))
            progress = [read.bytes_read for _ in read.batches(1000)]
            assert read.events == 10_000
            assert progress == sorted(progress)
            assert read.bytes_total == (None if path == "-" else (tmp_path / path).stat().st_size)
            assert read.bytes_read == (read.bytes_total or len(text))
            assert progress[0] < progress[-1]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    compressed = gzip.compress(event(i=1).encode() * 100)
    (tmp_path / "cut.gz").write_bytes(compressed[:-20])
    (tmp_path / "plain.gz").write_text(event(i=1))
    (tmp_path / "broken.gz").write_bytes(compressed[:20] + b"nonsense" + compressed[28:])
    for name in ("cut.gz", "plain.gz", "broken.gz", "absent", "absent.gz", ""):
        path = str(tmp_path / name)
        with pytest.raises(SmileError) as failure, open_events(path) as file:
            list(EventReader(EventDecoder(STREAMS), file, path).batches(10))
        assert failure.value.diagnostics[0].code == "E070"
        assert path in failure.value.diagnostics[0].message
