"""Tokens and statements: nothing of a text is lost, and PostgreSQL divides it at the same places."""

from itertools import pairwise

import psycopg
import pytest
from hypothesis import given, strategies as st

from smile.postgres.statements.lexer import TokenKind, tokenize
from smile.postgres.statements.splitter import split_statements
from tests.postgres.private_server import PrivateServer

PIECES = [
    "'", "''", '"', "E'", "e'", "U&'", 'u&"', "b'", "N'", "\\", "\\'", "$$", "$a$", "$1", "$", "--", "/*", "*/", "\n", "\r", " ",
    "\t", ";", "(", ")", "[", ".", "..", ":", "::", ":=", "=>", "+", "-", "*", "/", "@", "=", "<>", "1", "0x1F", "1.5e3", ".5",
    "name", "é", "日本", "\0", "😀", "CREATE", "FUNCTION", "BEGIN", "ATOMIC", "CASE", "END", ",", "select",
]  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=30).map("".join))


@given(TEXTS, st.booleans())
def test_tokens_joined_are_the_text(text: str, conforming: bool) -> None:
    tokens = tokenize(text, conforming)
    assert "".join(text[token.start : token.end] for token in tokens) == text
    assert all(token.start < token.end for token in tokens)
    assert all(first.end == second.start for first, second in pairwise(tokens))


@given(TEXTS, st.booleans())
def test_statements_are_in_order_and_apart(text: str, conforming: bool) -> None:
    for first, second in pairwise(split_statements(text, conforming) or []):
        assert ";" in text[first.end : second.start]


