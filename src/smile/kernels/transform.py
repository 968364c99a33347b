"""Transforms: pure functions of what is remembered, of changes and of horizons. None reads a clock or a file.

`step` gives what is to be remembered from now on, and the changes of its own relation. From the same state and the same
changes it gives the same, however often it is asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from smile.columns.values import ValueColumn
from smile.kernels.delta import Delta, drop_unchanged_rows
from smile.kernels.layout import Layout
from smile.kernels.row_encoding import stored_column
from smile.kernels.seals import HorizonAdvance, Horizons
from smile.knowledge.cell_knowledge import CellKnowledge
from smile.knowledge.seals import Seal
from smile.knowledge.types import RelationType
from smile.state.run import TableSchema
from smile.state.table import StateTable

X = TypeVar("X")

State = Mapping[str, StateTable]
"""What a transform remembers, by the names it has for it."""


@dataclass(frozen=True)
class TableSource:
    """Where the rows of a table come from: the number of the input, and what its columns are called in the table, if
    that is not what they are `stored` as. Those by which the transform reads the input are all there."""

    input_number: int = 0
    names: Mapping[str, str] = field(default_factory=dict)

    def stored_name(self, name: str) -> str:
        return self.names.get(name, stored_column(name))


class Transform(ABC):
    """Compiled once from an operator and the layouts of its inputs."""

    layout: Layout
    table_schemas: Mapping[str, TableSchema] = {}
    """Of the tables it remembers."""
    table_sources: Mapping[str, TableSource] = {}
    """Of the rows of those tables that are not of the first input, or have its columns by other names."""

    def empty_state(self) -> State:
        return {name: StateTable(schema) for name, schema in self.table_schemas.items()}

    @abstractmethod
    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        """`inputs` are the changes of its inputs, None where there are none."""

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        """Whether horizons alone may change something."""
        return bool(self.table_schemas)

    def default_rows(self, key: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Delta:
        """Of a total relation: the rows of keys nobody has heard of, as `new`."""
        raise AssertionError(f"{type(self).__name__} is never total")

    def default_seals(self, seals: Mapping[str, Seal]) -> Sequence[Mapping[str, Seal]]:
        """Of a total relation that has these seals: when its default rows change, in the terms of its key."""
        return [seals]


@dataclass(frozen=True)
class InputRelation:
    """A relation that a transform reads. `bottoms` are the cells of a row nobody has heard of: the domains of its
    columns. `transform` is what makes it, None for a stream."""

    name: str
    layout: Layout
    type: RelationType
    bottoms: Mapping[str, CellKnowledge]
    transform: Transform | None


@dataclass(frozen=True)
class OutputRelation:
    """The relation that a transform makes."""

    name: str
    type: RelationType
    bottoms: Mapping[str, CellKnowledge]
    includes_permanently_hidden: bool


class RowWiseTransform(Transform):
    """A transform of each row by itself, which remembers nothing."""

    def __init__(self, source: InputRelation) -> None:
        self.source_transform = source.transform

    @abstractmethod
    def apply(self, delta: Delta) -> Delta: ...

    def default_rows(self, key: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Delta:
        assert self.source_transform is not None, "a stream is never total"
        return self.apply(self.source_transform.default_rows(self.source_key(key), count, horizons))

    def source_key(self, key: Mapping[str, X]) -> Mapping[str, X]:
        return key

    def default_seals(self, seals: Mapping[str, Seal]) -> Sequence[Mapping[str, Seal]]:
        assert self.source_transform is not None, "a stream is never total"
        inner = self.source_key({c: c for c in self.layout.key})
        outer = {name: c for c, name in inner.items()}
        source_seals = self.source_transform.default_seals({s: seal.rename(outer) for s, seal in seals.items()})
        return [{s: seal.rename(inner) for s, seal in seals_by_stream.items()} for seals_by_stream in source_seals]

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        (delta,) = inputs
        if delta is None:
            return state, None
        output_delta = drop_unchanged_rows(self.apply(delta), self.layout.includes_permanently_hidden)
        return state, output_delta if len(output_delta) else None
