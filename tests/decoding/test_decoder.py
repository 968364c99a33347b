"""The decoder and its explanation agree: the decoder refuses what has a problem, and nothing else. The values are those of
`parse_value` and of the reference. No input makes a reader crash."""

import io
import json
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from smile.algebra.json_values import JsonNumber
from smile.decoding.event_decoder import EventDecoder, ParsedLine
from smile.decoding.explanation import explain_line
from smile.decoding.values import parse_value
from smile.errors import SmileError
from smile.log.recorded_events import EventError, EventReader
from smile.reference.history import WrittenFloat, parse_json_value
from tests.log.reading import KINDS, STREAMS

pytestmark = pytest.mark.slow

DECODER = EventDecoder(STREAMS)

JSON_TEXTS = (
    "null true false 0 -0 1 -1 1.0 1.5 0.005 999.994 999.995 1e2 1E-2 1e400 1e-400 01 1. .5 + - NaN Infinity 9007199254740993 "
    "9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 253402300799999999 2932896 2932897 "
    "[] {} [1] {\"i\":1} \"\" \"a\" \"1\" \"-1\" \"+1\" \"01\" \"1_0\" \"1.5\" \"NaN\" \"true\" \"null\" \"\\\\x00\" \"\\\\xzz\" \"x\\\"y\" \"é\" \"\\ud800\" "
    "\"\\u0069\" \"9223372036854775807\" \"9223372036854775808\" \"1970-01-02\" \"2024-02-30\" \"1e2\" \"１\" 1.0e3 -2.0 9007199254740991.0 9007199254740992.0 \"2.0\" \"-1e3\" \"9007199254740993.0\""
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


def check_agreement(raw: bytes) -> ParsedLine | None:
    """Returns what the decoder decodes, or None if it refuses the line."""
    problem = explain_line(DECODER.schemas, raw, is_complete=True)
    try:
        parsed = DECODER.decode_line(raw)
    except SmileError:
        assert problem is not None, raw
        return None
    assert problem is None, raw
    return parsed


def check_values(line: str, parsed: ParsedLine) -> None:
    """Compares the values with those of `parse_value`, and of the reference."""
    schema, _, values, _ = parsed
    if schema is None or values is None:
        return
    exact = json.loads(line, parse_float=JsonNumber, parse_int=JsonNumber)["event"]
    event = json.loads(line, parse_float=WrittenFloat)["event"]
    for (name, data), value in zip(schema.stream.columns, values, strict=True):
        expected, json_value = parse_value(exact.get(name), data), event.get(name)
        assert (type(value), repr(value)) == (type(expected), repr(expected))
        # A time may also be written as a date and time, which the reference does not support.
        if data.name != "time" or not isinstance(json_value, str) or "-" not in json_value[1:]:
            assert parse_json_value(json_value, data) == value


@given(LINES)
@settings(max_examples=800)
@example('{"stream":"Kinds","at":1,"at":1,"event":{}}')
@example('{"stream":"Kinds","event":{"i":1},"event":{}}')
@example('{"at":1,"at":1,"event":{},"stream":"Kinds"}')
@example('{"stream":"Kinds","event":{"d":1.}}')
@example('{"stream":"Kinds","event":{"s":"a:b","\\u0073":"c"}}')
@example('{"stream":"Kinds","event":{"s":"\\":\\"","i":1}}')
@example('{"stream" :"Kinds","event" :{"s":":"},"at": 3}')
def test_the_decoder_refuses_what_has_a_problem(line: str) -> None:
    parsed = check_agreement(line.encode("utf-8", "surrogatepass"))
    if parsed is not None:
        check_values(line, parsed)


@given(st.sampled_from(COLUMNS), VALUES)
@settings(max_examples=600)
def test_every_value_is_decoded_or_refused(column: str, value: str) -> None:
    line = f'{{"stream":"Kinds","event":{{"{column}":{value}}}}}'
    parsed = check_agreement(line.encode("utf-8", "surrogatepass"))
    if parsed is not None:
        check_values(line, parsed)


@pytest.mark.parametrize(
    ("line", "stream", "tick", "values"),
    [
        (
            '{"stream":"Bids","at":17,"event":{"issue":"IBM","price":10000,"#bid":300}}',
            "Bids",
            17,
            ("IBM", 10000, 300),
        ),
        (
            '{"stream":"Bids","at":"1762000000000000000","event":{"issue":null}}',
            "Bids",
            1762000000000000000,
            (None,) * 3,
        ),
        ('{"stream":"Bids","event":{"issue":"a: \\"b\\":"}}', "Bids", None, ('a: "b":', None, None)),
        ('{"stream":"Kinds","silence_to":5}', "Kinds", 5, None),
        ('{"silence_to":"5"}', None, 5, None),
    ],
)
def test_common_lines_are_decoded(line: str, stream: str | None, tick: int | None, values: Any) -> None:
    """Otherwise a decoder that refuses everything, with reasons, would pass the tests above."""
    schema = None if stream is None else DECODER.schemas[stream]
    assert DECODER.decode_line(line.encode()) == (schema, tick, values, None)
    assert explain_line(DECODER.schemas, line.encode(), is_complete=True) is None


def read_all(data: bytes) -> None:
    bad: list[str] = []
    read = EventReader(DECODER, io.BytesIO(data), "events.ndjson", lambda b: bad.append(b.render()))
    list(read.batches(3))
    assert read.bad == len(bad)
    first = ""
    try:
        list(EventReader(DECODER, io.BytesIO(data), "events.ndjson").batches(3))
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
