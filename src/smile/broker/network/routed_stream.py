"""The definitions of routed streams: an advertised stream under its routed name, as far as it is released."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from smile.algebra import mmpl, trees
from smile.algebra.parser import parse_expression
from smile.algebra.printer import print_expression
from smile.analysis.export_description import describe_export, read_definition
from smile.analysis.imports import check_import
from smile.errors import SmileError, error
from smile.links.routing.names import RoutedStream
from smile.program import compile_condition


@dataclass(frozen=True)
class StreamRelease:
    """What a neighbour may have of a stream: the events that satisfy `condition`, with `columns`. None means all."""

    condition: mmpl.Expr | None = None
    columns: tuple[str, ...] | None = None

    @property
    def text(self) -> str:
        """Identifies it; "" if everything is released."""
        if self.condition is None and self.columns is None:
            return ""
        return repr((None if self.condition is None else print_expression(self.condition), self.columns))


RELEASE_ALL = StreamRelease()


def find_release(program: mmpl.Program, view: str) -> tuple[str, StreamRelease] | None:
    """The stream that a view selects from, and what it selects: some events, and some columns of them. None if the view
    is anything else."""
    bodies, streams = {v.name: v.body for v in program.views}, {s.name: s for s in program.streams}
    rel: mmpl.Rel = mmpl.RelationRef(view)
    conditions, columns = list[mmpl.Expr](), None
    while not (isinstance(rel, mmpl.RelationRef) and rel.name in streams):
        if isinstance(rel, mmpl.RelationRef) and rel.name in bodies:
            rel = bodies[rel.name]
        elif isinstance(rel, mmpl.Restrict):
            conditions.append(rel.predicate)
            rel = rel.input
        elif isinstance(rel, mmpl.Project):
            columns = rel.columns if columns is None else columns
            rel = rel.input
        else:
            return None
    stream = streams[rel.name]
    condition = trees.conjunction(tuple(reversed(conditions))) if conditions else None
    shown = None if columns is None else tuple(n for n, _ in stream.columns if n in columns)
    return stream.name, StreamRelease(condition, shown)


def routed_definition(stream: mmpl.StreamDef, name: RoutedStream, release: StreamRelease = RELEASE_ALL) -> mmpl.Program:
    """The definition of a routed stream. `stream` is as its host defines it. Raises an error if its condition is not
    one of what is released."""
    columns = tuple((n, t) for n, t in stream.columns if release.columns is None or n in release.columns)
    known = {stream.tick, *(n for n, _ in columns)}
    conditions = (*stream.checks, *(() if release.condition is None else (release.condition,)))
    checks = tuple(c for c in conditions if trees.columns_in(c) <= known)
    unique = tuple(u for u in stream.unique if set(u) <= known)
    base = RoutedStream(name.stream, name.host).relation
    # The events of a global stream come with the version of their host's producers, as a membership.
    many_origins = stream.many_origins or stream.is_global
    released = replace(
        stream,
        name=base,
        columns=columns,
        checks=checks,
        unique=unique,
        many_origins=many_origins,
        home=None,
        span=None,
    )
    return _with_condition(released, name)


def _with_condition(stream: mmpl.StreamDef, name: RoutedStream) -> mmpl.Program:
    if name.where:
        condition = parse_expression(name.where)
        alone = mmpl.Program((stream,), (), (stream.name,))
        check_import(mmpl.ImportDef(stream.name, name.host, stream.name, condition, alone))
        stream = replace(stream, name=name.relation, checks=(*stream.checks, condition))
    return mmpl.Program((stream,), (), (stream.name,))


def describe_routed(definition: mmpl.Program, history: str) -> str:
    """What an advertisement says about its stream."""
    (stream,) = definition.streams
    description = {**describe_export(definition, stream.name), "history": history, "sources": []}
    return json.dumps(description, separators=(",", ":"))


@lru_cache(maxsize=10_000)
def read_routed(description: str, name: RoutedStream) -> mmpl.Program:
    """The definition of a routed stream, from the description of an advertisement. Raises E027 if it has none."""
    relation = RoutedStream(name.stream, name.host).relation
    try:
        fields: Any = json.loads(description)
    except (ValueError, RecursionError):
        fields = None
    definition = read_definition(fields, relation)
    streams = [stream for stream in definition.streams if stream.name == relation]
    if len(streams) != 1 or definition.imports or definition.views:
        raise error("E027", f"{name.host} has advertised {name.stream} with something that is not a stream")
    return _with_condition(streams[0], name)


@dataclass(frozen=True)
class RoutedImport:
    """A routed stream that is imported from a neighbour. `description` and `history` are those of its
    advertisement."""

    stream: RoutedStream
    broker: str
    description: str
    history: str

    @property
    def import_(self) -> mmpl.ImportDef:
        relation = self.stream.relation
        return mmpl.ImportDef(relation, self.broker, relation, None, read_routed(self.description, self.stream))

    def to_json(self) -> list[str]:
        return [*self.stream, self.broker, self.description, self.history]

    @staticmethod
    def from_json(fields: Iterable[str]) -> "RoutedImport":
        stream, host, where, broker, description, history = fields
        return RoutedImport(RoutedStream(stream, host, where), broker, description, history)


def condition_text(values: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    """The condition of a subscription, column by value, as far as a host can evaluate it: texts and whole numbers. The
    rest is evaluated where the subscriber is."""
    parts = [
        mmpl.Call("=", (mmpl.ColumnRef(name), mmpl.Constant(value, types[name])))
        for name, value in sorted(values.items())
        if (types[name].name == "string" and isinstance(value, str))
        or (types[name].name == "int" and isinstance(value, int))
    ]
    return print_expression(trees.conjunction(tuple(parts))) if parts else ""


def parse_advertised_condition(stream: mmpl.StreamDef, text: str) -> str:
    """The condition of an advertisement, in normal form. Raises an error if it is none of the stream."""
    condition = compile_condition(text, stream)
    try:
        alone = mmpl.Program((replace(stream, home=None),), (), (stream.name,))
        check_import(mmpl.ImportDef(stream.name, "", stream.name, condition, alone))
    except SmileError as problem:
        raise SmileError([replace(d, span=None) for d in problem.diagnostics]) from None
    return print_expression(condition)
