"""Diagrams for Graphviz and for Mermaid: of the knowledge graph, in which boxes are relations and arrows transforms,
and of the hierarchy of republishers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # it needs the libraries of a broker
    from smile.graph.knowledge_graph import KnowledgeGraph, RelationObject


def dot(graph: "KnowledgeGraph") -> str:
    lines = ["digraph knowledge {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for relation in graph.relations.values():
        lines.append(f"  {_quote_dot(relation.name)} [{_dot_style(relation)}];")
    for transform in graph.transforms:
        for source in transform.inputs:
            label = _quote_dot(transform.operator)
            lines.append(f"  {_quote_dot(source)} -> {_quote_dot(transform.output)} [label={label}];")
    return "\n".join([*lines, "}"])


def _dot_style(relation: "RelationObject") -> str:
    styles = {
        "stream": "shape=cylinder",
        "changes": "shape=cylinder",
        "import": "style=rounded",
        "view": "style=rounded",
        "shared": "style=dashed",
        "between": "shape=point",
    }
    style = styles[relation.kind]
    return f"{style}, penwidth=2" if relation.subscribed else style


def _quote_dot(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def mermaid(graph: "KnowledgeGraph") -> str:
    ids = {name: f"r{i}" for i, name in enumerate(graph.relations)}
    lines = ["flowchart LR"]
    for name, relation in graph.relations.items():
        opening, closing = {
            "stream": ("[(", ")]"),
            "changes": ("[(", ")]"),
            "import": ("(", ")"),
            "view": ("(", ")"),
            "shared": ("[", "]"),
            "between": ("((", "))"),
        }[relation.kind]
        label = " " if relation.kind == "between" else name
        lines.append(f"  {ids[name]}{opening}{_quote_mermaid(label)}{closing}")
    for transform in graph.transforms:
        for source in transform.inputs:
            lines.append(f"  {ids[source]} -->|{_quote_mermaid(transform.operator)}| {ids[transform.output]}")
    for name in graph.subscriptions:
        lines.append(f"  style {ids[name]} stroke-width:3px")
    return "\n".join(lines)


def _quote_mermaid(text: str) -> str:
    """In quoted text, Mermaid needs its own entities for special characters."""
    return '"' + text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;") + '"'


# ── republishers ────────────────────────────────────────────────────────────────────────────────────────────────────


class DrawnPublisher(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def condition(self) -> object: ...

    @property
    def is_producer(self) -> bool: ...


Arrows = Iterable[tuple[str, str, bool]]
"""From a publisher to a republisher that may feed from it, and whether it does."""


def hierarchy_dot(arrows: Arrows, publishers: Iterable[DrawnPublisher]) -> str:
    """Data flow along solid arrows: the plans that run. Dotted arrows are the other choices of the meta plans."""
    lines = ["digraph republishers {", "  rankdir=BT;", '  node [fontname="sans-serif"];']
    for publisher in publishers:
        shape = "box" if publisher.is_producer else "box, style=rounded"
        label = _quote_dot(f"{publisher.name}\n{publisher.condition}").replace("\n", "\\n")
        lines.append(f"  {_quote_dot(publisher.name)} [shape={shape}, label={label}];")
    for source, target, runs in arrows:
        style = "" if runs else " [style=dotted]"
        lines.append(f"  {_quote_dot(source)} -> {_quote_dot(target)}{style};")
    return "\n".join([*lines, "}"])


def hierarchy_mermaid(arrows: Arrows, publishers: Iterable[DrawnPublisher]) -> str:
    shown = list(publishers)
    ids = {publisher.name: f"p{i}" for i, publisher in enumerate(shown)}
    lines = ["flowchart BT"]
    for publisher in shown:
        opening, closing = ("[", "]") if publisher.is_producer else ("(", ")")
        text = _quote_mermaid(f"{publisher.name}: {publisher.condition}")
        lines.append(f"  {ids[publisher.name]}{opening}{text}{closing}")
    for source, target, runs in arrows:
        lines.append(f"  {ids[source]} {'-->' if runs else '-.->'} {ids[target]}")
    return "\n".join(lines)
