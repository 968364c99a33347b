"""A description has everything that an importing broker needs: types and default rows are those of the exporter."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from smile.algebra import mmpl
from smile.analysis.domains import Domains
from smile.analysis.export_description import describe_export, read_definition
from smile.analysis.recorded_types import merge_recorded_types, parse_recorded_types, resolve_imports
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import SmileError
from smile.rules import rewrite
from tests.random_programs import SEED_ID, random_program, seeds


def recorded(description: Any) -> Any:
    """As it is read from a file."""
    return json.loads(json.dumps(description))


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_types_and_domains_survive(seed: int) -> None:
    program = rewrite(random_program(Random(seed), 4))
    analysis = TypeAnalysis(program)
    domains = Domains(program, analysis)
    for relation in analysis.relations:
        definition = read_definition(recorded(describe_export(program, relation)), relation)
        imported = TypeAnalysis(definition)
        assert imported.relations[relation] == analysis.relations[relation]
        ref = mmpl.RelationRef(relation)
        assert Domains(definition, imported).bottom_row(ref) == domains.bottom_row(ref)


def test_an_import_renames_the_horizons_and_nothing_else() -> None:
    program = rewrite(random_program(Random(3), 3))
    for view in program.views:
        definition = read_definition(describe_export(program, view.name), view.name)
        importing = mmpl.Program((), (), (), (mmpl.ImportDef("I", "b", view.name, None, definition, 2),))
        exported, imported = TypeAnalysis(program).relations[view.name], TypeAnalysis(importing).relations["I"]
        assert imported.seals == {f"I@2/{s}": seal for s, seal in exported.seals.items()}
        assert imported.reach == {f"I@2/{s}": reach for s, reach in exported.reach.items()}
        changed = {"seals": exported.seals, "reach": exported.reach, "can_become_absent": exported.can_become_absent}
        assert replace(imported, **changed) == exported  # type: ignore[arg-type]


STREAM = mmpl.StreamDef("S", "t", ())
PROGRAM = mmpl.Program((STREAM,), (mmpl.ViewDef("V", mmpl.Distinct(mmpl.RelationRef("S"))),), ("V",))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"definition": "STREAM S (t: time);"},
        {"definition": 3},
        {"digest": "0"},
        {"type": {}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_wrong_description_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SmileError) as refusal:
        read_definition({**describe_export(PROGRAM, "V"), **change}, "V")
    assert refusal.value.diagnostics[0].code == "E027" and refusal.value.diagnostics[0].hint


def test_all_unresolved_imports_are_reported() -> None:
    imports = tuple(mmpl.ImportDef(name, "b", name) for name in ("V", "W", "X"))
    program = mmpl.Program((), (), (), imports)
    with pytest.raises(SmileError) as refusal:
        resolve_imports(program, {"b": {"V": describe_export(PROGRAM, "V")}})
    assert [d.code for d in refusal.value.diagnostics] == ["E027", "E027"]


def test_files_of_recorded_types() -> None:
    parts = [parse_recorded_types(text, "f") for text in ('{"a":{"V":1}}', '{"a":{"W":2},"b":{}}', '{"a":{"V":3}}')]
    assert merge_recorded_types(parts) == {"a": {"V": 3, "W": 2}, "b": {}}
    for text in ("", "[]", '{"a":1}', "{" * 100_000):
        with pytest.raises(SmileError, match="has no recorded types"):
            parse_recorded_types(text, "f")
