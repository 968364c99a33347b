"""Arrays of events, in every format: the same values, exactly, or refused with a reason."""

import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from smile import limits
from smile.algebra.arrays import decode_array
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError
from smile.program import compile_program
from smile.source import Source

PROGRAM = """
CREATE STREAM S (t: time -> n: int[], names: string[], prices: decimal(9, 2)[], big: bool[], x: float[], days: date[],
  t2: time[]);
"""
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "n": ([1, None, -(2**63)], [1, None, -(2**63)]),
    "names": (["a", "b c", "", None, 'q"', "NULL", "a:b", "\0"], ["a", "b c", "", None, 'q"', "NULL", "a:b", "\0"]),
    "prices": (["12.50", None, "-1"], [Decimal("12.50"), None, Decimal("-1.00")]),
    "big": ([True, False, None], [True, False, None]),
    "x": ([1.5, -2e300, 0.0, None], [1.5, -2e300, 0.0, None]),
    "days": (["1970-01-02", None], [1, None]),
    "t2": ([7, "1970-01-01 00:00:01", None], [7, 1_024_000_000, None]),
}


@pytest.fixture(scope="module")
def decoder() -> EventDecoder:
    return EventDecoder(compile_program(Source("program", PROGRAM)).rewritten.streams)


def decoded(decoder: EventDecoder, row: dict[str, Any]) -> dict[str, list[Any] | None]:
    types = decoder.schema("S").published_types
    return {c: None if row[c] is None else decode_array(row[c], data.element) for c, data in types.items()}


def test_json(decoder: EventDecoder) -> None:
    """Colons in texts are no members of objects."""
    event = {name: given for name, (given, _) in VALUES.items()}
    names = list(VALUES)
    (row, empty, absent) = decoder.decode_json("S", json.dumps([event, {"n": [], "x": None}, {}]).encode())
    assert decoded(decoder, dict(zip(names, row, strict=True))) == {n: expected for n, (_, expected) in VALUES.items()}
    assert (decoded(decoder, dict(zip(names, empty, strict=True)))["n"], empty[4]) == ([], None)
    assert set(absent) == {None}


def test_csv_has_texts_as_postgresql(decoder: EventDecoder) -> None:
    body = b'n,names,big\n"{1,NULL}","{a,""b c"",NULL}","{t,f}"\n{},,\n'
    first, second = decoder.decode_csv("S", body)
    assert decode_array(first[0], decoder.schema("S").types["n"].element) == [1, None]  # type: ignore[arg-type]  # bytes
    assert decode_array(first[1], decoder.schema("S").types["names"].element) == ["a", "b c", None]  # type: ignore[arg-type]
    assert decode_array(first[3], decoder.schema("S").types["big"].element) == [True, False]  # type: ignore[arg-type]
    assert second[:2] == (b"", None)


def test_arrow(decoder: EventDecoder) -> None:
    table = pa.table(
        {
            "n": pa.array([[1, None], [], None], pa.list_(pa.int32())),
            "names": pa.array([["a", None], ["b"], []], pa.large_list(pa.string())),
            "prices": pa.array([[Decimal("1.5")], None, [None]], pa.list_(pa.decimal128(5, 1))),
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.slice(1))
        writer.write_table(table.slice(0, 1))
    rows = decoder.decode_arrow("S", sink.getvalue()).to_pylist()
    found = [decoded(decoder, row) for row in rows]
    assert [row["n"] for row in found] == [[], None, [1, None]]
    assert [row["names"] for row in found] == [["b"], [], ["a", None]]
    assert [row["prices"] for row in found] == [None, [None], [Decimal("1.50")]]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"n": [1, "x"]}, "S.n: \"x\" is not an int"),
        ({"n": [[1]]}, "S.n: an array of arrays is not an array of values"),
        ({"n": 1}, "S.n: 1 is not an array"),
        ({"n": "1,2"}, "S.n: \"1,2\" is not an array"),
        ({"n": {"a": 1}}, "S.n: an object is not an array"),
        ({"names": [1]}, "S.names: 1 is not a string"),
        ({"prices": ["1e9"]}, "S.prices: \"1e9\" is out of range for decimal(9, 2)"),
        ({"n": [1] * (limits.array_elements_max + 1)}, "S.n: an array has at most 10,000 elements, this one has 10,001"),
    ],
)  # fmt: skip
def test_refused(decoder: EventDecoder, event: dict[str, Any], reason: str) -> None:
    with pytest.raises(SmileError) as caught:
        decoder.decode_json("S", json.dumps(event).encode())
    assert (caught.value.diagnostics[0].code, caught.value.diagnostics[0].message) == ("E078", f"event 1: {reason}")
