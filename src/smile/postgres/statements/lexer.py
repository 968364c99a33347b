"""Divides a query text into tokens where PostgreSQL does.

The tokens, with spaces and comments, are contiguous and cover the whole text: joined they are the text again. A text
that PostgreSQL cannot divide (a string without its end) has a token of the kind INVALID.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple


class TokenKind(Enum):
    SPACE = auto()
    COMMENT = auto()
    IDENTIFIER = auto()
    """A keyword or a name."""
    QUOTED_IDENTIFIER = auto()
    """Also U&"…"."""
    STRING = auto()
    """Of any kind but dollar quotes: '…', E'…', U&'…', B'…', X'…'."""
    DOLLAR_STRING = auto()
    PARAMETER = auto()
    NUMBER = auto()
    OPERATOR = auto()
    PUNCTUATION = auto()
    INVALID = auto()


class SqlToken(NamedTuple):
    """The characters from `start` to before `end`."""

    kind: TokenKind
    start: int
    end: int


_SPACE_CHARS: Final = r" \t\n\r\f\v"
_NAME_START: Final = r"A-Za-z_\x80-\U0010ffff"
_LEXEME: Final = re.compile(
    rf"""
    (?P<space>[{_SPACE_CHARS}]+)
  | (?P<line_comment>--[^\n\r]*)
  | (?P<block_comment>/\*)
  | (?P<quoted_name>(?:[uU]&)?")
  | (?P<string>(?:[uU]&|[bBxXeE])?')
  | (?P<name>[{_NAME_START}][{_NAME_START}0-9$]*)
  | (?P<dollar_quote>\$(?:[{_NAME_START}][{_NAME_START}0-9]*)?\$)
  | (?P<parameter>\$[0-9]+)
  | (?P<number>0[xX](?:_?[0-9A-Fa-f])+ | 0[oO](?:_?[0-7])+ | 0[bB](?:_?[01])+
      | (?:[0-9](?:_?[0-9])*(?:\.(?!\.)(?:[0-9](?:_?[0-9])*)?)? | \.[0-9](?:_?[0-9])*)(?:[eE][+-]?[0-9](?:_?[0-9])*)?)
  | (?P<operator>[~!@\#^&|`?+\-*/%<>=]+)
  | (?P<punctuation>::|:=|\.\.|[,()\[\].;:])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SIMPLE_KINDS: Final = {
    "space": TokenKind.SPACE,
    "line_comment": TokenKind.COMMENT,
    "name": TokenKind.IDENTIFIER,
    "parameter": TokenKind.PARAMETER,
    "number": TokenKind.NUMBER,
    "punctuation": TokenKind.PUNCTUATION,
    "other": TokenKind.INVALID,
}

_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_COMMENT_IN_OPERATOR: Final = re.compile(r"/\*|--")
_CONTINUATION: Final = re.compile(
    rf"(?:[ \t\f\v]|--[^\n\r]*)*[\n\r](?:[{_SPACE_CHARS}]+|--[^\n\r]*[\n\r])*'",
)
"""A string goes on after a line break: 'a' and, on the next line, 'b' are one string."""
_STRING_ENDS: Final = {
    "plain": re.compile(r"(?:[^']+|'')*+'", re.DOTALL),
    "escapes": re.compile(r"(?:[^'\\]+|''|\\.)*+'", re.DOTALL),
    "digits": re.compile(r"[^']*'", re.DOTALL),
}
_QUOTED_NAME_END: Final = re.compile(r'(?:[^"]+|"")*+"', re.DOTALL)
_OPERATOR_ONLY_CHARS: Final = set("~!@#^&|`?%")


def tokenize(text: str, standard_conforming_strings: bool = True) -> list[SqlToken]:
    """All tokens of the text. If strings do not conform to the standard, a backslash escapes in '…' too."""
    return list(iterate_tokens(text, standard_conforming_strings))


def iterate_tokens(text: str, standard_conforming_strings: bool = True, position: int = 0) -> Iterator[SqlToken]:
    """The tokens from a position on, each found when it is asked for."""
    while position < len(text):
        lexeme = _LEXEME.match(text, position)
        assert lexeme is not None and lexeme.lastgroup is not None
        group = lexeme.lastgroup
        if group in _SIMPLE_KINDS:
            kind, end = _SIMPLE_KINDS[group], lexeme.end()
        elif group == "operator":
            kind, end = TokenKind.OPERATOR, position + _operator_length(lexeme.group())
        else:
            kind, end = _read_quoted(text, lexeme, standard_conforming_strings)
        yield SqlToken(kind, position, end)
        position = end


def _operator_length(operator: str) -> int:
    """A comment ends an operator. An operator that SQL defines does not end in + or -: in `=-1`, `-` is a sign."""
    comment = _COMMENT_IN_OPERATOR.search(operator)
    length = comment.start() if comment else len(operator)
    if not _OPERATOR_ONLY_CHARS & set(operator[:length]):
        while length > 1 and operator[length - 1] in "+-":
            length -= 1
    return length


def _read_quoted(text: str, lexeme: re.Match[str], standard_conforming_strings: bool) -> tuple[TokenKind, int]:
    """The kind and the end of what begins with a quote, a dollar quote or a comment."""
    end: int | None
    match lexeme.lastgroup:
        case "block_comment":
            kind, end = TokenKind.COMMENT, _comment_end(text, lexeme.end())
        case "quoted_name":
            name_end = _QUOTED_NAME_END.match(text, lexeme.end())
            kind, end = TokenKind.QUOTED_IDENTIFIER, name_end.end() if name_end else None
        case "dollar_quote":
            closing = text.find(lexeme.group(), lexeme.end())
            kind, end = TokenKind.DOLLAR_STRING, closing + len(lexeme.group()) if closing >= 0 else None
        case _:
            kind, end = TokenKind.STRING, _string_end(text, lexeme, standard_conforming_strings)
    return (kind, end) if end is not None else (TokenKind.INVALID, len(text))


def _comment_end(text: str, position: int) -> int | None:
    depth = 1
    while edge := _COMMENT_EDGE.search(text, position):
        depth += 1 if edge.group() == "/*" else -1
        position = edge.end()
        if depth == 0:
            return position
    return None


def _string_end(text: str, lexeme: re.Match[str], standard_conforming_strings: bool) -> int | None:
    prefix = lexeme.group()[:-1].lower()
    if prefix in ("b", "x"):
        ending = _STRING_ENDS["digits"]
    elif prefix == "e" or (not prefix and not standard_conforming_strings):
        ending = _STRING_ENDS["escapes"]
    else:
        ending = _STRING_ENDS["plain"]
    position: int = lexeme.end()
    while closing := ending.match(text, position):
        continuation = _CONTINUATION.match(text, closing.end())
        if continuation is None:
            return closing.end()
        position = continuation.end()
    return None