def kinds(text: str, conforming: bool = True) -> list[tuple[str, str]]:
    tokens = tokenize(text, conforming)
    return [(t.kind.name, text[t.start : t.end]) for t in tokens if t.kind is not TokenKind.SPACE]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'it''s'", [("STRING", "'it''s'")]),
        ("'a'\n 'b'", [("STRING", "'a'\n 'b'")]),
        ("'a' 'b'", [("STRING", "'a'"), ("STRING", "'b'")]),
        ("'a' -- c\n'b'", [("STRING", "'a' -- c\n'b'")]),
        (r"E'\'' x", [("STRING", r"E'\''"), ("IDENTIFIER", "x")]),
        ("E'a'\n'\\''", [("STRING", "E'a'\n'\\''")]),
        (r"'\' x", [("STRING", r"'\'"), ("IDENTIFIER", "x")]),
        (r"U&'\0041;' ", [("STRING", r"U&'\0041;'")]),
        ('U&"a""b" "c;d"', [("QUOTED_IDENTIFIER", 'U&"a""b"'), ("QUOTED_IDENTIFIER", '"c;d"')]),
        ("$$;$$ $a$ $$ $b$ $a$", [("DOLLAR_STRING", "$$;$$"), ("DOLLAR_STRING", "$a$ $$ $b$ $a$")]),
        ("a$b$c $12", [("IDENTIFIER", "a$b$c"), ("PARAMETER", "$12")]),
        ("/* a /* b */ ; */ x", [("COMMENT", "/* a /* b */ ; */"), ("IDENTIFIER", "x")]),
        ("1..2 1.5e-3 .5 0x1F 1_000", [("NUMBER", "1"), ("PUNCTUATION", ".."), ("NUMBER", "2"), ("NUMBER", "1.5e-3"),
                                       ("NUMBER", ".5"), ("NUMBER", "0x1F"), ("NUMBER", "1_000")]),
        ("a=-1", [("IDENTIFIER", "a"), ("OPERATOR", "="), ("OPERATOR", "-"), ("NUMBER", "1")]),
        ("a@-1", [("IDENTIFIER", "a"), ("OPERATOR", "@-"), ("NUMBER", "1")]),
        ("a*/*c*/b", [("IDENTIFIER", "a"), ("OPERATOR", "*"), ("COMMENT", "/*c*/"), ("IDENTIFIER", "b")]),
        ("a<>--c", [("IDENTIFIER", "a"), ("OPERATOR", "<>"), ("COMMENT", "--c")]),
        ("'open", [("INVALID", "'open")]), ('"a""', [("INVALID", '"a""')]), ("/* /* */", [("INVALID", "/* /* */")]),
        ("$a$ $b$", [("INVALID", "$a$ $b$")]), ("{", [("INVALID", "{")]),
    ],
)  # fmt: skip
def test_tokens(text: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(text) == expected


def test_strings_that_do_not_conform() -> None:
    assert kinds(r"'\';' x", conforming=False) == [("STRING", r"'\';'"), ("IDENTIFIER", "x")]
    assert kinds(r"U&'\' x", conforming=False) == [("STRING", r"U&'\'"), ("IDENTIFIER", "x")]


def written(text: str) -> list[str] | None:
    statements = split_statements(text)
    return None if statements is None else [statement.written() for statement in statements]


def test_statements() -> None:
    assert written(" ; a ;; -- c;\n b;/* d; */") == ["a", "b"]
    assert written("a; 'open") is None
    rule = "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)"
    function = "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END"
    assert written(f"{rule}; {function}; BEGIN; a; END") == [rule, function, "BEGIN", "a", "END"]


# ── compared with a server ──────────────────────────────────────────────────────────────────────────────────────────

STATEMENTS = [
    "SELECT 'a;b'", "SELECT E'it\\';'", "SELECT $$;$$", "SELECT $x$ $$; $x$ AS \";\"", "SELECT 1 /* ; /* ; */ */ + 1",
    "SELECT U&'\\0041;'", 'SELECT 1 AS U&"\\0061;"', "SELECT 'a'\n';b'", "SELECT E'a'\n'\\';'", "SELECT -- ;\n 2", "SELECT (1)",
    "SELECT 1 AS case", "SELECT ARRAY[1, 2]", "SELECT 2*/*;*/3", "SELECT 1 <> -1", "SELECT 'x' || b'1'::text", "SELECT x'1F'",
    "SELECT 3 AS a$b$", "BEGIN", "COMMIT", "SELECT 1.5e3, .5, 1.", "VALUES (1), (2)", "SELECT N'\\'", "SELECT '\\'",
    "CREATE OR REPLACE FUNCTION pg_temp.f(a int) RETURNS int BEGIN ATOMIC SELECT CASE a WHEN 1 THEN 2 ELSE 3 END; SELECT 4; END",
    "CREATE OR REPLACE PROCEDURE pg_temp.g() BEGIN ATOMIC SELECT 1 AS end; SELECT (CASE WHEN true THEN 1 END); END",
    "CREATE OR REPLACE RULE r AS ON INSERT TO split_test DO ALSO (SELECT 1; SELECT 'a;b')",
    "DO $d$ BEGIN PERFORM 1; END $d$",
]  # fmt: skip
SEPARATORS = [";", ";;", " ; ", ";\n", ";-- x;\n", ";/* ; */", "; ;"]


def run(connection: psycopg.Connection[tuple[object, ...]], text: str) -> list[tuple[bytes, list[list[bytes | None]]]]:
    """The tag and the rows of each statement that the server finds in the text."""
    connection.pgconn.send_query(text.encode())
    results = []
    while (result := connection.pgconn.get_result()) is not None:
        assert not result.error_message, f"{text!r}: {result.error_message.decode()}"
        if result.command_status is not None and result.status != psycopg.pq.ExecStatus.EMPTY_QUERY:
            rows = [
                [result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)
            ]
            results.append((result.command_status, rows))
    return results


@pytest.mark.slow
def test_every_statement_alone_is_one_statement(server: PrivateServer) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS split_test (a int)")
        for text in STATEMENTS:
            assert len(run(connection, text)) == 1, text
            assert written(text) == [text]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(STATEMENTS), st.sampled_from(SEPARATORS)), max_size=8))
def test_the_server_finds_the_same_statements(server: PrivateServer, parts: list[tuple[str, str]]) -> None:
    text = "".join(f"{statement}{separator}" for statement, separator in parts)
    with server.connect(port=server.port) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS split_test (a int)")
        statements = written(text)
        assert statements == [statement for statement, _ in parts]
        together = run(connection, text)
        connection.execute("ROLLBACK")
        apart = [result for statement in statements for result in run(connection, statement)]
        assert together == apart


@pytest.mark.slow
@given(TEXTS.filter(lambda text: "\0" not in text))
def test_what_the_server_cannot_divide_is_invalid(server: PrivateServer, text: str) -> None:
    """If the server reports an unterminated string, identifier or comment, there is a token INVALID."""
    with server.connect(port=server.port) as connection:
        connection.pgconn.send_query(f"SELECT ({text}".encode("utf-8", "replace"))
        messages = b""
        while (result := connection.pgconn.get_result()) is not None:
            messages += result.error_message
    is_divided = split_statements(f"SELECT ({text}") is not None
    if b"unterminated" in messages:
        assert not is_divided
