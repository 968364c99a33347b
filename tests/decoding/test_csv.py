"""Events in CSV are the events that the same values have in JSON."""

import csv
import io
import json
from random import Random
from typing import Any

import pytest

from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError
from smile.program import compile_program
from smile.source import Source
from tests.repeatable import scaled

PROGRAM = """
CREATE STREAM S (t: time -> name: string, n: int, x: float, big: bool, price: decimal(9, 2), day: date);
"""


@pytest.fixture(scope="module")
def decoder() -> EventDecoder:
    return EventDecoder(compile_program(Source("program", PROGRAM)).rewritten.streams)


VALUES: dict[str, list[Any]] = {
    "name": ["IBM", "a,b", 'say "x"', "two\nlines", "\u2028", "ümlaut", " space ", "null", "1.5", "true", None],
    "n": [0, -5, 2**53 + 1, None],
    "x": [1.5, -2e300, 0, 17, None],
    "big": [True, False, None],
    "price": ["12.50", "-0.01", None],
    "day": ["2024-05-31", None],
}


@pytest.mark.parametrize("seed", range(scaled(200)))
def test_csv_and_json_agree(decoder: EventDecoder, seed: int) -> None:
    random = Random(seed)
    names = random.sample(list(VALUES), random.randint(1, len(VALUES)))
    events = [{name: random.choice(VALUES[name]) for name in names} for _ in range(random.randint(1, 5))]
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator=random.choice(["\n", "\r\n"]))
    writer.writerow(names)
    for event in events:
        fields = ["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in event.values()]
        if fields != [""]:  # as CSV, a blank line
            writer.writerow(fields)
    expected = decoder.decode_json("S", json.dumps([e for e in events if list(e.values()) != [None]]).encode())
    assert decoder.decode_csv("S", table.getvalue().encode()) == expected


@pytest.mark.parametrize(
    ("table", "code", "message"),
    [
        ("", "E074", "the table is empty"),
        ("nam\nIBM\n", "E077", "the first line of the table has 'nam', which is no column"),
        ("n,n\n1,2\n", "E077", "the first line of the table has the column n twice"),
        ("n,name\n1,a\n2\n", "E074", "event 2: 1 fields, but the first line has 2 columns"),
        ("n\n1\n\nx\n", "E078", 'event 2: S.n: "x" is not an int'),
        ("x\n1.5\nnan\n", "E078", 'event 2: S.x: "nan" is not a float'),
        ("x\n1e999\n", "E078", "event 1: S.x: 1e999 is out of range for float"),
        ("big\nyes\n", "E078", 'event 1: S.big: "yes" is not true or false'),
        ('name\n"open\n', "E073", "line 2 of the table is not CSV: unexpected end of data"),
    ],
)
def test_refusals_name_the_event(decoder: EventDecoder, table: str, code: str, message: str) -> None:
    with pytest.raises(SmileError) as problem:
        decoder.decode_csv("S", table.encode())
    assert (problem.value.code, problem.value.message) == (code, message)


def test_a_table_that_is_not_text_is_refused(decoder: EventDecoder) -> None:
    with pytest.raises(SmileError, match="not valid UTF-8"):
        decoder.decode_csv("S", b"name\n\xff\n")
