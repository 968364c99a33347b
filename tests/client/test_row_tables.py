"""Rows of a view as data frames and as HTML."""

from typing import Any

import pytest

from smile import limits
from smile.client import Knowledge, Rows, Schema
from smile.client.changes import Frame
from smile.client.row_tables import client_html, rows_by_key


def sums(*rows: tuple[str, int, dict[str, Any]], final: bool = False) -> Rows:
    """Rows of a view with a SUM of ints, `total`, each with its knowledge."""
    columns = {"issue": "string", "total": "decimal(38, 0)"}
    schema = Schema.from_json({"subscribed": "Volume", "key": ["issue"], "columns": columns, "streams": ["Trades"]})
    messages = [
        {"view": "Volume", "key": {"issue": issue}, "row": {"total": total}, "knowledge": {"total": known}}
        for issue, total, known in rows
    ]
    changes = [schema.decode_change({**message, "final": final, "steps": 1}) for message in messages]
    filled = Rows()
    filled.set_schema(schema)
    filled.deliver_frame(Frame(changes, {"Trades": 1}, reset=True))
    return filled


def test_a_sum_of_ints_is_a_number() -> None:
    rows = sums(("IBM", 350, {"at_least": 350}), ("HP", 2, {"at_least": 2}))
    pandas, polars = rows.to_pandas(), rows.to_polars()
    assert (str(pandas["total"].dtype), str(polars["total"].dtype)) == ("Int64", "Int64")
    assert (pandas["total"].mean(), polars["total"].mean()) == (176.0, 176.0)
    assert str(rows.to_arrow().schema.field("total").type) == "decimal128(38, 0)"  # exact, whatever its size


def test_a_sum_beyond_64_bits_is_exact() -> None:
    rows = sums(("IBM", 2**70, {"at_least": 2**70}))
    assert int(rows.to_pandas()["total"][0]) == int(rows.to_polars()["total"][0]) == 2**70


def test_bounds_and_finality_on_request() -> None:
    rows = sums(("HP", 2, {"exactly": 2}), ("IBM", 350, {"at_least": 300}), ("SUN", 7, {"between": [1, 9]}))
    frame = rows.to_polars(knowledge=True)
    assert frame.columns == ["issue", "total", "total.at_least", "total.at_most", "total.final", "final"]
    assert frame.rows() == [
        ("HP", 2, 2, 2, True, False),
        ("IBM", 350, 300, None, False, False),
        ("SUN", 7, 1, 9, False, False),
    ]
    assert list(rows.to_pandas(knowledge=True).columns) == frame.columns


def test_a_latest_value_has_its_tick() -> None:
    rows = sums(("HP", 2, {"exactly": 2}), ("IBM", 350, {"latest": 350, "at": 1_717_156_800_000_000 * 1024}))
    frame = rows.to_pandas(knowledge=True, times=True)
    assert list(frame["total.at"].astype(str)) == ["NaT", "2024-05-31 12:00:00+00:00"]
    assert rows.to_polars(knowledge=True)["total.at"].to_list() == [None, 1_717_156_800_000_000 * 1024]


def test_rows_are_in_the_order_of_their_keys() -> None:
    columns = {"end": "time", "name": "string", "n": "int"}
    schema = Schema.from_json({"subscribed": "V", "key": ["end", "name"], "columns": columns, "streams": ["S"]})
    keys = [(3, "b"), (None, "a"), (3, None), (1, "a"), (2, "a"), (3, "a")]
    rows = Rows()
    rows.set_schema(schema)
    messages: list[dict[str, Any]] = [
        {"key": {"end": end, "name": name}, "row": {"n": 1}, "knowledge": {}, "steps": 1} for end, name in keys
    ]
    changes = [schema.decode_change({**m, "final": m["key"]["end"] in (1, 3)}) for m in messages]
    rows.deliver_frame(Frame(changes, {"S": 1}, reset=True))
    ordered = [(1, "a"), (2, "a"), (3, "a"), (3, "b"), (3, None), (None, "a")]
    assert [row[:2] for row in rows.to_polars().rows()] == ordered
    assert [row.id for row in rows_by_key(schema, rows.rows, newest_first=True)] == [
        *((2, "a"), (None, "a")),
        *((3, "a"), (3, "b"), (3, None), (1, "a")),
    ]


def test_a_notebook_shows_knowledge_and_no_markup_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sums(("<script>", 3, {"at_least": 3}), ("IBM", 4, {"exactly": 4}))
    html = rows._repr_html_()
    assert "<td>&lt;script&gt;</td><td>≥3</td>" in html and "<script>" not in html
    assert "<td>=4</td>" in html and "Volume: 2 rows, 0 final" in html
    assert "<th>IBM</th>" in sums(("IBM", 4, {"exactly": 4}), final=True)._repr_html_()
    monkeypatch.setattr(limits, "notebook_rows_max", 1)
    assert "IBM" not in rows._repr_html_() and "the first 1 are shown" in rows._repr_html_()
    assert Knowledge.exactly("<b>")._repr_html_() == "<code>=&lt;b&gt;</code>"


def test_what_a_person_sees_of_objects() -> None:
    rows = sums(("IBM", 4, {"exactly": 4}), final=True)
    assert repr(rows) == "<Rows Volume: 1 row, 1 final>"
    assert repr(Rows()) == "<Rows>"


def test_a_notebook_shows_a_client_and_no_markup_of_names() -> None:
    html = client_html("http://127.0.0.1:7400", True, {"streams": ["Bids", "<b>"], "views": []})
    assert "http://127.0.0.1:7400: connected" in html and "<td>Bids, &lt;b&gt;</td>" in html and "<td>–</td>" in html
