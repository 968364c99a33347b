"""`smile explain`: the steps of compilation as text, JSON and diagrams. Text and JSON have the same content."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from smile.algebra import mmpl
from smile.algebra.printer import print_program
from smile.analysis.log_retention import log_retentions
from smile.cli.graph_formats import dot, mermaid
from smile.graph.knowledge_graph import KnowledgeGraph, RelationObject, TransformObject
from smile.graph.stages import Stage
from smile.knowledge.symbolic import Bound, Interval
from smile.knowledge.types import ColumnType, MaskDirection, MaskType, RelationType
from smile.program import CompiledProgram


def explain_mmpl(compiled: CompiledProgram, view: str | None, form: str) -> str:
    rewritten = _subprogram(compiled.rewritten, compiled.graph, view)
    if form == "json":
        return _json_text({"written": print_program(compiled.original), "rewritten": print_program(rewritten)})
    return print_program(rewritten).rstrip("\n")


def _subprogram(program: mmpl.Program, graph: KnowledgeGraph, view: str | None) -> mmpl.Program:
    """The part of the program that a view is computed from."""
    if view is None:
        return program
    needed = set(graph.upstream_relations(view))
    return mmpl.Program(
        tuple(s for s in program.streams if s.name in needed),
        tuple(v for v in program.views if v.name in needed),
        (view,),
    )


# ── types ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def explain_types(compiled: CompiledProgram, view: str | None, form: str) -> str:
    graph = compiled.graph
    shown = [graph.relations[n] for n in _relation_names(graph, view)]
    retentions = [
        retention
        for retention in log_retentions(compiled.rewritten, compiled.analysis)
        if view is None or retention.stream in _relation_names(graph, view)
    ]
    if form == "json":
        relations = {r.name: _relation_json(r) | {"remembers": _describe_state(r.name, graph, True)} for r in shown}
        return _json_text({"relations": relations, "log": {r.stream: str(r) for r in retentions}})
    parts = [_relation_text(r, _describe_state(r.name, graph, False)) for r in shown]
    logs = _format_table([("  " + r.stream, str(r)) for r in retentions])
    return "\n\n".join([*parts, "LOG RETENTION\n" + logs, *_symbol_section(shown)])


def _relation_names(graph: KnowledgeGraph, view: str | None) -> list[str]:
    names = graph.upstream_relations(view) if view is not None else list(graph.relations)
    return [n for n in names if graph.relations[n].kind != "between"]


def _relation_text(relation: RelationObject, state_texts: list[Any]) -> str:
    type_ = relation.type
    heading = type_.heading
    key = ", ".join(heading.key) or "none: always one row"
    notes = ["total"] if heading.total else []
    notes += ["subscribed"] if relation.subscribed else []
    title = f"{relation.kind.upper()} {relation.name}  key {key}" + (f"  ({', '.join(notes)})" if notes else "")
    rows = [("  column", "type", "domain", "range", "steps", "direction")]
    for name, column in type_.columns.items():
        hidden = " (hidden)" if name in heading.hidden else ""
        rows.append(
            (
                f"  {name}{hidden}",
                str(column.data),
                domain_text(column, type_),
                str(column.range) if column.range is not None else "",
                str(column.steps) if column.domain != "key" else "",
                column.direction.value if column.evolves else "",
            )
        )
    facts = [
        ("  rows", mask_text(type_.mask)),
        ("  steps", f"a row absorbs at most {type_.steps} event{'s' * (str(type_.steps) != '1')}"),
    ]
    seals = (f"{s} at {seal}" if not seal.is_never else f"{s} never" for s, seal in type_.seals.items())
    facts += [("  sealed", ", ".join(seals))]
    facts += [("  state", text) for text in state_texts]
    return "\n".join([title, _format_table(rows), _format_table(facts)])


def domain_text(column: ColumnType, relation: RelationType) -> str:
    """The name of the domain, preceded by `masked` if the rows may still be shown or hidden."""
    is_masked = column.domain != "key" and relation.mask.direction is not MaskDirection.DECIDED
    return f"masked {column.domain}" if is_masked else column.domain


def mask_text(mask: MaskType) -> str:
    if mask.direction is MaskDirection.DECIDED:
        return "shown or not from the start, for good"
    finals = "T or F" if mask.can_be_final_true else "F; T only at the end of time"
    limit = f"at most {mask.steps} step{'s' * (str(mask.steps) != '1')}"
    return f"mask: begins f, {mask.direction.value}, {limit}, final {finals}"


def _describe_state(name: str, graph: KnowledgeGraph, as_json: bool) -> list[Any]:
    """The state of the transforms that compute this relation, nearest to the streams first."""
    transforms = [t for t in graph.transforms if graph.relations[t.output].view == name]
    states = [s for t in transforms for s in t.state]
    if as_json:
        return [
            {"what": s.description, "until": s.until, "endless": s.unbounded and s.unbounded.reason} for s in states
        ]
    return [
        f"{s.description}, until {s.until}" + (f" (state without bound: {s.unbounded.reason})" if s.unbounded else "")
        for s in states
    ]


def _symbol_section(relations: Iterable[RelationObject]) -> list[str]:
    """Explains the symbols in the ranges of these relations."""
    meanings: dict[str, str] = {}
    for relation in relations:
        for name, column in relation.type.columns.items():
            for end in (column.range.lo, column.range.hi) if column.range is not None else ():
                for monomial, _ in end.terms:
                    for symbol in monomial:
                        word = "greatest" if symbol.startswith("MAX") else "least"
                        is_column_bound = relation.kind == "stream" and len(monomial) == 1
                        if symbol == "MAXTIME":
                            meanings[symbol] = "the last tick, and so the number of ticks: no domain bounds it"
                        elif is_column_bound:
                            meanings.setdefault(symbol, f"the {word} {name}: no domain bounds it")
    return ["SYMBOLS\n" + _format_table([("  " + s, text) for s, text in sorted(meanings.items())])] if meanings else []


def _relation_json(relation: RelationObject) -> dict[str, Any]:
    type_ = relation.type
    return {
        "kind": relation.kind,
        "subscribed": relation.subscribed,
        "key": list(type_.heading.key),
        "hidden": sorted(type_.heading.hidden),
        "total": type_.heading.total,
        "columns": {n: _column_json(c, type_) for n, c in type_.columns.items()},
        "mask": {
            "initial": "f",
            "course": type_.mask.direction.value,
            "steps": _bound_json(type_.mask.steps),
            "final": ["F", "T"] if type_.mask.can_be_final_true else ["F"],
        },
        "steps": _bound_json(type_.steps),
        "seals": {s: None if seal.is_never else str(seal) for s, seal in type_.seals.items()},
    }


def _column_json(column: ColumnType, relation: RelationType) -> dict[str, Any]:
    return {
        "type": str(column.data),
        "domain": domain_text(column, relation),
        "range": _range_json(column.range),
        "steps": _bound_json(column.steps),
        "direction": column.direction.value,
        "evolves": column.evolves,
        "nullable": column.nullable,
    }


def _range_json(range_: Interval | None) -> list[Any] | None:
    return None if range_ is None else [_bound_json(range_.lo), _bound_json(range_.hi)]


def _bound_json(bound: Bound) -> int | float | str:
    number = bound.number
    return str(bound) if number is None else number if isinstance(number, int) else float(number)


# ── graph and stages ────────────────────────────────────────────────────────────────────────────────────────────────


def explain_graph(compiled: CompiledProgram, view: str | None, form: str) -> str:
    graph = _subgraph(compiled.graph, view)
    if form == "dot":
        return dot(graph)
    if form == "mermaid":
        return mermaid(graph)
    if form == "json":
        return _json_text(
            {
                "relations": [
                    {"name": r.name, "kind": r.kind, "subscribed": r.subscribed, "stored": r.storage_reason}
                    for r in graph.relations.values()
                ],
                "transforms": [_transform_json(t) for t in graph.transforms],
                "subscriptions": list(graph.subscriptions),
            }
        )
    relation_rows = [(f"  {r.name}", r.kind, r.storage_reason or "passes through") for r in graph.relations.values()]
    transform_rows = [(f"  {t.output}", "←", ", ".join(t.inputs), t.operator) for t in graph.transforms]
    return "\n".join(["RELATIONS", _format_table(relation_rows), "", "TRANSFORMS", _format_table(transform_rows)])


def _subgraph(graph: KnowledgeGraph, view: str | None) -> KnowledgeGraph:
    if view is None:
        return graph
    needed = set(graph.upstream_relations(view))
    return KnowledgeGraph(
        {n: r for n, r in graph.relations.items() if n in needed},
        tuple(t for t in graph.transforms if t.output in needed),
        tuple(s for s in graph.subscriptions if s in needed),
    )


def _transform_json(transform: TransformObject) -> dict[str, Any]:
    return {
        "output": transform.output,
        "inputs": list(transform.inputs),
        "operator": transform.operator,
        "remembers": [{"what": s.description, "until": s.until} for s in transform.state],
    }


def explain_stages(compiled: CompiledProgram, view: str | None, form: str) -> str:
    # Planning needs the layouts, to know which columns are fixed. Compiling them loads Arrow, which is slow.
    from smile.engine.plan import partitioned_stages  # noqa: PLC0415
    from smile.kernels.compile import compile_graph  # noqa: PLC0415

    graph = compiled.graph
    stages = partitioned_stages(graph, compile_graph(graph, compiled.rewritten.streams))
    shown = set(graph.upstream_relations(view)) if view is not None else set(graph.relations)
    paths = {v: _view_path(v, graph, stages) for v in graph.subscriptions if v in shown}
    if form == "json":
        return _json_text({"stages": [_stage_json(s, shown) for s in stages], "paths": paths})
    parts = []
    for stage in stages:
        exchange_rows = [
            (f"  ⇒ {e.relation}", f"by {_columns_text(e.columns)}") for e in stage.exchanges if e.reader in shown
        ]
        transform_rows = [
            (f"  {t.output}", str(stage.partitionings[t.output]), t.operator)
            for t in stage.transforms
            if t.output in shown
        ]
        if transform_rows:
            title = f"STAGE {stage.number}  by {' | '.join(stage.partition_keys)}"
            parts.append(
                "\n".join(x for x in (title, _format_table(exchange_rows), _format_table(transform_rows)) if x)
            )
    routes = [(f"  {v}", " → ".join(steps)) for v, steps in paths.items()]
    return "\n\n".join([*parts, *(["PATHS\n" + _format_table(routes)] if routes else [])])


def _view_path(view: str, graph: KnowledgeGraph, stages: Sequence[Stage]) -> list[str]:
    """The streams, the stages on the way, and the view."""
    needed = set(graph.upstream_relations(view))
    streams = [n for n in graph.relations if n in needed and graph.relations[n].kind == "stream"]
    stage_names = [f"stage {s.number}" for s in stages if any(t.output in needed for t in s.transforms)]
    return [", ".join(streams), *stage_names, view]


def _stage_json(stage: Stage, shown: set[str]) -> dict[str, Any]:
    return {
        "stage": stage.number,
        "by": stage.partition_keys,
        "exchanges": [
            {"relation": e.relation, "by": None if e.columns is None else list(e.columns)}
            for e in stage.exchanges
            if e.reader in shown
        ],
        "transforms": [
            _transform_json(t) | {"by": str(stage.partitionings[t.output])}
            for t in stage.transforms
            if t.output in shown
        ],
    }


def _columns_text(by: Sequence[str] | None) -> str:
    if by is None:
        return "any"
    return ", ".join(by) or "one partition"


def _format_table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces between them."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
