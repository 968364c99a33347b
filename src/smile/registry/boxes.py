"""Unions of boxes: the form in which conditions are compared. A box restricts each column by itself.

Rows are sets of values in which NULL is a value, so the complement of a union is that of the set: the rows for which
the condition is not true. All operations are exact. A union that would have too many boxes is None: then a solver
decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from smile import limits
from smile.algebra.types import DataType, Value
from smile.registry.interval_set import IntervalSet, scale_of

Box = Mapping[str, IntervalSet]
"""No set is empty, and none contains all values. A column that is not here has any value."""

Boxes = tuple[Box, ...]
Types = Mapping[str, DataType]
EVERY_ROW: Final[Boxes] = ({},)
NO_ROW: Final[Boxes] = ()


def box_intersection(a: Box, b: Box) -> Box | None:
    """None if it is empty."""
    both = dict(a)
    for column, values in b.items():
        mine = both.get(column)
        values = values if mine is None else mine.intersection(values)
        if values.is_empty:
            return None
        both[column] = values
    return both


def is_box_disjoint(a: Box, b: Box) -> bool:
    return any(column in a and a[column].is_disjoint(values) for column, values in b.items())


def is_box_subset(a: Box, b: Box) -> bool:
    return all(column in a and a[column].is_subset(values) for column, values in b.items())


def intersection(a: Boxes, b: Boxes, types: Types) -> Boxes | None:
    if len(a) * len(b) > limits.condition_boxes_max**2:
        return None
    return _limited((both for x in a for y in b if (both := box_intersection(x, y)) is not None), types)


def union(a: Boxes, b: Boxes, types: Types) -> Boxes | None:
    return _limited((*a, *b), types)


def complement(a: Boxes, types: Types) -> Boxes | None:
    return difference(EVERY_ROW, a, types)


def difference(a: Boxes, b: Boxes, types: Types) -> Boxes | None:
    """The rows of `a` that are not in `b`."""
    rest: Boxes | None = a
    for box in b:
        if rest is None:
            return None
        rest = _limited((piece for other in rest for piece in _box_difference(other, box, types)), types)
    return rest


def _box_difference(a: Box, b: Box, types: Types) -> Iterable[Box]:
    """Disjoint boxes: in the first, the first column of `b` has another value; in the second, the first column has such
    a value and the second column another one; and so on."""
    if is_box_disjoint(a, b):
        yield a
        return
    inside = dict(a)
    for column, values in sorted(b.items()):
        outside = values.complement(scale_of(types[column]))
        mine = inside.get(column)
        other = outside if mine is None else mine.intersection(outside)
        if not other.is_empty:
            yield {**inside, column: other}
        inside[column] = values if mine is None else mine.intersection(values)


def is_subset(a: Boxes, b: Boxes, types: Types) -> bool | None:
    """None: it takes too many boxes to decide."""
    if all(any(is_box_subset(x, y) for y in b) for x in a):
        return True
    if len(b) <= 1:
        return False
    rest = difference(a, b, types)
    return None if rest is None else not rest


def is_disjoint(a: Boxes, b: Boxes) -> bool:
    return all(is_box_disjoint(x, y) for x in a for y in b)


def contains(boxes: Boxes, row: Mapping[str, Value], types: Types) -> bool:
    return any(all(_has_value(v, row[c], types[c]) for c, v in box.items()) for box in boxes)


def _has_value(values: IntervalSet, value: Value, data_type: DataType) -> bool:
    return values.contains_point(None if value is None else scale_of(data_type).point(value))


def column_boxes(column: str, values: IntervalSet, types: Types) -> Boxes:
    """The rows in which one column has one of the values."""
    if values.is_empty:
        return NO_ROW
    return EVERY_ROW if _has_all_values(values, types[column]) else ({column: values},)


def _has_all_values(values: IntervalSet, data_type: DataType) -> bool:
    return values.has_null and values.intervals == (scale_of(data_type).all_points,)


def _limited(boxes: Iterable[Box], types: Types) -> Boxes | None:
    merged = NO_ROW
    for box in boxes:
        merged = _merge(merged, box, types)
        if len(merged) > limits.condition_boxes_max:
            return None
    return merged


def _merge(boxes: Boxes, box: Box, types: Types) -> Boxes:
    """The union of the boxes and one more. Boxes inside others are omitted, and two that differ in one column only are
    joined."""
    rest = boxes
    while True:
        if any(is_box_subset(box, other) for other in rest):
            return rest
        rest = tuple(other for other in rest if not is_box_subset(other, box))
        for other in rest:
            joined = _joined(box, other, types)
            if joined is not None:
                rest, box = tuple(o for o in rest if o is not other), joined
                break
        else:
            return (*rest, box)


def _joined(a: Box, b: Box, types: Types) -> Box | None:
    """The union as one box, if they differ in one column only."""
    if a.keys() != b.keys():
        return None
    differing = [column for column, values in a.items() if b[column] != values]
    if len(differing) != 1:
        return None
    column = differing[0]
    both = a[column].union(b[column])
    rest = {name: values for name, values in a.items() if name != column}
    return rest if _has_all_values(both, types[column]) else {**rest, column: both}
