"""The plan: a program's transforms arranged in stages, and each stage's part of the work in one partition.

With one partition nothing has to move, so everything is one stage.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.hashing import hashes, mixed
from smile.columns.values import Array, Values, places_of
from smile.graph.objects import Graph
from smile.graph.stages import FREE, ONE, Columns, Exchange, Partitioning, Read, Stage, cut
from smile.kernels.changes import Changes, Version
from smile.kernels.compile import Kernels, compile_graph, shown
from smile.kernels.forget import Forgetful
from smile.kernels.seals import Moved
from smile.kernels.transform import State
from smile.state.run import Shape
from smile.state.table import Table

States = Mapping[str, State]
"""What is remembered, by the transforms that remember it."""

Route = tuple[str, Columns | None]
"""A relation, and the columns that say which partition its rows go to."""


@dataclass(frozen=True)
class Made:
    """What a partition of a stage made of a frame: its states, the changes of its relations."""

    states: States
    changes: Mapping[str, Changes]


@dataclass(frozen=True)
class Work:
    """A stage's transforms, each with how it finds its inputs. `sends` are routes by the stages they lead to. `views`
    are those that are told of from here, `free` the relations that every partition has all of."""

    number: int
    partitions: int
    kernels: Kernels
    reads: Mapping[str, tuple[Read, ...]]
    single: frozenset[str]
    sends: Mapping[int, tuple[Route, ...]]
    views: tuple[str, ...]
    free: frozenset[str]
    forgetful: tuple[Forgetful, ...]

    def only(self, needed: Container[str], views: Sequence[str]) -> "Work":
        """What makes these relations, and tells of these views."""
        return replace(
            self,
            reads={name: reads for name, reads in self.reads.items() if name in needed},
            sends={to: tuple(r for r in routes if r[0] in needed) for to, routes in self.sends.items()},
            views=tuple(view for view in self.views if view in views),
            forgetful=tuple(f for f in self.forgetful if f.source in needed),
        )

    @cached_property
    def shapes(self) -> dict[str, Mapping[str, Shape]]:
        """Of what is remembered here."""
        here = {*self.reads, *(f.name for f in self.forgetful)}
        return {name: shapes for name, shapes in self.kernels.shapes.items() if name in here}

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Those that are read here from the log."""
        used = {r.relation for reads in self.reads.values() for r in reads if r.how != "sent"}
        used |= {route[0] for routes in self.sends.values() for route in routes} | set(self.views)
        return tuple(n for n, source in self.kernels.inputs.items() if source.transform is None and n in used)

    def nothing(self) -> States:
        """Before anything is heard."""
        return {name: {n: Table(shape) for n, shape in shapes.items()} for name, shapes in self.shapes.items()}

    def step(
        self,
        partition: int,
        states: States,
        heard: Mapping[str, Changes],
        sent: Mapping[Route, Changes],
        moved: Moved,
        first: bool,
    ) -> Made:
        """What comes of the events `heard` and of what earlier stages have `sent`. `first`: nothing was before."""
        changes = dict(heard)
        shares: dict[Route, Changes | None] = {}
        states = dict(states)
        for name, reads in self.reads.items():
            if partition and name in self.single:
                continue
            transform = self.kernels.transforms[name]
            inputs = [self._read(read, partition, changes, sent, shares) for read in reads]
            woken = (moved.at_all or first) and transform.is_woken(moved)
            if not woken and all(i is None for i in inputs):
                continue
            state, found = transform.step(states.get(name, {}), inputs, moved)
            if transform.shapes:
                states[name] = state
            if found is not None and len(found):
                changes[name] = found
        for forgetful in self.forgetful:
            forgetful.forget(states, changes)
        return Made(states, changes)

    def _read(
        self,
        read: Read,
        partition: int,
        changes: Mapping[str, Changes],
        sent: Mapping[Route, Changes],
        shares: dict[Route, Changes | None],
    ) -> Changes | None:
        route = (read.relation, read.by)
        if read.how == "sent":
            return sent.get(route)
        found = changes.get(read.relation)
        if read.how == "here" or found is None:
            return found
        if route not in shares:
            shares[route] = self._share(found, read.by, partition)
        return shares[route]

    def _share(self, changes: Changes, by: Columns | None, partition: int) -> Changes | None:
        """Of what every partition has, what is this one's."""
        if self.partitions == 1:
            return changes
        assert by is not None
        mine = places_of(self._targets(changes, by) == partition)
        if len(mine) == len(changes):
            return changes
        return changes.take(mine) if len(mine) else None

    def _targets(self, changes: Changes, by: Columns) -> Array:
        """The partition that each row goes to."""
        if not by:
            return np.zeros(len(changes), np.int64)
        return partition_of([changes.fixed[c] for c in by], len(changes), self.partitions)

    def sent(self, partition: int, made: Made, to: int) -> Iterator[tuple[int, Route, Changes]]:
        """What goes to a later stage: to which partition, by which route, and what."""
        for relation, by in self.sends.get(to, ()):
            changes = made.changes.get(relation)
            if changes is None:
                continue
            if relation in self.free or by is None:
                mine = self._share(changes, by, partition) if relation in self.free else changes
                if mine is not None:
                    yield partition, (relation, by), mine
                continue
            targets = self._targets(changes, by)
            for target in range(self.partitions):
                at = places_of(targets == target)
                if len(at):
                    yield target, (relation, by), changes.take(at)

    def told(self, partition: int, made: Made) -> Iterator[tuple[str, Changes]]:
        """Of each view the rows that are shown, or were: what is known of them, and whether they were."""
        for view in self.views:
            changes = made.changes.get(view)
            if changes is not None and view in self.free:
                changes = self._share(changes, self.kernels.inputs[view].layout.key, partition)
            if changes is None:
                continue
            old = changes.old_mask()
            told = places_of(masks.shown(changes.new.mask) | masks.shown(old))
            if not len(told):
                continue
            if len(told) < len(changes):
                changes, old = changes.take(told), old[told]
            yield view, Changes(changes.fixed, Version({}, old, changes.new.steps), changes.new)


