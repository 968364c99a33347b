"""Stages: what runs between two exchanges. Within a stage every transform finds the rows it needs in its partition.

The first stage reads the log and routes events by whatever columns it needs, a stream twice if two transforms want it
by different ones: that is no exchange. Rows are routed by columns that are fixed, so that a row never moves.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.graph.knowledge_graph import KnowledgeGraph, TransformObject

ColumnNames = tuple[str, ...]


@dataclass(frozen=True)
class Partitioning:
    """`by` are the columns that decide the partition, each with all the names it has; none is one partition for all.

    `free`: rows come from the log through transforms without state, so any columns can still be chosen. `lost`: the
    columns are no longer there, and whoever needs them by any must exchange.
    """

    columns: tuple[frozenset[str], ...] = ()
    is_free: bool = False
    is_lost: bool = False

    def is_colocated_by(self, columns: Iterable[str]) -> bool:
        """Whether rows that agree on `wanted` are in one partition."""
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
    """A relation's changes go to a later stage: to the partition that these columns say, or, if None, to any."""

    relation: str
    columns: ColumnNames | None
    reader: str


@dataclass(frozen=True)
class InputRead:
    """How a transform finds the rows of an input: they are `here`, in its partition; or every partition has all, of
    which it takes its `share`; or they were `sent` by an earlier stage. `by` are the columns that say whose they
    are."""

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
    """Of each transform."""

    @property
    def partition_keys(self) -> list[str]:
        """The different ways in which the stage is partitioned."""
        return list(dict.fromkeys(str(p) for p in self.partitionings.values() if not p.is_free)) or ["any"]


def split_into_stages(graph: KnowledgeGraph, fixed: Mapping[str, Container[str]]) -> list[Stage]:
    """`fixed` are the columns of each relation that never change in a row."""
    return _StageSplitter(graph, fixed).split()


