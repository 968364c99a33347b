"""Every case of the fixture files has the expected result, and the resulting MMPL can be parsed and checked."""

import pytest

from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.analysis.check import check_program
from smile.errors import CATALOGUE, SmileError
from smile.program import compile_program
from smile.source import Source
from tests.translate.fixtures import Case, all_cases, outcome

CASES = all_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.file}: {c.title}")
def test_case(case: Case) -> None:
    assert outcome(case) == case.expected


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.file}: {c.title}")
def test_printed_mmpl_parses_to_the_same_program(case: Case) -> None:
    try:
        program = compile_program(case.source).original
    except SmileError:
        return
    assert check_program(program) == program
    assert parse_program(Source("case.mmpl", print_program(program))) == program


def test_errors_test_expects_errors_and_the_others_none() -> None:
    for case in CASES:
        assert ("error E" in case.expected) == (case.file == "errors.test"), case.title


def test_every_code_of_names_types_and_relations_has_a_case() -> None:
    expected = "\n".join(case.expected for case in CASES)
    required = [code for code in CATALOGUE if "E020" <= code < "E050"]
    assert [code for code in required if f"error {code}:" not in expected] == []
