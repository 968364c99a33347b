"""Published events are decoded like recorded events, or refused with the number of the event and the column."""

import json
import struct
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from smile import limits
from smile.algebra.types import TICK_MAX, Value
from smile.decoding.event_decoder import EventDecoder
from smile.decoding.stream_schema import EventRow
from smile.errors import SmileError
from tests.decoding.test_decoder import COLUMNS, DECODER, EVENTS, VALUES
from tests.log.reading import BIDS, KINDS

TIMED = EventDecoder([replace(stream, publisher_timed=True) for stream in (BIDS, KINDS)])
"""The same streams with ticks of their publishers."""


def outcome(read: Any, *args: Any) -> Any:
    """The result, or the code of the error."""
    try:
        return read(*args)
    except SmileError as problem:
        return problem.diagnostics[0].code


def read_recorded(event: str) -> list[EventRow] | str:
    """The result of reading the same event as a recorded one."""
    try:
        parsed = DECODER.decode_line(f'{{"stream":"Kinds","event":{event}}}'.encode("utf-8", "surrogatepass"))
    except SmileError as problem:
        return problem.diagnostics[0].code
    assert parsed is not None and parsed[2] is not None
    return [parsed[2]]


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@given(st.lists(EVENTS, min_size=1, max_size=4))
@settings(max_examples=400)
@example(['{"i":1,"i":1}'])
@example(['{"s":"a","\\u0073":"b"}'])
@example(['{"s":"\\""}', '{"s":"x"}'])
@example(['{"x":NaN}'])
def test_events_are_read_as_recorded_ones(events: list[str]) -> None:
    expected = [read_recorded(event) for event in events]
    bodies = [f"[{','.join(events)}]", "\n".join(events), *(events if len(events) == 1 else [])]
    decoders = [DECODER.decode_json, DECODER.decode_ndjson, DECODER.decode_json]
    errors = [result for result in expected if isinstance(result, str)]
    for body, decode in zip(bodies, decoders, strict=False):
        result = outcome(decode, "Kinds", body.encode("utf-8", "surrogatepass"))
        if errors:
            assert isinstance(result, str)  # any of several errors may be reported
        else:
            assert result == [row for rows in expected for row in rows]


@pytest.mark.slow
@given(st.sampled_from(COLUMNS), VALUES)
@settings(max_examples=400)
def test_every_value_is_read_as_a_recorded_one(column: str, value: str) -> None:
    event = f'{{"{column}":{value}}}'
    assert outcome(DECODER.decode_json, "Kinds", event.encode("utf-8", "surrogatepass")) == read_recorded(event)


@pytest.mark.slow
@given(st.binary(max_size=200))
def test_no_bytes_make_a_reader_crash(body: bytes) -> None:
    for decoder in (DECODER, TIMED):
        for decode in (decoder.decode_json, decoder.decode_ndjson, decoder.decode_arrow):
            outcome(decode, "Kinds", body)


@pytest.mark.parametrize(
    ("body", "timed", "expected"),
    [
        ('{"issue":"IBM","price":5,"#bid":1}', False, [("IBM", 5, 1)]),
        ('[{"#bid":1,"issue":"IBM"},{}]', False, [("IBM", None, 1), (None, None, None)]),
        ("[]", False, []),
        ('{"bid":7,"issue":"IBM"}', True, [(7, "IBM", None, None)]),
        ('[{"bid":"9007199254740993"},{"bid":0}]', True, [(9007199254740993, None, None, None), (0, None, None, None)]),
    ],
)
def test_common_events(body: str, timed: bool, expected: list[EventRow]) -> None:
    decoder = TIMED if timed else DECODER
    assert decoder.decode_json("Bids", body.encode()) == expected
    assert decoder.decode_json("Bids", body.replace(",", " ,\n").encode()) == expected


