"""Transforms: pure functions of state, input deltas and horizons. They read no clock and no files.

`step` returns the new state and the delta of the output relation. It is deterministic: equal arguments give equal
results, however often it is called.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from smile.columns.values import ValueColumn
from smile.kernels.delta import Delta, drop_unchanged_rows
from smile.kernels.layout import Layout
from smile.kernels.row_encoding import stored_column
from smile.kernels.seals import HorizonAdvance, Horizons
from smile.knowledge.column_values import column_limits
from smile.knowledge.seals import Seal
from smile.knowledge.types import RelationType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.transfer import ColumnLimits
from smile.state.run import TableSchema
from smile.state.table import StateTable

X = TypeVar("X")

State = Mapping[str, StateTable]
"""The state of a transform: its tables by name."""


@dataclass(frozen=True)
class TableSource:
    """The input that the rows of a table come from. `names`: the names of the input's columns in the table, where they
    differ from `stored_column`. The table has all columns that the transform partitions this input by."""

    input_number: int = 0
    names: Mapping[str, str] = field(default_factory=dict)

    def stored_name(self, name: str) -> str:
        return self.names.get(name, stored_column(name))


class Transform(ABC):
    """An operator, compiled for the layouts of its inputs."""

    layout: Layout
    table_schemas: Mapping[str, TableSchema] = {}
    """The schemas of its state tables."""
    table_sources: Mapping[str, TableSource] = {}
    """Only for tables whose rows are not from the first input, or have other names for its columns."""

    def empty_state(self) -> State:
        return {name: StateTable(schema) for name, schema in self.table_schemas.items()}

    @abstractmethod
    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        """Processes one batch. `inputs` are the deltas of its inputs, None for an input without changes."""

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        """Whether the horizon advance can change the state or the output without input deltas."""
        return bool(self.table_schemas)

    def default_rows(self, key: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Delta:
        """For a total relation: the rows of absent keys, as `new`."""
        raise AssertionError(f"{type(self).__name__} is never total")

    def default_seals(self, seals: Mapping[str, Seal]) -> Sequence[Mapping[str, Seal]]:
        """For a total relation with these seals: when its default rows change, as seals on its key columns."""
        return [seals]


@dataclass(frozen=True)
class InputRelation:
    """A relation that a transform reads. `bottoms`: the cells of an absent row, which are the domains of the columns;
    `shown_bottoms`: those of a row that is shown in the end. `transform` computes the relation; it is None for a
    stream."""

    name: str
    layout: Layout
    type: RelationType
    bottoms: Mapping[str, CellKnowledge]
    shown_bottoms: Mapping[str, CellKnowledge]
    transform: Transform | None

    @cached_property
    def limits(self) -> ColumnLimits:
        return column_limits(self.type.columns)


@dataclass(frozen=True)
class OutputRelation:
    """The relation that a transform computes."""

    name: str
    type: RelationType
    bottoms: Mapping[str, CellKnowledge]
    includes_permanently_hidden: bool


class RowWiseTransform(Transform):
    """A transform that processes each row separately and has no state. Its rows have the layout of its input, unless a
    subclass changes `layout`."""

    def __init__(self, source: InputRelation) -> None:
        self.layout = source.layout
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
