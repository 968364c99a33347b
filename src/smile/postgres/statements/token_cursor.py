"""Reads the tokens of one statement in order. What is not as expected is reported as E158 with its position."""

from smile.errors import SmileError, error
from smile.postgres.statements.lexer import SqlToken, TokenKind
from smile.postgres.statements.nodes import LinkValue, SqlName
from smile.postgres.statements.splitter import SqlStatement
from smile.source import Span

_NAMES = (TokenKind.IDENTIFIER, TokenKind.QUOTED_IDENTIFIER)
_LINK_WORDS = (TokenKind.IDENTIFIER, TokenKind.NUMBER, TokenKind.OPERATOR, TokenKind.PUNCTUATION)


class SqlCursor:
    def __init__(self, statement: SqlStatement, index: int = 0) -> None:
        self.statement, self.index = statement, index
        self._text, self._tokens = statement.text, statement.tokens

    def is_at_end(self) -> bool:
        return self.index == len(self._tokens)

    def copy_at(self, index: int) -> "SqlCursor":
        return SqlCursor(self.statement, index)

    def is_at(self, *words: str, ahead: int = 0) -> bool:
        """Whether these words or signs come next, or after `ahead` tokens."""
        first = self.index + ahead
        tokens = self._tokens[first : first + len(words)]
        return len(tokens) == len(words) and all(map(self._is_word, tokens, words))

    def _is_word(self, token: SqlToken, word: str) -> bool:
        is_plain = token.kind in (TokenKind.IDENTIFIER, TokenKind.OPERATOR, TokenKind.PUNCTUATION)
        return is_plain and self._text[token.start : token.end].upper() == word

    def skip(self, *words: str) -> bool:
        is_there = self.is_at(*words)
        self.index += len(words) * is_there
        return is_there

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.skip(word):
                raise self.unexpected(word)

    def expect_end(self) -> None:
        if not self.is_at_end():
            raise self.unexpected("the end of the statement")

    def unexpected(self, expected: str, hint: str | None = None) -> SmileError:
        if self.is_at_end():
            end = self.statement.end
            return error("E158", f"expected {expected} at the end of the statement", Span(end, end), hint)
        token = self._tokens[self.index]
        written = self._text[token.start : token.end]
        return error("E158", f"expected {expected} but found {written}", Span(token.start, token.end), hint)

    def span_from(self, first: int) -> Span:
        """The text from the token with this index to the last one that was read."""
        return Span(self._tokens[first].start, self._tokens[self.index - 1].end)

    def is_at_name(self) -> bool:
        return not self.is_at_end() and self._tokens[self.index].kind in _NAMES

    def read_name(self, expected: str) -> SqlName:
        if not self.is_at_name():
            raise self.unexpected(expected)
        token = self._tokens[self.index]
        written, span = self._text[token.start : token.end], Span(token.start, token.end)
        if token.kind is TokenKind.IDENTIFIER:
            name = SqlName(written, span)
        elif written.startswith('"') and written != '""':
            name = SqlName(written[1:-1].replace('""', '"'), span, is_quoted=True)
        else:
            raise error("E158", f"{written} cannot be {expected}", span, "Write the name in plain quotes.")
        self.index += 1
        return name

    def read_qualified_name(self, expected: str) -> Span:
        """A name that may have a schema, as it was written."""
        first = self.index
        if not self.skip_qualified_name():
            raise self.unexpected(expected)
        return self.span_from(first)

    def skip_qualified_name(self) -> bool:
        if not self.is_at_name():
            return False
        self.index += 1
        while self.is_at("."):
            self.index += 1
            if not self.is_at_name():
                return False
            self.index += 1
        return True

    def read_parenthesised(self) -> Span | None:
        """What is between parentheses, without spaces and comments at its ends, or None if that is nothing."""
        self.expect("(")
        first, depth = self.index, 1
        while depth > 0:
            if self.is_at_end():
                raise self.unexpected(")")
            depth += self.is_at("(") - self.is_at(")")
            self.index += 1
        return Span(self._tokens[first].start, self._tokens[self.index - 2].end) if self.index - 1 > first else None

    def find_words(self, word: str) -> list[int]:
        """The indices of the tokens from here on that are the word, outside of parentheses."""
        indices, depth = [], 0
        for index in range(self.index, len(self._tokens)):
            token = self._tokens[index]
            depth += self._is_word(token, "(") - self._is_word(token, ")")
            if depth == 0 and self._is_word(token, word):
                indices.append(index)
        return indices

    def read_integer(self, expected: str) -> Span:
        first = self.index
        if not self.skip("-"):
            self.skip("+")
        if self.is_at_end() or self._tokens[self.index].kind is not TokenKind.NUMBER:
            raise self.unexpected(expected)
        token = self._tokens[self.index]
        if not self._text[token.start : token.end].isdecimal():
            raise self.unexpected(expected)
        self.index += 1
        return self.span_from(first)

    def read_link_value(self, expected: str) -> LinkValue:
        """A string, a parameter, or a word without spaces such as db2.example.org or 10.0.0.7."""
        if self.is_at_end():
            raise self.unexpected(expected)
        token = self._tokens[self.index]
        written, span = self._text[token.start : token.end], Span(token.start, token.end)
        if token.kind is TokenKind.PARAMETER:
            self.index += 1
            return LinkValue(written, span, is_parameter=True)
        if token.kind is TokenKind.STRING:
            return LinkValue(self._read_plain_string(expected), span)
        if token.kind is TokenKind.QUOTED_IDENTIFIER:
            return LinkValue(self.read_name(expected).text, span)
        first = self.index
        while not self.is_at_end() and self._tokens[self.index].kind in _LINK_WORDS:
            self.index += 1
            if self.is_at_end() or self._tokens[self.index].start != self._tokens[self.index - 1].end:
                break
        if self.index == first:
            raise self.unexpected(expected)
        span = self.span_from(first)
        return LinkValue(self._text[span.start : span.end], span)

    def _read_plain_string(self, expected: str) -> str:
        token = self._tokens[self.index]
        written = self._text[token.start : token.end]
        body = written[1:-1]
        if not written.startswith("'") or "\\" in body or "'" in body.replace("''", ""):
            message = f"{expected} must be a plain string on one line"
            raise error("E158", message, Span(token.start, token.end), "Write '…' without backslashes.")
        self.index += 1
        return body.replace("''", "'")
