"""What may be forgotten upstream, because a restriction has hidden for good all that could come of it.

A row of a history that is joined to the one row of an aggregate comes but once. When a restriction above the join hides
it for good, neither it nor its group is ever asked for again: there is no second event of its tick.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.algebra.heading import whole_key_equated
from smile.columns import masks
from smile.columns.values import Values, concat, places_of
from smile.graph.objects import Graph, TransformObject
from smile.kernels.changes import Changes
from smile.kernels.rows import Restrict
from smile.kernels.stored import stored
from smile.kernels.transform import Input, State, Transform
from smile.state.run import Rows, Shape
from smile.state.table import Table


@dataclass(frozen=True)
class Spent:
    """Rows of one table, found by columns of the restriction's input."""

    transform: str
    table: str
    columns: tuple[str, ...]


KEYS = "keys"

WAITING_MAX = 2_000
"""Rows to be forgotten wait for each other: to drop a few takes about as long as to drop many."""


@dataclass(frozen=True)
class Forgetful:
    """`source` is the relation that `restrict` reads. What is spent waits under `name` until it is worth the while."""

    name: str
    restrict: Restrict
    source: str
    spent: tuple[Spent, ...]
    shape: Shape

    def forget(self, states: MutableMapping[str, State], changes: Mapping[str, Changes]) -> None:
        """Drops from `states` what no later frame can ask for, or has it wait."""
        found = changes.get(self.source)
        if found is None:
            return
        gone = places_of(masks.gone(self.restrict.masks_of(found)))
        if not len(gone):
            return
        waiting = states[self.name][KEYS]
        keys = {c: found.fixed[c].take(gone) for c in self.shape.columns}
        if sum(len(run) for run in waiting.runs) + len(gone) < WAITING_MAX:
            states[self.name] = {KEYS: waiting.updated(keys)}
            return
        before = waiting.scan()
        self._drop(states, {c: concat([before[c], column]) for c, column in keys.items()})

    def forget_waiting(self, states: MutableMapping[str, State]) -> None:
        """Drops at once whatever waits."""
        waiting = states[self.name][KEYS].scan()
        if len(waiting):
            self._drop(states, waiting)

    def _drop(self, states: MutableMapping[str, State], keys: Rows) -> None:
        for spent in self.spent:
            state = states[spent.transform]
            key = [keys[c] for c in spent.columns]
            states[spent.transform] = {**state, spent.table: _without(state[spent.table], key)}
        states[self.name] = {KEYS: Table(self.shape)}


def _without(table: Table, key: list[Values]) -> Table:
    there, found = table.find(key)
    if not there.any():
        return table
    return table.without(found if there.all() else found.take(places_of(there)))


def forgetful(graph: Graph, inputs: Mapping[str, Input], transforms: Mapping[str, Transform]) -> tuple[Forgetful, ...]:
    """All that a graph has."""
    finder = _Finder(graph, inputs, transforms)
    found = (finder.found(t) for t in graph.transforms if isinstance(t.rel, mmpl.Restrict))
    return tuple(f for f in found if f is not None)


class _Finder:
    def __init__(self, graph: Graph, inputs: Mapping[str, Input], transforms: Mapping[str, Transform]) -> None:
        self.graph, self.inputs, self.transforms = graph, inputs, transforms
        self.readers: dict[str, int] = {}
        for transform in graph.transforms:
            for name in transform.inputs:
                self.readers[name] = self.readers.get(name, 0) + 1

    def found(self, restriction: TransformObject) -> Forgetful | None:
        restrict = self.transforms[restriction.output]
        assert isinstance(restrict, Restrict)
        (source,) = restriction.inputs
        if restrict.predicate.kind == "exact":
            return None
        names = {c: c for c in self.inputs[source].layout.fixed}
        join, names = self._below(source, names)
        if join is None or not isinstance(join.rel, mmpl.Join):
            return None
        spent = self._of_join(join, join.rel, names)
        if not spent:
            return None
        types = self.inputs[source].layout.fixed
        columns = {c: arrow_type(types[c]) for s in spent for c in s.columns}
        return Forgetful(f"{source} spent", restrict, source, spent, Shape(tuple(columns), columns))

    def _below(self, name: str, names: dict[str, str]) -> tuple[TransformObject | None, dict[str, str]]:
        """The first transform below that is not of rows by themselves, if nobody else reads what is between; and by the
        columns that its rows have there, those of the relation we came from."""
        while self.readers.get(name) == 1 and not self.graph.relations[name].subscribed:
            transform = self.graph.transform_of.get(name)
            if transform is None:
                return None, names
            match transform.rel:
                case mmpl.Rename():
                    old = {new: c for c, new in transform.rel.pairs}
                    names = {old.get(c, c): top for c, top in names.items()}
                case mmpl.Extend():
                    added = {c for c, _ in transform.rel.assignments}
                    names = {c: top for c, top in names.items() if c not in added}
                case mmpl.Ref() | mmpl.Restrict() | mmpl.Project():
                    pass
                case _:
                    return transform, names
            (name,) = transform.inputs
        return None, names

    def _of_join(self, transform: TransformObject, rel: mmpl.Join, names: Mapping[str, str]) -> tuple[Spent, ...]:
        left, right = (self.inputs[i] for i in transform.inputs)
        on = dict(rel.on)
        whole = whole_key_equated(right.type.heading, list(on.values()))
        if rel.kind not in ("inner", "left") or not whole or not left.type.is_history:
            return ()
        if any(c not in names for c in left.layout.key):
            return ()
        found = self._spent(transform.output, "left", [names[c] for c in left.layout.key])
        of_right = {b: names[a] for a, b in rel.on if a in names}
        if set(on) != set(left.type.heading.key) or any(c not in of_right for c in right.layout.key):
            # Others may ask for the same row.
            return found
        group, of_group = self._below(right.name, of_right)
        if group is None or not isinstance(group.rel, mmpl.Summarize):
            return found
        per = [of_group[c] for c in group.rel.per if c in of_group]
        if len(per) < len(group.rel.per):
            return found
        found += self._spent(transform.output, "right", [of_right[c] for c in right.layout.key])
        shapes = self.transforms[group.output].shapes
        keyed = [n for n, shape in shapes.items() if shape.key == tuple(map(stored, group.rel.per))]
        # An aggregate that remembers more than a row a group keeps it: only space is lost.
        return found + (self._spent(group.output, keyed[0], per) if len(shapes) == len(keyed) == 1 else ())

    def _spent(self, transform: str, table: str, columns: list[str]) -> tuple[Spent, ...]:
        if table not in self.transforms[transform].shapes:
            return ()
        return (Spent(transform, table, tuple(columns)),)
