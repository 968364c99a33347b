"""Parses a program statement by statement. An error in one statement does not affect the others.

A statement gives at most one error, and one more if the semicolon before it is missing. Parsing stops once
`limits.syntax_errors_max` errors have been found.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from smile import limits
from smile.errors import Diagnostic, SmileError
from smile.lang.cursor import TokenCursor, unquoted_text
from smile.lang.expression_parser import UnexpectedTokenError
from smile.lang.lexer import StatementTokens, nesting_problem, span_of_token, split_statements
from smile.lang.statement_parser import read_statement
from smile.lang.statements import Statement
from smile.source import Source, Span

T = TypeVar("T")

_COMMON_WORDS = """
    SELECT DISTINCT FROM WHERE GROUP ORDER HAVING LIMIT JOIN USING BETWEEN UNION SUBSCRIBE CREATE STREAM DOMAIN VIEW
    TABLE IMPORT CHECK INTERVAL CASE WHEN THEN ELSE BEST
"""
_NAMED_THINGS = frozenset(
    (
        "the view's name",
        "the stream's name",
        "the table's name",
        "the domain's name",
        "a column",
        "a name",
        "a stream or view",
        "a view",
    )
)
"""What a statement expects where a name has to be."""
_WORD_HINTS = {
    "APPLY": "Write JOIN LATERAL (SELECT …) AS s ON TRUE.",
    "ENFORCED": "Omit NOT ENFORCED: a table has one row for each key.",
    "KEY": "A stream has one TIME KEY column, its tick. For rows with a key, write CREATE TABLE … PRIMARY KEY.",
    "DIV": "Write a / b: of two ints it is a whole number.",
    "GLOB": "Write LIKE, with % and _ for unknown characters.",
    "ISNULL": "Write COALESCE(a, b), or a IS NULL.",
    "MATCH_CONDITION": "Write the condition in ON: ASOF JOIN r ON l.k = r.k AND l.t >= r.t.",
    "MINUS": "Write EXCEPT.",
    "MOD": "Write a % b.",
    "OVERLAPS": "Write a < d AND c < b for (a, b) OVERLAPS (c, d).",
    "PLACING": "Use LEFT, SUBSTRING and ||.",
    "REGEXP": "Write a ~ 'pattern'.",
    "RLIKE": "Write a ~ 'pattern'.",
    "ROLLUP": "Write GROUP BY ROLLUP (a, b).",
    "SYMMETRIC": "Write BETWEEN LEAST(a, b) AND GREATEST(a, b).",
    "TABLE": "Write SELECT * FROM.",
    "TIES": "Write RANK() OVER (ORDER BY a) <= k in QUALIFY, which keeps the rows that are equal to the last one.",
    "TOP": "Write ORDER BY … LIMIT k at the end of the query.",
    "UNKNOWN": "Write IS NULL.",
    "VALUES": "Write SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v (x, y).",
    "WITHIN": "Bound the time in ON: r.t BETWEEN l.t - INTERVAL '1' HOUR AND l.t + INTERVAL '1' HOUR.",
}
"""What to write instead of words of other dialects."""
_WORDS_LIKE_NAMES = ("DIV", "ISNULL", "MINUS", "MOD", "SYMMETRIC", "TOP")
_SECOND_WORDS = ("APPLY", "ENFORCED", "ROLLUP", "TIES")
_CREATED = ("STREAM", "TABLE", "DOMAIN", "VIEW")
_SUGGESTED_WORDS = _COMMON_WORDS.split()


def parse(source: Source) -> tuple[list[Statement], list[Diagnostic]]:
    """The statements that could be parsed, and the syntax errors, both in the order of the text."""
    statements: list[Statement] = []
    problems: list[Diagnostic] = []
    empty = True
    for statement_tokens, problem in _split_program(source.text):
        empty = False
        problems += [problem] if problem else []
        result = _parse_statement(statement_tokens, source.text)
        if isinstance(result, Diagnostic):
            problems.append(result)
        else:
            statements.append(result)
        if len(problems) >= limits.syntax_errors_max:
            break
    if empty:
        hint = "A program has streams, views over them, and subscriptions to views."
        problems.append(Diagnostic("E004", "the program is empty", Span(0, 0), hint))
    return statements, [replace(problem, message=_printable(problem.message)) for problem in problems]


def unparsed_names(source: Source) -> list[str]:
    """The names that unparsable statements would define. Statements that use them get no further errors."""
    unparsed = [
        part for part, _ in _split_program(source.text) if isinstance(_parse_statement(part, source.text), Diagnostic)
    ]
    creations = [part.tokens for part in unparsed if len(part.tokens) > 2 and unquoted_text(part.tokens[0]) == "CREATE"]
    imports = [part.tokens for part in unparsed if len(part.tokens) > 1 and unquoted_text(part.tokens[0]) == "IMPORT"]
    created = [tokens[2].text for tokens in creations if unquoted_text(tokens[1]) in _CREATED]
    return created + [name for tokens in imports for name in (tokens[1].text, tokens[-1].text)]


def _printable(message: str) -> str:
    """A message may quote the program, which may contain unprintable characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in message)


