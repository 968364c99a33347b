"""Global streams in a program: what its views receive of them, what it republishes, and what it advertises.

A view does not read a global stream, which at this broker has only the events that were published here. It reads a
global import, whose condition is what the view selects. So two views with different conditions have two imports.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.printer import print_expression
from smile.algebra.types import BOOL
from smile.errors import Diagnostic, SmileError, error
from smile.registry.conditions import make_condition
from smile.registry.decoupling import split
from smile.registry.schema import global_schema

ALWAYS: Final = mmpl.Constant(True, BOOL)


def global_import(stream: mmpl.StreamDef, name: str, condition: mmpl.Expr | None = None) -> mmpl.ImportDef:
    """What this broker receives of a global stream: the events of all producers that satisfy the condition."""
    definition = mmpl.Program((replace(stream, many_origins=True, span=None),), (), (stream.name,))
    return mmpl.ImportDef(name, mmpl.ALL_PRODUCERS, stream.name, condition, definition)


def describe_columns(stream: mmpl.StreamDef) -> str:
    """As they are declared: key columns before the arrow."""
    keys = stream.channel or ()
    texts = {name: f"{name}: {data_type}" for name, data_type in stream.columns}
    before = ", ".join([f"{stream.tick}: time", *(texts[name] for name in keys)])
    after = ", ".join(text for name, text in texts.items() if name not in keys)
    return f"({before} -> {after})" if after else f"({before})"


def has_same_columns(a: mmpl.StreamDef, b: mmpl.StreamDef) -> bool:
    """Whether two declarations of a global stream are of the same events. The order of columns does not matter."""
    columns = [(s.tick, frozenset(s.columns), frozenset(s.channel or ())) for s in (a, b)]
    return columns[0] == columns[1]


def latest_view(import_: mmpl.ImportDef) -> mmpl.ViewDef:
    """The latest state of a republisher: for each channel, the newest value of every measurement, and the tick of the
    newest event."""
    stream = import_.stream
    assert stream is not None and stream.channel is not None
    measurements = [name for name, _ in stream.columns if name not in stream.channel]
    newest = [(name, mmpl.Aggregate("latest", mmpl.ColumnRef(name))) for name in measurements]
    aggregates = (*newest, (stream.tick, mmpl.Aggregate("max", mmpl.ColumnRef(stream.tick))))
    body = mmpl.Summarize(mmpl.RelationRef(import_.name), stream.channel, aggregates, span=import_.span)
    return mmpl.ViewDef(latest_name(import_.name), body, span=import_.span)


def latest_name(republisher: str) -> str:
    """The view that has the latest state of a republisher."""
    return f"{republisher}_latest"


def find_readers(program: mmpl.Program, import_name: str) -> list[str]:
    """The views that read an import, directly or through what rewriting has made of them."""
    found, made = list[str](), {import_name}
    for view in program.views:
        if any(isinstance(r, mmpl.RelationRef) and r.name in made for r in trees.walk(view.body)):
            if view.shared:
                made.add(view.name)
            else:
                found.append(view.name)
    return found


def check_advertisement(advertised: mmpl.Advertisement, stream: mmpl.StreamDef) -> None:
    """E177 if a producer's view restricts measurements: these are not known before they are published."""
    assert stream.channel is not None
    others = sorted(trees.columns_in(advertised.condition) - set(stream.channel))
    if others:
        hint = f"The channels of a producer are described by {', '.join(stream.channel)}."
        message = f"a producer of {stream.name} cannot be described by {others[0]}, which is no key column"
        raise error("E177", message, advertised.condition.span or advertised.span, hint)
    with _at(advertised):
        make_condition(global_schema(stream), advertised.condition)


def check_republisher(import_: mmpl.ImportDef, stream: mmpl.StreamDef) -> None:
    """E175 or E176 if nobody could plan with what a republisher selects."""
    with _at(import_):
        split(make_condition(global_schema(stream), import_.condition or ALWAYS))


def check_history(history: mmpl.RepublisherHistory) -> None:
    if history.ticks <= 0:
        hint = "Write WITH (HISTORY = INTERVAL '1' HOUR)."
        raise error("E180", f"the history of {history.relation} is no time before now", history.span, hint)


