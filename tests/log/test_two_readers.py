"""The fast reader accepts only what the diagnosing reader accepts, with the same result. No input makes either
crash."""

import io
import json
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from smile.errors import SmileError
from smile.log.decoding.diagnosing_reader import DiagnosingReader
from smile.log.decoding.event_errors import EventError
from smile.log.decoding.events import EventReader
from smile.log.decoding.fast_reader import FastReader
from smile.log.decoding.stream_schema import ParsedLine, StreamSchema
from smile.reference.history import parse_json_value
from tests.log.reading import KINDS, STREAMS

pytestmark = pytest.mark.slow

SCHEMAS = {stream.name: StreamSchema(stream) for stream in STREAMS}
FAST, DIAGNOSING = FastReader(SCHEMAS), DiagnosingReader(SCHEMAS)

JSON_TEXTS = (
    "null true false 0 -0 1 -1 1.0 1.5 0.005 999.994 999.995 1e2 1E-2 1e400 1e-400 01 1. .5 + - NaN Infinity 9007199254740993 "
    "9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 253402300799999999 2932896 2932897 "
    "[] {} [1] {\"i\":1} \"\" \"a\" \"1\" \"-1\" \"+1\" \"01\" \"1_0\" \"1.5\" \"NaN\" \"true\" \"null\" \"\\\\x00\" \"\\\\xzz\" \"x\\\"y\" \"é\" \"\\ud800\" "
    "\"\\u0069\" \"9223372036854775807\" \"9223372036854775808\" \"1970-01-02\" \"2024-02-30\" \"1e2\" \"１\""
).split(" ")  # fmt: skip
TEXTS_WITH_SPACES = [
    '"1970-01-01 00:00:01.5"',
    '"3 minutes"',
    '" 1"',
    "\"INTERVAL '2' DAY\"",
    '"a b"',
    "1" + "0" * 1200,
    '"' + "1" * 1200 + '"',
]
VALUES = (
    st.sampled_from([*JSON_TEXTS, *TEXTS_WITH_SPACES])
    | st.floats().map(json.dumps)
    | st.text().map(json.dumps)
    | st.integers().map(str)
)
SPACE = st.sampled_from(["", "", "", " ", "\t", "\r"])


@st.composite
def objects(draw: Any, names: list[str], values: dict[str, st.SearchStrategy[str]], fields_max: int) -> str:
    pairs = draw(st.lists(st.sampled_from(names), max_size=fields_max, unique=draw(st.booleans())))
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


def read_diagnosing(raw: bytes) -> ParsedLine | None:
    try:
        return DIAGNOSING.read(raw)
    except SmileError:
        return None


def check_agreement(raw: bytes) -> ParsedLine | None:
    """Returns the result of the diagnosing reader."""
    fast, diagnosing = FAST.read(raw), read_diagnosing(raw)
    if fast is not None:
        assert repr(fast) == repr(diagnosing) or fast == diagnosing
        assert diagnosing is not None and [type(v) for v in fast[2] or ()] == [type(v) for v in diagnosing[2] or ()]
    return diagnosing


@given(LINES)
@settings(max_examples=800)
@example('{"stream":"Kinds","at":1,"at":1,"event":{}}')
@example('{"stream":"Kinds","event":{"i":1},"event":{}}')
@example('{"at":1,"at":1,"event":{},"stream":"Kinds"}')
@example('{"stream":"Kinds","event":{"d":1.}}')
def test_the_readers_agree(line: str) -> None:
    parsed = check_agreement(line.encode("utf-8", "surrogatepass"))
    if parsed is not None and parsed[0] is not None and parsed[2] is not None:
        event = json.loads(line, parse_float=str)["event"]
        for (name, data), value in zip(parsed[0].stream.columns, parsed[2], strict=True):
            json_value = event.get(name)
            # A time may also be written as a date and time, which the reference does not support.
            if data.name != "time" or not isinstance(json_value, str) or "-" not in json_value[1:]:
                assert parse_json_value(json_value, data) == value


@given(st.sampled_from(COLUMNS), VALUES)
@settings(max_examples=600)
def test_the_readers_agree_on_every_value(column: str, value: str) -> None:
    check_agreement(f'{{"stream":"Kinds","event":{{"{column}":{value}}}}}'.encode("utf-8", "surrogatepass"))


def test_the_fast_reader_accepts_common_lines() -> None:
    """Otherwise a fast reader that accepts nothing would pass all tests here."""
    for line in (
        '{"stream":"Bids","at":17,"event":{"issue":"IBM","price":10000,"#bid":300}}',
        '{"stream":"Bids","at":"1762000000000000000","event":{"issue":null}}',
        '{"stream":"Kinds","event":{"d":1.5,"ts":"2024-05-31","y":"\\\\x00","m":"3 minutes","x":1,"s":"\\n"}}',
        '{"stream":"Kinds","silence_to":5}',
        '{"silence_to":"5"}',
    ):
        assert FAST.read(line.encode()) == DIAGNOSING.read(line.encode()) != None  # noqa: E711


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
def test_no_bytes_make_a_reader_crash(data: bytes) -> None:
    read_all(data)


@given(
    st.lists(LINES, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=2)), max_size=4),
)
@settings(max_examples=250)
def test_no_damage_makes_a_reader_crash(lines: list[str], damage: list[tuple[int, bytes]]) -> None:
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    for position, replacement in damage:
        index = position % (len(data) + 1)
        data = data[:index] + replacement + data[index + 1 :]
    for raw in data.split(b"\n"):
        if raw.strip():
            check_agreement(raw)
    read_all(data)
