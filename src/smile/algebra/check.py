"""A program written in MMPL, checked as one translated from SQL is: unique names, no circles, well-formed views."""

from smile.algebra import mmpl
from smile.algebra.heading import Headings, expect, stream_heading
from smile.algebra.order import in_order
from smile.algebra.types import BOOL
from smile.errors import Diagnostic, SmileError, error, nearest


def checked(program: mmpl.Program) -> mmpl.Program:
    """The program with its views in order, or all the errors in it."""
    problems: list[Diagnostic] = []
    relations: dict[str, mmpl.StreamDef | mmpl.ViewDef] = {}
    for definition in (*program.streams, *program.views):
        if definition.name in relations:
            message = f"there are two relations named {definition.name}"
            problems.append(Diagnostic("E020", message, definition.span))
        relations[definition.name] = definition
    views = {v.name: v for v in program.views}
    reads = {n: [r.name for r in mmpl.walk(v.body) if isinstance(r, mmpl.Ref) and r.name in views] for n, v in views.items()}
    broken: set[str] = set()

    def circle(path: list[str]) -> None:
        broken.update(path)
        message = f"views refer to each other in a circle: {' → '.join(path)}"
        problems.append(Diagnostic("E024", message, views[path[0]].span))

    order = in_order(reads, circle)
    _check_bodies(program, [views[n] for n in order], broken, set(views), problems)
    for name in program.subscriptions:
        if name not in relations:
            problems += error("E021", f"there is no view {name}", None, nearest(name, relations)).diagnostics
    if problems:
        raise SmileError(problems)
    return mmpl.Program(program.streams, tuple(views[n] for n in order), tuple(dict.fromkeys(program.subscriptions)))


def _check_bodies(
    program: mmpl.Program, views: list[mmpl.ViewDef], broken: set[str], named: set[str], problems: list[Diagnostic]
) -> None:
    headings = Headings({s.name: stream_heading(s) for s in program.streams})
    for stream in program.streams:
        try:
            for check in stream.checks:
                expect(check, BOOL, headings.relations[stream.name].columns)
        except SmileError as problem:
            problems += problem.diagnostics
    for view in views:
        read = {r.name for r in mmpl.walk(view.body) if isinstance(r, mmpl.Ref)}
        if view.name in broken or read & broken:
            broken.add(view.name)
            continue
        try:
            headings.relations[view.name] = headings.of(view.body)
        except SmileError as problem:
            broken.add(view.name)
            problems += problem.diagnostics
