"""Builds the knowledge graph of a rewritten program: one transform for each operator, one relation for each result.

The result of a view has the view's name. An intermediate result is named after its view and numbered, beginning at the
streams.
"""

import itertools

from smile.algebra import mmpl, trees
from smile.algebra.printer import print_relation
from smile.analysis.state_analysis import StateAnalysis
from smile.analysis.type_analysis import TypeAnalysis, stream_type
from smile.graph.knowledge_graph import KnowledgeGraph, RelationObject, TransformObject
from smile.operators.catalogue import operator_of


def build_graph(program: mmpl.Program, analysis: TypeAnalysis) -> KnowledgeGraph:
    return _GraphBuilder(program, analysis).build()


class _GraphBuilder:
    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis) -> None:
        self.program = program
        self.analysis = analysis
        self.state_analysis = StateAnalysis(program, analysis)
        self.names: dict[mmpl.Rel, str] = {}
        self.transforms: list[TransformObject] = []
        self.bodies: dict[str, mmpl.Rel] = {}
        self.views: dict[str, str] = {}

    def build(self) -> KnowledgeGraph:
        for view in self.program.all_views:
            self._add_view(view)
        reasons = self._storage_reasons()
        relations: dict[str, RelationObject] = {}
        subscribed = set(self.program.subscriptions)
        brokers = {i.name: ", ".join(i.brokers) for i in self.program.imports}
        imported_streams = {i.stream.name: brokers[i.name] for i in self.program.imports if i.stream is not None}
        for stream in self.program.input_streams:
            type_ = self.analysis.relations[stream.name]
            reason = reasons.get(stream.name)
            stored = "the log" if reason is None else f"the log, and {reason}"
            relations[stream.name] = RelationObject(
                stream.name, "stream", type_, stream.name in subscribed, stored, stream.name,
                imported_streams.get(stream.name),
            )  # fmt: skip
        for import_ in self.program.imports:
            if import_.stream is None:
                relations[import_.changes_name] = _changes_object(import_)
        kinds = {v.name: "shared" if v.shared else "view" for v in self.program.views} | dict.fromkeys(
            brokers, "import"
        )
        for transform in self.transforms:
            name = transform.output
            type_ = self.analysis.relation_type(self.bodies[name])
            relations[name] = RelationObject(
                name, kinds.get(name, "between"), type_, name in subscribed, reasons.get(name), self.views[name],  # type: ignore[arg-type]
                brokers.get(name),
            )  # fmt: skip
        return KnowledgeGraph(relations, tuple(self.transforms), self.program.subscriptions)

    def _add_view(self, view: mmpl.ViewDef) -> None:
        """Adds the transforms of a view, inputs first. Results that an earlier view computes already are reused."""
        inner_nodes = [n for n in _postorder(view.body) if n is not view.body and not isinstance(n, mmpl.RelationRef)]
        numbers = (f"{view.name}.{n}" for n in itertools.count(1))
        free_names = (name for name in numbers if name not in self.analysis.relations)
        for node in inner_nodes:
            if node not in self.names:
                self._add_transform(node, next(free_names), view.name)
        self._add_transform(view.body, view.name, view.name)

    def _add_transform(self, rel: mmpl.Rel, name: str, view: str) -> None:
        inputs = tuple(self._relation_name(i) for i in trees.inputs_of(rel))
        self.names.setdefault(rel, name)
        self.bodies[name] = rel
        self.views[name] = view
        with_named_inputs = trees.with_inputs(rel, tuple(mmpl.RelationRef(i) for i in inputs)) if inputs else rel
        if isinstance(rel, mmpl.RelationRef):
            inputs = (rel.name,)
        elif isinstance(rel, mmpl.Imported):
            inputs = (rel.source.changes_name,)
        state = tuple(self.state_analysis.state_of(rel))
        early_finals = tuple(operator_of(rel).early_finals(rel, self.analysis))
        self.transforms.append(
            TransformObject(name, inputs, with_named_inputs, _operator_line(with_named_inputs), state, early_finals)
        )

    def _relation_name(self, rel: mmpl.Rel) -> str:
        return rel.name if isinstance(rel, mmpl.RelationRef) else self.names[rel]

    def _storage_reasons(self) -> dict[str, str]:
        """Why the rows of each relation are stored. Only the first reason is given."""
        reasons: dict[str, str] = dict.fromkeys(self.program.subscriptions, "subscribers read it")
        for transform in self.transforms:
            operator = operator_of(transform.rel)
            use = operator.input_storage_reason(transform.rel)
            if use is not None:
                for name in transform.inputs:
                    reasons.setdefault(name, f"{transform.output} {use}")
            if operator.stores_groups:
                reasons.setdefault(transform.output, "it holds the state of its groups")
        return reasons


def _changes_object(import_: mmpl.ImportDef) -> RelationObject:
    changes = import_.log_streams[0]
    stored = "the log, as a cache"
    return RelationObject(changes.name, "changes", stream_type(changes), False, stored, import_.name, import_.broker)


def _postorder(rel: mmpl.Rel) -> list[mmpl.Rel]:
    """All nodes, each after its inputs, and the left input before the right."""
    preorder: list[mmpl.Rel] = []
    stack = [rel]
    while stack:
        preorder.append(stack.pop())
        stack.extend(trees.inputs_of(preorder[-1]))
    return preorder[::-1]


def _operator_line(rel: mmpl.Rel) -> str:
    """The operator without its inputs, on one line."""
    if isinstance(rel, mmpl.Values):
        return f"VALUES of {len(rel.rows):,} rows"
    lines = [line.strip() for line in print_relation(rel).splitlines()]
    has_one_line = isinstance(rel, mmpl.RelationRef | mmpl.Imported) or len(trees.inputs_of(rel)) == 1
    return lines[-1] if has_one_line else " ".join(lines)
