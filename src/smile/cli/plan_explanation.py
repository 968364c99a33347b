"""`smile explain --as plan`: the plans of a program's queries over global streams, with the publishers of all programs
that are given."""

import json
from collections.abc import Iterator, Mapping, Sequence

from smile.algebra import mmpl
from smile.cli.graph_formats import hierarchy_dot, hierarchy_mermaid
from smile.errors import error
from smile.program import CompiledProgram
from smile.registry.conditions import Condition, every_row, make_condition
from smile.registry.explain import PlanExplanation, explain_plan
from smile.registry.hierarchy import build_hierarchy
from smile.registry.planner import Query
from smile.registry.publishers import PublisherKind, StreamPublisher, check_publisher
from smile.registry.schema import GlobalSchema, global_schema


def explain_plans(programs: Mapping[str, CompiledProgram], form: str) -> str:
    """The plans of the first program. `programs` are by the name of their broker. As a diagram, the hierarchy of all
    republishers."""
    publishers = [p for broker, compiled in programs.items() for p in _publishers(broker, compiled.original)]
    if form in ("dot", "mermaid"):
        draw = hierarchy_dot if form == "dot" else hierarchy_mermaid
        return draw(build_hierarchy(publishers).arrows, publishers)
    explanations = list(_explanations(next(iter(programs.values())), publishers))
    if not explanations:
        raise error(
            "E178", "the program has no query over a global stream", hint="Give the program of a consumer first."
        )
    if form == "json":
        return json.dumps({title: _plan_json(e) for title, e in explanations}, ensure_ascii=False, indent=2)
    return "\n\n".join(f"{title}\n{explanation}" for title, explanation in explanations)


def _explanations(
    compiled: CompiledProgram, publishers: Sequence[StreamPublisher]
) -> Iterator[tuple[str, PlanExplanation]]:
    schemas = _schemas(compiled.original)
    for import_ in compiled.rewritten.imports:
        if import_.is_global:
            is_republisher = not mmpl.is_consumer_name(import_.name)
            query = Query(_condition(schemas[import_.relation], import_.condition), is_republisher)
            title = f"REPUBLISHER {import_.name}" if is_republisher else f"VIEWS OF {import_.relation}"
            yield title, explain_plan(query, [p for p in publishers if p.stream.name == import_.relation])


def _publishers(broker: str, program: mmpl.Program) -> Iterator[StreamPublisher]:
    schemas = _schemas(program)
    kinds: list[tuple[PublisherKind, Sequence[mmpl.Advertisement | mmpl.ImportDef]]]
    kinds = [("producer", program.advertisements), ("republisher", program.republishers)]
    for kind, definitions in kinds:
        for definition in definitions:
            condition = _condition(schemas[definition.relation], definition.condition)
            publisher = StreamPublisher(f"{definition.name}@{broker}", kind, broker, condition)
            check_publisher(publisher)
            yield publisher


def _condition(schema: GlobalSchema, expr: mmpl.Expr | None) -> Condition:
    return every_row(schema) if expr is None else make_condition(schema, expr)


def _schemas(program: mmpl.Program) -> dict[str, GlobalSchema]:
    return {stream.name: global_schema(stream) for stream in program.streams if stream.is_global}


def _plan_json(explanation: PlanExplanation) -> dict[str, object]:
    return {
        "query": str(explanation.query.condition),
        "classes": explanation.meta.classes,
        "producers": explanation.meta.producers,
        "plan": [{"publisher": s.publisher, "condition": str(s.condition)} for s in explanation.plan.sources],
        "publishers": dict(explanation.reasons),
    }
