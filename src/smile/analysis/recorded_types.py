"""Recorded types: the export descriptions of other brokers' relations, by broker. They resolve the imports of a
program."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.analysis.export_description import read_definition
from smile.errors import Diagnostic, SmileError, did_you_mean, error

RecordedTypes = Mapping[str, Mapping[str, Any]]
"""Broker → relation → export description."""


@dataclass(frozen=True)
class MissingImport:
    """An import of which no type is recorded. Each of its brokers may describe the relation."""

    relation: str
    brokers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.relation} from {' or '.join(self.brokers)}"


@dataclass(frozen=True)
class BrokenRelation:
    """A relation with an error that was seen when the types of `imports` became known."""

    problem: Diagnostic
    imports: tuple[MissingImport, ...]


def leave_out_missing(
    program: mmpl.Program, recorded: RecordedTypes
) -> tuple[mmpl.Program, Mapping[str, tuple[MissingImport, ...]]]:
    """The program without imports that have no recorded types and without what depends on them; and what was left out,
    each with the missing imports that it needs."""
    missing = {
        i.name: MissingImport(i.relation, i.brokers)
        for i in program.imports
        if i.definition is None and not any(i.relation in recorded.get(broker, {}) for broker in i.brokers)
    }
    left_out = {}
    for name in (*missing, *(view.name for view in program.views)):
        needed = tuple(missing[i.name] for i in subprogram(program, name).imports if i.name in missing)
        if needed:
            left_out[name] = needed
    subscriptions = tuple(name for name in program.subscriptions if name not in left_out)
    # Without subscriptions, all views would be maintained.
    is_any_view_needed = bool(subscriptions) or not program.subscriptions
    views = tuple(v for v in program.views if v.name not in left_out and is_any_view_needed)
    imports = tuple(i for i in program.imports if i.name not in left_out)
    return replace(program, views=views, subscriptions=subscriptions, imports=imports), left_out


def resolve_imports(program: mmpl.Program, recorded: RecordedTypes) -> mmpl.Program:
    """The program with the definitions of its imports. Raises all errors."""
    imports, problems = [], []
    for import_ in program.imports:
        try:
            imports.append(resolve_import(import_, recorded))
        except SmileError as problem:
            problems += problem.diagnostics
    if problems:
        raise SmileError(problems)
    return replace(program, imports=tuple(imports))


def resolve_import(import_: mmpl.ImportDef, recorded: RecordedTypes) -> mmpl.ImportDef:
    """The import with its definition. One that has a definition already, because it is written in MMPL, keeps it. Of
    several brokers, those that are recorded must agree."""
    if import_.definition is not None:
        return import_
    descriptions = _find_descriptions(import_, recorded)
    try:
        definitions = {b: read_definition(text, import_.relation) for b, text in descriptions.items()}
    except SmileError as problem:
        raise SmileError([replace(d, span=import_.span) for d in problem.diagnostics]) from None
    (broker, definition), *others = definitions.items()
    for other, other_definition in others:
        if other_definition != definition:
            message = f"{import_.relation} is defined otherwise at {broker} than at {other}"
            hint = "Define it alike, or import it under two names."
            raise error("E124", message, import_.span, hint)
    return replace(import_, definition=definition)


def _find_descriptions(import_: mmpl.ImportDef, recorded: RecordedTypes) -> dict[str, Any]:
    """The recorded descriptions of the relation, by broker: at least one."""
    relation, brokers = import_.relation, " or ".join(import_.brokers)
    known = {broker: recorded[broker] for broker in import_.brokers if broker in recorded}
    if not known:
        if recorded:
            hint = did_you_mean(import_.broker, recorded) or f"Recorded are those of {', '.join(recorded)}."
        else:
            hint = (
                "Give them with --imports FILE. `smile explain PROGRAM --as exports --broker NAME` prints such a file."
            )
        raise error("E027", f"no types of the broker {brokers} are recorded", import_.span, hint)
    found = {broker: relations[relation] for broker, relations in known.items() if relation in relations}
    if not found:
        names = [name for relations in known.values() for name in relations]
        hint = did_you_mean(relation, names) or f"Recorded are {', '.join(names)}."
        raise error("E027", f"no type of {relation} at {brokers} is recorded", import_.span, hint)
    return found


def parse_recorded_types(text: str, name: str) -> RecordedTypes:
    """The content of a file of recorded types."""
    try:
        recorded = json.loads(text)
    except (ValueError, RecursionError):
        recorded = None
    if not isinstance(recorded, dict) or not all(isinstance(relations, dict) for relations in recorded.values()):
        hint = "It is a JSON object of brokers, each an object of relations with their descriptions."
        raise error("E027", f"{name} has no recorded types", hint=hint)
    return recorded


def merge_recorded_types(parts: Iterable[RecordedTypes]) -> RecordedTypes:
    """All of them together. A later description of a relation replaces an earlier one."""
    merged: dict[str, dict[str, Any]] = {}
    for part in parts:
        for broker, relations in part.items():
            merged.setdefault(broker, {}).update(relations)
    return merged
