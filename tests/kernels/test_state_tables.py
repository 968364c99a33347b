"""What the analysis says of a transform's state agrees with the tables that the transform has."""

from collections.abc import Collection, Iterator
from random import Random

import pytest

from smile.algebra import mmpl
from smile.analysis.type_analysis import TypeAnalysis
from smile.graph.build import build_graph
from smile.kernels.aggregates.members import MEMBERS
from smile.kernels.compile import compile_graph
from tests.programs.reader import programs
from tests.random_programs import SEED_ID, random_program, seeds


def described_tables(program: mmpl.Program) -> Iterator[tuple[str, Collection[str], str]]:
    """For each transform its operator, the names of its tables, and the description of its state."""
    graph = build_graph(program, TypeAnalysis(program))
    kernels = compile_graph(graph, program.log_streams)
    for transform in graph.transforms:
        tables = kernels.transforms[transform.output].table_schemas
        yield transform.operator, tables, "; ".join(state.description for state in transform.state)


@pytest.mark.parametrize("name", programs())
def test_members_are_described_where_they_are_stored(name: str) -> None:
    for operator, tables, description in described_tables(programs()[name]):
        assert MEMBERS not in tables or "all members" in description, (
            f"{operator} stores all members: `reads_members` of its aggregates in operators/aggregates.py says otherwise"
        )


@pytest.mark.parametrize("seed", seeds(100), ids=SEED_ID)
def test_state_is_described_where_there_are_tables(seed: int) -> None:
    for operator, tables, description in described_tables(random_program(Random(seed))):
        assert bool(tables) == bool(description), (operator, list(tables), description)
