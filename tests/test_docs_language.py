"""docs/language.md is true: its examples compile, to the MMPL it shows, or fail as it says; every error is in it."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS
from smile.algebra.printer import print_program
from smile.errors import SmileError
from smile.lang import AGGREGATES, DERIVED_AGGREGATES, PERCENTILES
from smile.program import compile_program, read_source
from smile.source import Source
from smile.translate.function_names import CALLABLE_FUNCTIONS, SYNONYMS
from tests.translate.fixtures import RECORDED

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/language.md").read_text()


@dataclass(frozen=True)
class Example:
    text: str
    error: str | None
    mmpl: str | None


def examples() -> list[Example]:
    block = r"^```sql(?: error=(\w+))?\n(.*?)^```\n(?:[^`]*?^```mmpl\n(.*?)^```)?"
    blocks = re.findall(block, _short(PAGE), re.MULTILINE | re.DOTALL)
    return [Example(text, error or None, mmpl or None) for error, text, mmpl in blocks]


def _short(page: str) -> str:
    """Without the code that stands in a line of prose."""
    return re.sub(r"(?<!`)`[^`\n]+`(?!`)", "", page)


STREAMS, *EXAMPLES = examples()


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) == len(re.findall(r"^```sql", PAGE, re.MULTILINE)) - 1
    assert sum(e.mmpl is not None for e in EXAMPLES) == len(re.findall(r"^```mmpl", PAGE, re.MULTILINE))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.text.split("(")[0].strip()[:40])
def test_example(example: Example) -> None:
    source = Source("language.md", f"{example.text}\n{STREAMS.text}")
    if example.error is not None:
        with pytest.raises(SmileError) as failure:
            compile_program(source, RECORDED)
        assert [d.code for d in failure.value.diagnostics] == [example.error]
        return
    written = compile_program(source, RECORDED).original
    if example.mmpl is not None:
        assert print_program(replace(written, streams=())).strip() == example.mmpl.strip()


REFUSED = [
    code
    for row in PAGE.partition("| refused |")[2].partition("\n\n")[0].splitlines()[2:]
    for code in re.findall(r"`([^`]+)`", row.split(" | ")[0])
]
"""What the page says is refused."""


def test_the_page_has_what_is_refused() -> None:
    assert len(REFUSED) > 20


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_does_not_compile(text: str) -> None:
    statement = f"CREATE VIEW v AS {text}" if text.startswith(("SELECT", "WITH")) else text
    with pytest.raises(SmileError) as failure:
        compile_program(Source("language.md", f"{STREAMS.text}\n{statement};"))
    assert all(d.hint for d in failure.value.diagnostics), str(failure.value)


def test_every_function_is_listed() -> None:
    section = PAGE.partition("### Functions\n")[2].partition("\n### ")[0]
    words = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`([^`\n]+)`", section)).lower()))
    fields = {name.removeprefix("extract_") for name in SCALAR_FUNCTIONS if name.startswith("extract_")}
    missing = {*CALLABLE_FUNCTIONS - {"%"}, *SYNONYMS, *fields} - words
    assert not missing, f"not in the section Functions of docs/language.md: {sorted(missing)}"


def test_every_aggregate_is_listed() -> None:
    (listed,) = re.findall(r"the aggregates `([A-Z_ ]+)`", PAGE)
    assert set(listed.split()) == {
        *AGGREGATES,
        *DERIVED_AGGREGATES,
        *PERCENTILES,
        "MEDIAN",
        "STRING_AGG",
        "ARRAY_AGG",
    }, "docs/language.md lists the aggregates of lang/nodes.py"


PROGRAMS = sorted((ROOT / "programs").glob("*.smile"))


def test_there_are_programs() -> None:
    assert {p.stem for p in PROGRAMS} >= {"tradefloor", "stocks", "scoreboard", "flights", "sensors"}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_program_compiles(path: Path) -> None:
    compiled = compile_program(read_source(str(path)))
    assert compiled.original.subscriptions
