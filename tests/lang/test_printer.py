"""Printing is the inverse of parsing, and every spelling has one canonical form."""

import pytest

from smile.lang import (
    AdvertiseProducer,
    CreateDomain,
    CreateRepublisher,
    CreateStream,
    CreateTable,
    CreateView,
    ImportRelation,
    Statement,
    Subscribe,
    parse,
    print_statements,
)
from smile.source import Source
from tests.lang.corpus import EXAMPLES, QUERIES, SPELLINGS, STATEMENTS


def parse_valid(text: str) -> list[Statement]:
    statements, problems = parse(Source("program", text))
    assert problems == []
    return statements


def content_of(statement: Statement) -> list[object]:
    """The content of a statement without its spans. Expressions are compared by content."""
    match statement:
        case CreateDomain():
            return [statement.name.text, statement.base, statement.check, statement.not_null]
        case CreateStream():
            columns = [
                (c.name.text, c.name.quoted, c.type_name, c.not_null, c.checks)
                for c in (statement.tick, *statement.columns)
            ]
            return [
                statement.name.text,
                columns,
                statement.checks,
                statement.publisher_timed,
                [n.text for n in statement.channel or ()],
            ]
        case CreateTable():
            return [
                statement.name.text,
                [(c.name.text, c.name.quoted, c.type_name, c.not_null, c.checks, c.unique) for c in statement.columns],
                [n.text for n in statement.key],
                statement.checks,
                statement.rows,
                statement.is_static,
                statement.publisher_timed,
            ]
        case CreateView():
            return [statement.name.text, [c.text for c in statement.columns], statement.query]
        case ImportRelation():
            names = (statement.relation, statement.broker, statement.name)
            return [[(n.text, n.quoted) for n in names], statement.condition]
        case AdvertiseProducer():
            alias = statement.alias and statement.alias.text
            declared = statement.stream and content_of(statement.stream)
            return [statement.relation.text, statement.condition, alias, declared]
        case CreateRepublisher():
            return [statement.name.text, statement.relation.text, statement.condition, statement.history]
        case Subscribe():
            return [[(n.text, n.quoted) for n in statement.names]]


def check_inverse(text: str) -> None:
    statements = parse_valid(text)
    printed = print_statements(statements)
    reparsed = parse_valid(printed)
    assert [content_of(s) for s in reparsed] == [content_of(s) for s in statements]
    assert print_statements(reparsed) == printed


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    check_inverse(EXAMPLES[name])


@pytest.mark.parametrize(("text", "canonical"), STATEMENTS)
def test_statements(text: str, canonical: str) -> None:
    assert print_statements(parse_valid(text)) == canonical + ";\n"
    check_inverse(text)


@pytest.mark.parametrize("query", QUERIES)
def test_canonical_queries(query: str) -> None:
    text = f"CREATE VIEW v AS {query};\n"
    assert print_statements(parse_valid(text)) == text
    check_inverse(text)


@pytest.mark.parametrize(("query", "canonical"), SPELLINGS)
def test_spellings(query: str, canonical: str) -> None:
    (view,), (canonical_view,) = (
        parse_valid(f"CREATE VIEW v AS {query}\n;"),
        parse_valid(f"CREATE VIEW v AS {canonical}"),
    )
    assert print_statements([view]) == f"CREATE VIEW v AS {canonical};\n"
    assert isinstance(view, CreateView) and isinstance(canonical_view, CreateView)
    assert view.query == canonical_view.query
    check_inverse(f"CREATE VIEW v AS {query}\n;")
