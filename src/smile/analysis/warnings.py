"""Warnings about a program: state that can only grow, predicates that the types alone decide, and expressions that cost
much for each event."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.arrow_types import stream_types
from smile.algebra.printer import print_expression
from smile.analysis.global_streams import latest_name
from smile.analysis.state_analysis import StateAnalysis
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import Diagnostic
from smile.knowledge.expression_types import ColumnTypes, expression_type
from smile.knowledge.implied_values import narrow_sets


def program_warnings(program: mmpl.Program, analysis: TypeAnalysis) -> tuple[Diagnostic, ...]:
    state_analysis = StateAnalysis(program, analysis)
    diagnostics: list[Diagnostic] = []
    for stream in program.input_streams:
        diagnostics += _contradictory_checks(stream)
    # The latest state of a republisher grows with the channels, and with nothing else.
    caches = {latest_name(import_.name) for import_ in program.republishers}
    written_names = _written_columns(program) | _written_readers(program)
    for view in (view for view in program.views if view.name not in caches):
        for node in trees.walk(view.body):
            for warning in _unbounded_state(view, node, state_analysis):
                diagnostics.append(_with_written_names(warning, written_names))
            diagnostics += _many_windows(view, node)
            diagnostics += _compared_pairs(view, node, analysis)
            if isinstance(node, mmpl.Restrict):
                diagnostics += _constant_predicates(node, analysis.relation_type(node.input).columns, view)
    return tuple(dict.fromkeys(diagnostics))


def _contradictory_checks(stream: mmpl.StreamDef) -> Iterator[Diagnostic]:
    if not stream.checks:
        return
    sets = narrow_sets({}, trees.conjunction(stream.checks), stream_types(stream), or_null=True)
    if sets is None:
        yield Diagnostic("W002", f"no event satisfies the checks of {stream.name}", stream.span)
    for name, values in ({} if sets is None else sets).items():
        if not values.has_values:
            yield Diagnostic("W002", f"no value of {name} satisfies the checks of {stream.name}", stream.span)


def _unbounded_state(view: mmpl.ViewDef, node: mmpl.Rel, state_analysis: StateAnalysis) -> Iterator[Diagnostic]:
    for retention in state_analysis.state_of(node):
        if retention.unbounded is not None:
            unbounded = retention.unbounded
            remedy = _period_remedy(node, unbounded.column) or unbounded.remedy
            yield Diagnostic(
                "W001",
                f"{view.name} keeps {retention.description} for good, one more for every new {unbounded.column}: "
                f"{unbounded.reason}",
                node.span or view.span,
                f"{remedy}, and the state can be dropped.",
            )


def _period_remedy(node: mmpl.Rel, column: str) -> str | None:
    """What to write if groups are by a text or a field of a time that does not say in which year it is."""
    for rel in trees.walk(node):
        if isinstance(rel, mmpl.Extend):
            match dict(rel.assignments).get(column):
                case mmpl.Call(function) if function == "to_char" or function.startswith("extract_"):
                    return "Group by DATE_TRUNC('day', t), or another period of the tick, as well"
    return None


def _written_readers(program: mmpl.Program) -> dict[str, str]:
    """For each view that a rewrite rule made, the first view of the program that reads it."""
    readers: dict[str, str] = {}
    for view in reversed(program.views):  # a view comes after those that it reads
        name = readers.get(view.name, "") if view.shared else view.name
        for node in trees.walk(view.body):
            if isinstance(node, mmpl.RelationRef):
                readers[node.name] = name
    return {v.name: readers[v.name] for v in program.views if v.shared and readers.get(v.name)}


def _written_columns(program: mmpl.Program) -> dict[str, str]:
    """What the pairs of columns `c IS NULL` and `COALESCE(c, …)` stand for, by which groups are joined: the first for
    nothing, the second for c."""
    written: dict[str, str] = {}
    renamed: dict[str, str] = {}
    for node in (n for view in program.views for n in trees.walk(view.body)):
        if isinstance(node, mmpl.Rename):
            renamed |= {new: old for old, new in node.pairs}
        elif isinstance(node, mmpl.Extend):
            calls = [(name, e) for name, e in node.assignments if isinstance(e, mmpl.Call)]
            for (flag, is_null), (value, coalesced) in pairwise(calls):
                pair = (is_null.function, coalesced.function)
                if pair == ("is null", "coalesce") and is_null.args[0] == coalesced.args[0]:
                    column = is_null.args[0]
                    written |= {flag: "", value: column.name} if isinstance(column, mmpl.ColumnRef) else {}
    return written | {new: written[old] for new, old in renamed.items() if old in written}


def _with_written_names(warning: Diagnostic, names: Mapping[str, str]) -> Diagnostic:
    def written(text: str) -> str:
        for name, replacement in names.items():
            text = re.sub(
                rf"\b{re.escape(name)}\b{'' if replacement else '(, )?'}", replacement.replace("\\", r"\\"), text
            )
        return re.sub(r"\((\w+)\)", r"\1", text)

    return replace(warning, message=written(warning.message), hint=written(warning.hint or "") or None)


def _many_windows(view: mmpl.ViewDef, node: mmpl.Rel) -> Iterator[Diagnostic]:
    if isinstance(node, mmpl.Window) and node.windows_per_row > limits.windows_warned:
        message = f"every row of {view.name} is in {node.windows_per_row:,} windows, and changes as many rows"
        hint = "Increase the slide of the HOP. For the last interval as of now, use LAST or OVER."
        yield Diagnostic("W003", message, node.span or view.span, hint)


def _compared_pairs(view: mmpl.ViewDef, node: mmpl.Rel, analysis: TypeAnalysis) -> Iterator[Diagnostic]:
    """A join without an equality, unless one side has a bounded number of rows."""
    if not isinstance(node, mmpl.Join) or node.on:
        return
    if all(not analysis.relation_type(side).rows.is_finite for side in (node.left, node.right)):
        message = f"{view.name} compares every row of one side of a join with every row of the other side"
        hint = "Add a condition such as a.issue = b.issue, or use ASOF JOIN for the row before."
        yield Diagnostic("W004", message, node.span or view.span, hint)


def _constant_predicates(node: mmpl.Restrict, columns: ColumnTypes, view: mmpl.ViewDef) -> Iterator[Diagnostic]:
    for predicate in trees.conjuncts(node.predicate):
        truth = _constant_truth(predicate, columns)
        if truth is not None:
            text = f"{print_expression(predicate)} is always {'true' if truth else 'false'}, whatever is published"
            yield Diagnostic("W002", text, predicate.span or node.span or view.span)


def _constant_truth(predicate: mmpl.Expr, columns: ColumnTypes) -> bool | None:
    """The result of a comparison, if it is the same for all values that its operands can have."""
    if not (isinstance(predicate, mmpl.Call) and predicate.function in ("<", "<=", ">", ">=", "=")):
        return None
    a, b = (expression_type(e, columns) for e in predicate.args)
    if a.range is None or b.range is None or a.nullable or b.nullable:
        return None
    lower, upper = (b.range, a.range) if predicate.function in (">", ">=") else (a.range, b.range)
    difference_max, difference_min = (lower.hi - upper.lo).limit, (lower.lo - upper.hi).limit
    if difference_max is None or difference_min is None:
        return None
    is_strict = predicate.function in ("<", ">")
    if predicate.function == "=":
        return False if difference_max < 0 or difference_min > 0 else None
    if difference_max < 0 or (difference_max == 0 and not is_strict):
        return True
    return False if difference_min > 0 or (difference_min == 0 and is_strict) else None
