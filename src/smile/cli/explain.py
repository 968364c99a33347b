"""`smile explain`: the steps of compilation as text, JSON and diagrams. Text and JSON have the same content."""

import json
from collections.abc import Container, Iterable, Sequence
from typing import Any

from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_program
from smile.analysis.export_description import describe_exports
from smile.analysis.log_retention import log_retentions
from smile.analysis.type_description import describe_type, domain_text
from smile.cli.graph_formats import dot, mermaid
from smile.graph.knowledge_graph import KnowledgeGraph, RelationObject, TransformObject
from smile.graph.stages import Stage
from smile.knowledge.types import MaskDirection, MaskType
from smile.program import CompiledProgram


def explain_mmpl(compiled: CompiledProgram, view: str | None, form: str) -> str:
    rewritten = compiled.rewritten if view is None else subprogram(compiled.rewritten, view)
    if form == "json":
        return _json_text({"written": print_program(compiled.original), "rewritten": print_program(rewritten)})
    return print_program(rewritten).rstrip("\n")


def explain_exports(compiled: CompiledProgram, broker: str, view: str | None) -> str:
    """The recorded types that `--imports` reads: of one relation, or of all."""
    relations = [view] if view is not None else dict.fromkeys((*compiled.analysis.relations, *compiled.tables))
    return _json_text({broker: describe_exports(compiled.rewritten, relations, compiled.tables)})


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
        relations = {
            r.name: _relation_json(r)
            | {"final_early": graph.early_finals(r.name), "remembers": _describe_state(r.name, graph, True)}
            for r in shown
        }
        return _json_text({"relations": relations, "log": {r.stream: str(r) for r in retentions}})
    parts = [relation_text(graph, r.name) for r in shown]
    logs = _format_table([("  " + r.stream, str(r)) for r in retentions])
    return "\n\n".join([*parts, "LOG RETENTION\n" + logs, *_symbol_section(shown)])


def _relation_names(graph: KnowledgeGraph, view: str | None) -> list[str]:
    names = graph.upstream_relations(view) if view is not None else list(graph.relations)
    return [n for n in names if graph.relations[n].is_named]


def relation_text(graph: KnowledgeGraph, name: str, columns: Container[str] | None = None) -> str:
    """The types of a relation: of these columns, or of all."""
    relation = graph.relations[name]
    type_ = relation.type
    heading = type_.heading
    key = ", ".join(heading.key) or "none: always one row"
    notes = ["total"] if heading.total else []
    notes += [f"from {relation.broker}"] if relation.broker is not None else []
    notes += ["subscribed"] if relation.subscribed else []
    title = f"{relation.kind.upper()} {relation.name}  key {key}" + (f"  ({', '.join(notes)})" if notes else "")
    rows = [("  column", "type", "domain", "range", "steps", "direction")]
    for column_name, column in type_.columns.items():
        if columns is not None and column_name not in columns:
            continue
        hidden = " (hidden)" if column_name in heading.hidden else ""
        rows.append(
            (
                f"  {column_name}{hidden}",
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
    facts += [("  final", text) for text in graph.early_finals(name)]
    facts += [("  state", text) for text in _describe_state(name, graph, False)]
    return "\n".join([title, _format_table(rows), _format_table(facts)])


def mask_text(mask: MaskType) -> str:
    if mask.direction is MaskDirection.DECIDED:
        return "shown or not from the start, for good"
    finals = "T or F" if mask.can_be_final_true else "F; T only at the end of time"
    limit = f"at most {mask.steps} step{'s' * (str(mask.steps) != '1')}"
    return f"mask: begins f, {mask.direction.value}, {limit}, final {finals}"


def _describe_state(name: str, graph: KnowledgeGraph, as_json: bool) -> list[Any]:
    """The state of the transforms that compute this relation, nearest to the streams first."""
    states = graph.remembered_state(name)
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
                        is_column_bound = relation.kind in ("stream", "import") and len(monomial) == 1
                        if symbol == "MAXTIME":
                            meanings[symbol] = "the last tick, and so the number of ticks: no domain bounds it"
                        elif is_column_bound:
                            meanings.setdefault(symbol, f"the {word} {name}: no domain bounds it")
    return ["SYMBOLS\n" + _format_table([("  " + s, text) for s, text in sorted(meanings.items())])] if meanings else []


def _relation_json(relation: RelationObject) -> dict[str, Any]:
    return {"kind": relation.kind, "subscribed": relation.subscribed, **describe_type(relation.type)}


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
    stages = partitioned_stages(graph, compile_graph(graph, compiled.rewritten.log_streams))
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
    """The streams and imports, the stages on the way, and the view."""
    needed = set(graph.upstream_relations(view))
    inputs = [n for n in graph.relations if n in needed and graph.relations[n].kind in ("stream", "import")]
    stage_names = [f"stage {s.number}" for s in stages if any(t.output in needed for t in s.transforms)]
    return [", ".join(inputs), *stage_names, view]


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
