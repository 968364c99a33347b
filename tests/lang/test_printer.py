"""Printing and reading are each other's inverse, and every spelling has one canonical form."""

import pytest

from smile.lang import CreateDomain, CreateStream, CreateView, Statement, Subscribe, parse, print_statements
from smile.source import Source
from tests.lang.corpus import EXAMPLES, QUERIES, SPELLINGS, STATEMENTS


def read(text: str) -> list[Statement]:
    statements, problems = parse(Source("program", text))
    assert problems == []
    return statements


def without_places(statement: Statement) -> list[object]:
    """What a statement says, to be compared; expressions compare by content."""
    match statement:
        case CreateDomain():
            return [statement.name.text, statement.base, statement.check, statement.not_null]
        case CreateStream():
            columns = [
                (c.name.text, c.name.quoted, c.type_name, c.not_null, c.checks)
                for c in (statement.tick, *statement.columns)
            ]
            return [statement.name.text, columns, statement.checks, statement.publisher_timed]
        case CreateView():
            return [statement.name.text, [c.text for c in statement.columns], statement.query]
        case Subscribe():
            return [[(n.text, n.quoted) for n in statement.names]]


def check_inverse(text: str) -> None:
    statements = read(text)
    printed = print_statements(statements)
    again = read(printed)
    assert [without_places(s) for s in again] == [without_places(s) for s in statements]
    assert print_statements(again) == printed


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    check_inverse(EXAMPLES[name])


@pytest.mark.parametrize(("text", "canonical"), STATEMENTS)
def test_statements(text: str, canonical: str) -> None:
    assert print_statements(read(text)) == canonical + ";\n"
    check_inverse(text)


@pytest.mark.parametrize("query", QUERIES)
def test_canonical_queries(query: str) -> None:
    text = f"CREATE VIEW v AS {query};\n"
    assert print_statements(read(text)) == text
    check_inverse(text)


@pytest.mark.parametrize(("query", "canonical"), SPELLINGS)
def test_spellings(query: str, canonical: str) -> None:
    (one,), (other,) = read(f"CREATE VIEW v AS {query}\n;"), read(f"CREATE VIEW v AS {canonical}")
    assert print_statements([one]) == f"CREATE VIEW v AS {canonical};\n"
    assert isinstance(one, CreateView) and isinstance(other, CreateView)
    assert one.query == other.query
    check_inverse(f"CREATE VIEW v AS {query}\n;")
