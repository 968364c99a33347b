"""Splits a graph into stages: the work between two exchanges. Within a stage, every transform finds the rows it needs
in its own partition.

The first stage reads the log and routes events by the columns that each reader needs. If two transforms need a stream
by different columns, it is routed twice, which is not an exchange. Rows are routed only by fixed columns, so that a row
never moves to another partition.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from smile.algebra.heading import ColumnNames
from smile.graph.knowledge_graph import KnowledgeGraph, TransformObject
from smile.operators.catalogue import operator_of


@dataclass(frozen=True)
class Partitioning:
    """`columns` decide the partition. Each is the set of its names; without columns, all rows are in one partition.

    `is_free`: rows come from the log through transforms without state, so any columns can still be chosen. `is_lost`:
    the columns were projected away, so a reader that needs rows by any columns must exchange them.
    """

    columns: tuple[frozenset[str], ...] = ()
    is_free: bool = False
    is_lost: bool = False

    def is_colocated_by(self, columns: Iterable[str]) -> bool:
        """Whether rows that agree on `columns` are in one partition."""
        names = set(columns)
        return not self.is_free and not self.is_lost and all(column & names for column in self.columns)

    def __str__(self) -> str:
        if self.is_free or self.is_lost:
            return "any"
        return ", ".join(min(c) for c in self.columns) or "one partition"


FREE = Partitioning(is_free=True)
LOST = Partitioning(is_lost=True)
SINGLE_PARTITION = Partitioning()


@dataclass(frozen=True)
class Exchange:
    """Sends the deltas of a relation to a later stage, partitioned by `columns`; None is any partition."""

    relation: str
    columns: ColumnNames | None
    reader: str


@dataclass(frozen=True)
class InputRead:
    """How a transform reads an input. The rows are in its partition (`here`), or every partition has all rows and takes
    its part of them (`share`), or an earlier stage sends them (`sent`). `columns` decide which partition a row is
    for."""

    relation: str
    columns: ColumnNames | None
    mode: Literal["here", "share", "sent"]


@dataclass
class Stage:
    number: int
    transforms: list[TransformObject] = field(default_factory=list)
    partitionings: dict[str, Partitioning] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    reads: dict[str, tuple[InputRead, ...]] = field(default_factory=dict)
    """By the output of the transform."""

    @property
    def partition_keys(self) -> list[str]:
        """The different partitionings in the stage."""
        return list(dict.fromkeys(str(p) for p in self.partitionings.values() if not p.is_free)) or ["any"]


def split_into_stages(graph: KnowledgeGraph, fixed: Mapping[str, Container[str]]) -> list[Stage]:
    """`fixed` has the columns of each relation that never evolve."""
    return _StageSplitter(graph, fixed).split()


class _StageSplitter:
    def __init__(self, graph: KnowledgeGraph, fixed: Mapping[str, Container[str]]) -> None:
        self.graph, self.fixed = graph, fixed
        self.readers: dict[str, list[TransformObject]] = {}
        for transform in graph.transforms:
            for name in transform.inputs:
                self.readers.setdefault(name, []).append(transform)
        self.partitioning_of = {n: FREE for n, r in graph.relations.items() if r.is_logged}
        self.stage_of = dict.fromkeys(self.partitioning_of, 1)
        self.stages_by_number: dict[int, Stage] = {1: Stage(1)}

    def split(self) -> list[Stage]:
        for transform in self.graph.transforms:
            input_columns = self._assign_stage(transform)
            number = self.stage_of[transform.output]
            stage = self.stages_by_number.setdefault(number, Stage(number))
            stage.transforms.append(transform)
            stage.partitionings[transform.output] = self.partitioning_of[transform.output]
            reads = stage.reads[transform.output] = tuple(
                self._input_read(name, by, transform.output) for name, by in input_columns
            )
            stage.exchanges += [Exchange(r.relation, r.columns, transform.output) for r in reads if r.mode == "sent"]
        return [self.stages_by_number[n] for n in sorted(self.stages_by_number)]

    def _assign_stage(self, transform: TransformObject) -> list[tuple[str, ColumnNames | None]]:
        """Decides the stage and partitioning of a transform. Returns the columns by which it reads each input."""
        required = self._required_columns(transform)
        input_columns: list[tuple[str, ColumnNames | None]] = [(name, None) for name in transform.inputs]
        if required is None:
            self.partitioning_of[transform.output] = self._inherited_partitioning(transform)
        else:
            chosen = self._choose_columns(transform, required)
            input_columns = [(name, tuple(pair[i] for pair in chosen)) for i, name in enumerate(transform.inputs)]
            self.partitioning_of[transform.output] = self._output_partitioning(transform, chosen)
        self.stage_of[transform.output] = max(
            (self.stage_of[name] + (not self._is_partitioned_by(name, by)) for name, by in input_columns), default=1
        )
        return input_columns

    def _input_read(self, name: str, columns: ColumnNames | None, output: str) -> InputRead:
        is_free = self.partitioning_of[name].is_free
        if is_free and columns is None and not self.partitioning_of[output].is_free:
            # Every partition has all rows, and only one of them may process a row.
            columns = self.graph.relations[name].type.heading.key
        if self.stage_of[name] < self.stage_of[output]:
            return InputRead(name, columns, "sent")
        return InputRead(name, columns, "share" if is_free and columns is not None else "here")

    def _required_columns(self, transform: TransformObject) -> list[ColumnNames] | None:
        """Like `Operator.partition_columns`, without the columns that evolve. Rows that agree on all required columns
        agree on the remaining ones too, so partitioning by these keeps them together."""
        heading = self.graph.relations[transform.output].type.heading
        required = operator_of(transform.rel).partition_columns(transform.rel, heading)
        if required is None:
            return None
        return [p for p in required if all(c in self.fixed[n] for c, n in zip(p, transform.inputs, strict=True))]

    def _is_partitioned_by(self, name: str, columns: ColumnNames | None) -> bool:
        """Whether the rows of a relation are in the partitions that these columns select, without an exchange."""
        partitioning = self.partitioning_of[name]
        if columns is None or partitioning.is_free:
            return True
        is_exact = len(partitioning.columns) == len(columns) and all(
            c in col for c, col in zip(columns, partitioning.columns, strict=True)
        )
        return is_exact and not partitioning.is_lost

    def _choose_columns(self, transform: TransformObject, required: list[ColumnNames]) -> list[ColumnNames]:
        """The columns to partition by: those by which an input is partitioned already, else those that readers need
        too, else all."""
        for index, name in enumerate(transform.inputs):
            partitioning = self.partitioning_of[name]
            if not partitioning.is_free and partitioning.is_colocated_by(pair[index] for pair in required):
                chosen = [next((p for p in required if p[index] in column), None) for column in partitioning.columns]
                return [c for c in chosen if c is not None]
        shared = self._columns_shared_with_readers(transform.output, {pair[0]: pair for pair in required})
        return [pair for pair in required if pair[0] in shared] if shared else required

    def _columns_shared_with_readers(self, name: str, candidates: Mapping[str, ColumnNames]) -> set[str]:
        """Those candidate columns that every reader with requirements could use too."""
        common = set(candidates)
        for reader in self.readers.get(name, []):
            required = self._required_columns(reader)
            if required is None:
                common &= self._columns_shared_through(reader, candidates) or common
                continue
            index = reader.inputs.index(name)
            useful = {pair[index] for pair in required} & common
            common = useful or common
        return common

    def _columns_shared_through(self, reader: TransformObject, candidates: Mapping[str, ColumnNames]) -> set[str]:
        """The same for the readers of a reader without requirements."""
        new_names = operator_of(reader.rel).new_names(reader.rel)
        renamed = {new_names.get(c, c): pair for c, pair in candidates.items()}
        old_names = {new_names.get(c, c): c for c in candidates}
        return {old_names[c] for c in self._columns_shared_with_readers(reader.output, renamed)}

    def _inherited_partitioning(self, transform: TransformObject) -> Partitioning:
        """A transform without requirements leaves rows in their partitions. Without inputs, every partition has all
        rows."""
        if not transform.inputs:
            return FREE
        first = self.partitioning_of[transform.inputs[0]]
        if any(self.partitioning_of[i] != first for i in transform.inputs):
            return LOST
        if first.is_free or first.is_lost:
            return first
        new_names = operator_of(transform.rel).new_names(transform.rel)
        present = set(self.graph.relations[transform.output].type.heading.columns)
        by = tuple(frozenset(new_names.get(c, c) for c in column) & present for column in first.columns)
        return Partitioning(by) if all(by) else LOST

    def _output_partitioning(self, transform: TransformObject, chosen: list[ColumnNames]) -> Partitioning:
        present = set(self.graph.relations[transform.output].type.heading.columns)
        output_columns = operator_of(transform.rel).output_partition_columns(transform.rel, chosen)
        if output_columns is None:
            return LOST
        by = tuple(frozenset(names) & present for names in output_columns)
        return Partitioning(by) if all(by) else LOST