def test_a_tick_of_the_broker_is_refused_with_ways_to_keep_times() -> None:
    for publish, events in (
        (DECODER.decode_json, b'{"bid":1}'),
        (DECODER.decode_arrow, ipc_stream([pa.record_batch({"bid": [1]})])),
    ):
        with pytest.raises(SmileError) as failure:
            publish("Bids", events)
        assert "WITH (TICKS = PUBLISHER)" in str(failure.value.diagnostics[0].hint)


def test_lines_may_be_blank() -> None:
    body = b'\n{"issue":"IBM"}\r\n\n \n{"price":4}\n\n'
    assert DECODER.decode_ndjson("Bids", body) == [("IBM", None, None), (None, 4, None)]
    assert DECODER.decode_ndjson("Bids", b"") == []


@pytest.mark.parametrize(
    ("body", "timed", "code", "message"),
    [
        ('[{},{"price":"dear"}]', False, "E078", 'event 2: Bids.price: "dear" is not an int'),
        ('[{},{"prise":1}]', False, "E077", "event 2: Bids has no column prise"),
        ('{"bid":1}', False, "E077", "event 1: bid is the tick of Bids"),
        ('[{"bid":1},{"price":1}]', True, "E079", "event 2: Bids.bid is null, which is not a tick"),
        ('{"bid":-1}', True, "E079", "event 1: Bids.bid is -1, which is not a tick"),
        (f'{{"bid":{TICK_MAX + 1}}}', True, "E079", "which is not a tick"),
        ('{"bid":"x"}', True, "E079", 'event 1: Bids.bid: "x" is not a time'),
        ("[{},3]", False, "E074", "event 2: an event must be an object with the stream's columns, not 3"),
        ("[[]]", False, "E074", "event 1: an event must be an object"),
        ("7", False, "E074", "event 1: an event must be an object"),
        ('[{},{"price":1,"price":2}]', False, "E075", 'event 2: the name "price" is given twice'),
        ('[{},{"price":NaN}]', False, "E078", "event 2: Bids.price: NaN is not an int"),
        ('{"price":1', False, "E073", "not JSON: expecting ',' delimiter at line 1, column 11"),
        ("", False, "E073", "not JSON"),
        ("[" * 300 + "]" * 300, False, "E073", "nested too deeply"),
    ],
)
def test_a_refusal_says_which_event_and_column(body: str, timed: bool, code: str, message: str) -> None:
    with pytest.raises(SmileError) as failure:
        (TIMED if timed else DECODER).decode_json("Bids", body.encode())
    assert failure.value.diagnostics[0].code == code
    assert message in str(failure.value)


def test_a_line_that_is_not_json_has_its_events_number() -> None:
    with pytest.raises(SmileError, match="event 2: not JSON") as failure:
        DECODER.decode_ndjson("Bids", b'{}\n\n{"price":}\n')
    assert failure.value.diagnostics[0].code == "E073"
    with pytest.raises(SmileError, match="event 2: not UTF-8 text: byte 0xff"):
        DECODER.decode_ndjson("Bids", b"{}\n\xff\n")


def test_too_many_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "publication_events_max", 2)
    assert len(DECODER.decode_json("Bids", b"[{},{}]")) == 2
    batch = pa.record_batch({"price": [1, 2, 3]})
    for decode, body in (
        (DECODER.decode_json, b"[{},{},{}]"),
        (DECODER.decode_batch, batch),
        (DECODER.decode_arrow, ipc_stream([batch])),
    ):
        with pytest.raises(SmileError, match="3 events are published at once, but the limit is 2") as failure:
            decode("Bids", body)
        assert failure.value.diagnostics[0].code == "E092"


# ── Arrow ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def ipc_stream(batches: list[pa.RecordBatch], compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


