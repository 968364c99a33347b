"""Values of columns: Python objects for users, JSON on the wire. Decoding an encoded value gives the same value, digit
for digit.

A decimal of scale 0, such as a SUM of ints, is an int. Ticks and intervals are ints too. A timestamp is a naive
datetime in UTC.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

from smile.client.ticks import TICKS_PER_MICROSECOND, as_datetime
from smile.errors import SmileError, error

JSON_INT_MAX = 2**53
"""Ticks beyond this are sent as text."""

_SIMPLE_KINDS = ("bool", "int", "float", "string", "bytes", "time", "interval", "timestamp", "date")
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_LONG_NUMBER = re.compile(r"[0-9.]{17}")
"""A number with fewer digits is a float exactly as it is written."""
_IDENTITY: Callable[[Any], Any] = lambda value: value  # noqa: E731  # one function object for all columns


@dataclass(frozen=True)
class ViewColumn:
    """`kind` is the name of its type, or "json" for an unknown type too, whose values are not converted. `columns` are
    those of a nested relation, or the elements of an array, which is a tuple."""

    name: str
    kind: str
    digits: int = 38
    scale: int = 0
    columns: tuple["ViewColumn", ...] = ()

    @staticmethod
    def from_type(name: str, type_: str) -> "ViewColumn":
        """Reads a type as the broker writes it."""
        if match := _DECIMAL.fullmatch(type_):
            return ViewColumn(name, "decimal", int(match[1]), int(match[2]))
        if type_.endswith("[]"):
            return ViewColumn(name, "array", columns=(ViewColumn.from_type("element", type_.removesuffix("[]")),))
        if type_.startswith("relation{") and type_.endswith("}"):
            parts = [part.partition(": ") for part in _split_columns(type_[len("relation{") : -1])]
            return ViewColumn(
                name, "relation", columns=tuple(ViewColumn.from_type(inner, type_text) for inner, _, type_text in parts)
            )
        return ViewColumn(name, type_ if type_ in _SIMPLE_KINDS else "json")

    @cached_property
    def decode(self) -> Callable[[Any], Any]:
        """Converts a JSON value that is not null."""
        match self.kind:
            case "int" | "time" | "interval":
                return int
            case "decimal":
                return int if not self.scale else _decode_decimal
            case "float":
                return float
            case "timestamp":
                return datetime.fromisoformat
            case "date":
                return date.fromisoformat
            case "bytes":
                return lambda text: bytes.fromhex(text[2:])
            case "relation":
                return lambda rows: [decode_row(self.by_name, row) for row in rows]
            case "array":
                decode = self.element.decode
                return lambda values: tuple(None if value is None else decode(value) for value in values)
        return _IDENTITY

    @cached_property
    def encode(self) -> Callable[[Any], Any]:
        """Converts a value to JSON, as the broker does."""
        match self.kind:
            case "time" | "interval":
                return tick_json
            case "decimal" if self.scale:
                return _decimal_json
            case "timestamp":
                return timestamp_text
            case "date":
                return date.isoformat
            case "bytes":
                return bytes_text
            case "relation":
                return lambda rows: [encode_row(self.by_name, row) for row in rows]
            case "array":
                encode = self.element.encode
                return lambda values: [None if value is None else encode(value) for value in values]
        return _IDENTITY

    @property
    def element(self) -> "ViewColumn":
        """The elements of an array."""
        return self.columns[0]

    @cached_property
    def by_name(self) -> Mapping[str, "ViewColumn"]:
        return {column.name: column for column in self.columns}

    def identity(self, value: Any) -> Any:
        """Stands for a value of a key: it can be hashed, and is equal for equal values only."""
        return document_text(value, is_sorted=True) if self.kind == "json" and value is not None else value

    def to_times(self, value: Any) -> Any:
        """A decoded value with its ticks as times."""
        if value is None or self.kind not in ("time", "relation", "array"):
            return value
        if self.kind == "array":
            return tuple(self.element.to_times(element) for element in value)
        if self.kind == "time":
            return as_datetime(value)
        return [{name: column.to_times(row[name]) for name, column in self.by_name.items()} for row in value]

    def arrow_type(self, times: bool = False) -> Any:  # Any: pyarrow has no type hints
        """With `times`, ticks are timestamps."""
        import pyarrow as pa  # noqa: PLC0415  # slow to import, and only needed for Arrow

        if self.kind == "time" and times:
            return pa.timestamp("us", "UTC")
        if self.kind == "decimal":
            return pa.decimal128(self.digits, self.scale)
        if self.kind == "array":
            return pa.list_(self.element.arrow_type(times))
        if self.kind == "relation":
            return pa.list_(pa.struct([(column.name, column.arrow_type(times)) for column in self.columns]))
        simple = {
            "bool": pa.bool_(), "float": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
            "timestamp": pa.timestamp("us"), "date": pa.date32(), "json": pa.string(),
        }  # fmt: skip
        return simple.get(self.kind, pa.int64())


def _split_columns(text: str) -> list[str]:
    """Splits `a: int, b: decimal(6, 2)` at the commas that follow a type and are outside brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "({") - (char in ")}")
        if char == "," and not depth and ": " in text[start:i]:
            parts.append(text[start:i])
            start = i + 2
    return [*parts, text[start:]] if text else []