def partition_of(columns: Sequence[Values], count: int, partitions: int) -> Array:
    """Follows from the values alone, whatever their columns are called."""
    found = mixed(hashes(columns, count))
    return (found % np.uint64(partitions)).astype(np.int64)


@dataclass(frozen=True)
class Plan:
    """All stages, in order. `views` are those that are told of."""

    kernels: Kernels
    stages: tuple[Work, ...]
    partitions: int
    views: tuple[str, ...]

    def wanted(self, views: Sequence[str]) -> "Plan":
        """The same plan for fewer views: without the work that no other is for. What remains is compiled as before, so
        that it goes on from what it remembers."""
        if set(views) == set(self.views):
            return self
        needed = {*views, *map(shown, views)}
        for name, reads in reversed(list(self.kernels.reads.items())):
            if name in needed:
                needed.update(reads)
        return replace(self, stages=tuple(work.only(needed, views) for work in self.stages), views=tuple(views))

    def place_of(self, view: str) -> Work:
        """The stage that keeps a view's rows."""
        return next(work for work in self.stages if shown(view) in work.reads)


def plan(graph: Graph, streams: tuple[mmpl.StreamDef, ...], partitions: int = 1, kept: Sequence[str] = ()) -> Plan:
    kernels = compile_graph(graph, streams).keeping(kept)
    views = tuple(graph.subscriptions)
    if partitions == 1:
        return Plan(kernels, (fused(kernels, views),), 1, views)
    stages = stages_of(graph, kernels)
    partitionings = {name: FREE for name, source in kernels.inputs.items() if source.transform is None}
    for stage in stages:
        partitionings |= stage.partitionings
    for view in kept:
        _keep(view, kernels.inputs[view].layout.key, stages, partitionings[view])
    works = [_work(stage, kernels, partitions, stages, partitionings, views) for stage in stages]
    return Plan(kernels, tuple(works), partitions, views)


def stages_of(graph: Graph, kernels: Kernels) -> list[Stage]:
    return cut(graph, {name: source.layout.fixed for name, source in kernels.inputs.items()})


def fused(kernels: Kernels, views: Sequence[str]) -> Work:
    """Everything in one partition."""
    reads = {name: tuple(Read(r, None, "here") for r in of) for name, of in kernels.reads.items()}
    return Work(1, 1, kernels, reads, frozenset(), {}, tuple(views), frozenset(), kernels.forgetful)


def _keep(view: str, key: Columns, stages: list[Stage], partitioning: Partitioning) -> None:
    """A view's rows are remembered where columns of theirs say: where they are made, if they still have those that
    decided it; else by their key, a stage later."""
    made = next((stage.number for stage in stages if view in stage.partitionings), 1)
    if partitioning.lost:
        if made == len(stages):
            stages.append(Stage(made + 1))
        later = stages[made]
        later.exchanges.append(Exchange(view, key, shown(view)))
        later.reads[shown(view)] = (Read(view, key, "sent"),)
    elif partitioning.free:
        stages[made - 1].reads[shown(view)] = (Read(view, key, "share"),)
    else:
        by = tuple(min(column) for column in partitioning.by)
        stages[made - 1].reads[shown(view)] = (Read(view, by, "here"),)


def _work(
    stage: Stage,
    kernels: Kernels,
    partitions: int,
    stages: Sequence[Stage],
    partitionings: Mapping[str, Partitioning],
    views: Sequence[str],
) -> Work:
    here = {t.output for t in stage.transforms}
    if stage.number == 1:
        here |= {name for name, source in kernels.inputs.items() if source.transform is None}
    free = frozenset(name for name, p in partitionings.items() if p.free)
    sends: dict[int, tuple[Route, ...]] = {}
    for later in stages:
        routes = [(e.relation, e.by) for e in later.exchanges if e.relation in here]
        if routes:
            sends[later.number] = tuple(dict.fromkeys(routes))
    single = frozenset(name for name in here if partitionings[name] == ONE)
    forgetful = tuple(
        replace(f, spent=spent)
        for f in kernels.forgetful
        if f.source in here and (spent := tuple(s for s in f.spent if s.transform in here))
    )
    own = tuple(v for v in views if v in here)
    return Work(stage.number, partitions, kernels, stage.reads, single, sends, own, free & here, forgetful)
