"""The imports that global subscriptions need, of this broker and of its neighbours. They are added to the program and
removed from it while it runs, without a change of its text."""

from collections.abc import Callable, Iterable, Mapping, Set as AbstractSet
from typing import Protocol

from smile import limits
from smile.broker.network.descriptions import ImportRecords
from smile.broker.network.routed_stream import RoutedImport, read_routed
from smile.broker.network.routing import Routing
from smile.errors import SmileError, error
from smile.links.routing.router import DesiredImport
from smile.program import CompiledProgram


class RoutedImportsHost(Protocol):
    """What this needs of its broker."""

    @property
    def compiled(self) -> CompiledProgram: ...

    @property
    def import_records(self) -> ImportRecords: ...

    def set_routed_imports(self, routed: Mapping[str, RoutedImport]) -> bool: ...

    def own_histories(self) -> AbstractSet[str]:
        """Those of the streams that the program itself publishes or imports."""

    def type_problems(self) -> Mapping[str, SmileError]:
        """Routed streams that have another type than those of other producers, by relation."""


class RoutedImports:
    """Used by one thread. `monotonic` returns seconds."""

    def __init__(self, routing: Routing, host: RoutedImportsHost, monotonic: Callable[[], float]) -> None:
        self._routing, self._host, self._monotonic = routing, host, monotonic
        self._unneeded_since: dict[str, float] = {}
        self._refused: dict[str, tuple[RoutedImport, SmileError]] = {}
        """What the program cannot have. It is tried again when it has changed."""

    def step(self) -> None:
        """Makes the program import what is needed now."""
        desired, present = self._routing.desired_imports(), self._host.import_records.routed
        if not desired and not present:
            self._routing.problems = {}
            return
        program = self._host.compiled.original
        routed = set(present)
        names = [d.name for d in (*program.streams, *program.views, *program.imports) if d.name not in routed]
        planned, problems = plan_imports(
            desired, present, self._unneeded_since, self._host.own_histories(), names, self._monotonic()
        )
        for relation, (refused, problem) in list(self._refused.items()):
            if planned.get(relation) == refused:
                problems[relation] = problem
                del planned[relation]
                planned |= {relation: present[relation]} if relation in present else {}
            else:
                del self._refused[relation]
        if planned != dict(present):
            self._change(present, planned)
        self._routing.problems = {**problems, **self._host.type_problems()}

    def _change(self, present: Mapping[str, RoutedImport], planned: Mapping[str, RoutedImport]) -> None:
        try:
            self._host.set_routed_imports(planned)
            return
        except SmileError as problem:
            changed = [relation for relation, routed in planned.items() if present.get(relation) != routed]
            if len(changed) < 2:
                if not changed:
                    raise
                self._refused[changed[0]] = planned[changed[0]], problem
                return
        # One that cannot be used does not prevent the others.
        for relation in changed:
            self._change(
                self._host.import_records.routed, {**self._host.import_records.routed, relation: planned[relation]}
            )


def plan_imports(
    desired: Mapping[str, DesiredImport],
    present: Mapping[str, RoutedImport],
    unneeded_since: dict[str, float],
    histories: AbstractSet[str],
    names: Iterable[str],
    now: float,
) -> tuple[dict[str, RoutedImport], dict[str, SmileError]]:
    """The routed imports that the program should have now, and why others cannot be had. An import that is not needed
    stays for a while; `unneeded_since` records how long. A stream whose history the program has is imported again
    only for neighbours, which know it by its routed name. `names` are those of the program."""
    planned, problems = dict[str, RoutedImport](), dict[str, SmileError]()
    taken = set(names)
    for relation, wish in desired.items():
        unneeded_since.pop(relation, None)
        if wish.history in histories and not wish.is_for_neighbours:
            continue
        known = present.get(relation)
        if known is not None and (not wish.is_ready or known.broker == wish.neighbour):
            is_same = (known.description, known.history) == (wish.description, wish.history)
            if is_same or not wish.is_ready:
                planned[relation] = known
                continue
        if not wish.is_ready:
            continue
        try:
            read_routed(wish.description, wish.stream)
            if relation in taken:
                raise error("E020", f"the program has another relation with the name {relation}")
            planned[relation] = RoutedImport(wish.stream, wish.neighbour, wish.description, wish.history)
        except SmileError as problem:
            problems[relation] = problem
            if known is not None:
                planned[relation] = known
    for relation, known in present.items():
        if relation not in desired and known.history not in histories:
            since = unneeded_since.setdefault(relation, now)
            if now - since < limits.routing_drop_s:
                planned[relation] = known
            else:
                del unneeded_since[relation]
    return planned, problems
