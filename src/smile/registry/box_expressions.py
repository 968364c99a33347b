"""Writes a union of boxes as an expression, as a person would write it."""

import math
from collections.abc import Sequence

from smile.algebra import mmpl
from smile.algebra.types import BOOL, BYTES, FLOAT, STRING, DataType
from smile.registry.boxes import Box, Boxes, Types
from smile.registry.interval_set import IntervalSet, Point, PointInterval, PointScale, interval_set, scale_of


def boxes_expression(boxes: Boxes, types: Types) -> mmpl.Expr:
    return _any_of([_box_expression(box, types) for box in boxes])


def _box_expression(box: Box, types: Types) -> mmpl.Expr:
    """Columns are in the order of the stream's."""
    columns = [column for column in types if column in box]
    return _all_of([part for column in columns for part in _set_conjuncts(column, box[column], types[column])])


def _set_conjuncts(column: str, values: IntervalSet, data_type: DataType) -> list[mmpl.Expr]:
    scale, reference = scale_of(data_type), mmpl.ColumnRef(column)
    excluded = values.complement(scale)
    excluded_points = _points(excluded, scale)
    if values.intervals == (scale.all_points,):
        return [mmpl.Call("is not null", (reference,))]
    if excluded_points and len(values.intervals) > 1:
        operator = "is distinct from" if values.has_null else "<>"
        return [_comparison(operator, reference, point, scale) for point in excluded_points]
    parts = [_interval_expression(reference, interval, scale) for interval in values.intervals]
    if values.has_null:
        parts.append(mmpl.Call("is null", (reference,)))
    whole = _any_of(parts)
    return list(_operands(whole, "and"))


def _points(values: IntervalSet, scale: PointScale) -> Sequence[Point]:
    """All points but NULL, if each is an interval of its own."""
    points = interval_set(values.intervals).listed_points(scale, len(values.intervals))
    return [] if points is None else points


def _interval_expression(reference: mmpl.Expr, interval: PointInterval, scale: PointScale) -> mmpl.Expr:
    first, end = interval
    if end is not None and scale.successor(first) == end:
        if scale.type == BOOL:
            return reference if first else mmpl.Call("not", (reference,))
        return _comparison("=", reference, first, scale)
    bounds = []
    least, last = scale.all_points
    if first != least:
        before = _predecessor(first, scale)
        is_simpler = before is not None and len(repr(before)) < len(repr(first))
        bounds.append(_comparison(">" if is_simpler else ">=", reference, before if is_simpler else first, scale))
    if end != last:
        assert end is not None
        before = _predecessor(end, scale)
        is_simpler = before is not None and len(repr(before)) < len(repr(end))
        bounds.append(_comparison("<=" if is_simpler else "<", reference, before if is_simpler else end, scale))
    return _all_of(bounds)


def _predecessor(point: Point, scale: PointScale) -> Point | None:
    """The point before, if there is one."""
    if scale.type == FLOAT:
        return math.nextafter(point, -math.inf)
    if scale.type == STRING:
        return point[:-1] if point.endswith("\0") else None
    if scale.type == BYTES:
        return point[:-1] if point.endswith(b"\0") else None
    return point - 1


def _comparison(operator: str, reference: mmpl.Expr, point: Point, scale: PointScale) -> mmpl.Expr:
    return mmpl.Call(operator, (reference, mmpl.Constant(scale.value(point), scale.type)))


def _all_of(parts: list[mmpl.Expr]) -> mmpl.Expr:
    flat = [p for part in parts for p in _operands(part, "and")]
    return flat[0] if len(flat) == 1 else mmpl.Call("and", tuple(flat)) if flat else mmpl.Constant(True, BOOL)


def _any_of(parts: list[mmpl.Expr]) -> mmpl.Expr:
    flat = [p for part in parts for p in _operands(part, "or")]
    return flat[0] if len(flat) == 1 else mmpl.Call("or", tuple(flat)) if flat else mmpl.Constant(False, BOOL)


def _operands(expr: mmpl.Expr, function: str) -> tuple[mmpl.Expr, ...]:
    return expr.args if isinstance(expr, mmpl.Call) and expr.function == function else (expr,)
