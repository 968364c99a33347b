"""The quick reader accepts only what the careful one accepts, and reads it the same; nothing makes either of them fail."""

import io
import json
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from smile.errors import SmileError
from smile.log.diagnosing_reader import DiagnosingReader
from smile.log.event_errors import EventError
from smile.log.events import EventReader
from smile.log.fast_reader import FastReader
from smile.log.stream_schema import ParsedLine, StreamSchema
from smile.reference.history import parse_json_value
from tests.log.reading import KINDS, STREAMS

pytestmark = pytest.mark.slow

SHAPES = {stream.name: StreamSchema(stream) for stream in STREAMS}
QUICK, CAREFUL = FastReader(SHAPES), DiagnosingReader(SHAPES)

JSON_TEXTS = (
    "null true false 0 -0 1 -1 1.0 1.5 0.005 999.994 999.995 1e2 1E-2 1e400 1e-400 01 1. .5 + - NaN Infinity 9007199254740993 "
    "9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 253402300799999999 2932896 2932897 "
    "[] {} [1] {\"i\":1} \"\" \"a\" \"1\" \"-1\" \"+1\" \"01\" \"1_0\" \"1.5\" \"NaN\" \"true\" \"null\" \"\\\\x00\" \"\\\\xzz\" \"x\\\"y\" \"é\" \"\\ud800\" "
    "\"\\u0069\" \"9223372036854775807\" \"9223372036854775808\" \"1970-01-02\" \"2024-02-30\" \"1e2\" \"１\""
).split(" ")  # fmt: skip
SPACED = [
    '"1970-01-01 00:00:01.5"',
    '"3 minutes"',
    '" 1"',
    "\"INTERVAL '2' DAY\"",
    '"a b"',
    "1" + "0" * 1200,
    '"' + "1" * 1200 + '"',
]
VALUES = (
    st.sampled_from([*JSON_TEXTS, *SPACED])
    | st.floats().map(json.dumps)
    | st.text().map(json.dumps)
    | st.integers().map(str)
)
SPACE = st.sampled_from(["", "", "", " ", "\t", "\r"])


@st.composite
def objects(draw: Any, names: list[str], values: dict[str, st.SearchStrategy[str]], most: int) -> str:
    pairs = draw(st.lists(st.sampled_from(names), max_size=most, unique=draw(st.booleans())))
    return (
        "{"
        + ",".join(f'{draw(SPACE)}"{n}"{draw(SPACE)}:{draw(SPACE)}{draw(values.get(n, VALUES))}' for n in pairs)
        + "}"
    )


COLUMNS = [name for name, _ in KINDS.columns]
EVENTS = objects([*COLUMNS, *COLUMNS, *COLUMNS, "t", "\\u0069"], {}, 5)
LINES = objects(
    ["stream", "stream", "at", "event", "event", "event", "silence_to", "other"],
    {"stream": st.sampled_from(['"Kinds"', '"Kinds"', '"Bids"', "3", '"\\u004binds"']), "event": EVENTS},
    4,
) | EVENTS.map(lambda event: f'{{"stream":"Kinds","event":{event}}}')


def careful(raw: bytes) -> ParsedLine | None:
    try:
        return CAREFUL.read(raw)
    except SmileError:
        return None


def agree(raw: bytes) -> ParsedLine | None:
    quick, slow = QUICK.read(raw), careful(raw)
    if quick is not None:
        assert repr(quick) == repr(slow) or quick == slow
        assert slow is not None and [type(v) for v in quick[2] or ()] == [type(v) for v in slow[2] or ()]
    return slow


@given(LINES)
@settings(max_examples=800)
@example('{"stream":"Kinds","at":1,"at":1,"event":{}}')
@example('{"stream":"Kinds","event":{"i":1},"event":{}}')
@example('{"at":1,"at":1,"event":{},"stream":"Kinds"}')
@example('{"stream":"Kinds","event":{"d":1.}}')
def test_the_readers_agree(line: str) -> None:
    said = agree(line.encode("utf-8", "surrogatepass"))
    if said is not None and said[0] is not None and said[2] is not None:
        event = json.loads(line, parse_float=str)["event"]
        for (name, data), value in zip(said[0].stream.columns, said[2], strict=True):
            given = event.get(name)
            # Text of a time may also be a moment, which the reference has no need of.
            if data.name != "time" or not isinstance(given, str) or "-" not in given[1:]:
                assert parse_json_value(given, data) == value


@given(st.sampled_from(COLUMNS), VALUES)
@settings(max_examples=600)
def test_the_readers_agree_on_every_value(column: str, value: str) -> None:
    agree(f'{{"stream":"Kinds","event":{{"{column}":{value}}}}}'.encode("utf-8", "surrogatepass"))


def test_the_quick_reader_reads_what_is_common() -> None:
    """Or nothing here would tell the two apart but their speed."""
    for line in (
        '{"stream":"Bids","at":17,"event":{"issue":"IBM","price":10000,"#bid":300}}',
        '{"stream":"Bids","at":"1762000000000000000","event":{"issue":null}}',
        '{"stream":"Kinds","event":{"d":1.5,"ts":"2024-05-31","y":"\\\\x00","m":"3 minutes","x":1,"s":"\\n"}}',
        '{"stream":"Kinds","silence_to":5}',
        '{"silence_to":"5"}',
    ):
        assert QUICK.read(line.encode()) == CAREFUL.read(line.encode()) != None  # noqa: E711


def read_all(data: bytes) -> None:
    bad: list[str] = []
    read = EventReader(STREAMS, io.BytesIO(data), "events.ndjson", lambda b: bad.append(b.render()))
    list(read.batches(3))
    assert read.bad == len(bad)
    first = ""
    try:
        list(EventReader(STREAMS, io.BytesIO(data), "events.ndjson").batches(3))
    except EventError as problem:
        first = problem.bad.render()
    assert first == (bad[0] if bad else "")
    assert first == "" or first.startswith("events.ndjson:")


@given(st.binary(max_size=300))
@settings(max_examples=500)
def test_no_bytes_make_it_fail(data: bytes) -> None:
    read_all(data)


@given(
    st.lists(LINES, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=2)), max_size=4),
)
@settings(max_examples=250)
def test_no_damage_makes_it_fail(lines: list[str], damage: list[tuple[int, bytes]]) -> None:
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    for at, put in damage:
        at %= len(data) + 1
        data = data[:at] + put + data[at + 1 :]
    for raw in data.split(b"\n"):
        if raw.strip():
            agree(raw)
    read_all(data)
