"""Statements of a program, each read on its own: one error in each that is broken, and nothing lost of the others."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from smile import limits
from smile.errors import Diagnostic, SmileError
from smile.lang.cursor import Cursor, plain
from smile.lang.definitions import read_statement
from smile.lang.expressions import Expected
from smile.lang.lexer import Piece, cut, span_of_token, too_deep
from smile.lang.statements import Statement
from smile.source import Source, Span

# Once, and not for each call: the limit is the whole process's, and others watch it while they run.
sys.setrecursionlimit(max(sys.getrecursionlimit(), limits.frames_max))

_COMMON_WORDS = """
    SELECT DISTINCT FROM WHERE GROUP ORDER HAVING LIMIT JOIN USING BETWEEN UNION SUBSCRIBE CREATE STREAM DOMAIN VIEW
    CHECK INTERVAL CASE WHEN THEN ELSE BEST
"""
_WORDS = _COMMON_WORDS.split()


def parse(source: Source) -> tuple[list[Statement], list[Diagnostic]]:
    """The statements that could be read, and one diagnostic for each that could not, both in the text's order."""
    statements: list[Statement] = []
    problems: list[Diagnostic] = []
    empty = True
    for part, problem in _parts(source.text):
        empty = False
        problems += [problem] if problem else []
        read = _read(part, source.text)
        if isinstance(read, Diagnostic):
            problems.append(read)
        else:
            statements.append(read)
        if len(problems) >= limits.statements_broken_max:
            break
    if empty:
        hint = "A program has streams, views over them, and subscriptions to views."
        problems.append(Diagnostic("E004", "the program is empty", Span(0, 0), hint))
    return statements, [replace(problem, message=_printable(problem.message)) for problem in problems]


def unread_names(source: Source) -> list[str]:
    """What the CREATE statements that cannot be read would have named: those who use it are not to blame."""
    parts = [part for part, _ in _parts(source.text) if isinstance(_read(part, source.text), Diagnostic)]
    begun = [part.tokens for part in parts if len(part.tokens) > 2 and plain(part.tokens[0]) == "CREATE"]
    return [tokens[2].text for tokens in begun if plain(tokens[1]) in ("STREAM", "VIEW", "DOMAIN")]


def _printable(message: str) -> str:
    """A message may quote the program, which may hold anything."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in message)


def _parts(text: str) -> Iterator[tuple[Piece, Diagnostic | None]]:
    """Every statement's tokens, with the error of a semicolon missing before it."""
    for piece in cut(text):
        yield from _at_missing_semicolons(piece)


def _read(piece: Piece, text: str) -> Statement | Diagnostic:
    if piece.problem:
        return piece.problem
    tokens = piece.tokens
    try:
        return read_statement(Cursor(tokens, text))
    except SmileError as failure:
        return failure.diagnostics[0]
    except Expected as missing:
        return _syntax_error(missing, piece, text)
    except RecursionError:
        return too_deep(_whole(tokens), limits.expression_depth_max)
    except SqlglotError:
        return Diagnostic("E010", "the statement cannot be read", _whole(tokens))


def _whole(tokens: list[Token]) -> Span:
    return Span(tokens[0].start, tokens[-1].end + 1)


def _syntax_error(missing: Expected, piece: Piece, text: str) -> Diagnostic:
    token = missing.token
    if token is not None:
        span, found = span_of_token(token), _shown(text[token.start : token.end + 1])
    elif piece.end < len(text):
        found = text[piece.end] if text[piece.end] == ";" else text[piece.end :].split(maxsplit=1)[0]
        span = Span(piece.end, piece.end + len(found))
    else:
        end = piece.tokens[-1].end + 1
        span, found = Span(end, end), "the end"
    message = f"expected {missing.what} but found {found}" if missing.what else f"unexpected {found}"
    return Diagnostic("E010", message, span, _misspelling(piece.tokens, token))


def _shown(written: str) -> str:
    words = " ".join(written.split())
    return words if len(words) <= 40 else f"{words[:39]}…"


def _misspelling(tokens: list[Token], found: Token | None) -> str | None:
    """`SELECT a FORM s` goes wrong at `s`, one word after the misspelt one, which was taken for a name."""
    at = next((i for i, token in enumerate(tokens) if token is found), len(tokens))
    for token in tokens[max(at - 1, 0) : at + 1]:
        word = plain(token)
        like = [w for w in _WORDS if abs(len(w) - len(word)) <= 1]
        if token.token_type == TokenType.VAR and word not in like and (near := get_close_matches(word, like, 1, 0.75)):
            return f"Did you mean {near[0]}?"
    return None


def _at_missing_semicolons(piece: Piece) -> Iterator[tuple[Piece, Diagnostic | None]]:
    """A piece in which another statement starts, as the statements it should have been."""
    tokens, first = piece.tokens, 0
    problem = None
    for at in range(1, len(tokens)):
        if _starts_statement(tokens, at):
            yield Piece(tokens[first:at], tokens[at].start), problem
            word = tokens[at].text.upper()
            problem = Diagnostic("E010", f"expected ; before {word}", span_of_token(tokens[at]))
            first = at
    yield Piece(tokens[first:], piece.end, piece.problem), problem


def _starts_statement(tokens: list[Token], at: int) -> bool:
    word = plain(tokens[at])
    following = plain(tokens[at + 1]) if at + 1 < len(tokens) else ""
    if word == "CREATE":
        return following in ("STREAM", "DOMAIN", "VIEW") and at + 2 < len(tokens)
    if word not in ("SUBSCRIBE", "SUBSCRIPTIONS") or plain(tokens[at - 1]) in (",", ".", "FROM", "JOIN", "AS", "("):
        return False
    if (len(tokens) - at) % 2:
        return False
    return all(
        tokens[i].token_type in ((TokenType.VAR, TokenType.IDENTIFIER) if (i - at) % 2 else (TokenType.COMMA,))
        for i in range(at + 1, len(tokens))
    )