def decode_row(columns: Mapping[str, ViewColumn], encoded: Mapping[str, Any]) -> dict[str, Any]:
    """Values without a column are not converted: a name may contain the characters that separate types."""
    return {n: v if v is None or n not in columns else columns[n].decode(v) for n, v in encoded.items()}


def encode_row(columns: Mapping[str, ViewColumn], row: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v if v is None or n not in columns else columns[n].encode(v) for n, v in row.items()}


def tick_json(value: int) -> int | str:
    return value if abs(value) <= JSON_INT_MAX else str(value)


def _decode_decimal(value: Any) -> Decimal:
    return Decimal(repr(value) if isinstance(value, float) else value)


def _decimal_json(value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def timestamp_text(value: datetime) -> str:
    naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    text = naive.isoformat(sep=" ")
    return text.rstrip("0") if "." in text else text


def bytes_text(value: bytes) -> str:
    return "\\x" + value.hex()


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_json(text: str | bytes) -> Any:
    """Decodes JSON. A number with a fraction is a Decimal if a float would have other digits."""
    decoded = text if isinstance(text, str) else text.decode()
    return json.loads(decoded, parse_float=_exact_number if _LONG_NUMBER.search(decoded) else None)


def _exact_number(text: str) -> float | Decimal:
    number = float(text)
    return number if repr(number) == text else Decimal(text)


def document_text(value: Any, is_sorted: bool = False, is_compact: bool = False) -> str:
    """A value of type json as text, with all digits. If it is not compact, it is as the broker writes it."""
    comma, colon = (",", ":") if is_compact else (", ", ": ")
    match value:
        case dict():
            names = sorted(value) if is_sorted else value
            members = (f"{_text(n)}{colon}{document_text(value[n], is_sorted, is_compact)}" for n in names)
            return "{" + comma.join(members) + "}"
        case list() | tuple():
            return "[" + comma.join(document_text(item, is_sorted, is_compact) for item in value) + "]"
        case Decimal():
            return f"{value:f}"
    return _text(value)


def message_text(message: Any) -> str:
    """A message as compact JSON, with all digits."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    except TypeError:  # it has a Decimal
        return document_text(message, is_compact=True)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def json_text(value: Any) -> str:
    """A publisher's value as JSON for the broker. Raises E078 if no column can hold it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_default)
        text.encode()
    except UnicodeEncodeError:
        raise error("E078", "a text has an unpaired surrogate") from None
    except (TypeError, ValueError, RecursionError) as problem:
        hint = "An event is a dict from column names to numbers, text, dates, bytes or None."
        raise error("E078", f"the event cannot be written as JSON: {problem}", hint=hint) from None
    return text


def event_json(event: Any, number: int) -> str:
    """As `json_text`. The error names the event, and the column that cannot be written."""
    if hasattr(event, "to_frame") or (isinstance(event, tuple) and any(hasattr(part, "to_frame") for part in event)):
        message = f"event {number}: the {type(event).__name__} is a row of a data frame, and no event"
        raise error("E078", message, hint="Publish the data frame itself, or row.to_dict() for each row.")
    try:
        return json_text(event)
    except SmileError as problem:
        raise error(
            "E078", f"event {number}: {_describe_problem(event, problem)}", hint=_hint(event, problem)
        ) from None


def _describe_problem(event: Any, problem: SmileError) -> str:
    for name, value in event.items() if isinstance(event, Mapping) else ():
        if _is_not_finite(value):
            return f"{name}: {value!r} is not a value"
        try:
            json_text({name: value})
        except SmileError as of_value:
            return f"{name}: {of_value.message}"
    return problem.message


def _hint(event: Any, problem: SmileError) -> str | None:
    if isinstance(event, Mapping) and any(map(_is_not_finite, event.values())):
        return "Write None for no value: NaN, NaT and infinities are not allowed."
    return problem.hint


def _is_not_finite(value: Any) -> bool:
    """Also of NaT, which is a datetime of pandas."""
    return (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, datetime) and value != value)


def _json_default(value: Any) -> Any:
    match value:
        case Decimal():
            return str(value)
        case datetime() if _is_not_finite(value):
            raise TypeError(f"{value!r} is not a value")
        case datetime():
            return timestamp_text(value)
        case date():
            return value.isoformat()
        case timedelta():
            return tick_json((value // timedelta(microseconds=1)) * TICKS_PER_MICROSECOND)
        case bytes():
            return bytes_text(value)
    if hasattr(value, "item") and not getattr(value, "ndim", 0):  # a NumPy scalar
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a type of a column")


def validate_event_json(text: str) -> str:
    """Checks that a text is a JSON object. Returns it unchanged, so that no digit is lost."""
    try:
        if not isinstance(json.loads(text, parse_constant=_reject_constant), dict):
            raise error("E074", "the line is not an event", hint='An event is an object, such as {"issue":"IBM"}.')
        text.encode()
    except (ValueError, RecursionError) as problem:
        reason = problem.msg if isinstance(problem, json.JSONDecodeError) else str(problem)
        hint = None
        if not text.lstrip().startswith(("{", "[")):
            hint = "A text is one event in JSON. `smile publish STREAM FILE` publishes files; pd.read_csv makes frames."
        raise error("E073", f"this is not JSON: {reason[:1].lower()}{reason[1:]}", hint=hint) from None
    return text


def _reject_constant(constant: str) -> None:
    raise ValueError(f"the constant {constant} is not allowed")
