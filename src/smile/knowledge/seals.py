"""Seals: of a row and a stream, the last tick of the stream that can affect the row.

A seal is the greatest of some columns of the row, each with an offset in ticks, or never. `Ties` are what a relation's
rows obey: column a lies at most d ticks above column b. They turn a seal in the terms of one relation's columns into
one in another's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from smile.algebra.coercions import interval_text
from smile.algebra.types import INT_MAX

START = ""
"""Tick 0, in the place of a column: a tie to it is a constant bound."""


@dataclass(frozen=True)
class Seal:
    """`at` is empty for never."""

    at: frozenset[tuple[str, int]]

    NEVER: ClassVar["Seal"]

    @staticmethod
    def of(column: str, offset: int = 0) -> "Seal":
        return Seal(frozenset([(column, offset)]))

    @property
    def is_never(self) -> bool:
        return not self.at

    def latest(self, other: "Seal") -> "Seal":
        """The seal of what both can affect."""
        if self.is_never or other.is_never:
            return Seal.NEVER
        greatest: dict[str, int] = {}
        for column, offset in self.at | other.at:
            greatest[column] = max(offset, greatest.get(column, offset))
        return Seal(frozenset(greatest.items()))

    def later(self, ticks: int) -> "Seal":
        return Seal(frozenset((c, o + ticks) for c, o in self.at))

    def renamed(self, new: Mapping[str, str]) -> "Seal":
        return Seal(frozenset((new.get(c, c), o) for c, o in self.at))

    def __str__(self) -> str:
        if self.is_never:
            return "never"
        terms = [_sum(c, o) for c, o in sorted(self.at)]
        return terms[0] if len(terms) == 1 else f"the later of {' and '.join(terms)}"


Seal.NEVER = Seal(frozenset())


def _sum(column: str, offset: int) -> str:
    if column == START:
        return str(offset)
    if offset == 0:
        return column
    sign, size = ("+", offset) if offset > 0 else ("-", -offset)
    if size % 1024 == 0:
        return f"{column} {sign} {interval_text(size)}"
    if (size + 1) % 1024 == 0 and size > 1:
        rest = "- 1" if sign == "+" else "+ 1"
        return f"{column} {sign} {interval_text(size + 1)} {rest}"
    return f"{column} {sign} {size}"


Reach = Mapping[str, Mapping[str, int]]
"""Stream → column → d: the column of a row lies at most d above the tick of any event that affects the row."""


@dataclass(frozen=True)
class Ties:
    """(a, b) → d: a ≤ b + d in every row where neither is NULL. Closed: what follows from two ties is one too.

    `nulls` are the columns that may be NULL, each with the name of those it is NULL together with. Nothing follows
    through a column that may be NULL, unless it is there whenever one of the ends is.
    """

    at_most: Mapping[tuple[str, str], int]
    nulls: Mapping[str, str]

    def __init__(
        self, at_most: Mapping[tuple[str, str], int] | None = None, nulls: Mapping[str, str] | None = None
    ) -> None:
        object.__setattr__(self, "at_most", dict(at_most or {}))
        object.__setattr__(self, "nulls", dict(nulls or {}))

    def with_(self, more: Iterable[tuple[str, str, int]], nulls: Mapping[str, str] | None = None) -> "Ties":
        """With further ties a ≤ b + d, closed again: each new one can shorten only paths through itself."""
        known, nulls = dict(self.at_most), {**self.nulls, **(nulls or {})}
        for a, b, d in more:
            if known.get((a, b), INT_MAX) <= d:
                continue
            into = [(x, w) for (x, y), w in known.items() if y == a] + [(a, 0)]
            out = [(y, w) for (x, y), w in known.items() if x == b] + [(b, 0)]
            for x, w in into:
                for y, v in out:
                    through = [m for m in (a, b) if m not in (x, y)]
                    there = all(m not in nulls or nulls[m] in (nulls.get(x), nulls.get(y)) for m in through)
                    if x != y and there and w + d + v < known.get((x, y), INT_MAX):
                        known[(x, y)] = w + d + v
        return Ties(known, nulls)

    def never_null(self, columns: Iterable[str]) -> "Ties":
        """In rows where these columns, and those that are NULL together with them, are there."""
        there = {self.nulls.get(c) for c in columns} - {None}
        nulls = {c: group for c, group in self.nulls.items() if group not in there}
        return Ties({}, nulls).with_((a, b, d) for (a, b), d in self.at_most.items())

    def and_(self, other: "Ties") -> "Ties":
        return self.with_(((a, b, d) for (a, b), d in other.at_most.items()), other.nulls)

    def renamed(self, new: Mapping[str, str]) -> "Ties":
        return Ties(
            {(new.get(a, a), new.get(b, b)): d for (a, b), d in self.at_most.items()},
            {new.get(c, c): new.get(group, group) for c, group in self.nulls.items()},
        )

    def of(self, columns: Iterable[str]) -> "Ties":
        kept = {START, *columns}
        return Ties(
            {(a, b): d for (a, b), d in self.at_most.items() if a in kept and b in kept},
            {c: group for c, group in self.nulls.items() if c in kept},
        )

    def _needs(self, column: str, other: str) -> bool:
        """Whether a column is there whenever another is."""
        return column not in self.nulls or self.nulls[column] == self.nulls.get(other)

    def express(self, seal: Seal, columns: Iterable[str]) -> Seal:
        """A seal no earlier than `seal`, in the terms of `columns`; never if they say nothing about it."""
        allowed = set(columns)
        result = None
        for column, offset in seal.at:
            term = self._bounded(column, offset, allowed)
            if term is None:
                return Seal.NEVER
            result = Seal(frozenset([term])) if result is None else result.latest(Seal(frozenset([term])))
        return result or Seal.NEVER

    def extend(self, reach: Reach, columns: Iterable[str]) -> Reach:
        """How far events reach, said of all `columns` that ties connect with those it is said of."""
        wanted = list(columns)
        result = {}
        for stream, known in reach.items():
            further: dict[str, int] = {}
            for column in wanted:
                tied = [c for c in known if (column, c) in self.at_most and self._needs(c, column)]
                found = [known[c] + self.at_most[column, c] for c in tied]
                found += [known[column]] if column in known else []
                if found:
                    further[column] = min(found)
            result[stream] = further
        return result

    def _bounded(self, column: str, offset: int, allowed: set[str]) -> tuple[str, int] | None:
        if column in allowed or column == START:
            return column, offset
        tied = [(b, d) for (a, b), d in self.at_most.items() if a == column and (b in allowed or b == START)]
        found = [(b, d) for b, d in tied if self._needs(column, b)]
        if not found:
            return None
        # A constant is the last choice; else the nearest column, which for a window is its end.
        bound, distance = min(found, key=lambda f: (f[0] == START, f[1], f[0]))
        return bound, distance + offset


def furthest(a: Reach, b: Reach) -> Reach:
    """How far events of either of two relations reach, in rows that both can affect."""
    result = dict(a)
    for stream, known in b.items():
        own = result.get(stream)
        result[stream] = known if own is None else {c: max(own[c], d) for c, d in known.items() if c in own}
    return result
