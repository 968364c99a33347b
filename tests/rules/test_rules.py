"""Each rule has a fixture file: streams, then cases with the MMPL before and after that rule alone is applied."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from smile.algebra import mmpl
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.analysis.check import check_program
from smile.analysis.headings import Headings
from smile.rules import RULES
from smile.source import Source

FOLDER = Path(__file__).parent
RULES_BY_NAME = {rule.__name__: rule for rule in RULES}


def cases() -> list[tuple[str, str, str, str]]:
    fixture_cases = []
    for path in sorted(FOLDER.glob("*.test")):
        prelude, *parts = re.split(r"^-- case: ", path.read_text(), flags=re.MULTILINE)
        for part in parts:
            title, _, rest = part.partition("\n")
            before, expect, after = rest.partition("-- expect\n")
            assert expect, f"{path.name}: {title} expects nothing"
            fixture_cases.append((path.stem, title, prelude + before, prelude + after))
    return fixture_cases


def parse(text: str) -> mmpl.Program:
    return check_program(parse_program(Source("fixture.mmpl", text)))


@pytest.mark.parametrize(("rule", "title", "before", "after"), cases(), ids=lambda v: v if "\n" not in v else "")
def test_rule(rule: str, title: str, before: str, after: str) -> None:
    given = parse(before)
    result = RULES_BY_NAME[rule](given)
    assert print_program(result) == print_program(parse(after))


@pytest.mark.parametrize(("rule", "title", "before", "after"), cases(), ids=lambda v: v if "\n" not in v else "")
def test_rule_keeps_headings_and_is_idempotent(rule: str, title: str, before: str, after: str) -> None:
    """A view has the same columns, key and totality after a rule; a second application changes nothing."""
    given = parse(before)
    result = RULES_BY_NAME[rule](given)
    old, new = Headings.from_program(given).relations, Headings.from_program(result).relations
    assert {n: _comparable(h) for n, h in old.items()} == {n: _comparable(new[n]) for n in old}
    assert print_program(RULES_BY_NAME[rule](result)) == print_program(result)


def _comparable(heading: object) -> object:
    return replace(heading, columns=tuple(heading.columns.items()))  # type: ignore[type-var, attr-defined]


def test_every_rule_has_a_fixture() -> None:
    assert {path.stem for path in FOLDER.glob("*.test")} == set(RULES_BY_NAME)
