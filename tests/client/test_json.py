"""Values of type json in the client: no digit is lost, and rows are identified by the value of their key."""

import json
from decimal import Decimal
from typing import Any

from smile.client.changes import Schema
from smile.client.row_tables import rows_to_arrow
from smile.client.rows import Rows
from smile.client.value_text import value_text
from smile.client.values import ViewColumn, document_text, message_text, read_json

LONG = "0.12345678901234567890"
LARGE = "12345678901234567890123456789"


def frame(*keys: str) -> list[Any]:
    schema = Schema.from_json(
        {"subscribed": "V", "key": ["k"], "columns": {"k": "json", "j": "json", "n": "int"}, "streams": []}
    )
    texts = [
        f'{{"view":"V","key":{{"k":{key}}},"row":{{"j":{key},"n":{n}}},"knowledge":{{}},"final":true,"steps":1}}'
        for n, key in enumerate(keys)
    ]
    return [schema, *(schema.decode_change(read_json(text)) for text in texts)]


def test_all_digits_of_a_message_survive() -> None:
    text = f'{{"a":[{LONG},{LARGE},1.5],"b":"1.50"}}'
    assert read_json(text) == {"a": [Decimal(LONG), int(LARGE), 1.5], "b": "1.50"}
    assert message_text(read_json(text)) == text
    assert message_text({"b": 1.5}) == json.dumps({"b": 1.5}, separators=(",", ":"))


def test_rows_with_different_json_keys_are_different_rows() -> None:
    keys = ["1", "true", '"1"', "1.5", '{"a": 1, "b": [2]}', "null", '{"json": null}', LONG]
    schema, *changes = frame(*keys)
    assert len({change.id for change in changes}) == len(keys)
    rows = Rows()
    rows.set_schema(schema)
    rows._apply(rows._rows, changes)
    assert rows[{"k": {"b": [2], "a": 1}}].row["n"] == 4
    assert rows[1].row["n"] == 0
    assert rows[True].row["n"] == 1


def test_json_is_text_in_arrow_and_compact_for_people() -> None:
    schema, *changes = frame('{"a": [1, "é"]}', LONG)
    table = rows_to_arrow(schema, changes, times=False, knowledge=False)
    assert table.column("j").to_pylist() == ['{"a": [1, "é"]}', LONG]
    assert value_text(changes[0].row["j"], ViewColumn.from_type("j", "json")) == '{"a":[1,"é"]}'
    assert document_text({"b": 1, "a": None}, is_sorted=True) == '{"a": null, "b": 1}'
