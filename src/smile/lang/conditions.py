"""Conditions of subscriptions: `column = literal AND …`, and nothing else. A value is what JSON would hold."""

from sqlglot.tokenizer_core import Token, TokenType

from smile.errors import Diagnostic, SmileError
from smile.lang.cursor import Cursor
from smile.lang.expressions import Expected
from smile.lang.lexer import cut, span_of_token
from smile.source import Source

Value = str | int | float | bool

_TYPED = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")
"""DATE '2024-05-31' and its like: the broker reads the text as the column's type says."""


def parse_condition(source: Source) -> dict[str, Value]:
    """Values by column; the text may begin with WHERE. What is wrong is E099, with its place."""
    pieces = list(cut(source.text))
    for piece in pieces:
        if piece.problem:
            raise SmileError(piece.problem)
    cursor = Cursor([token for piece in pieces for token in piece.tokens], source.text)
    found: dict[str, Value] = {}
    try:
        cursor.skip("WHERE")
        while True:
            column = cursor.name("a column")
            cursor.expect("=")
            if column.text in found:
                raise SmileError(Diagnostic("E099", f"{column} is given twice", column.span))
            found[column.text] = _literal(cursor)
            if cursor.token is None:
                return found
            cursor.expect("AND")
    except Expected as missing:
        raise _refused(missing, source) from None


def _literal(cursor: Cursor) -> Value:
    for word in _TYPED:
        if cursor.is_word(word):
            cursor.skip(word)
            return _text(cursor.token, cursor)
    if cursor.skip("TRUE"):
        return True
    if cursor.skip("FALSE"):
        return False
    sign = "-" if cursor.skip("-") else ""
    token = cursor.token
    if token is None or token.token_type != TokenType.NUMBER:
        if sign:
            raise Expected("a number", token)
        return _text(token, cursor)
    cursor.at += 1
    return int(sign + token.text) if token.text.isdigit() else float(sign + token.text)


def _text(token: Token | None, cursor: Cursor) -> str:
    if token is None or token.token_type not in (TokenType.STRING, TokenType.HEX_STRING):
        raise Expected("a value", token)
    cursor.at += 1
    return token.text if token.token_type == TokenType.STRING else f"\\x{token.text}"


def _refused(missing: Expected, source: Source) -> SmileError:
    token = missing.token
    found = "the end" if token is None else source.text[token.start : token.end + 1]
    message = f"expected {missing.what} but found {found}"
    hint = "A condition is column = value, or several of them with AND; for more, write a view."
    return SmileError(Diagnostic("E099", message, span_of_token(token) if token else None, hint))
