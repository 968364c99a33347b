"""Where syntax nodes came from. After `complete`, every node of a tree has a span inside its parent's."""

from sqlglot import exp

from smile.source import Span

_SPAN_KEY = "span"


def span_of(node: exp.Expr) -> Span | None:
    """The node's place in the program's text; None for a node that was not read from one."""
    span: Span | None = node.meta.get(_SPAN_KEY)
    return span


def widen_span(node: exp.Expr, span: Span) -> None:
    node.meta[_SPAN_KEY] = span.cover(node.meta.get(_SPAN_KEY))


def complete_spans(root: exp.Expr) -> int:
    """Gives every node a span: that of its parts and its own words, else its parent's. Returns the tree's depth."""
    order: list[tuple[exp.Expr, int]] = [(root, 1)]
    for node, depth in order:
        order.extend((child, depth + 1) for child in node.iter_expressions())
    for node, _ in reversed(order):
        parent, span = node.parent, span_of(node)
        if span and parent and node is not root:
            widen_span(parent, span)
    for node, _ in order:
        if span_of(node) is None and node.parent and (above := span_of(node.parent)):
            widen_span(node, above)
    return order[-1][1]
