"""Transforms: pure functions of what is remembered, of changes and of horizons. None reads a clock or a file.

`step` gives what is to be remembered from now on, and the changes of its own relation. From the same state and the same
changes it gives the same, however often it is asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from smile.columns.values import Values
from smile.kernels.changes import Changes, differing
from smile.kernels.layout import Layout
from smile.kernels.seals import Horizons, Moved
from smile.kernels.stored import stored
from smile.knowledge.known import Known
from smile.knowledge.seals import Seal
from smile.knowledge.types import RelationType
from smile.state.run import Shape
from smile.state.table import Table

X = TypeVar("X")

State = Mapping[str, Table]
"""What a transform remembers, by the names it has for it."""


@dataclass(frozen=True)
class Origin:
    """Where the rows of a table come from: the number of the input, and what its columns are called in the table, if
    that is not what they are `stored` as. Those by which the transform reads the input are all there."""

    input: int = 0
    names: Mapping[str, str] = field(default_factory=dict)

    def column(self, name: str) -> str:
        return self.names.get(name, stored(name))


class Transform(ABC):
    """Compiled once from an operator and the layouts of its inputs."""

    layout: Layout
    shapes: Mapping[str, Shape] = {}
    """Of the tables it remembers."""
    origins: Mapping[str, Origin] = {}
    """Of the rows of those tables that are not of the first input, or have its columns by other names."""

    def empty(self) -> State:
        return {name: Table(shape) for name, shape in self.shapes.items()}

    @abstractmethod
    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        """`inputs` are the changes of its inputs, None where there are none."""

    def is_woken(self, moved: Moved) -> bool:
        """Whether horizons alone may change something."""
        return bool(self.shapes)

    def default(self, key: Mapping[str, Values], count: int, horizons: Horizons) -> Changes:
        """Of a total relation: the rows of keys nobody has heard of, as `new`."""
        raise AssertionError(f"{type(self).__name__} is never total")

    def default_seals(self, seals: Mapping[str, Seal]) -> Sequence[Mapping[str, Seal]]:
        """Of a total relation that has these seals: when its default rows change, in the terms of its key."""
        return [seals]


@dataclass(frozen=True)
class Input:
    """A relation that a transform reads. `bottoms` are the cells of a row nobody has heard of: the domains of its
    columns. `transform` is what makes it, None for a stream."""

    name: str
    layout: Layout
    type: RelationType
    bottoms: Mapping[str, Known]
    transform: Transform | None


@dataclass(frozen=True)
class Output:
    """The relation that a transform makes."""

    name: str
    type: RelationType
    bottoms: Mapping[str, Known]
    heeded: bool


class RowWise(Transform):
    """A transform of each row by itself, which remembers nothing."""

    def __init__(self, source: Input) -> None:
        self.source = source.transform

    @abstractmethod
    def apply(self, changes: Changes) -> Changes: ...

    def default(self, key: Mapping[str, Values], count: int, horizons: Horizons) -> Changes:
        assert self.source is not None, "a stream is never total"
        return self.apply(self.source.default(self.key_of_source(key), count, horizons))

    def key_of_source(self, key: Mapping[str, X]) -> Mapping[str, X]:
        return key

    def default_seals(self, seals: Mapping[str, Seal]) -> Sequence[Mapping[str, Seal]]:
        assert self.source is not None, "a stream is never total"
        inner = self.key_of_source({c: c for c in self.layout.key})
        outer = {name: c for c, name in inner.items()}
        found = self.source.default_seals({s: seal.renamed(outer) for s, seal in seals.items()})
        return [{s: seal.renamed(inner) for s, seal in parts.items()} for parts in found]

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        (changes,) = inputs
        if changes is None:
            return state, None
        found = differing(self.apply(changes), self.layout.heeded)
        return state, found if len(found) else None
