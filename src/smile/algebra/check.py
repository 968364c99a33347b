"""A program written in MMPL, checked as one translated from SQL is: unique names, no circles, well-formed views."""

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.heading import Headings, stream_heading
from smile.algebra.order import in_order
from smile.algebra.rules.apply import map_expressions
from smile.algebra.scalars import expect
from smile.algebra.types import BOOL
from smile.errors import Diagnostic, SmileError, error, nearest


def checked(program: mmpl.Program) -> mmpl.Program:
    """The program with its views in order, or all the errors in it."""
    problems: list[Diagnostic] = []
    for view in program.views:
        if _depth(view.body) > limits.expression_depth_max:
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
        n: [r.name for r in trees.walk(v.body) if isinstance(r, mmpl.Ref) and r.name in views] for n, v in views.items()
    }
    broken: set[str] = set()

    def circle(path: list[str]) -> None:
        broken.update(path)
        message = f"views refer to each other in a circle: {' → '.join(path)}"
        problems.append(Diagnostic("E024", message, views[path[0]].span))

    order = in_order(reads, circle)
    _check_bodies(program, [views[n] for n in order], broken, problems)
    for name in program.subscriptions:
        if name not in relations:
            problems += error("E021", f"there is no view {name}", None, nearest(name, relations)).diagnostics
    if problems:
        raise SmileError(problems)
    return mmpl.Program(program.streams, tuple(views[n] for n in order), tuple(dict.fromkeys(program.subscriptions)))


def _depth(rel: mmpl.Rel) -> int:
    """Operators within operators, relational and scalar, counted without recursion."""
    deepest = 0
    stack: list[tuple[mmpl.Node, int]] = [(rel, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(node, mmpl.Rel):
            stack += [(part, depth + 1) for part in (*trees.inputs_of(node), *_expressions(node))]
        elif isinstance(node, mmpl.Expr):
            stack += [(part, depth + 1) for part in trees.parts_of(node)]
    return deepest


def _expressions(rel: mmpl.Rel) -> list[mmpl.Expr]:
    found: list[mmpl.Expr] = []

    def note(expr: mmpl.Expr) -> mmpl.Expr:
        found.append(expr)
        return expr

    map_expressions(rel, note)
    return found


def _check_bodies(
    program: mmpl.Program, views: list[mmpl.ViewDef], broken: set[str], problems: list[Diagnostic]
) -> None:
    headings = Headings({s.name: stream_heading(s) for s in program.streams})
    for stream in program.streams:
        try:
            for check in stream.checks:
                expect(check, BOOL, headings.relations[stream.name].columns)
        except SmileError as problem:
            problems += problem.diagnostics
    for view in views:
        read = {r.name for r in trees.walk(view.body) if isinstance(r, mmpl.Ref)}
        if view.name in broken or read & broken:
            broken.add(view.name)
            continue
        try:
            headings.relations[view.name] = headings.of(view.body)
        except SmileError as problem:
            broken.add(view.name)
            problems += problem.diagnostics
