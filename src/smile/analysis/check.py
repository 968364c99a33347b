"""Checks a program written in MMPL for what translation from SQL guarantees: unique names, no cycles, valid views."""

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.dependencies import topological_order
from smile.algebra.functions.catalogue import expect_type
from smile.algebra.heading import stream_heading
from smile.algebra.types import BOOL
from smile.analysis.headings import Headings
from smile.errors import Diagnostic, SmileError, did_you_mean, error
from smile.operators.catalogue import map_expressions


def check_program(program: mmpl.Program) -> mmpl.Program:
    """The program with its views in order of dependency. Raises all errors; too deep nesting (E012) is raised alone."""
    problems: list[Diagnostic] = []
    for view in program.views:
        if _nesting_depth(view.body) > limits.expression_depth_max:
            raise error("E012", f"{view.name} is nested too deeply", view.span)
    relations: dict[str, mmpl.Definition] = {}
    definitions: list[mmpl.Definition] = [*program.streams, *program.views]
    for definition in definitions:
        if definition.name in relations:
            message = f"there are two relations named {definition.name}"
            problems.append(Diagnostic("E020", message, definition.span))
        relations[definition.name] = definition
    views = {v.name: v for v in program.views}
    reads = {
        n: [r.name for r in trees.walk(v.body) if isinstance(r, mmpl.RelationRef) and r.name in views]
        for n, v in views.items()
    }
    broken: set[str] = set()

    def report_cycle(path: list[str]) -> None:
        broken.update(path)
        message = f"views refer to each other in a circle: {' → '.join(path)}"
        problems.append(Diagnostic("E024", message, views[path[0]].span))

    order = topological_order(reads, report_cycle)
    _check_bodies(program, [views[n] for n in order], broken, problems)
    for name in program.subscriptions:
        if name not in relations:
            problems += error("E021", f"there is no view {name}", None, did_you_mean(name, relations)).diagnostics
    if problems:
        raise SmileError(problems)
    return mmpl.Program(program.streams, tuple(views[n] for n in order), tuple(dict.fromkeys(program.subscriptions)))


def _nesting_depth(rel: mmpl.Rel) -> int:
    """The number of nested operators, relational and scalar, counted without recursion."""
    deepest = 0
    stack: list[tuple[mmpl.Node, int]] = [(rel, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(node, mmpl.Rel):
            stack += [(part, depth + 1) for part in (*trees.inputs_of(node), *_scalar_expressions(node))]
        elif isinstance(node, mmpl.Expr):
            stack += [(part, depth + 1) for part in trees.operands_of(node)]
    return deepest


def _scalar_expressions(rel: mmpl.Rel) -> list[mmpl.Expr]:
    expressions: list[mmpl.Expr] = []

    def collect(expr: mmpl.Expr) -> mmpl.Expr:
        expressions.append(expr)
        return expr

    map_expressions(rel, collect)
    return expressions


def _check_bodies(
    program: mmpl.Program, views: list[mmpl.ViewDef], broken: set[str], problems: list[Diagnostic]
) -> None:
    headings = Headings({s.name: stream_heading(s) for s in program.streams})
    for stream in program.streams:
        try:
            for check in stream.checks:
                expect_type(check, BOOL, headings.relations[stream.name].columns)
        except SmileError as problem:
            problems += problem.diagnostics
    for view in views:
        read_names = {r.name for r in trees.walk(view.body) if isinstance(r, mmpl.RelationRef)}
        if view.name in broken or read_names & broken:
            broken.add(view.name)
            continue
        try:
            headings.relations[view.name] = headings.heading_of(view.body)
        except SmileError as problem:
            broken.add(view.name)
            problems += problem.diagnostics
