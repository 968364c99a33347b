"""Projects a query to its select list, and translates BEST and ORDER BY. Key columns not selected become hidden."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.types import INT_MAX, json_hint
from smile.errors import Diagnostic, SmileError, error
from smile.lang import span_of
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import NameTable, Scope, free_name, is_match, is_quoted


@dataclass
class SelectOutput:
    """If `exact`, the case of the name matters."""

    name: str
    typed: TypedExpr
    span: Span | None = None
    exact: bool = True


def unique_names(outputs: Sequence[SelectOutput]) -> list[str]:
    """The names of the outputs. Raises an error for each duplicate."""
    seen: NameTable[None] = NameTable()
    problems: list[Diagnostic] = []
    for output in outputs:
        if seen.clash(output.name, output.exact) is not None:
            free = free_name(f"{output.name}_2", {o.name for o in outputs})
            hint = f"Give one of them another name: … AS {free}."
            message = f"two columns of the select list are named {output.name}"
            problems.append(Diagnostic("E020", message, output.span, hint))
        seen.add(output.name, None, output.exact)
    if problems:
        raise SmileError(problems)
    return [o.name for o in outputs]


def column_count_error(names: int, columns: int, span: Span | None) -> SmileError:
    return error("E044", f"{names} name{'s' * (names != 1)} for {columns} column{'s' * (columns != 1)}", span)


def project_outputs(pipeline: QueryPipeline, outputs: Sequence[SelectOutput], span: Span | None) -> mmpl.Rel:
    """The relation with the outputs as its visible columns.

    A key column that is not selected keeps its name. If an output has that name, its relation becomes a prefix.
    """
    extended = pipeline.extend_all([(o.name, o.typed) for o in outputs])
    already_named = {name for name, output in zip(extended, outputs, strict=True) if name == output.name}
    columns: list[str] = []
    new_names: dict[str, str] = {}
    for name, output in zip(extended, outputs, strict=True):
        is_taken = name in columns or (name in already_named and name != output.name)
        column = pipeline.add_copy(output.name, name, output.span) if is_taken else name
        columns.append(column)
        if column != output.name:
            new_names[column] = output.name
    heading = pipeline.heading
    output_names = {o.name for o in outputs}
    hidden = [c for c in heading.key if c not in columns]
    for c in hidden:
        if c in output_names:
            new_names[c] = free_name(pipeline.scope.qualified_name(c), {*output_names, *hidden, *new_names.values()})
    if tuple(columns) != heading.visible:
        pipeline.rel = mmpl.Project(pipeline.rel, tuple(columns), span=span)
    return mmpl.Rename(pipeline.rel, tuple(new_names.items()), span=span) if new_names else pipeline.rel


def star_columns(scope: Scope, node: exp.Expr) -> list[tuple[str, str]]:
    """The names and MMPL columns of `*` or `s.*`, without those after EXCEPT. For `*`, columns merged by USING come
    first, each once."""
    pairs = _all_columns(scope, node)
    star = node.this if isinstance(node, exp.Column) else node
    for excluded in star.args.get("except_") or []:
        kept = [p for p in pairs if not is_match(excluded.name, is_quoted(excluded), p[0])]
        if len(kept) == len(pairs):
            raise scope.unknown_column_error(excluded, span_of(excluded))
        pairs = kept
    if not pairs:
        raise error("E010", "EXCEPT leaves no column", span_of(node))
    return pairs


def _all_columns(scope: Scope, node: exp.Expr) -> list[tuple[str, str]]:
    table = node.args.get("table")
    if table is None:
        merged_parts = frozenset[tuple[str, str]]().union(*(m.parts for m in scope.merged_columns))
        pairs = [(m.name, m.column) for m in scope.merged_columns]
        for item in scope.from_items:
            pairs += [(n, c) for n, c in item.columns.items() if (item.alias, n) not in merged_parts]
        return pairs
    items = [i for i in scope.from_items if is_match(table.name, is_quoted(table), i.alias)]
    if not items:
        raise scope.unknown_column_error(node, span_of(node))
    return [pair for item in items for pair in item.columns.items()]


# ── BEST and ORDER BY … LIMIT ───────────────────────────────────────────────────────────────────────────────────────


def add_limit(
    node: exp.Expr, pipeline: QueryPipeline, outputs: Sequence[SelectOutput], translator: ExpressionTranslator
) -> None:
    """Adds ORDER BY … LIMIT k. The outputs must be columns of the pipeline already."""
    order, limit_node = node.args.get("order"), node.args.get("limit")
    if limit_node is None:
        if order is not None:
            hint = "Add LIMIT k to keep the first k rows, or remove ORDER BY."
            raise error("E013", "ORDER BY without LIMIT: a view's rows have no order", span_of(order), hint)
        return
    if order is None:
        raise error("E013", "LIMIT without ORDER BY would keep arbitrary rows", span_of(limit_node), "Add ORDER BY.")
    by = _ordering(order.expressions, translator, outputs)
    pipeline.rel = mmpl.Best(pipeline.rel, _row_count(limit_node.expression), by, (), span=span_of(limit_node))


def add_best(
    node: exp.Expr, pipeline: QueryPipeline, outputs: Sequence[SelectOutput], translator: ExpressionTranslator
) -> None:
    """Adds BEST k BY … PER …."""
    per = [_translate_ordering(c, translator, outputs) for c in node.args.get("per") or []]
    by = _ordering(node.args["by"], translator, outputs)
    columns = pipeline.extend_all([("per", typed) for typed in per])
    pipeline.rel = mmpl.Best(pipeline.rel, _row_count(node.this), by, tuple(dict.fromkeys(columns)), span=span_of(node))


def _ordering(
    nodes: Sequence[exp.Ordered], translator: ExpressionTranslator, outputs: Sequence[SelectOutput]
) -> tuple[tuple[mmpl.Expr, bool], ...]:
    by = []
    for node in nodes:
        typed = _translate_ordering(node.this, translator, outputs)
        if not typed.type.is_ordered:
            raise error(
                "E031", f"rows cannot be ordered by a {typed.type.name}", span_of(node), json_hint([typed.type])
            )
        by.append((typed.expr, bool(node.args.get("desc"))))
    return tuple(by)


def _translate_ordering(node: exp.Expr, translator: ExpressionTranslator, outputs: Sequence[SelectOutput]) -> TypedExpr:
    """An expression of ORDER BY or BEST. A name refers to an output before a column, and a number to an output."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        if not 1 <= int(node.name) <= len(outputs):
            raise error("E022", f"there is no column number {node.name} in the select list", span_of(node))
        return outputs[int(node.name) - 1].typed
    if isinstance(node, exp.Column) and not node.table:
        matching = [o for o in outputs if is_match(node.name, is_quoted(node), o.name)]
        exact = [o for o in matching if o.name == node.name] or matching
        if exact:
            return exact[0].typed
    return translator.translate(node)


def _row_count(node: exp.Expr) -> int:
    if not 0 < int(node.name) <= INT_MAX:
        raise error("E033", "the number of rows must be a positive whole number", span_of(node))
    return int(node.name)
