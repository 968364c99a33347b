"""Export descriptions: what a broker that imports a relation records about it.

A description has the definition of the relation: the part of the exporting program that it depends on, as MMPL; that of
a table also has a view with its rows. Everything else follows from it by the same analysis as at the exporting broker:
heading, monotonic type, domains, seals, default rows. The description also has the type that the exporting broker
inferred. An importing broker that infers another one, because it runs another version of SMILE, refuses the import.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.analysis.check import check_program
from smile.analysis.type_analysis import TypeAnalysis
from smile.analysis.type_description import describe_type
from smile.errors import SmileError, error
from smile.source import Source

FORMAT: Final = 1

Json = dict[str, Any]

TableRows = Mapping[str, mmpl.Rel]
"""The rows of each table of a program, as they follow from the stream of its changes."""

NO_TABLES: Final[TableRows] = MappingProxyType({})


def describe_export(program: mmpl.Program, relation: str, tables: TableRows = NO_TABLES) -> Json:
    """The description of a relation of a program. The program must be the one that runs, after all rewrites."""
    definition = export_definition(program, relation, tables)
    text = print_program(definition)
    is_stream = relation in {s.name for s in definition.input_streams}
    return {
        "format": FORMAT,
        "kind": "table" if relation in tables else "stream" if is_stream else "view",
        "definition": text,
        "digest": _text_digest(text),
        "type": describe_type(TypeAnalysis(definition).relations[relation]),
    }


def describe_exports(program: mmpl.Program, relations: Iterable[str], tables: TableRows = NO_TABLES) -> dict[str, Json]:
    return {relation: describe_export(program, relation, tables) for relation in relations}


def rows_name(table: str) -> str:
    """The view with the rows of a table, in its definition. No relation of a SmileSQL program has such a name without
    quotes."""
    return f"{table} rows"


def export_definition(program: mmpl.Program, relation: str, tables: TableRows = NO_TABLES) -> mmpl.Program:
    """The part of a program that defines a relation. An imported stream is the stream itself, wherever it came from. A
    stream with many origins is defined alike by all its hosts. A table without a stream is static."""
    views: tuple[mmpl.ViewDef, ...] = ()
    if relation in tables:
        views = (mmpl.ViewDef(rows_name(relation), tables[relation]),)
        if all(stream.name != relation for stream in program.input_streams):
            views = (*views, mmpl.ViewDef(relation, mmpl.RelationRef(rows_name(relation))))
            return mmpl.Program((), views, (relation,))
    for import_ in program.imports:
        if import_.name == relation and (stream := import_.passed_on_stream) is not None:
            return mmpl.Program((stream,), views, (relation,))
    part = subprogram(program, relation)
    streams = tuple(replace(stream, home=None) for stream in part.streams)
    return replace(part, streams=streams, views=(*part.views, *views))


def definition_digest(definition: mmpl.Program) -> str:
    """Identifies a definition: the `digest` of its description."""
    return _text_digest(print_program(definition))


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_definition(description: Any, relation: str) -> mmpl.Program:
    """The definition in a description. Raises E027 if the description is damaged or does not fit this version."""
    if not isinstance(description, dict) or not isinstance(description.get("definition"), str):
        raise _wrong_description(relation, "it has no definition")
    if description.get("format") != FORMAT:
        raise _wrong_description(relation, f"its format is {description.get('format')!r}, not {FORMAT}")
    text = description["definition"]
    if description.get("digest") != _text_digest(text):
        raise _wrong_description(relation, "its digest is not that of its definition")
    try:
        definition = check_program(parse_program(Source(relation, text)))
        types = TypeAnalysis(definition).relations
    except SmileError as problem:
        raise _wrong_description(relation, problem.message) from None
    if relation not in types:
        raise _wrong_description(relation, "its definition defines other relations")
    if json.loads(json.dumps(describe_type(types[relation]))) != description.get("type"):
        hint = "The exporting broker runs another version of SMILE. Run the same version on both."
        raise error("E027", f"the recorded type of {relation} is not the one that its definition has here", hint=hint)
    return definition


def _wrong_description(relation: str, problem: str) -> SmileError:
    hint = "Record it again: smile explain PROGRAM --as exports --broker NAME."
    return error("E027", f"the recorded type of {relation} cannot be used: {problem}", hint=hint)