def _split_program(text: str) -> Iterator[tuple[StatementTokens, Diagnostic | None]]:
    """The tokens of every statement, with the error for a missing semicolon before it, if any."""
    for statement in split_statements(text):
        yield from _split_at_missing_semicolons(statement)


def _parse_statement(statement: StatementTokens, text: str) -> Statement | Diagnostic:
    return _parse_tokens(statement, text, read_statement)


def parse_filter(source: Source) -> exp.Expr:
    """The predicate of a filter. A syntax error is raised with its position."""
    return _parse_predicate(source, _read_filter)


def parse_condition(source: Source) -> exp.Expr:
    """The predicate of an advertisement, in which `from` is a name. A syntax error is raised with its position."""
    return _parse_predicate(source, _read_condition)


def _parse_predicate(source: Source, read: Callable[[TokenCursor], exp.Expr]) -> exp.Expr:
    parts = list(split_statements(source.text))
    if len(parts) != 1:
        raise SmileError(Diagnostic("E010", f"a {source.name} is one condition", Span(0, len(source.text))))
    parsed = _parse_tokens(parts[0], source.text, read)
    if isinstance(parsed, Diagnostic):
        raise SmileError(replace(parsed, message=_printable(parsed.message)))
    return parsed


def _read_condition(cursor: TokenCursor) -> exp.Expr:
    cursor.take_as_names("FROM")
    return _read_filter(cursor)


def _read_filter(cursor: TokenCursor) -> exp.Expr:
    condition = cursor.read_condition_before(None)
    cursor.expect_end()
    return condition


def _parse_tokens(statement: StatementTokens, text: str, read: Callable[[TokenCursor], T]) -> T | Diagnostic:
    if statement.problem:
        return statement.problem
    tokens = statement.tokens
    try:
        return read(TokenCursor(tokens, text))
    except SmileError as failure:
        return failure.diagnostics[0]
    except UnexpectedTokenError as unexpected:
        return _syntax_error(unexpected, statement, text)
    except RecursionError:
        return nesting_problem(_whole_span(tokens), limits.syntax_depth_max)
    except SqlglotError:
        return Diagnostic("E010", "the statement cannot be parsed", _whole_span(tokens))


def _whole_span(tokens: list[Token]) -> Span:
    return Span(tokens[0].start, tokens[-1].end + 1)


