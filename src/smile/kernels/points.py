"""Points of knowledge as bytes: what is read back equals what was written, `now` included. Nothing else can be written
or read: a document names one of the domains below, and every value in it is plain.

A point is a JSON list that begins with its domain's name. Numbers keep their type: 1 is an int, 1.0 a float; what JSON
has no form for is a list that begins with `decimal`, `bytes` or `key`; the present rows of a nested relation are one
that begins with `rows`, and the columns of such a row one that begins with `cells`.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from smile.knowledge.known import Known
from smile.knowledge.latest import Latest
from smile.knowledge.mask import Mask
from smile.knowledge.masked import Masked
from smile.knowledge.nested import Nested, Row
from smile.knowledge.once import Heard, Once
from smile.knowledge.range import Nulls, Range


def written(point: Known) -> bytes:
    return json.dumps(_point(point), ensure_ascii=False, separators=(",", ":")).encode()


def read(stored: bytes) -> Known:
    found: Known = _read_point(json.loads(stored))
    return found


def _point(point: Any) -> list[Any]:
    match point:
        case Range():
            return ["range", _value(point.lo), _value(point.hi), point.nulls.value, _value(point.now)]
        case Mask():
            possible = [truth for truth in (True, False, None) if truth in point.possible]
            return ["mask", possible, point.now]
        case Latest():
            at = None if point.at is None else list(point.at)
            return ["latest", _value(point.value), at, point.sealed, _value(point.now)]
        case Once():
            return ["once", point.heard.value, _value(point.value), _value(point.lo), _value(point.hi)]
        case Masked():
            return ["masked", _point(point.mask), None if point.inner is None else _point(point.inner)]
        case Row():
            return ["row", [[name, _point(cell)] for name, cell in point.cells.items()]]
        case Nested():
            return ["nested", [[_value(key), _point(row)] for key, row in point.rows.items()], point.sealed]
    raise AssertionError(point)


def _value(value: Any) -> Any:
    match value:
        case Decimal():
            return ["decimal", str(value)]
        case bytes():
            return ["bytes", value.hex()]
        case tuple():
            return ["key", *map(_value, value)]
        case list():
            return ["rows", *map(_value, value)]
        case dict():
            return ["cells", *([name, _value(cell)] for name, cell in value.items())]
    return value


def _read_value(value: Any) -> Any:
    match value:
        case ["decimal", str() as text]:
            return Decimal(text)
        case ["bytes", str() as text]:
            return bytes.fromhex(text)
        case ["key", *parts]:
            return tuple(map(_read_value, parts))
        case ["rows", *parts]:
            return list(map(_read_value, parts))
        case ["cells", *parts]:
            return {name: _read_value(cell) for name, cell in parts}
        case list() | dict():
            raise ValueError(f"no value is stored as {value!r}")
    return value


def _read_range(lo: Any, hi: Any, nulls: str, now: Any) -> Range:
    return Range(_read_value(lo), _read_value(hi), Nulls(nulls), _read_value(now))


def _read_latest(value: Any, at: list[int] | None, sealed: bool, now: Any) -> Latest:
    return Latest(_read_value(value), None if at is None else (at[0], at[1]), sealed, _read_value(now))


def _read_once(heard: str, value: Any, lo: Any, hi: Any) -> Once:
    return Once(Heard(heard), _read_value(value), _read_value(lo), _read_value(hi))


def _read_masked(mask: list[Any], inner: list[Any] | None) -> Masked:
    found = _read_point(mask)
    if not isinstance(found, Mask):
        raise ValueError(f"no mask is stored as {mask!r}")
    return Masked(found, None if inner is None else _read_point(inner))


def _read_row(cells: list[list[Any]]) -> Row:
    return Row({name: _read_point(cell) for name, cell in cells})


def _read_nested(rows: list[list[Any]], sealed: bool) -> Nested:
    return Nested({_read_value(key): _read_point(row) for key, row in rows}, sealed)


_READERS: Final[dict[str, Callable[..., Any]]] = {
    "range": _read_range, "mask": Mask.of, "latest": _read_latest, "once": _read_once, "masked": _read_masked,
    "row": _read_row, "nested": _read_nested,
}  # fmt: skip


def _read_point(document: Any) -> Any:
    if not isinstance(document, list) or not document or document[0] not in _READERS:
        raise ValueError(f"no point is stored as {document!r}")
    name, *parts = document
    return _READERS[name](*parts)
