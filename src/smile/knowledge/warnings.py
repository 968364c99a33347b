"""What is not wrong but should be known: state that can only grow, and predicates that the types decide alone."""

from collections.abc import Iterator

from smile.algebra import mmpl, trees
from smile.algebra.printer import print_expression
from smile.errors import Diagnostic
from smile.knowledge.analysis import Analysis
from smile.knowledge.expression_types import Columns, expression_type
from smile.knowledge.memory import Memories


def warnings(program: mmpl.Program, analysis: Analysis) -> tuple[Diagnostic, ...]:
    memories = Memories(program, analysis)
    found: list[Diagnostic] = []
    for stream in program.streams:
        found += _impossible(stream, analysis.relations[stream.name].columns)
    for view in program.views:
        for node in trees.walk(view.body):
            found += _endless(view, node, memories)
            if isinstance(node, mmpl.Restrict):
                found += _decided(node, analysis.of(node.input).columns, view)
    return tuple(dict.fromkeys(found))


def _impossible(stream: mmpl.StreamDef, columns: Columns) -> Iterator[Diagnostic]:
    for name, column in columns.items():
        lo, hi = (column.range.lo.number, column.range.hi.number) if column.range is not None else (None, None)
        if lo is not None and hi is not None and lo > hi:
            message = f"no value of {name} satisfies the checks of {stream.name}: at least {lo} and at most {hi}"
            yield Diagnostic("W002", message, stream.span)


def _endless(view: mmpl.ViewDef, node: mmpl.Rel, memories: Memories) -> Iterator[Diagnostic]:
    for memory in memories.of(node):
        if memory.endless is not None:
            endless = memory.endless
            yield Diagnostic(
                "W001",
                f"{view.name} keeps {memory.what} for good, one more for every new {endless.column}: {endless.why}",
                node.span or view.span,
                f"{endless.remedy}, and the state can be dropped.",
            )


def _decided(node: mmpl.Restrict, columns: Columns, view: mmpl.ViewDef) -> Iterator[Diagnostic]:
    for predicate in trees.conjuncts(node.predicate):
        answer = _answer(predicate, columns)
        if answer is not None:
            text = f"{print_expression(predicate)} is always {'true' if answer else 'false'}, whatever is published"
            yield Diagnostic("W002", text, predicate.span or node.span or view.span)


def _answer(predicate: mmpl.Expr, columns: Columns) -> bool | None:
    """What a comparison comes to for all values its operands can have."""
    if not (isinstance(predicate, mmpl.Call) and predicate.function in ("<", "<=", ">", ">=", "=")):
        return None
    a, b = (expression_type(e, columns) for e in predicate.args)
    if a.range is None or b.range is None or a.nullable or b.nullable:
        return None
    lower, upper = (b.range, a.range) if predicate.function in (">", ">=") else (a.range, b.range)
    below, above = (lower.hi - upper.lo).limit, (lower.lo - upper.hi).limit
    if below is None or above is None:
        return None
    strict = predicate.function in ("<", ">")
    if predicate.function == "=":
        return False if below < 0 or above > 0 else None
    if below < 0 or (below == 0 and not strict):
        return True
    return False if above > 0 or (above == 0 and strict) else None
