"""The spans of syntax nodes. After `complete_spans`, the span of every node lies within that of its parent."""

from sqlglot import exp

from smile.source import Span

_SPAN_KEY = "span"


def span_of(node: exp.Expr) -> Span | None:
    """The node's position in the program's text; None for a node that was not parsed from text."""
    span: Span | None = node.meta.get(_SPAN_KEY)
    return span


def widen_span(node: exp.Expr, span: Span) -> None:
    node.meta[_SPAN_KEY] = span.cover(node.meta.get(_SPAN_KEY))


def complete_spans(root: exp.Expr) -> int:
    """Gives every node a span that covers its children and its own words. Returns the depth of the tree.

    A node without words and children gets the span of its parent.
    """
    order: list[tuple[exp.Expr, int]] = [(root, 1)]
    for node, depth in order:
        order.extend((child, depth + 1) for child in node.iter_expressions())
    for node, _ in reversed(order):
        parent, span = node.parent, span_of(node)
        if span and parent and node is not root:
            widen_span(parent, span)
    for node, _ in order:
        if span_of(node) is None and node.parent and (parent_span := span_of(node.parent)):
            widen_span(node, parent_span)
    return order[-1][1]
