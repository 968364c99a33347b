"""The knowledge graph as Graphviz and as Mermaid: boxes are relations, arrows are transforms."""

from smile.graph.knowledge_graph import KnowledgeGraph, RelationObject


def dot(graph: KnowledgeGraph) -> str:
    lines = ["digraph knowledge {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for relation in graph.relations.values():
        lines.append(f"  {_quote_dot(relation.name)} [{_dot_style(relation)}];")
    for transform in graph.transforms:
        for source in transform.inputs:
            label = _quote_dot(transform.operator)
            lines.append(f"  {_quote_dot(source)} -> {_quote_dot(transform.output)} [label={label}];")
    return "\n".join([*lines, "}"])


def _dot_style(relation: RelationObject) -> str:
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


def mermaid(graph: KnowledgeGraph) -> str:
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
