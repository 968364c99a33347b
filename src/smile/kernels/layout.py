"""Layouts: the columns in which a relation's rows are represented. A layout depends only on the program."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from smile.algebra.types import DataType
from smile.columns.knowledge import ColumnKind


@dataclass(frozen=True)
class EvolvingColumnLayout:
    kind: ColumnKind
    data: DataType

    def common_with(self, other: "EvolvingColumnLayout") -> "EvolvingColumnLayout":
        """A layout that can hold the cells of both. A column of kind "latest" can hold ranges and masks too."""
        return self if self.kind == other.kind else EvolvingColumnLayout("latest", self.data)


@dataclass(frozen=True)
class Layout:
    """The columns of a relation and what its deltas contain.

    `fixed`: columns whose values are exact and never change for a row; they include the key. `certain`: every row is
    permanently shown, and permanently hidden rows are left out. `includes_permanently_hidden`: deltas contain rows that
    are permanently hidden from the start, because a reader distinguishes them from absent rows.
    """

    key: tuple[str, ...]
    fixed: Mapping[str, DataType]
    evolving: Mapping[str, EvolvingColumnLayout] = field(default_factory=dict)
    certain: bool = False
    includes_permanently_hidden: bool = False

    @property
    def types(self) -> dict[str, DataType]:
        return {**self.fixed, **{name: e.data for name, e in self.evolving.items()}}

    @property
    def is_history(self) -> bool:
        return self.certain and not self.evolving
