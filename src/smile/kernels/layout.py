"""Layouts: how a relation's rows stand in columns. It follows from the program alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from smile.algebra.types import DataType
from smile.columns.knowledge import ColumnKind


@dataclass(frozen=True)
class EvolvingColumnLayout:
    kind: ColumnKind
    data: DataType


@dataclass(frozen=True)
class Layout:
    """`fixed` columns are exact, and the same in every version of a row; key columns are among them. `certain`: every
    row that there is, is shown for good (rows that never will be are left out). `heeded`: rows that are hidden for good
    from the first are told of too, since a reader tells them from rows nobody has heard of."""

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
