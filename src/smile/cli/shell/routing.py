"""Divides what is typed into statements, and decides where each of them goes: to the broker or to the database."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from smile.errors import SmileError
from smile.postgres.statements.lexer import SqlToken, TokenKind, iterate_tokens
from smile.postgres.statements.parser import parse_statement
from smile.postgres.statements.splitter import FunctionBody, SqlStatement

_UNFINISHED = ("'", '"', "$", "/*")
"""How strings, names and comments begin that may end on a later line."""


class StatementPlace(Enum):
    BROKER = auto()
    DATABASE = auto()


@dataclass(frozen=True)
class TypedStatement:
    """`statement` has the text of this statement alone."""

    statement: SqlStatement

    @property
    def text(self) -> str:
        return self.statement.text

    def words(self, count: int) -> list[str]:
        return [self.text[token.start : token.end].upper() for token in self.statement.tokens[:count]]


def next_input(text: str, position: int) -> tuple[TypedStatement | str | None, int]:
    """The next complete statement or command from a position on, and the position after it; None if there is none.

    A command is a line that begins with a backslash. A statement ends with a semicolon. If only spaces and comments are
    left, the position is the end of the text.
    """
    tokens: list[SqlToken] = []
    depth, body = 0, FunctionBody()
    for token in iterate_tokens(text, position=position):
        if token.kind in (TokenKind.SPACE, TokenKind.COMMENT):
            continue
        written = text[token.start : token.end]
        if written == "\\" and not tokens:
            line, newline, _ = text[token.start :].partition("\n")
            return line.strip(), token.start + len(line) + len(newline)
        if token.kind is TokenKind.INVALID and written.lstrip("EeBbXxNnUu&").startswith(_UNFINISHED):
            return None, position
        if token.kind is TokenKind.PUNCTUATION:
            depth = max(0, depth + (written == "(") - (written == ")"))
            if written == ";" and depth == 0 and not body.is_open:
                if tokens:
                    return _make_statement(text, tokens), token.end
                continue
        if depth == 0:
            body.read(written.lower())
        tokens.append(token)
    return None, position if tokens else len(text)


def last_statement(text: str, position: int) -> TypedStatement | None:
    """What follows the last semicolon, if there will be no more input."""
    kinds = (TokenKind.SPACE, TokenKind.COMMENT)
    tokens = [token for token in iterate_tokens(text, position=position) if token.kind not in kinds]
    return _make_statement(text, tokens) if tokens else None


def _make_statement(text: str, tokens: Sequence[SqlToken]) -> TypedStatement:
    first, last = tokens[0].start, tokens[-1].end
    moved = tuple(SqlToken(token.kind, token.start - first, token.end - first) for token in tokens)
    return TypedStatement(SqlStatement(text[first:last], moved))


def choose_place(typed: TypedStatement, views: Collection[str], has_database: bool) -> StatementPlace:
    """By the grammar. A SELECT goes to the broker if it is from one of its relations. Without a database, the broker
    gets every SELECT, and statements that both have."""
    if is_broker_statement(typed):
        return StatementPlace.BROKER
    if not has_database and _is_ambiguous(typed):
        return StatementPlace.BROKER
    if typed.words(1) == ["SELECT"] and not _is_publish_statement(typed):
        names = {name.casefold() for name in views}
        if not has_database or (selected_view(typed) or "").casefold() in names:
            return StatementPlace.BROKER
    return StatementPlace.DATABASE


def is_broker_statement(typed: TypedStatement) -> bool:
    """SmileSQL that is nothing else: CREATE [GLOBAL] STREAM with columns, CREATE VIEW, CREATE DOMAIN, CREATE
    REPUBLISHER, ADVERTISE with a condition or the name of a producer, DROP VIEW, IMPORT, SUBSCRIBE."""
    words = typed.words(5)
    match words:
        case ["SUBSCRIBE", *_] | ["CREATE", "VIEW" | "DOMAIN" | "REPUBLISHER", *_] | ["DROP", "VIEW", *_]:
            return True
        case ["IMPORT", *rest]:
            return rest[:2] != ["FOREIGN", "SCHEMA"]
        case ["ADVERTISE", _, "WHERE" | "AS", *_] | ["CREATE", "GLOBAL", "STREAM", *_]:
            return True
        case ["CREATE", "STREAM", _, "FROM", "TABLE"]:
            return False
        case ["CREATE", "STREAM", *_]:
            return True
    return False


def _is_ambiguous(typed: TypedStatement) -> bool:
    """Whether both have the statement: CREATE TABLE with columns, and ADVERTISE of a name alone."""
    match typed.words(4):
        case ["CREATE", "TABLE", _, "("] | ["ADVERTISE", _]:
            return True
    return False


def _is_publish_statement(typed: TypedStatement) -> bool:
    try:
        return parse_statement(typed.statement) is not None
    except SmileError:
        return True


def selected_view(typed: TypedStatement) -> str | None:
    """The name after the first FROM outside of parentheses."""
    depth = 0
    tokens = typed.statement.tokens
    for token, following in pairwise(tokens):
        written = typed.text[token.start : token.end].upper()
        depth += (written == "(") - (written == ")")
        if depth == 0 and token.kind is TokenKind.IDENTIFIER and written == "FROM":
            return typed.text[following.start : following.end].strip('"')
    return None
