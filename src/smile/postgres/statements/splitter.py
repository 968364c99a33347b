"""Divides a query text into statements where PostgreSQL does.

A semicolon ends a statement unless it is within parentheses (the actions of a rule) or within the body of a function
that is written as BEGIN ATOMIC … END.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from smile.postgres.statements.lexer import SqlToken, TokenKind, tokenize

_IGNORED = (TokenKind.SPACE, TokenKind.COMMENT)
_WORDS_AND_DOTS = (TokenKind.IDENTIFIER, TokenKind.PUNCTUATION)


@dataclass(frozen=True)
class SqlStatement:
    """A statement that is not empty: its tokens without spaces and comments, and without the semicolon."""

    text: str
    """The whole query text."""
    tokens: tuple[SqlToken, ...]

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end

    def written(self) -> str:
        return self.text[self.start : self.end]


def split_statements(text: str, standard_conforming_strings: bool = True) -> list[SqlStatement] | None:
    """The statements of the text, or None if PostgreSQL cannot divide it into tokens."""
    tokens = tokenize(text, standard_conforming_strings)
    if any(token.kind is TokenKind.INVALID for token in tokens):
        return None
    return [SqlStatement(text, tuple(part)) for part in _split_tokens(text, tokens) if part]


def _split_tokens(text: str, tokens: Sequence[SqlToken]) -> Iterator[list[SqlToken]]:
    part: list[SqlToken] = []
    depth, body = 0, FunctionBody()
    for token in tokens:
        if token.kind in _IGNORED:
            continue
        if token.kind is TokenKind.PUNCTUATION:
            character = text[token.start]
            if character == ";" and depth == 0 and not body.is_open:
                yield part
                part, body = [], FunctionBody()
                continue
            depth = max(0, depth + (character == "(") - (character == ")"))
        if depth == 0:
            body.read(text[token.start : token.end].lower() if token.kind in _WORDS_AND_DOTS else "")
        part.append(token)
    yield part


class FunctionBody:
    """Whether the words so far have opened BEGIN ATOMIC in a CREATE FUNCTION or CREATE PROCEDURE, and not ended it."""

    def __init__(self) -> None:
        self._first_words: list[str] = []
        self._previous = ""
        self._depth = 0

    @property
    def is_open(self) -> bool:
        return self._depth > 0

    def read(self, word: str) -> None:
        """Reads the next token: a word in lower case, punctuation, or "" for any other token."""
        if len(self._first_words) < 4:
            self._first_words.append(word)
        if self._depth == 0:
            self._depth = int(word == "atomic" and self._previous == "begin" and self._creates_function())
        elif self._previous not in (".", "as"):  # otherwise the word is a name
            self._depth += (word == "case") - (word == "end")
        self._previous = word

    def _creates_function(self) -> bool:
        words = self._first_words
        kind = words[3:4] if words[1:3] == ["or", "replace"] else words[1:2]
        return words[0] == "create" and kind in (["function"], ["procedure"])
