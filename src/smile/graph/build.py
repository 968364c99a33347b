"""A rewritten program to its knowledge graph: one transform for each operator, one relation for each result.

A view's result has the view's name; a result in the middle of a view is named after it, numbered from the streams.
"""

import itertools

from smile.algebra import mmpl, trees
from smile.algebra.printer import print_relation
from smile.graph.objects import Graph, RelationObject, TransformObject
from smile.knowledge.analysis import Analysis
from smile.knowledge.memory import Memories


def build(program: mmpl.Program, analysis: Analysis) -> Graph:
    return _Builder(program, analysis).graph()


class _Builder:
    def __init__(self, program: mmpl.Program, analysis: Analysis) -> None:
        self.program = program
        self.analysis = analysis
        self.memories = Memories(program, analysis)
        self.names: dict[mmpl.Rel, str] = {}
        self.transforms: list[TransformObject] = []
        self.bodies: dict[str, mmpl.Rel] = {}
        self.views: dict[str, str] = {}

    def graph(self) -> Graph:
        for view in self.program.views:
            self._view(view)
        why = self._why_stored()
        relations: dict[str, RelationObject] = {}
        subscribed = set(self.program.subscriptions)
        for stream in self.program.streams:
            type_ = self.analysis.relations[stream.name]
            read = why.get(stream.name)
            stored = "the log" if read is None else f"the log, and {read}"
            relations[stream.name] = RelationObject(
                stream.name, "stream", type_, stream.name in subscribed, stored, stream.name
            )
        shared = {v.name: v.shared for v in self.program.views}
        for transform in self.transforms:
            name = transform.output
            kind = ("shared" if shared[name] else "view") if name in shared else "between"
            type_ = self.analysis.of(self.bodies[name])
            relations[name] = RelationObject(name, kind, type_, name in subscribed, why.get(name), self.views[name])  # type: ignore[arg-type]
        return Graph(relations, tuple(self.transforms), self.program.subscriptions)

    def _view(self, view: mmpl.ViewDef) -> None:
        """Inputs first; what an earlier view has computed already is only named."""
        between = [n for n in _inputs_first(view.body) if n is not view.body and not isinstance(n, mmpl.Ref)]
        numbers = (f"{view.name}.{n}" for n in itertools.count(1))
        free = (name for name in numbers if name not in self.analysis.relations)
        for node in between:
            if node not in self.names:
                self._add(node, next(free), view.name)
        self._add(view.body, view.name, view.name)

    def _add(self, rel: mmpl.Rel, name: str, view: str) -> None:
        inputs = tuple(self._name(i) for i in trees.inputs_of(rel))
        self.names.setdefault(rel, name)
        self.bodies[name] = rel
        self.views[name] = view
        by_name = trees.with_inputs(rel, tuple(mmpl.Ref(i) for i in inputs)) if inputs else rel
        if isinstance(rel, mmpl.Ref):
            inputs = (rel.name,)
        self.transforms.append(TransformObject(name, inputs, by_name, _line(by_name), tuple(self.memories.of(rel))))

    def _name(self, rel: mmpl.Rel) -> str:
        return rel.name if isinstance(rel, mmpl.Ref) else self.names[rel]

    def _why_stored(self) -> dict[str, str]:
        """Why a relation's rows are kept: the first reason found is enough."""
        why: dict[str, str] = dict.fromkeys(self.program.subscriptions, "subscribers ask for it")
        for transform in self.transforms:
            match transform.rel:
                case mmpl.Join() | mmpl.Asof():
                    for name in transform.inputs:
                        why.setdefault(name, f"{transform.output} looks its rows up")
                case mmpl.Summarize() | mmpl.Distinct():
                    why.setdefault(transform.output, "it holds what its groups have come to")
                case mmpl.Best() | mmpl.Over() | mmpl.Silence() | mmpl.Window(kind="last"):
                    why.setdefault(transform.inputs[0], f"{transform.output} goes back to its rows")
        return why


def _inputs_first(rel: mmpl.Rel) -> list[mmpl.Rel]:
    """The node after its inputs, each after its own, the left before the right."""
    found: list[mmpl.Rel] = []
    stack = [rel]
    while stack:
        found.append(stack.pop())
        stack.extend(trees.inputs_of(found[-1]))
    return found[::-1]


def _line(rel: mmpl.Rel) -> str:
    """The operator alone, on one line."""
    lines = [line.strip() for line in print_relation(rel).splitlines()]
    return lines[-1] if isinstance(rel, mmpl.Ref) or len(trees.inputs_of(rel)) == 1 else " ".join(lines)
