"""Seals: for a row and a stream, the last tick of the stream that can affect the row.

A seal is the greatest of some columns of the row, or of ends of periods that columns name, each with an offset in
ticks; or it is never. `TimeConstraints` hold in all rows of a relation: column a is at most d ticks above column b, or
above the end of a period. They translate a seal over some columns into a seal over others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from smile.algebra import mmpl, trees
from smile.algebra.coercions import interval_text
from smile.algebra.functions.time import constant_period
from smile.algebra.printer import print_expression
from smile.algebra.time_forms import START
from smile.algebra.types import INT_MAX, TICKS_PER_MICROSECOND


@dataclass(frozen=True)
class PeriodEnd:
    """The end of the period that columns name, as `2026-11` names a month: a call of PERIOD_END over these columns."""

    expr: mmpl.Expr

    @property
    def columns(self) -> frozenset[str]:
        return trees.columns_in(self.expr)

    @property
    def ticks_max(self) -> int:
        """No such period is longer."""
        period = constant_period(self.expr)
        assert period is not None
        return period.microseconds_max * TICKS_PER_MICROSECOND

    def rename(self, new: Mapping[str, str]) -> "PeriodEnd":
        return PeriodEnd(trees.rename_columns(self.expr, new))

    def __str__(self) -> str:
        return print_expression(self.expr)


SealPoint = str | PeriodEnd
"""A column, or START, or the end of a period."""


def columns_of_point(point: SealPoint) -> frozenset[str]:
    """The columns of a row that a point in time depends on."""
    if isinstance(point, PeriodEnd):
        return point.columns
    return frozenset() if point == START else frozenset([point])


def _null_group(point: SealPoint, nulls: Mapping[str, str]) -> str | None:
    """The group of columns that are NULL together with a point in time; None if it has a value, or if that is not known
    of the end of a period."""
    groups = {nulls.get(c) for c in columns_of_point(point)}
    return groups.pop() if len(groups) == 1 else None


def _rename_point(point: SealPoint, new: Mapping[str, str]) -> SealPoint:
    return point.rename(new) if isinstance(point, PeriodEnd) else new.get(point, point)


@dataclass(frozen=True)
class Seal:
    """`terms` is empty for never."""

    terms: frozenset[tuple[SealPoint, int]]

    NEVER: ClassVar["Seal"]

    @staticmethod
    def from_column(column: str, offset: int = 0) -> "Seal":
        return Seal(frozenset([(column, offset)]))

    @property
    def is_never(self) -> bool:
        return not self.terms

    @property
    def columns(self) -> frozenset[str]:
        """The columns of a row that the seal depends on."""
        return frozenset(c for point, _ in self.terms for c in columns_of_point(point))

    def latest(self, other: "Seal") -> "Seal":
        """The later of two seals."""
        if self.is_never or other.is_never:
            return Seal.NEVER
        greatest: dict[SealPoint, int] = {}
        for point, offset in self.terms | other.terms:
            greatest[point] = max(offset, greatest.get(point, offset))
        return Seal(frozenset(greatest.items()))

    def delay(self, ticks: int) -> "Seal":
        return Seal(frozenset((c, o + ticks) for c, o in self.terms))

    def rename(self, new: Mapping[str, str]) -> "Seal":
        return Seal(frozenset((_rename_point(p, new), o) for p, o in self.terms))

    @property
    def sorted_terms(self) -> list[tuple[SealPoint, int]]:
        return sorted(self.terms, key=lambda term: (str(term[0]), term[1]))

    def __str__(self) -> str:
        if self.is_never:
            return "never"
        terms = [_format_term(str(p), o) for p, o in self.sorted_terms]
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
    """(a, b) → d: a ≤ b + d in every row where neither is NULL. a is a column, b may be the end of a period. The
    mapping is closed: it contains what follows from two constraints.

    `nulls` has the columns that may be NULL, each with the name of the group of columns that are NULL together. Nothing
    follows through a column that may be NULL, unless it has a value whenever one of the two ends has.
    """

    distance_max: Mapping[tuple[str, SealPoint], int]
    nulls: Mapping[str, str]

    def __init__(
        self,
        distance_max: Mapping[tuple[str, SealPoint], int] | None = None,
        nulls: Mapping[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "distance_max", dict(distance_max or {}))
        object.__setattr__(self, "nulls", dict(nulls or {}))

    def with_constraints(
        self, constraints: Iterable[tuple[str, SealPoint, int]], nulls: Mapping[str, str] | None = None
    ) -> "TimeConstraints":
        """With further constraints a ≤ b + d, closed again: a new constraint can shorten only paths through itself."""
        distances, nulls = dict(self.distance_max), {**self.nulls, **(nulls or {})}
        for a, b, d in constraints:
            if distances.get((a, b), INT_MAX) <= d:
                continue
            incoming = [(x, w) for (x, y), w in distances.items() if y == a] + [(a, 0)]
            outgoing: list[tuple[SealPoint, int]] = [(y, w) for (x, y), w in distances.items() if x == b]
            outgoing.append((b, 0))
            for x, w in incoming:
                for y, v in outgoing:
                    middle_columns = [m for m in (a, b) if isinstance(m, str) and m not in (x, y)]
                    ends = (nulls.get(x), _null_group(y, nulls))
                    is_applicable = all(m not in nulls or nulls[m] in ends for m in middle_columns)
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
            {(new.get(a, a), _rename_point(b, new)): d for (a, b), d in self.distance_max.items()},
            {new.get(c, c): new.get(group, group) for c, group in self.nulls.items()},
        )

    def project(self, columns: Iterable[str]) -> "TimeConstraints":
        kept_columns = {START, *columns}
        return TimeConstraints(
            {
                (a, b): d
                for (a, b), d in self.distance_max.items()
                if a in kept_columns and columns_of_point(b) <= kept_columns
            },
            {c: group for c, group in self.nulls.items() if c in kept_columns},
        )

    def _is_present_with(self, column: str, other: SealPoint) -> bool:
        """Whether a column is not NULL whenever another, or the end of a period, is not NULL."""
        return column not in self.nulls or self.nulls[column] == _null_group(other, self.nulls)

    def express_seal(self, seal: Seal, columns: Iterable[str]) -> Seal:
        """A seal over `columns` that is no earlier than `seal`; never if no constraint relates them."""
        return self._express_seal(seal, set(columns), with_periods=True)

    def express_seal_in_order(self, seal: Seal, column: str) -> Seal:
        """As `express_seal`, but a seal that rises with the column: so it also holds for all rows that have less in the
        column."""
        return self._express_seal(seal, {column}, with_periods=False)

    def _express_seal(self, seal: Seal, columns: set[str], with_periods: bool) -> Seal:
        result = None
        for point, offset in seal.terms:
            term = self._bound_term(point, offset, columns, with_periods)
            if term is None:
                return Seal.NEVER
            result = Seal(frozenset([term])) if result is None else result.latest(Seal(frozenset([term])))
        return result or Seal.NEVER

    def is_no_later(self, seal: Seal, other: Seal) -> bool:
        """Whether the constraints show that a seal is not later than another in any row."""
        return other.is_never or all(
            any(self._is_at_most(point, bound, ticks - offset) for bound, ticks in other.terms)
            for point, offset in seal.terms
        )

    def _is_at_most(self, point: SealPoint, bound: SealPoint, ticks: int) -> bool:
        """Whether a point in time is never more than this number of ticks above another."""
        if point == bound:
            return ticks >= 0
        distance = self.distance_max.get((point, bound)) if isinstance(point, str) else None
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

    def _bound_term(
        self, point: SealPoint, offset: int, columns: set[str], with_periods: bool
    ) -> tuple[SealPoint, int] | None:
        if isinstance(point, PeriodEnd):
            equal = self._with_equal_columns(point, columns)
            return None if equal is None or not with_periods else (equal, offset)
        if point in columns or point == START:
            return point, offset
        bounds = [(b, d) for (a, b), d in self.distance_max.items() if a == point and self._is_present_with(point, b)]
        candidates = [(b, d) for b, d in bounds if isinstance(b, str) and (b in columns or b == START)]
        periods = [(b, d) for b, d in bounds if isinstance(b, PeriodEnd) and b.columns <= columns and with_periods]
        if periods and not any(d < 0 and b != START for b, d in candidates):
            # No column is later, as the end of a window is. The shortest period ends first.
            period, distance = min(periods, key=lambda p: (p[0].ticks_max + p[1], str(p[0])))
            return period, distance + offset
        if not candidates:
            return None
        # Prefer the nearest column, which for a window is its end. A constant is the last choice. Of equally near ones,
        # the start of a window is earlier than the ticks in it.
        bound, distance = min(
            candidates,
            key=lambda c: (c[0] == START, c[1], -sum(self._is_at_most(c[0], b, d - c[1]) for b, d in candidates), c[0]),
        )
        return bound, distance + offset

    def _with_equal_columns(self, end: PeriodEnd, columns: set[str]) -> PeriodEnd | None:
        """The same end in terms of some columns; None if others are not equal to these."""
        new_names = {}
        for column in end.columns - columns:
            equal = [c for c in columns if self._is_at_most(column, c, 0) and self._is_at_most(c, column, 0)]
            if not equal:
                return None
            new_names[column] = min(equal)
        return end.rename(new_names)


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
