"""Functions of JSON values, with the results of PostgreSQL's jsonb. A part that does not exist is NULL."""

from typing import Any, Final

from smile.algebra.coercions import can_cast, to_text
from smile.algebra.functions.base import (
    NOT_MONOTONE,
    ScalarFunction,
    Signature,
    SignatureResolver,
    ValueFunction,
    fixed_signature,
)
from smile.algebra.json_values import (
    NULL_TEXT,
    array_length,
    array_text,
    has_key,
    member,
    member_at,
    number_text,
    object_text,
    plain_text,
    string_text,
    type_name,
)
from smile.algebra.types import BOOL, INT, JSON, NULL, STRING, DataType, Value

_Values = tuple[Any, ...]  # values of the types of the signature


def _member_signature(result: DataType) -> SignatureResolver:
    """A JSON value, and a name or a position."""

    def resolve(types: tuple[DataType, ...]) -> Signature | None:
        fits = types[0] in (JSON, NULL) and types[1] in (STRING, INT, NULL)
        return Signature((JSON, INT if types[1] == INT else STRING), result) if fits else None

    return resolve


def _path_signature(result: DataType) -> SignatureResolver:
    def resolve(types: tuple[DataType, ...]) -> Signature | None:
        fits = types[0] in (JSON, NULL) and all(t in (STRING, NULL) for t in types[1:])
        return Signature((JSON, *(STRING,) * (len(types) - 1)), result) if fits else None

    return resolve


def _is_convertible(type: DataType) -> bool:
    return type.name != "relation"


def _value_signature(types: tuple[DataType, ...]) -> Signature | None:
    return Signature(types, JSON) if all(map(_is_convertible, types)) else None


def _object_signature(types: tuple[DataType, ...]) -> Signature | None:
    """Names and values in turn. A name may be of any type that has a text."""
    if len(types) % 2 or not all(map(_is_convertible, types)) or not all(can_cast(t, STRING) for t in types[::2]):
        return None
    return Signature(tuple(t if i % 2 else STRING for i, t in enumerate(types)), JSON)


def _value_text(value: Value, type: DataType) -> str:
    """A value as JSON. A timestamp is text in the form of ISO 8601."""
    if value is None:
        return NULL_TEXT
    text = to_text(value, type)
    if type.name in ("json", "bool"):
        return text
    if type.is_number or type.name == "time":
        return number_text(text)
    return string_text(text.replace(" ", "T") if type.name == "timestamp" else text)


def _to_json(values: _Values, signature: Signature) -> Value:
    return _value_text(values[0], signature.args[0])


def _build_array(values: _Values, signature: Signature) -> Value:
    return array_text([_value_text(v, t) for v, t in zip(values, signature.args, strict=True)])


def _build_object(values: _Values, signature: Signature) -> Value:
    names, members = values[::2], zip(values[1::2], signature.args[1::2], strict=True)
    if None in names:
        return None
    return object_text([(name, _value_text(v, t)) for name, (v, t) in zip(names, members, strict=True)])


def _or_null(compute: ValueFunction) -> ValueFunction:
    """NULL instead of a value that is beyond a limit."""

    def apply(values: _Values, signature: Signature) -> Value:
        try:
            return compute(values, signature)
        except ValueError:
            return None

    return apply


def _reader(
    name: str, arity: tuple[int, int | None], resolve: SignatureResolver, apply: ValueFunction, partial: bool = True
) -> ScalarFunction:
    return ScalarFunction(name, arity, resolve, apply, (NOT_MONOTONE,), partial=partial)


def _constructor(
    name: str, arity: tuple[int, int | None], resolve: SignatureResolver, apply: ValueFunction
) -> ScalarFunction:
    return ScalarFunction(
        name, arity, resolve, _or_null(apply), (NOT_MONOTONE,), strict=False, partial=True, casts_arguments=True
    )


FUNCTIONS: Final = (
    _reader("json_get", (2, 2), _member_signature(JSON), lambda values, _: member(*values)),  # type: ignore[arg-type]
    _reader("json_get_text", (2, 2), _member_signature(STRING), lambda values, _: plain_text(member(*values))),  # type: ignore[arg-type]
    _reader("json_path", (1, None), _path_signature(JSON), lambda values, _: member_at(values[0], values[1:])),  # type: ignore[arg-type]
    _reader(
        "json_path_text",
        (1, None),
        _path_signature(STRING),
        lambda values, _: plain_text(member_at(values[0], values[1:])),  # type: ignore[arg-type]
    ),
    _reader("json_has_key", (2, 2), fixed_signature((JSON, STRING), BOOL), lambda values, _: has_key(*values), False),  # type: ignore[arg-type]
    _reader("json_typeof", (1, 1), fixed_signature((JSON,), STRING), lambda values, _: type_name(*values), False),  # type: ignore[arg-type]
    _reader("json_array_length", (1, 1), fixed_signature((JSON,), INT), lambda values, _: array_length(*values)),  # type: ignore[arg-type]
    ScalarFunction("to_json", (1, 1), _value_signature, _or_null(_to_json), (NOT_MONOTONE,), partial=True),
    _constructor("json_build_array", (1, None), _value_signature, _build_array),
    _constructor("json_build_object", (2, None), _object_signature, _build_object),
)
