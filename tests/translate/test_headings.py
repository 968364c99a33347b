"""Errors that are only possible in hand-written MMPL."""

import pytest

from smile.algebra.parser import parse_program
from smile.analysis.check import check_program
from smile.errors import SmileError
from smile.source import Source

STREAM = "STREAM s (t: time -> x: int, y: int);\n"


def codes(text: str) -> list[str]:
    with pytest.raises(SmileError) as failure:
        check_program(parse_program(Source("hand.mmpl", STREAM + text)))
    return [d.code for d in failure.value.diagnostics]


def test_a_union_of_a_union_needs_two_names_for_its_branches() -> None:
    first = "VIEW one := UNION { s PROJECT {x}, s PROJECT {x} };\n"
    assert codes(first + "VIEW two := UNION { one, s PROJECT {x} };") == ["E044"]
    program = first + "VIEW two := UNION { one RENAME {branch AS inner}, s PROJECT {x} };"
    assert len(check_program(parse_program(Source("hand.mmpl", STREAM + program))).views) == 2


def test_relations_cannot_be_counted_as_distinct() -> None:
    nested = "VIEW n := s SUMMARIZE PER {x} ADD {g := GROUP {y}};\n"
    assert codes(nested + "VIEW v := n SUMMARIZE PER {} ADD {k := COUNT(DISTINCT g)};") == ["E031"]