GOOD: list[tuple[str, pa.Array, list[Value]]] = [
    ("o", pa.array([True, None]), [True, None]),
    ("i", pa.array([1, None], pa.int8()), [1, None]),
    ("i", pa.array([1, 2], pa.uint64()), [1, 2]),
    ("x", pa.array([1.5, None], pa.float32()), [1.5, None]),
    ("d", pa.array([Decimal("1.50"), None], pa.decimal128(10, 4)), [Decimal("1.50"), None]),
    ("d", pa.array([7, 8]), [Decimal("7.00"), Decimal("8.00")]),
    ("d", pa.array([0.1, None]), [Decimal("0.10"), None]),
    ("i", pa.array([1.0, None]), [1, None]),
    ("i", pa.array([1.0, 2.0], pa.float32()), [1, 2]),
    ("i", pa.array([Decimal("1.00"), None]), [1, None]),
    ("i", pa.array(["1", "-2.0"]).dictionary_encode(), [1, -2]),
    ("x", pa.array(["1.5", None]), [1.5, None]),
    ("m", pa.array(["3 seconds", None]), [3 * 1_024_000_000, None]),
    ("ts", pa.array(["1970-01-02", None]), [86_400_000_000, None]),
    ("ts", pa.array([86_400_000_000.0, None]), [86_400_000_000, None]),
    ("day", pa.array([1.0, None]), [1, None]),
    ("s", pa.array(["a", "é"], pa.large_string()), ["a", "é"]),
    ("s", pa.array(["a", "a" * 50], pa.string_view()), ["a", "a" * 50]),
    ("s", pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    ("s", pa.nulls(2), [None, None]),
    ("y", pa.array([b"\x00", b""]), [b"\x00", b""]),
    ("ts", pa.array([datetime(1970, 1, 2), None], pa.timestamp("s")), [86_400_000_000, None]),
    ("day", pa.array([date(1970, 1, 2), None]), [1, None]),
]


@pytest.mark.parametrize(("name", "column", "expected"), GOOD, ids=lambda given: str(getattr(given, "type", "")))
def test_columns_are_cast_where_nothing_is_lost(name: str, column: pa.Array, expected: list[Value]) -> None:
    batch = pa.record_batch({"i": pa.array([5, 6]), name: column}) if name != "i" else pa.record_batch({name: column})
    for events in (
        DECODER.decode_batch("Kinds", batch),
        DECODER.decode_arrow("Kinds", ipc_stream([batch])),
    ):
        assert events.schema.equals(pa.schema(list(DECODER.schemas["Kinds"].arrow_schema)[1:]))
        assert events.column(name).to_pylist() == expected
        assert events.column("p").null_count == 2


def test_batches_of_a_stream_become_one() -> None:
    parts = [pa.record_batch({"#bid": [n], "issue": [str(n)]}) for n in range(3)]
    events = DECODER.decode_arrow("Bids", ipc_stream(parts))
    assert events.to_pylist() == [{"issue": str(n), "price": None, "#bid": n} for n in range(3)]
    nothing = DECODER.decode_arrow("Bids", ipc_stream([parts[0].slice(0, 0)]))
    assert nothing.num_rows == 0
    timed = TIMED.decode_arrow("Bids", ipc_stream([pa.record_batch({"issue": ["a"], "bid": [4]})]))
    assert timed.to_pylist() == [{"bid": 4, "issue": "a", "price": None, "#bid": None}]


@pytest.mark.parametrize(
    ("columns", "timed", "code", "message"),
    [
        ({"i": [True]}, False, "E078", "Kinds.i is int, but is given as bool"),
        ({"i": [1.0, None, 1.5]}, False, "E078", "event 3: Kinds.i is int: 1.5 is not an int"),
        ({"i": [1.0, float("nan")]}, False, "E078", "event 2: Kinds.i is int: nan is not an int"),
        ({"i": [2.0**53]}, False, "E078", "event 1: Kinds.i is int: 9007199254740992.0 is not an int"),
        ({"i": ["1", "one"]}, False, "E078", 'event 2: Kinds.i is int: "one" is not an int'),
        ({"i": ["1.0", "1.5"]}, False, "E078", 'event 2: Kinds.i is int: "1.5" is not an int'),
        ({"p": [1.0, -1.0]}, False, "E078", "event 2: Kinds.p is time: a value is not between"),
        ({"d": [0.5, 1e9]}, False, "E078", "event 2: Kinds.d"),
        ({"i": pa.array([1] * 70 + [2**63] + [2**63], pa.uint64())}, False, "E078", "event 71: Kinds.i is int"),
        ({"x": [1.0, float("nan")]}, False, "E078", "event 2: Kinds.x is float: NaN"),
        ({"d": pa.array([Decimal("1.5"), Decimal("1.555")])}, False, "E078", "event 2: Kinds.d"),
        ({"ts": pa.array([0, 1], pa.timestamp("ns"))}, False, "E078", "event 2: Kinds.ts"),
        ({"s": pa.array([1])}, False, "E078", "Kinds.s is string"),
        ({"q": [1]}, False, "E077", "Kinds has no column q"),
        ({"t": [1]}, False, "E077", "t is the tick of Kinds"),
        ({"i": [1]}, True, "E077", "the column t is missing"),
        ({"t": [1, None]}, True, "E079", "event 2: Kinds.t is null, which is not a tick"),
        ({"t": [1, 2, -1]}, True, "E079", "event 3: Kinds.t is -1, which is not a tick"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], timed: bool, code: str, message: str) -> None:
    with pytest.raises(SmileError) as failure:
        (TIMED if timed else DECODER).decode_batch("Kinds", pa.record_batch(columns))
    assert failure.value.diagnostics[0].code == code
    assert message in str(failure.value)


def test_small_inputs_do_not_expand_to_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "publication_bytes_max", 100_000)
    long = "x" * 10_000
    for column in (
        pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), pa.array([long])),
        pa.array([long] * 100, pa.string_view()),
        pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), pa.array([long], pa.string_view())),
    ):
        with pytest.raises(SmileError, match="1,000,000 bytes are published at once") as failure:
            DECODER.decode_batch("Bids", pa.record_batch({"issue": column}))
        assert failure.value.diagnostics[0].code == "E092"
        few = outcome(DECODER.decode_batch, "Bids", pa.record_batch({"issue": column.slice(0, 5)}))
        assert few == "E078" or few.num_rows == 5
    endless = pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.null(), 2**30, [None])], ["issue"])
    for decode, events in ((DECODER.decode_batch, endless), (DECODER.decode_arrow, ipc_stream([endless]))):
        with pytest.raises(SmileError, match="events are published at once"):
            decode("Bids", events)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_events_are_refused(compression: str) -> None:
    plain = pa.record_batch({"issue": ["x" * 1000]})
    encoded = pa.record_batch({"issue": pa.array(["x" * 1000]).dictionary_encode()})
    for batch in (plain, encoded):
        with pytest.raises(SmileError, match="compressed") as failure:
            DECODER.decode_arrow("Bids", ipc_stream([batch], compression))
        assert failure.value.diagnostics[0].code == "E074"
        assert DECODER.decode_arrow("Bids", ipc_stream([batch])).num_rows == 1


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(0, 255), st.booleans())
@settings(max_examples=400)
def test_no_damage_makes_the_arrow_reader_crash(position: int, change: int, truncate: bool) -> None:
    """Damaged input is refused, or read as events of the stream."""
    batch = pa.record_batch(
        {"issue": pa.array(["IBM", None, "é" * 40]).dictionary_encode(), "price": [1, 2, 3], "#bid": [4, None, 6]}
    )
    body = bytearray(ipc_stream([batch, batch]))
    index = position % len(body)
    body[index] = change
    result = outcome(DECODER.decode_arrow, "Bids", bytes(body[:index] if truncate else body))
    if not isinstance(result, str):
        result.validate(full=True)
        assert result.schema.equals(pa.schema(list(DECODER.schemas["Bids"].arrow_schema)[1:]))
        json.dumps(result.to_pylist())


def test_a_stream_that_is_cut_off_is_refused() -> None:
    body = ipc_stream([pa.record_batch({"price": [1, 2, 3]})])
    for part in (b"", body[:10], body[: len(body) // 2], struct.pack("<I", 2**31) + body):
        assert outcome(DECODER.decode_arrow, "Bids", part) == "E074"
