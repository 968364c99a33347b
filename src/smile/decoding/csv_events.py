"""Events in CSV become events in JSON, which the decoder checks: a number or a bool is written as such, any other field
as text. So both formats accept and refuse the same values, with the same errors.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Final

import msgspec

from smile import limits
from smile.algebra.json_values import canonical_json
from smile.algebra.types import JSON
from smile.decoding.values import format_hint
from smile.errors import SmileError, did_you_mean, error

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLS: Final = {"true": "true", "false": "false", "t": "true", "f": "false"}


def csv_to_ndjson(body: bytes, kinds: Mapping[str, str]) -> bytes:
    """Lines of JSON. An empty field is null. `kinds` has the name of each column's type, without arguments.
    Raises SmileError with the number of the event."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error("E072", "the table is not valid UTF-8") from None
    events = list[str]()
    for _, event in read_csv_events(StringIO(text, newline=""), kinds):
        if len(events) == limits.publication_events_max:
            hint = "Publish it in parts."
            raise error("E092", f"the table has more than {limits.publication_events_max:,} events", hint=hint)
        if isinstance(event, SmileError):
            raise error(event.code, f"event {len(events) + 1}: {event.message}")
        events.append(event)
    return "\n".join(events).encode()


def read_csv_events(lines: Iterable[str], kinds: Mapping[str, str]) -> Iterator[tuple[int, str | SmileError]]:
    """The events of a table as JSON, each with the number of the line where it ends; or why a row is no event. Raises
    SmileError if the rest of the table cannot be read."""
    reader = csv.reader(lines, strict=True)
    try:
        names = next(reader, None)
        if names is None:
            raise error("E074", "the table is empty", hint="The first line has the names of the columns.")
        _check_names(names, kinds)
        heads = [f"{_json_text(name)}:" for name in names]
        column_kinds = [kinds[name] for name in names]
        for fields in reader:
            if not fields:
                continue  # a blank line
            if len(fields) != len(names):
                message = f"{len(fields)} fields, but the first line has {len(names)} columns"
                yield reader.line_num, error("E074", message)
                continue
            cells = zip(heads, fields, column_kinds, strict=True)
            try:
                members = [head + _json(field, kind) for head, field, kind in cells]
            except ValueError as problem:
                yield reader.line_num, error("E078", f"a column of JSON: {problem}", hint=format_hint(JSON))
                continue
            yield reader.line_num, f"{{{','.join(members)}}}"
    except csv.Error as problem:
        raise error("E073", f"line {reader.line_num} of the table is not CSV: {problem}") from None


def _check_names(names: Sequence[str], columns: Iterable[str]) -> None:
    known = list(columns)
    for name in names:
        if name not in known:
            hint = did_you_mean(name[:100], known) or f"There are {', '.join(known)}."
            raise error("E077", f"the first line of the table has {name[:100]!r}, which is no column", hint=hint)
        if names.count(name) > 1:
            raise error("E077", f"the first line of the table has the column {name} twice")


def _json(field: str, kind: str) -> str:
    if not field:
        return "null"
    if kind == "json":
        return canonical_json(field)
    if kind == "float" and _NUMBER.fullmatch(field):
        return field
    if kind == "bool" and field.casefold() in _BOOLS:
        return _BOOLS[field.casefold()]
    return _json_text(field)


def _json_text(text: str) -> str:
    return msgspec.json.encode(text).decode()
