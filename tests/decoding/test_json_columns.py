"""Columns of type json take the same values in every format, as canonical text; what they refuse has a reason."""

import json
from typing import Any

import pyarrow as pa
import pytest

from smile.algebra.mmpl import StreamDef
from smile.algebra.types import INT, JSON
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError

DECODER = EventDecoder([StreamDef("S", "t", (("j", JSON), ("n", INT)))])
VALUES = [
    ('{"b":1.0, "a":[2,"x:y"], "b":{"c":"\\"}{:"}}', '{"a": [2, "x:y"], "b": {"c": "\\"}{:"}}'),
    ('"a:\\"b"', '"a:\\"b"'),
    ("12345678901234567890.5", "12345678901234567890.5"),
    ("true", "true"),
    ("[]", "[]"),
    (' {"a" : null} ', '{"a": null}'),
    ("null", None),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_every_format_has_the_same_values(text: str, value: str | None) -> None:
    event = f'{{"j":{text},"n":1}}'
    expected = [(value, 1)]
    assert DECODER.decode_json("S", event.encode()) == expected
    assert DECODER.decode_json("S", f"[{event},{event}]".encode()) == expected * 2
    assert DECODER.decode_ndjson("S", f"{event}\n".encode()) == expected
    line = DECODER.decode_line(f'{{"stream":"S","at":3,"event":{event}}}'.encode())
    assert line is not None
    assert line[2] == expected[0]
    field = text.replace('"', '""')
    assert DECODER.decode_csv("S", f'j,n\n"{field}",1\n'.encode()) == expected
    arrow = DECODER.decode_batch("S", pa.record_batch({"j": [text], "n": [1]}))
    assert [tuple(row.values()) for row in arrow.to_pylist()] == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r'"\u0000"', "U+0000"),
        (r'{"a":"\ud800"}', "half of a surrogate pair"),
        ("[" * 101 + "]" * 101, "100 levels"),
        ("1e5000", "1,000 digits"),
        ("NaN", "NaN is not a JSON number"),
    ],
)
def test_what_is_refused_has_a_reason(text: str, reason: str) -> None:
    def message(read: Any, *args: Any) -> str:
        with pytest.raises(SmileError) as refused:
            read(*args)
        (problem,) = refused.value.diagnostics
        assert problem.code in ("E073", "E078")
        return problem.message

    event = f'{{"j":{text}}}'
    for found in (
        message(DECODER.decode_json, "S", event.encode()),
        message(DECODER.decode_ndjson, "S", event.encode()),
        message(DECODER.decode_line, f'{{"stream":"S","at":3,"event":{event}}}'.encode()),
        message(DECODER.decode_csv, "S", f"j\n{json.dumps(text).replace(chr(92) + chr(34), chr(34) * 2)}\n".encode())
        if '"' not in text
        else reason,
        message(DECODER.decode_batch, "S", pa.record_batch({"j": [text]})),
    ):
        assert reason in found


def test_a_field_of_csv_cannot_add_columns() -> None:
    with pytest.raises(SmileError, match="a column of JSON"):
        DECODER.decode_csv("S", b'j\n"1,""n"":2"\n')


def test_names_of_columns_are_still_given_once() -> None:
    for read, text in (
        (DECODER.decode_json, b'{"j":{"a":1,"a":2},"n":1,"n":2}'),
        (DECODER.decode_ndjson, b'{"j":1,"j":{"a":1}}'),
    ):
        with pytest.raises(SmileError, match="twice"):
            read("S", text)
    with pytest.raises(SmileError, match="twice"):
        DECODER.decode_line(b'{"stream":"S","at":3,"at":4,"event":{"j":{"a":1}}}')
