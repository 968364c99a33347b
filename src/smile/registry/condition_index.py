"""An index of conditions of one stream: finds those that may be consistent with another condition.

Most conditions require certain values of some columns, such as `site = 'hw'`. They are listed under these values.
"""

from collections.abc import Hashable, Iterable, Set
from typing import Final, Generic, TypeVar

from smile.registry.conditions import Condition
from smile.registry.interval_set import Point, scale_of

K = TypeVar("K", bound=Hashable)

_LISTED_MAX: Final = 16
"""A condition that accepts more values of a column is not listed under them."""


class _ColumnIndex(Generic[K]):
    def __init__(self) -> None:
        self.by_point: dict[Point | None, set[K]] = {}
        self.listed: dict[K, tuple[Point | None, ...]] = {}

    def keys_at(self, points: Iterable[Point | None]) -> set[K]:
        return set().union(*(self.by_point.get(point, ()) for point in points))


class ConditionIndex(Generic[K]):
    def __init__(self) -> None:
        self._conditions: dict[K, Condition] = {}
        self._columns: dict[str, _ColumnIndex[K]] = {}
        self._unlisted: dict[str, set[K]] = {}
        """For each column of the index, the conditions that are not listed under its values."""
        self._opaque: set[K] = set()
        """Those that are no boxes. They may entail others, although they are listed nowhere."""

    def __len__(self) -> int:
        return len(self._conditions)

    def __contains__(self, key: K) -> bool:
        return key in self._conditions

    def add(self, key: K, condition: Condition) -> None:
        assert key not in self._conditions
        points = listed_points(condition)
        for column in points:
            if column not in self._columns:
                self._columns[column] = _ColumnIndex()
                self._unlisted[column] = set(self._conditions)
        self._conditions[key] = condition
        if condition.boxes is None:
            self._opaque.add(key)
        for column, index in self._columns.items():
            if column not in points:
                self._unlisted[column].add(key)
                continue
            index.listed[key] = points[column]
            for point in points[column]:
                index.by_point.setdefault(point, set()).add(key)

    def remove(self, key: K) -> None:
        del self._conditions[key]
        self._opaque.discard(key)
        for column, index in self._columns.items():
            self._unlisted[column].discard(key)
            for point in index.listed.pop(key, ()):
                index.by_point[point].discard(key)
                if not index.by_point[point]:
                    del index.by_point[point]

    def candidates(self, condition: Condition) -> Set[K]:
        """All keys whose conditions are consistent with this one, and perhaps others."""
        best: Set[K] = self._conditions.keys()
        for column, points in listed_points(condition).items():
            index = self._columns.get(column)
            if index is None:
                continue
            count = len(self._unlisted[column]) + sum(len(index.by_point.get(p, ())) for p in points)
            if count < len(best):
                best = index.keys_at(points) | self._unlisted[column]
        return best

    def candidates_within(self, condition: Condition) -> Set[K]:
        """All keys whose conditions entail this one, and perhaps others. A union of boxes that entails a condition with
        listed values is itself listed, under some of them."""
        best: Set[K] = self._conditions.keys()
        for column, points in listed_points(condition).items():
            index = self._columns.get(column)
            listed = self._opaque | (set[K]() if index is None else index.keys_at(points))
            best = listed if len(listed) < len(best) else best
        return best


def listed_points(condition: Condition) -> dict[str, tuple[Point | None, ...]]:
    """The values of each column that every row of the condition has one of, where they are few. NULL is None."""
    boxes = condition.boxes
    if not boxes:
        return {}
    found: dict[str, tuple[Point | None, ...]] = {}
    for column in boxes[0]:
        points = dict[Point | None, None]()
        for box in boxes:
            values = box.get(column)
            listed = (
                None if values is None else values.listed_points(scale_of(condition.stream.types[column]), _LISTED_MAX)
            )
            if listed is None or len(points) > _LISTED_MAX:
                break
            points.update(dict.fromkeys(listed))
        else:
            found[column] = tuple(points)
    return found