class _StageSplitter:
    def __init__(self, graph: KnowledgeGraph, fixed: Mapping[str, Container[str]]) -> None:
        self.graph, self.fixed = graph, fixed
        self.readers: dict[str, list[TransformObject]] = {}
        for transform in graph.transforms:
            for name in transform.inputs:
                self.readers.setdefault(name, []).append(transform)
        self.partitioning_of = {n: FREE for n, r in graph.relations.items() if r.kind == "stream"}
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
        """Settles its stage and partitioning; by which columns it reads each input."""
        required = self._required_columns(transform)
        input_columns: list[tuple[str, ColumnNames | None]] = [(name, None) for name in transform.inputs]
        if required is None:
            self.partitioning_of[transform.output] = self._inherited_partitioning(transform)
        else:
            chosen = self._choose_columns(transform, required)
            input_columns = [(name, tuple(pair[i] for pair in chosen)) for i, name in enumerate(transform.inputs)]
            self.partitioning_of[transform.output] = self._output_partitioning(transform, chosen)
        self.stage_of[transform.output] = max(
            self.stage_of[name] + (not self._is_partitioned_by(name, by)) for name, by in input_columns
        )
        return input_columns

    def _input_read(self, name: str, columns: ColumnNames | None, output: str) -> InputRead:
        is_free = self.partitioning_of[name].is_free
        if is_free and columns is None and not self.partitioning_of[output].is_free:
            # Every partition has all rows, and each row is to go on from one of them.
            columns = self.graph.relations[name].type.heading.key
        if self.stage_of[name] < self.stage_of[output]:
            return InputRead(name, columns, "sent")
        return InputRead(name, columns, "share" if is_free and columns is not None else "here")

    def _required_columns(self, transform: TransformObject) -> list[ColumnNames] | None:
        """As `needs`, without the columns that evolve: rows that agree on all agree on the others too."""
        required = required_partition_columns(transform.rel, self.graph.relations[transform.output].type.heading)
        if required is None:
            return None
        return [p for p in required if all(c in self.fixed[n] for c, n in zip(p, transform.inputs, strict=True))]

    def _is_partitioned_by(self, name: str, columns: ColumnNames | None) -> bool:
        """Whether rows are, or can be routed, where a reader by these columns expects them."""
        partitioning = self.partitioning_of[name]
        if columns is None or partitioning.is_free:
            return True
        is_exact = len(partitioning.columns) == len(columns) and all(
            c in col for c, col in zip(columns, partitioning.columns, strict=True)
        )
        return is_exact and not partitioning.is_lost

    def _choose_columns(self, transform: TransformObject, wanted: list[ColumnNames]) -> list[ColumnNames]:
        """The columns to partition by: those that an input is partitioned by already, else those that also serve the
        readers, else all."""
        for index, name in enumerate(transform.inputs):
            partitioning = self.partitioning_of[name]
            if not partitioning.is_free and partitioning.is_colocated_by(pair[index] for pair in wanted):
                chosen = [next((p for p in wanted if p[index] in column), None) for column in partitioning.columns]
                return [c for c in chosen if c is not None]
        shared = self._columns_shared_with_readers(transform.output, {pair[0]: pair for pair in wanted})
        return [wanted_pair for wanted_pair in wanted if wanted_pair[0] in shared] if shared else wanted

    def _columns_shared_with_readers(self, name: str, candidates: Mapping[str, ColumnNames]) -> set[str]:
        """Of the columns that could be chosen, those that every reader with a wish of its own could use too."""
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
        new_names = dict(reader.rel.pairs) if isinstance(reader.rel, mmpl.Rename) else {}
        renamed = {new_names.get(c, c): pair for c, pair in candidates.items()}
        old_names = {new_names.get(c, c): c for c in candidates}
        return {old_names[c] for c in self._columns_shared_with_readers(reader.output, renamed)}

    def _inherited_partitioning(self, transform: TransformObject) -> Partitioning:
        """A transform without needs leaves rows where they are."""
        first = self.partitioning_of[transform.inputs[0]]
        if any(self.partitioning_of[i] != first for i in transform.inputs):
            return LOST
        if first.is_free or first.is_lost:
            return first
        new_names = dict(transform.rel.pairs) if isinstance(transform.rel, mmpl.Rename) else {}
        present = set(self.graph.relations[transform.output].type.heading.columns)
        by = tuple(frozenset(new_names.get(c, c) for c in column) & present for column in first.columns)
        return Partitioning(by) if all(by) else LOST

    def _output_partitioning(self, transform: TransformObject, chosen: list[ColumnNames]) -> Partitioning:
        present = set(self.graph.relations[transform.output].type.heading.columns)
        rel = transform.rel
        both_sides = isinstance(rel, mmpl.Join) and rel.kind == "inner"
        side = 1 if isinstance(rel, mmpl.Join) and rel.kind == "right" else 0
        if isinstance(rel, mmpl.Join) and rel.kind == "full" and any(a != b for a, b in rel.on):
            return LOST
        by = tuple(frozenset(pair if both_sides else [pair[side]]) & present for pair in chosen)
        return Partitioning(by) if all(by) else LOST


def required_partition_columns(rel: mmpl.Rel, heading: Heading) -> list[ColumnNames] | None:
    """The columns that rows must agree on to meet: for each, its name in every input. None: rows need not meet, and
    may be anywhere. `heading` is the result's."""
    match rel:
        case mmpl.Summarize() | mmpl.Best() | mmpl.Over() | mmpl.Silence():
            return [(c,) for c in rel.per]
        case mmpl.Distinct():
            return [(c,) for c in heading.key]
        case mmpl.Window(kind="last"):
            # They need not meet, but what is remembered of each must have its place.
            return [(c,) for c in heading.columns]
        case mmpl.Join(null_aware=True):
            # A NULL on the right side concerns every row of the left.
            return []
        case mmpl.Join() | mmpl.Asof():
            return list(rel.on)
    return None
