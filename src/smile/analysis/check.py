"""Checks a program written in MMPL for what translation from SQL guarantees: unique names, no cycles, valid views."""

from dataclasses import replace
from itertools import islice

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.dependencies import topological_order
from smile.algebra.functions.catalogue import expect_type
from smile.algebra.types import BOOL, STRING
from smile.analysis.global_streams import check_registry
from smile.analysis.headings import Headings
from smile.analysis.imports import check_import, find_name_clashes
from smile.errors import Diagnostic, SmileError, did_you_mean, error
from smile.operators.catalogue import map_expressions
from smile.source import Span


def check_program(program: mmpl.Program) -> mmpl.Program:
    """The program with its views in order of dependency. All its imports must be resolved. Raises all errors; too deep
    nesting (E012) is raised alone."""
    problems: list[Diagnostic] = []
    definitions: list[mmpl.StreamDef | mmpl.ViewDef] = [*program.streams, *program.views]
    for definition in definitions:
        check_depth(definition)
    program = replace(program, imports=tuple(_check_import(i, problems) for i in program.imports))
    relations: dict[str, mmpl.Definition] = {}
    for relation in program.definitions:
        if relation.name in relations:
            message = f"there are two relations named {relation.name}"
            problems.append(Diagnostic("E020", message, relation.span))
        relations[relation.name] = relation
    views = {v.name: v for v in program.views}
    reads = {
        n: [r.name for r in trees.walk(v.body) if isinstance(r, mmpl.RelationRef) and r.name in views]
        for n, v in views.items()
    }
    broken = {i.name for i in program.imports if i.definition is None}
    problems += find_name_clashes(replace(program, imports=tuple(i for i in program.imports if i.name not in broken)))

    def report_cycle(path: list[str]) -> None:
        broken.update(path)
        message = f"views refer to each other in a circle: {' → '.join(path)}"
        problems.append(Diagnostic("E024", message, views[path[0]].span))

    order = topological_order(reads, report_cycle)
    _check_bodies(program, [views[n] for n in order], broken, problems)
    republishers = {import_.name for import_ in program.republishers}
    for history in program.histories:
        if history.relation not in republishers:
            problems.append(Diagnostic("E021", f"there is no republisher {history.relation}", history.span))
    if not problems:
        problems += check_registry(program)
    for name in program.subscriptions:
        if name not in relations:
            problems += error("E021", f"there is no view {name}", None, did_you_mean(name, relations)).diagnostics
    if problems:
        raise SmileError(problems)
    ordered_views, subscriptions = tuple(views[n] for n in order), tuple(dict.fromkeys(program.subscriptions))
    return replace(program, views=ordered_views, subscriptions=subscriptions)


def _check_import(import_: mmpl.ImportDef, problems: list[Diagnostic]) -> mmpl.ImportDef:
    """The import with its definition checked; without a definition if it has errors."""
    assert import_.definition is not None, f"{import_.name} is not resolved"
    try:
        import_ = replace(import_, definition=check_program(import_.definition))
        check_import(import_)
    except SmileError as problem:
        problems += problem.diagnostics
        return replace(import_, definition=None)
    return import_


def check_depth(definition: mmpl.StreamDef | mmpl.ViewDef) -> None:
    """E012 if a tree of the definition is too deep for code that recurses over it."""
    trees_inside = (definition.body,) if isinstance(definition, mmpl.ViewDef) else definition.checks
    if any(_nesting_depth(tree) > limits.expression_depth_max for tree in trees_inside):
        message = f"{definition.name} has more than {limits.expression_depth_max} nested operators"
        raise error("E012", message, definition.span, "Define the inner parts as views.")


def check_stream_options(stream: mmpl.StreamDef, span: Span | None) -> None:
    """E049 if a stream with many origins has what only a single origin can guarantee."""
    if not stream.many_origins:
        return
    if stream.publisher_timed:
        hint = "The number of the origin is part of the ticks that a broker assigns."
        raise error("E049", f"{stream.name} has many origins, so publishers cannot give its ticks", span, hint)
    if stream.unique:
        hint = "One broker enforces UNIQUE. Give each broker a stream of its own, and MERGE them."
        raise error("E049", f"{stream.name} has many origins, so it cannot have UNIQUE columns", span, hint)


def check_table_stream(stream: mmpl.StreamDef) -> None:
    """E144 if a stream of a table's changes does not say which rows are inserted and which are deleted."""
    if not stream.is_table:
        return
    columns = dict(stream.columns)
    if columns.get(mmpl.CHANGE_COLUMN) != STRING:
        message = f"{stream.name} has the changes of a table, but no column {mmpl.CHANGE_COLUMN} of type string"
        hint = f"Add {mmpl.CHANGE_COLUMN} STRING NOT NULL. Its values are 'insert' and 'delete'."
        raise error("E144", message, stream.span, hint)
    nested = [name for name, data in columns.items() if not data.is_comparable]
    if nested:
        raise error("E144", f"rows of a table cannot be compared by {nested[0]}", stream.span)


def check_operator_count(rel: mmpl.Rel, span: Span | None) -> None:
    """E003 if a relation has too many operators: common table expressions that use each other twice double it."""
    operators_max = limits.view_operators_max
    if sum(1 for _ in islice(trees.walk(rel), operators_max + 1)) > operators_max:
        hint = "Define its common table expressions as views: a view is computed once."
        raise error("E003", f"the query has more than {operators_max:,} operators", span, hint)


def _nesting_depth(tree: mmpl.Rel | mmpl.Expr) -> int:
    """The number of nested operators, relational and scalar, counted without recursion. A CASE counts as two, because
    its operands are deeper inside of it."""
    deepest = 0
    stack: list[tuple[mmpl.Node, int]] = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(node, mmpl.Rel):
            stack += [(part, depth + 1) for part in (*trees.inputs_of(node), *_scalar_expressions(node))]
        elif isinstance(node, mmpl.Expr):
            stack += [(part, depth + 1 + isinstance(node, mmpl.Case)) for part in trees.operands_of(node)]
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
    headings = Headings.of_inputs(replace(program, imports=tuple(i for i in program.imports if i.name not in broken)))
    for stream in program.streams:
        try:
            check_stream_options(stream, stream.span)
            check_table_stream(stream)
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
