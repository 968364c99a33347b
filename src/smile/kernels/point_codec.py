"""Encodes points of knowledge as bytes. A decoded point equals the encoded one, `now` included. Only the domains below
can be encoded or decoded, with plain values.

A point is a JSON list that starts with the name of its domain. Numbers keep their type: 1 is an int, 1.0 a float. A
value that JSON cannot represent is a list that starts with `decimal`, `bytes` or `key`. The present rows of a nested
relation are a list that starts with `rows`, and the cells of such a row a list that starts with `cells`.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.nested import NestedRelation, NestedRow
from smile.knowledge.values.once import OnceStatus, OnceValue
from smile.knowledge.values.range import Nullability, Range


def encode_point(point: CellKnowledge) -> bytes:
    return json.dumps(_point_to_json(point), ensure_ascii=False, separators=(",", ":")).encode()


def decode_point(encoded: bytes) -> CellKnowledge:
    """Raises ValueError if it is not an encoded point."""
    try:
        point: CellKnowledge = _point_from_json(json.loads(encoded))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as problem:
        raise ValueError(f"not an encoded point: {type(problem).__name__}") from None
    return point


def _point_to_json(point: Any) -> list[Any]:
    match point:
        case Range():
            return [
                "range",
                _value_to_json(point.lo),
                _value_to_json(point.hi),
                point.nulls.value,
                _value_to_json(point.now),
            ]
        case Mask():
            possible = [truth for truth in (True, False, None) if truth in point.possible]
            return ["mask", possible, point.now]
        case LatestValue():
            occurred_at = None if point.occurred_at is None else list(point.occurred_at)
            return ["latest", _value_to_json(point.value), occurred_at, _point_to_json(point.bounds)]
        case OnceValue():
            return [
                "once",
                point.status.value,
                _value_to_json(point.value),
                _value_to_json(point.lo),
                _value_to_json(point.hi),
            ]
        case MaskedValue():
            return ["masked", _point_to_json(point.mask), None if point.value is None else _point_to_json(point.value)]
        case NestedRow():
            return ["row", [[name, _point_to_json(cell)] for name, cell in point.cells.items()]]
        case NestedRelation():
            return [
                "nested",
                [[_value_to_json(key), _point_to_json(row)] for key, row in point.rows.items()],
                point.sealed,
            ]
    raise AssertionError(point)


def _value_to_json(value: Any) -> Any:
    match value:
        case Decimal():
            return ["decimal", str(value)]
        case bytes():
            return ["bytes", value.hex()]
        case tuple():
            return ["key", *map(_value_to_json, value)]
        case list():
            return ["rows", *map(_value_to_json, value)]
        case dict():
            return ["cells", *([name, _value_to_json(cell)] for name, cell in value.items())]
    return value


def _value_from_json(value: Any) -> Any:
    match value:
        case ["decimal", str() as text]:
            return Decimal(text)
        case ["bytes", str() as text]:
            return bytes.fromhex(text)
        case ["key", *parts]:
            return tuple(map(_value_from_json, parts))
        case ["rows", *parts]:
            return list(map(_value_from_json, parts))
        case ["cells", *parts]:
            return {name: _value_from_json(cell) for name, cell in parts}
        case list() | dict():
            raise ValueError(f"not an encoded value: {value!r}")
    return value


def _range_from_json(lo: Any, hi: Any, nulls: str, now: Any) -> Range:
    return Range(_value_from_json(lo), _value_from_json(hi), Nullability(nulls), _value_from_json(now))


def _latest_from_json(value: Any, occurred_at: list[int] | None, bounds: list[Any]) -> LatestValue:
    tick_and_source = None if occurred_at is None else (occurred_at[0], occurred_at[1])
    decoded = _point_from_json(bounds)
    if not isinstance(decoded, Range):
        raise ValueError(f"not an encoded range: {bounds!r}")
    return LatestValue(_value_from_json(value), tick_and_source, decoded)


def _once_from_json(status: str, value: Any, lo: Any, hi: Any) -> OnceValue:
    return OnceValue(OnceStatus(status), _value_from_json(value), _value_from_json(lo), _value_from_json(hi))


def _masked_from_json(mask: list[Any], inner: list[Any] | None) -> MaskedValue:
    decoded = _point_from_json(mask)
    if not isinstance(decoded, Mask):
        raise ValueError(f"not an encoded mask: {mask!r}")
    return MaskedValue(decoded, None if inner is None else _point_from_json(inner))


def _row_from_json(cells: list[list[Any]]) -> NestedRow:
    return NestedRow({name: _point_from_json(cell) for name, cell in cells})


def _nested_from_json(rows: list[list[Any]], sealed: bool) -> NestedRelation:
    return NestedRelation({_value_from_json(key): _point_from_json(row) for key, row in rows}, sealed)


_DECODERS: Final[dict[str, Callable[..., Any]]] = {
    "range": _range_from_json,
    "mask": Mask.from_truths,
    "latest": _latest_from_json,
    "once": _once_from_json,
    "masked": _masked_from_json,
    "row": _row_from_json,
    "nested": _nested_from_json,
}


def _point_from_json(document: Any) -> Any:
    if not isinstance(document, list) or not document or document[0] not in _DECODERS:
        raise ValueError(f"not an encoded point: {document!r}")
    name, *parts = document
    return _DECODERS[name](*parts)