def _syntax_error(unexpected: UnexpectedTokenError, statement: StatementTokens, text: str) -> Diagnostic:
    token = unexpected.token
    if token is not None:
        span, actual = span_of_token(token), _shorten(text[token.start : token.end + 1])
    elif statement.end < len(text):
        actual = text[statement.end] if text[statement.end] == ";" else text[statement.end :].split(maxsplit=1)[0]
        span = Span(statement.end, statement.end + len(actual))
    else:
        end = statement.tokens[-1].end + 1
        span, actual = Span(end, end), "the end"
    message = f"expected {unexpected.expected} but found {actual}" if unexpected.expected else f"unexpected {actual}"
    return Diagnostic("E010", message, span, _keyword_hint(unexpected) or _word_hint(statement.tokens, token))


def _keyword_hint(unexpected: UnexpectedTokenError) -> str | None:
    """Where a name is expected, a keyword has to be quoted."""
    token = unexpected.token
    is_name_expected = unexpected.expected in _NAMED_THINGS
    if token is None or not is_name_expected or not re.fullmatch(r"[^\W\d]\w*", token.text):
        return None
    return f'{token.text.upper()} is a keyword. Write "{token.text}" in double quotes, or choose another name.'


def _word_hint(tokens: list[Token], unexpected: Token | None) -> str | None:
    """The word is the unexpected one, or beside it if it has been parsed as a name or follows a word that is one."""
    index = next((i for i, token in enumerate(tokens) if token is unexpected), len(tokens))
    places = ((index, _WORD_HINTS.keys()), (index - 1, _WORDS_LIKE_NAMES), (index + 1, _SECOND_WORDS))
    near = [
        unquoted_text(tokens[i]) for i, words in places if 0 <= i < len(tokens) and unquoted_text(tokens[i]) in words
    ]
    return _WORD_HINTS[near[0]] if near else _spelling_hint(tokens, unexpected)


def _shorten(written: str) -> str:
    words = " ".join(written.split())
    return words if len(words) <= 40 else f"{words[:39]}…"


def _spelling_hint(tokens: list[Token], unexpected: Token | None) -> str | None:
    """In `SELECT a FORM s` the error is at `s`: the misspelt word before it was parsed as a name."""
    index = next((i for i, token in enumerate(tokens) if token is unexpected), len(tokens))
    for token in tokens[max(index - 1, 0) : index + 1]:
        word = unquoted_text(token)
        candidates = [w for w in _SUGGESTED_WORDS if abs(len(w) - len(word)) <= 1]
        if (
            token.token_type == TokenType.VAR
            and word not in candidates
            and (close_matches := get_close_matches(word, candidates, 1, 0.75))
        ):
            return f"Did you mean {close_matches[0]}?"
    return None


def _split_at_missing_semicolons(statement: StatementTokens) -> Iterator[tuple[StatementTokens, Diagnostic | None]]:
    """Splits a statement in which another one starts."""
    tokens, first = statement.tokens, 0
    problem = None
    for index in range(1, len(tokens)):
        if _starts_statement(tokens, index):
            yield StatementTokens(tokens[first:index], tokens[index].start), problem
            word = tokens[index].text.upper()
            problem = Diagnostic("E010", f"expected ; before {word}", span_of_token(tokens[index]))
            first = index
    yield StatementTokens(tokens[first:], statement.end, statement.problem), problem


def _starts_statement(tokens: list[Token], index: int) -> bool:
    word = unquoted_text(tokens[index])
    next_text = unquoted_text(tokens[index + 1]) if index + 1 < len(tokens) else ""
    if word == "CREATE":
        return next_text in _CREATED and index + 2 < len(tokens)
    if word not in ("SUBSCRIBE", "SUBSCRIPTIONS") or unquoted_text(tokens[index - 1]) in (
        ",",
        ".",
        "FROM",
        "JOIN",
        "AS",
        "(",
    ):
        return False
    if (len(tokens) - index) % 2:
        return False
    return all(
        tokens[i].token_type in ((TokenType.VAR, TokenType.IDENTIFIER) if (i - index) % 2 else (TokenType.COMMA,))
        for i in range(index + 1, len(tokens))
    )
