"""Functional dependencies: rows that agree on some columns agree on others. The tick of a stream determines all columns
of its event, also in a join with other rows, and so do columns that are declared UNIQUE."""

from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

ColumnSet = frozenset[str]


class Dependency(NamedTuple):
    """`needs_values`: rows with a NULL in `determinant` are excepted, as UNIQUE has it."""

    determinant: ColumnSet
    columns: ColumnSet
    needs_values: bool = False


@dataclass(frozen=True)
class FunctionalDependencies:
    """They hold for all rows that are ever present, and have only columns that do not evolve."""

    dependencies: frozenset[Dependency] = frozenset()

    def add(
        self, determinant: Iterable[str], columns: Iterable[str], needs_values: bool = False
    ) -> "FunctionalDependencies":
        added = Dependency(frozenset(determinant), frozenset(columns), needs_values)
        return FunctionalDependencies(self.dependencies | {added})

    def merge(self, other: "FunctionalDependencies") -> "FunctionalDependencies":
        return FunctionalDependencies(self.dependencies | other.dependencies)

    def rename(self, new: Mapping[str, str]) -> "FunctionalDependencies":
        def renamed(columns: ColumnSet) -> ColumnSet:
            return frozenset(new.get(c, c) for c in columns)

        return FunctionalDependencies(
            frozenset(Dependency(renamed(d), renamed(columns), needs) for d, columns, needs in self.dependencies)
        )

    def project(self, columns: Iterable[str], nullable: AbstractSet[str]) -> "FunctionalDependencies":
        """The dependencies between these columns, also those that follow through others. `nullable` are the columns
        that may be NULL."""
        kept = frozenset(columns)
        projected = set()
        for determinant, determined, needs_values in self.dependencies:
            if determinant <= kept:
                excepts_rows = needs_values and bool(determinant & nullable)
                start = determined | determinant if excepts_rows else determinant
                projected.add(Dependency(determinant, self.determined_by(start, nullable) & kept, excepts_rows))
        return FunctionalDependencies(frozenset(projected))

    def determined_by(self, columns: Iterable[str], nullable: AbstractSet[str]) -> ColumnSet:
        """These columns and all that they determine. `nullable` are the columns that may be NULL."""
        usable = [d for d in self.dependencies if not (d.needs_values and d.determinant & nullable)]
        determined = set(columns)
        is_growing = True
        while is_growing:
            added = {c for d in usable if d.determinant <= determined for c in d.columns} - determined
            determined |= added
            is_growing = bool(added)
        return frozenset(determined)
