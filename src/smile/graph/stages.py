"""Stages: what runs between two exchanges. Within a stage every transform finds the rows it needs in its partition.

The first stage reads the log and routes events by whatever columns it needs, a stream twice if two transforms want it
by different ones: that is no exchange. Rows are routed by columns that are fixed, so that a row never moves.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.graph.objects import Graph, TransformObject

Columns = tuple[str, ...]


@dataclass(frozen=True)
class Partitioning:
    """`by` are the columns that decide the partition, each with all the names it has; none is one partition for all.

    `free`: rows come from the log through transforms without state, so any columns can still be chosen. `lost`: the
    columns are no longer there, and whoever needs them by any must exchange.
    """

    by: tuple[frozenset[str], ...] = ()
    free: bool = False
    lost: bool = False

    def within(self, wanted: Iterable[str]) -> bool:
        """Whether rows that agree on `wanted` are in one partition."""
        names = set(wanted)
        return not self.free and not self.lost and all(column & names for column in self.by)

    def __str__(self) -> str:
        if self.free or self.lost:
            return "any"
        return ", ".join(min(c) for c in self.by) or "one partition"


FREE = Partitioning(free=True)
LOST = Partitioning(lost=True)
ONE = Partitioning()


@dataclass(frozen=True)
class Exchange:
    """A relation's changes go to a later stage: to the partition that these columns say, or, if None, to any."""

    relation: str
    by: Columns | None
    reader: str


@dataclass(frozen=True)
class Read:
    """How a transform finds the rows of an input: they are `here`, in its partition; or every partition has all, of
    which it takes its `share`; or they were `sent` by an earlier stage. `by` are the columns that say whose they
    are."""

    relation: str
    by: Columns | None
    how: Literal["here", "share", "sent"]


@dataclass
class Stage:
    number: int
    transforms: list[TransformObject] = field(default_factory=list)
    partitionings: dict[str, Partitioning] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    reads: dict[str, tuple[Read, ...]] = field(default_factory=dict)
    """Of each transform."""

    @property
    def keys(self) -> list[str]:
        """The different ways in which the stage is partitioned."""
        return list(dict.fromkeys(str(p) for p in self.partitionings.values() if not p.free)) or ["any"]


def cut(graph: Graph, fixed: Mapping[str, Container[str]]) -> list[Stage]:
    """`fixed` are the columns of each relation that never change in a row."""
    return _Cut(graph, fixed).stages()


