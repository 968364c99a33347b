"""Every operator and every aggregate of MMPL has an entry in the catalogues."""

from typing import Any, get_args

import pytest

from smile.algebra import mmpl
from smile.kernels.compile import TRANSFORMS
from smile.operators.aggregates import AGGREGATES
from smile.operators.catalogue import OPERATORS
from smile.operators.operator import Operator
from smile.reference.evaluate import MEANINGS

CATALOGUES: list[Any] = [OPERATORS, MEANINGS, TRANSFORMS]


@pytest.mark.parametrize("node", mmpl.Rel.__subclasses__())
@pytest.mark.parametrize("catalogue", CATALOGUES, ids=["operator", "meaning", "transform"])
def test_every_operator_is_in_every_catalogue(catalogue: dict[type[mmpl.Rel], Any], node: type[mmpl.Rel]) -> None:
    assert node in catalogue, "CONTRIBUTING.md says where each of its parts belongs"


@pytest.mark.parametrize("node", OPERATORS)
def test_an_entry_is_for_its_own_nodes(node: type[mmpl.Rel]) -> None:
    """An operator takes nodes of the class that its own class names."""
    assert type(OPERATORS[node]).__name__ == f"{node.__name__}Operator"
    assert isinstance(OPERATORS[node], Operator)


def test_every_aggregate_has_an_entry() -> None:
    assert set(AGGREGATES) == set(get_args(mmpl.AggregateName))
