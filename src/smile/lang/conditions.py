"""Parses the condition of a subscription: `column = literal AND …`. Values are those that JSON can represent."""

from sqlglot.tokenizer_core import Token, TokenType

from smile.errors import Diagnostic, SmileError
from smile.lang.cursor import TokenCursor
from smile.lang.expression_parser import UnexpectedTokenError
from smile.lang.lexer import span_of_token, split_statements
from smile.source import Source

ConditionValue = str | int | float | bool

_TYPED_LITERAL_WORDS = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")
"""In literals such as DATE '2024-05-31', the word is skipped: the broker parses the text by the column's type."""


def parse_condition(source: Source) -> dict[str, ConditionValue]:
    """The values by column. The text may begin with WHERE. A syntax error is raised as E099 with its position."""
    statements = list(split_statements(source.text))
    for statement in statements:
        if statement.problem:
            raise SmileError(statement.problem)
    cursor = TokenCursor([token for statement in statements for token in statement.tokens], source.text)
    values: dict[str, ConditionValue] = {}
    try:
        cursor.skip("WHERE")
        while True:
            column = cursor.read_name("a column")
            cursor.expect("=")
            if column.text in values:
                raise SmileError(Diagnostic("E099", f"{column} is given twice", column.span))
            values[column.text] = _read_literal(cursor)
            if cursor.token is None:
                return values
            cursor.expect("AND")
    except UnexpectedTokenError as unexpected:
        raise _condition_error(unexpected, source) from None


def _read_literal(cursor: TokenCursor) -> ConditionValue:
    for word in _TYPED_LITERAL_WORDS:
        if cursor.is_at(word):
            cursor.skip(word)
            return _read_text(cursor.token, cursor)
    if cursor.skip("TRUE"):
        return True
    if cursor.skip("FALSE"):
        return False
    sign = "-" if cursor.skip("-") else ""
    token = cursor.token
    if token is None or token.token_type != TokenType.NUMBER:
        if sign:
            raise UnexpectedTokenError("a number", token)
        return _read_text(token, cursor)
    cursor.index += 1
    return int(sign + token.text) if token.text.isdigit() else float(sign + token.text)


def _read_text(token: Token | None, cursor: TokenCursor) -> str:
    if token is None or token.token_type not in (TokenType.STRING, TokenType.HEX_STRING):
        raise UnexpectedTokenError("a value", token)
    cursor.index += 1
    return token.text if token.token_type == TokenType.STRING else f"\\x{token.text}"


def _condition_error(unexpected: UnexpectedTokenError, source: Source) -> SmileError:
    token = unexpected.token
    actual = "the end" if token is None else source.text[token.start : token.end + 1]
    message = f"expected {unexpected.expected} but found {actual}"
    hint = "Write column = value, or several such comparisons with AND. For other conditions, define a view."
    return SmileError(Diagnostic("E099", message, span_of_token(token) if token else None, hint))