class _Cut:
    def __init__(self, graph: Graph, fixed: Mapping[str, Container[str]]) -> None:
        self.graph, self.fixed = graph, fixed
        self.readers: dict[str, list[TransformObject]] = {}
        for transform in graph.transforms:
            for name in transform.inputs:
                self.readers.setdefault(name, []).append(transform)
        self.partitioning = {n: FREE for n, r in graph.relations.items() if r.kind == "stream"}
        self.stage = dict.fromkeys(self.partitioning, 1)
        self.found: dict[int, Stage] = {1: Stage(1)}

    def stages(self) -> list[Stage]:
        for transform in self.graph.transforms:
            read = self._place(transform)
            number = self.stage[transform.output]
            stage = self.found.setdefault(number, Stage(number))
            stage.transforms.append(transform)
            stage.partitionings[transform.output] = self.partitioning[transform.output]
            reads = stage.reads[transform.output] = tuple(self._read(name, by, transform.output) for name, by in read)
            stage.exchanges += [Exchange(r.relation, r.by, transform.output) for r in reads if r.how == "sent"]
        return [self.found[n] for n in sorted(self.found)]

    def _place(self, transform: TransformObject) -> list[tuple[str, Columns | None]]:
        """Settles its stage and partitioning; by which columns it reads each input."""
        wanted = self._needs(transform)
        read: list[tuple[str, Columns | None]] = [(name, None) for name in transform.inputs]
        if wanted is None:
            self.partitioning[transform.output] = self._carried(transform)
        else:
            chosen = self._choose(transform, wanted)
            read = [(name, tuple(pair[i] for pair in chosen)) for i, name in enumerate(transform.inputs)]
            self.partitioning[transform.output] = self._result(transform, chosen)
        self.stage[transform.output] = max(self.stage[name] + (not self._in_place(name, by)) for name, by in read)
        return read

    def _read(self, name: str, by: Columns | None, output: str) -> Read:
        free = self.partitioning[name].free
        if free and by is None and not self.partitioning[output].free:
            # Every partition has all rows, and each row is to go on from one of them.
            by = self.graph.relations[name].type.heading.key
        if self.stage[name] < self.stage[output]:
            return Read(name, by, "sent")
        return Read(name, by, "share" if free and by is not None else "here")

    def _needs(self, transform: TransformObject) -> list[Columns] | None:
        """As `needs`, without the columns that evolve: rows that agree on all agree on the others too."""
        wanted = needs(transform.rel, self.graph.relations[transform.output].type.heading)
        if wanted is None:
            return None
        return [p for p in wanted if all(c in self.fixed[n] for c, n in zip(p, transform.inputs, strict=True))]

    def _in_place(self, name: str, by: Columns | None) -> bool:
        """Whether rows are, or can be routed, where a reader by these columns expects them."""
        partitioning = self.partitioning[name]
        if by is None or partitioning.free:
            return True
        exactly = len(partitioning.by) == len(by) and all(c in col for c, col in zip(by, partitioning.by, strict=True))
        return exactly and not partitioning.lost

    def _choose(self, transform: TransformObject, wanted: list[Columns]) -> list[Columns]:
        """The columns to partition by: those that an input is partitioned by already, else those that also serve the
        readers, else all."""
        for index, name in enumerate(transform.inputs):
            partitioning = self.partitioning[name]
            if not partitioning.free and partitioning.within(pair[index] for pair in wanted):
                chosen = [next((p for p in wanted if p[index] in column), None) for column in partitioning.by]
                return [c for c in chosen if c is not None]
        served = self._served(transform.output, {pair[0]: pair for pair in wanted})
        return [wanted_pair for wanted_pair in wanted if wanted_pair[0] in served] if served else wanted

    def _served(self, name: str, own: Mapping[str, Columns]) -> set[str]:
        """Of the columns that could be chosen, those that every reader with a wish of its own could use too."""
        common = set(own)
        for reader in self.readers.get(name, []):
            wish = self._needs(reader)
            if wish is None:
                common &= self._served_through(reader, own) or common
                continue
            index = reader.inputs.index(name)
            useful = {pair[index] for pair in wish} & common
            common = useful or common
        return common

    def _served_through(self, reader: TransformObject, own: Mapping[str, Columns]) -> set[str]:
        new = dict(reader.rel.pairs) if isinstance(reader.rel, mmpl.Rename) else {}
        renamed = {new.get(c, c): pair for c, pair in own.items()}
        back = {new.get(c, c): c for c in own}
        return {back[c] for c in self._served(reader.output, renamed)}

    def _carried(self, transform: TransformObject) -> Partitioning:
        """A transform without needs leaves rows where they are."""
        first = self.partitioning[transform.inputs[0]]
        if any(self.partitioning[i] != first for i in transform.inputs):
            return LOST
        if first.free or first.lost:
            return first
        new = dict(transform.rel.pairs) if isinstance(transform.rel, mmpl.Rename) else {}
        present = set(self.graph.relations[transform.output].type.heading.columns)
        by = tuple(frozenset(new.get(c, c) for c in column) & present for column in first.by)
        return Partitioning(by) if all(by) else LOST

    def _result(self, transform: TransformObject, chosen: list[Columns]) -> Partitioning:
        present = set(self.graph.relations[transform.output].type.heading.columns)
        rel = transform.rel
        both_sides = isinstance(rel, mmpl.Join) and rel.kind == "inner"
        side = 1 if isinstance(rel, mmpl.Join) and rel.kind == "right" else 0
        if isinstance(rel, mmpl.Join) and rel.kind == "full" and any(a != b for a, b in rel.on):
            return LOST
        by = tuple(frozenset(pair if both_sides else [pair[side]]) & present for pair in chosen)
        return Partitioning(by) if all(by) else LOST


def needs(rel: mmpl.Rel, heading: Heading) -> list[Columns] | None:
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
