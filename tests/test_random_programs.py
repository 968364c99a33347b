"""Random programs through the whole compiler: what holds of every program holds of these."""

from random import Random

import pytest

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.analysis.check import check_program
from smile.analysis.headings import Headings
from smile.analysis.log_retention import log_retentions
from smile.analysis.type_analysis import TypeAnalysis
from smile.analysis.warnings import program_warnings
from smile.graph.build import build_graph
from smile.graph.stages import split_into_stages
from smile.operators.catalogue import operator_of
from smile.rules import RULES, rewrite
from smile.source import Source
from tests.random_programs import SEED_ID, random_program, seeds


@pytest.fixture(params=seeds(150), ids=SEED_ID)
def program(request: pytest.FixtureRequest) -> mmpl.Program:
    return random_program(Random(request.param), views_max=6)


def test_text_and_back(program: mmpl.Program) -> None:
    assert parse_program(Source("random.mmpl", print_program(program))) == program
    assert check_program(program) == program


def test_rules_keep_headings(program: mmpl.Program) -> None:
    """The columns of each view, their order and types, its key, what is hidden, and whether it is total."""
    before = facts(program)
    for rule in RULES:
        after = facts(rule(program))
        assert {name: after[name] for name in before} == before, rule.__name__
    after = facts(rewrite(program))
    assert {name: after[name] for name in before} == before


def facts(program: mmpl.Program) -> dict[str, object]:
    headings = Headings.from_program(program).relations
    return {v.name: _facts(headings[v.name]) for v in program.views}


def _facts(heading: Heading) -> object:
    visible = [(c, heading.columns[c]) for c in heading.visible]
    return visible, set(heading.key), heading.hidden, heading.total


def test_types_and_stages_exist_and_fit(program: mmpl.Program) -> None:
    rewritten = rewrite(program)
    analysis = TypeAnalysis(rewritten)
    for name, type_ in analysis.relations.items():
        assert list(type_.columns) == list(type_.heading.columns), name
        for seal in type_.seals.values():
            assert seal.columns <= type_.columns.keys(), name
            assert not any(type_.columns[c].evolves for c in seal.columns), name
    program_warnings(rewritten, analysis)
    log_retentions(rewritten, analysis)
    graph = build_graph(rewritten, analysis)
    fixed = {name: [c for c, t in r.type.columns.items() if not t.evolves] for name, r in graph.relations.items()}
    stages = split_into_stages(graph, fixed)
    place = {t.output: stage for stage in stages for t in stage.transforms}
    arrives = {(e.reader, e.relation): e for stage in stages for e in stage.exchanges}
    for transform in graph.transforms:
        here = place[transform.output]
        for name in transform.inputs:
            source = place.get(name)
            number = source.number if source is not None else 1
            assert number <= here.number
            # Rows that must meet either come through an exchange or are in place already.
            wanted = operator_of(transform.rel).partition_columns(
                transform.rel, graph.relations[transform.output].type.heading
            )
            if wanted is not None and source is not None and (transform.output, name) not in arrives:
                partitioning = source.partitionings[name]
                index = transform.inputs.index(name)
                assert partitioning.is_free or partitioning.is_colocated_by(pair[index] for pair in wanted)
