"""The decoder counts the events that lack a column which may be NULL. Whatever the format, the counts are the same."""

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError
from smile.program import compile_program
from smile.source import Source

PROGRAM = """
CREATE STREAM Bids (t: time -> issue: string NOT NULL, price: int, weight: decimal(8, 2), note: string);
CREATE TABLE Accounts (id int PRIMARY KEY, owner string NOT NULL, level int);
CREATE STREAM Changes (t: time -> change: string, n: int);
CREATE VIEW v AS SELECT issue FROM Bids;
"""
DECODER = EventDecoder(compile_program(Source("p.smile", PROGRAM)).original.streams)


def absent(decode: Callable[..., Any], stream: str, body: object) -> dict[str, int]:
    counts: dict[str, int] = {}
    decode(stream, body, counts)
    return counts


def ipc_stream(table: dict[str, list[Any]]) -> bytes:
    out, batch = io.BytesIO(), pa.record_batch(table)
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def test_absent_columns_are_counted() -> None:
    events = [
        b'{"issue":"a","price":1,"note":null}',
        b'{"issue":"b","weight":2.5}',
        b'{"issue":"c","price":3,"note":"x"}',
    ]
    counts = {"price": 1, "weight": 2, "note": 1}
    assert absent(DECODER.decode_json, "Bids", b"[" + b",".join(events) + b"]") == counts
    assert absent(DECODER.decode_ndjson, "Bids", b"\n".join(events)) == counts
    assert absent(DECODER.decode_ndjson, "Bids", b"\n\n".join(events)) == counts


def test_complete_events_count_nothing() -> None:
    assert absent(DECODER.decode_json, "Bids", b'{"issue":"a","price":null,"weight":1,"note":""}') == {}
    assert absent(DECODER.decode_json, "Bids", b"[]") == {}


def test_columns_of_tables_are_absent_from_all_rows() -> None:
    """An empty field in CSV is NULL, and not absent."""
    assert absent(DECODER.decode_csv, "Bids", b"issue,price\na,1\nb,\n") == {"weight": 2, "note": 2}
    columns: dict[str, list[Any]] = {"issue": ["a", "b"], "price": [1, None]}
    assert absent(DECODER.decode_arrow, "Bids", ipc_stream(columns)) == {"weight": 2, "note": 2}
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    assert absent(DECODER.decode_parquet, "Bids", file.getvalue()) == {"weight": 2, "note": 2}
    assert absent(DECODER.decode_batch, "Bids", pa.record_batch(columns)) == {"weight": 2, "note": 2}
    assert absent(DECODER.decode_batch, "Bids", pa.record_batch(columns).slice(0, 0)) == {}


def test_a_deletion_needs_only_the_key() -> None:
    events = b'[{"id":1,"owner":"ann"},{"id":1,"change":"delete"},{"id":2,"owner":"bob","change":"update"}]'
    assert absent(DECODER.decode_json, "Accounts", events) == {"level": 2}
    assert absent(DECODER.decode_json, "Accounts", b'{"id":1,"change":"delete"}') == {}
    changes = {"id": [1, 2, 3], "owner": ["ann", None, "bob"], "change": ["insert", "delete", None]}
    assert absent(DECODER.decode_batch, "Accounts", pa.record_batch(changes)) == {"level": 2}
    deleted = pa.record_batch({"id": [1], "change": ["delete"]})
    assert absent(DECODER.decode_batch, "Accounts", deleted) == {}


def test_a_column_named_change_of_a_stream_is_counted() -> None:
    assert absent(DECODER.decode_json, "Changes", b'[{"n":1},{"change":"delete"}]') == {"change": 1, "n": 1}


def test_refused_events_count_nothing() -> None:
    counts: dict[str, int] = {}
    with pytest.raises(SmileError):
        DECODER.decode_json("Bids", b'[{"issue":"a"},{"issue":1}]', counts)
    assert counts == {}
