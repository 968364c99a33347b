"""Seals: for a row and a stream, the last tick of the stream that can affect the row.

A seal is the greatest of some columns of the row, each with an offset in ticks, or never. `TimeConstraints` hold in all
rows of a relation: column a is at most d ticks above column b. They translate a seal over some columns into a seal over
others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from smile.algebra.coercions import interval_text
from smile.algebra.time_forms import START
from smile.algebra.types import INT_MAX


@dataclass(frozen=True)
class Seal:
    """`terms` is empty for never."""

    terms: frozenset[tuple[str, int]]

    NEVER: ClassVar["Seal"]

    @staticmethod
    def from_column(column: str, offset: int = 0) -> "Seal":
        return Seal(frozenset([(column, offset)]))

    @property
    def is_never(self) -> bool:
        return not self.terms

    def latest(self, other: "Seal") -> "Seal":
        """The later of two seals."""
        if self.is_never or other.is_never:
            return Seal.NEVER
        greatest: dict[str, int] = {}
        for column, offset in self.terms | other.terms:
            greatest[column] = max(offset, greatest.get(column, offset))
        return Seal(frozenset(greatest.items()))

    def delay(self, ticks: int) -> "Seal":
        return Seal(frozenset((c, o + ticks) for c, o in self.terms))

    def rename(self, new: Mapping[str, str]) -> "Seal":
        return Seal(frozenset((new.get(c, c), o) for c, o in self.terms))

    def __str__(self) -> str:
        if self.is_never:
            return "never"
        terms = [_format_term(c, o) for c, o in sorted(self.terms)]
        return terms[0] if len(terms) == 1 else f"the later of {' and '.join(terms)}"


Seal.NEVER = Seal(frozenset())


def _format_term(column: str, offset: int) -> str:
    if column == START:
        return str(offset)
    if offset == 0:
        return column
    sign, distance = ("+", offset) if offset > 0 else ("-", -offset)
    if distance % 1024 == 0:
        return f"{column} {sign} {interval_text(distance)}"
    if (distance + 1) % 1024 == 0 and distance > 1:
        suffix = "- 1" if sign == "+" else "+ 1"
        return f"{column} {sign} {interval_text(distance + 1)} {suffix}"
    return f"{column} {sign} {distance}"


Reach = Mapping[str, Mapping[str, int]]
"""Stream → column → d: the column of a row is at most d above the tick of any event that affects the row."""


@dataclass(frozen=True)
class TimeConstraints:
    """(a, b) → d: a ≤ b + d in every row where neither is NULL. The mapping is closed: it contains what
    follows from two constraints.

    `nulls` has the columns that may be NULL, each with the name of the group of columns that are NULL together. Nothing
    follows through a column that may be NULL, unless it has a value whenever one of the two ends has.
    """

    distance_max: Mapping[tuple[str, str], int]
    nulls: Mapping[str, str]

    def __init__(
        self, distance_max: Mapping[tuple[str, str], int] | None = None, nulls: Mapping[str, str] | None = None
    ) -> None:
        object.__setattr__(self, "distance_max", dict(distance_max or {}))
        object.__setattr__(self, "nulls", dict(nulls or {}))

    def with_constraints(
        self, constraints: Iterable[tuple[str, str, int]], nulls: Mapping[str, str] | None = None
    ) -> "TimeConstraints":
        """With further constraints a ≤ b + d, closed again: a new constraint can shorten only paths through itself."""
        distances, nulls = dict(self.distance_max), {**self.nulls, **(nulls or {})}
        for a, b, d in constraints:
            if distances.get((a, b), INT_MAX) <= d:
                continue
            incoming = [(x, w) for (x, y), w in distances.items() if y == a] + [(a, 0)]
            outgoing = [(y, w) for (x, y), w in distances.items() if x == b] + [(b, 0)]
            for x, w in incoming:
                for y, v in outgoing:
                    middle_columns = [m for m in (a, b) if m not in (x, y)]
                    is_applicable = all(
                        m not in nulls or nulls[m] in (nulls.get(x), nulls.get(y)) for m in middle_columns
                    )
                    if x != y and is_applicable and w + d + v < distances.get((x, y), INT_MAX):
                        distances[(x, y)] = w + d + v
        return TimeConstraints(distances, nulls)

    def where_not_null(self, columns: Iterable[str]) -> "TimeConstraints":
        """The constraints of rows in which these columns, and those that are NULL together with them, are not NULL."""
        present_groups = {self.nulls.get(c) for c in columns} - {None}
        nulls = {c: group for c, group in self.nulls.items() if group not in present_groups}
        return TimeConstraints({}, nulls).with_constraints((a, b, d) for (a, b), d in self.distance_max.items())

    def merge(self, other: "TimeConstraints") -> "TimeConstraints":
        return self.with_constraints(((a, b, d) for (a, b), d in other.distance_max.items()), other.nulls)

    def rename(self, new: Mapping[str, str]) -> "TimeConstraints":
        return TimeConstraints(
            {(new.get(a, a), new.get(b, b)): d for (a, b), d in self.distance_max.items()},
            {new.get(c, c): new.get(group, group) for c, group in self.nulls.items()},
        )

    def project(self, columns: Iterable[str]) -> "TimeConstraints":
        kept_columns = {START, *columns}
        return TimeConstraints(
            {(a, b): d for (a, b), d in self.distance_max.items() if a in kept_columns and b in kept_columns},
            {c: group for c, group in self.nulls.items() if c in kept_columns},
        )

    def _is_present_with(self, column: str, other: str) -> bool:
        """Whether a column is not NULL whenever another is not NULL."""
        return column not in self.nulls or self.nulls[column] == self.nulls.get(other)

    def express_seal(self, seal: Seal, columns: Iterable[str]) -> Seal:
        """A seal over `columns` that is no earlier than `seal`; never if no constraint relates them."""
        allowed = set(columns)
        result = None
        for column, offset in seal.terms:
            term = self._bound_term(column, offset, allowed)
            if term is None:
                return Seal.NEVER
            result = Seal(frozenset([term])) if result is None else result.latest(Seal(frozenset([term])))
        return result or Seal.NEVER

    def is_no_later(self, seal: Seal, other: Seal) -> bool:
        """Whether the constraints show that a seal is not later than another in any row."""
        return other.is_never or all(
            any(self._is_at_most(column, bound, ticks - offset) for bound, ticks in other.terms)
            for column, offset in seal.terms
        )

    def _is_at_most(self, column: str, bound: str, ticks: int) -> bool:
        """Whether a column is never more than this number of ticks above another."""
        distance = 0 if column == bound else self.distance_max.get((column, bound))
        return distance is not None and distance <= ticks

    def extend_reach(self, reach: Reach, columns: Iterable[str]) -> Reach:
        """The reach in terms of all `columns` that constraints relate to the columns of `reach`."""
        column_list = list(columns)
        result = {}
        for stream, distances in reach.items():
            extended: dict[str, int] = {}
            for column in column_list:
                constrained = [
                    c for c in distances if (column, c) in self.distance_max and self._is_present_with(c, column)
                ]
                candidates = [distances[c] + self.distance_max[column, c] for c in constrained]
                candidates += [distances[column]] if column in distances else []
                if candidates:
                    extended[column] = min(candidates)
            result[stream] = extended
        return result

    def _bound_term(self, column: str, offset: int, columns: set[str]) -> tuple[str, int] | None:
        if column in columns or column == START:
            return column, offset
        constrained = [
            (b, d) for (a, b), d in self.distance_max.items() if a == column and (b in columns or b == START)
        ]
        candidates = [(b, d) for b, d in constrained if self._is_present_with(column, b)]
        if not candidates:
            return None
        # Prefer the nearest column, which for a window is its end. A constant is the last choice. Of equally near ones,
        # the start of a window is earlier than the ticks in it.
        bound, distance = min(
            candidates,
            key=lambda c: (c[0] == START, c[1], -sum(self._is_at_most(c[0], b, d - c[1]) for b, d in candidates), c[0]),
        )
        return bound, distance + offset


def union_reach(a: Reach, b: Reach) -> Reach:
    """How far events of either of two relations reach, for rows that both relations can affect."""
    result = dict(a)
    for stream, distances in b.items():
        own_distances = result.get(stream)
        result[stream] = (
            distances
            if own_distances is None
            else {c: max(own_distances[c], d) for c, d in distances.items() if c in own_distances}
        )
    return result