def check_registry(program: mmpl.Program) -> Iterator[Diagnostic]:
    """What is wrong with the republishers and producers of a program in MMPL."""
    streams = {s.name: s for s in program.streams if s.is_global}
    checks: list[Callable[[], None]] = [partial(check_history, history) for history in program.histories]
    definitions: list[mmpl.ImportDef | mmpl.Advertisement] = [*program.republishers, *program.advertisements]
    for definition in definitions:
        stream = streams.get(definition.relation)
        if stream is None:
            yield Diagnostic("E180", f"{definition.relation} is not a global stream", definition.span)
        elif isinstance(definition, mmpl.ImportDef):
            checks.append(partial(check_republisher, definition, stream))
        else:
            checks.append(partial(check_advertisement, definition, stream))
    for check in checks:
        try:
            check()
        except SmileError as problem:
            yield from problem.diagnostics


@contextmanager
def _at(definition: mmpl.ImportDef | mmpl.Advertisement) -> Iterator[None]:
    """Errors of the condition have its position."""
    try:
        yield
    except SmileError as problem:
        span = (None if definition.condition is None else definition.condition.span) or definition.span
        raise SmileError([replace(d, span=d.span or span) for d in problem.diagnostics]) from None


def bind_global_streams(program: mmpl.Program) -> mmpl.Program:
    """The program with views that read global imports instead of global streams. Restrictions should have been moved
    towards the streams before."""
    streams = {s.name: s for s in program.streams if s.is_global}
    if not streams:
        return program
    imports: dict[str, mmpl.ImportDef] = {}

    def import_for(stream: mmpl.StreamDef, condition: mmpl.Expr | None) -> mmpl.ImportDef:
        import_ = _consumer_import(stream, condition)
        return imports.setdefault(import_.name, import_)

    def change(rel: mmpl.Rel) -> mmpl.Rel:
        """Inputs come first, so each restriction of a chain narrows the import that the chain reads."""
        if isinstance(rel, mmpl.RelationRef) and rel.name in streams:
            return replace(rel, name=import_for(streams[rel.name], None).name)
        if isinstance(rel, mmpl.Restrict):
            chain, source = _chain_to_input(rel)
            if isinstance(source, mmpl.RelationRef) and source.name in imports:
                stream = streams[imports[source.name].relation]
                predicates = [r.predicate for r in reversed(chain) if isinstance(r, mmpl.Restrict)]
                import_ = import_for(stream, _decoupled(stream, predicates))
                bound: mmpl.Rel = replace(source, name=import_.name)
                for operator in reversed(chain):
                    bound = trees.with_inputs(operator, (bound,))
                return bound
        return rel

    views = tuple(replace(view, body=trees.rebuild_relation(view.body, change)) for view in program.views)
    read = {r.name for view in views for r in trees.walk(view.body) if isinstance(r, mmpl.RelationRef)}
    bound = tuple(import_ for name, import_ in imports.items() if name in read)
    return replace(program, views=views, imports=(*program.imports, *bound))


def _decoupled(stream: mmpl.StreamDef, predicates: list[mmpl.Expr]) -> mmpl.Expr | None:
    """The conjuncts that are about key columns only, or about others only: a plan can use those. The view evaluates all
    of them."""
    keys = set(stream.channel or ())
    conjuncts = [c for predicate in predicates for c in trees.conjuncts(predicate)]
    usable = [c for c in conjuncts if (columns := trees.columns_in(c)) <= keys or not columns & keys]
    while usable and len(print_expression(trees.conjunction(usable))) > limits.filter_chars_max:
        # Other brokers take no longer condition.
        usable.remove(max(usable, key=lambda c: len(print_expression(c))))
    return trees.conjunction(usable) if usable else None


def _chain_to_input(rel: mmpl.Rel) -> tuple[list[mmpl.Rel], mmpl.Rel]:
    """The restrictions and projections over a relation, the outermost first, and the relation."""
    chain: list[mmpl.Rel] = []
    while isinstance(rel, mmpl.Restrict | mmpl.Project):
        chain.append(rel)
        rel = rel.input
    return chain, rel


def _consumer_import(stream: mmpl.StreamDef, condition: mmpl.Expr | None) -> mmpl.ImportDef:
    text = "" if condition is None else print_expression(condition)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8] if text else ""
    return global_import(stream, mmpl.consumer_name(stream.name, digest), condition)
