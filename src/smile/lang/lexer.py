"""Tokens of a program, cut into statements. Every token's `start` and `end` (its last character) are the whole text's.

A semicolon outside strings and comments always ends a statement: no parenthesis may hold one. A statement with a
problem has no tokens, and a program's other statements do not suffer from it.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from smile import limits
from smile.errors import Diagnostic
from smile.source import Span

_WORDS = """
    ALL AND ANTI ANY ASC ASOF BETWEEN CASE COLLATE CREATE CROSS CUBE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DATE DESC DISTINCT ELSE END ESCAPE EXCEPT EXISTS FALSE FETCH FILTER FOR FROM FULL HAVING ILIKE
    IN INNER INTERSECT INTERVAL INTO IS ISNULL JOIN LATERAL LEFT LIKE LIMIT LOCALTIME LOCALTIMESTAMP
    MATCH_RECOGNIZE NATURAL NOT NOTNULL NULL OFFSET ON OR OUTER OVER PIVOT QUALIFY RANGE RECURSIVE RIGHT ROLLUP
    ROWS SELECT SEMI SOME THEN TIME TIMESTAMP TIMESTAMPTZ TRUE UNION UNNEST UNPIVOT USING VALUES WHEN WHERE
    WINDOW WITH
"""
_KEYWORDS = {name: TokenType[name] for name in _WORDS.split()}
_KEYWORDS |= {"AS": TokenType.ALIAS, "TABLESAMPLE": TokenType.TABLE_SAMPLE}

_PAIRS = {
    ("GROUP", "BY"): TokenType.GROUP_BY,
    ("ORDER", "BY"): TokenType.ORDER_BY,
    ("PARTITION", "BY"): TokenType.PARTITION_BY,
    ("GROUPING", "SETS"): TokenType.GROUPING_SETS,
    ("SIMILAR", "TO"): TokenType.SIMILAR_TO,
}
_PAIR_STARTS = {first for first, _ in _PAIRS}

_ONLY_BEFORE = {
    **dict.fromkeys(("CUBE", "PIVOT", "ROLLUP", "UNNEST", "UNPIVOT", "VALUES", "MATCH_RECOGNIZE"), TokenType.L_PAREN),
    **dict.fromkeys(("ANTI", "SEMI"), TokenType.JOIN),
}
"""Words that are names unless this follows."""

_OPERATORS = {
    "->": TokenType.ARROW,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "<=": TokenType.LTE,
    ">=": TokenType.GTE,
    "||": TokenType.DPIPE,
    "::": TokenType.DCOLON,
    "=": TokenType.EQ,
    "<": TokenType.LT,
    ">": TokenType.GT,
    "+": TokenType.PLUS,
    "-": TokenType.DASH,
    "*": TokenType.STAR,
    "/": TokenType.SLASH,
    "%": TokenType.MOD,
    "(": TokenType.L_PAREN,
    ")": TokenType.R_PAREN,
    "[": TokenType.L_BRACKET,
    "]": TokenType.R_BRACKET,
    ",": TokenType.COMMA,
    ".": TokenType.DOT,
    ":": TokenType.COLON,
    "&": TokenType.AMP,
    "|": TokenType.PIPE,
    "^": TokenType.CARET,
    "~": TokenType.RLIKE,
}

_HINTS = {
    "`": 'A name with unusual characters is written "so".',
    "‘": "A string is written 'so'.",
    "’": "A string is written 'so'.",
    "“": "A string is written 'so', a name with unusual characters \"so\".",
    "”": "A string is written 'so', a name with unusual characters \"so\".",
    "≤": "Write <=.",
    "≥": "Write >=.",
    "≠": "Write <>.",
    "→": "Write ->.",
    "−": "Write -.",
    "==": "Write =.",
}

# Python's \w leaves out the marks that many scripts write their vowels with.
_MARKS = "".join(
    re.escape(chr(c)) for c in (*range(0x300, 0x3100), 0x200C, 0x200D) if unicodedata.category(chr(c)) in ("Mn", "Mc")
)
_LEXEME = re.compile(
    rf"""
      (?P<space>   [\s\ufeff]+ )
    | (?P<string>  [xX]?'[^']*(?:''[^']*)*(?P<closed>'?) )
    | (?P<word>    (?:[^\W\d]|\#(?=[\w]))[\w$\#{_MARKS}]* )
    | (?P<number>  (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?P<junk>[\w$\#]*) )
    | (?P<remark>  --[^\n]* )
    | (?P<comment> /\* )
    | (?P<wrong>   == )
    | (?P<operator> {"|".join(re.escape(o) for o in _OPERATORS)} )
    | (?P<quoted>  "[^"]*(?:""[^"]*)*(?P<shut>"?) )
    | (?P<end>     ; )
    | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_TO_SEMICOLON = re.compile(r"""(?:[^;'"/-]+|'[^']*(?:''[^']*)*'?|"[^"]*(?:""[^"]*)*"?|--[^\n]*|-|/(?!\*))*""")
_BETWEEN = re.compile(r"[;\s\ufeff]*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass
class Piece:
    """One statement: from its first token to its semicolon at `end`, or to the end of the text."""

    tokens: list[Token] = field(default_factory=list)
    end: int = 0
    problem: Diagnostic | None = None


def cut(text: str) -> Iterator[Piece]:
    """The statements of a text that hold anything but space and comments."""
    at = _BETWEEN.match(text, 0).end()  # type: ignore[union-attr]  # it matches the empty string
    while at < len(text):
        piece = _Reader(text, at).read()
        at = _BETWEEN.match(text, piece.end).end()  # type: ignore[union-attr]
        if piece.problem:
            del piece.tokens[3:]  # what it would have created is still to be seen
        if piece.tokens or piece.problem:
            _soften(piece.tokens)
            yield piece


class _Reader:
    """Reads one statement, from `at` to its semicolon."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.depth = 0
        self.piece = Piece()

    def read(self) -> Piece:
        match, size, piece = _LEXEME.match, len(self.text), self.piece
        while self.at < size:
            found = match(self.text, self.at)
            assert found is not None, "every character is at least `other`"
            kind = found.lastgroup or ""
            if kind == "end":
                break
            start, self.at = found.span()
            if kind == "comment":
                self._skip_comment(start)
            elif kind != "space" and kind != "remark":
                self._take(kind, found)
            if piece.problem:
                self._skip_statement()
        piece.end = min(self.at, size)
        return piece

    def _take(self, kind: str, found: re.Match[str]) -> None:
        piece, span = self.piece, Span(*found.span())
        piece.problem = _problem(kind, found, self.text)
        if piece.problem:
            return
        token = _token(kind, found.group(), span)
        _push(piece.tokens, token)
        self.depth += _deeper(token)
        if self.depth > limits.nesting_max:
            piece.problem = too_deep(span)
        elif len(piece.tokens) > limits.statement_tokens_max:
            message = f"the statement is too large: more than {limits.statement_tokens_max} words"
            piece.problem = Diagnostic("E003", message, span_of_token(piece.tokens[0]))

    def _skip_comment(self, start: int) -> None:
        """Comments nest, as in PostgreSQL."""
        depth = 1
        while depth:
            edge = _COMMENT_EDGE.search(self.text, self.at)
            if edge is None:
                self.piece.problem = _unterminated("comment", self.text, start)
                self.at = len(self.text)
                return
            depth += 1 if edge.group() == "/*" else -1
            self.at = edge.end()

    def _skip_statement(self) -> None:
        problem = self.piece.problem
        while self.at < len(self.text):
            found = _TO_SEMICOLON.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.text[self.at : self.at + 2] != "/*":
                break
            self.at += 2
            self._skip_comment(self.at - 2)
        self.piece.problem = problem


def _problem(kind: str, found: re.Match[str], text: str) -> Diagnostic | None:
    match kind:
        case "word" if text.startswith("'", found.end()) and found.group().upper() in ("E", "B", "N"):
            message = f"{found.group()}'…' is not supported"
            return Diagnostic("E013", message, Span(*found.span()), "A string is written 'so', bytes x'00ff'.")
        case "string":
            return _problem_of_quotes("string", found, "closed", text)
        case "quoted":
            return _problem_of_quotes("quoted name", found, "shut", text)
        case "number" if found.group("junk"):
            message = f"{_shown(found.group())} is neither a number nor a name"
            return Diagnostic("E010", message, Span(*found.span()))
        case "wrong" | "other":
            character = found.group()
            return Diagnostic("E010", f"unexpected {_shown(character)}", Span(*found.span()), _HINTS.get(character))
        case _:
            return None


def _problem_of_quotes(what: str, found: re.Match[str], closing: str, text: str) -> Diagnostic | None:
    if not found.group(closing):
        return _unterminated(what, text, found.start())
    span = Span(*found.span())
    if wrong := _NOT_TEXT.search(found.group()):
        at = found.start() + wrong.start()
        return Diagnostic("E010", f"{_shown(wrong.group())} in a {what}", Span(at, at + 1))
    if found.group() == '""':
        return Diagnostic("E010", "a name cannot be empty", span)
    if found.group()[0] in "xX" and not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", found.group()[2:-1]):
        return Diagnostic("E033", "not a string of bytes", span, "Write two hexadecimal digits for each byte: x'00ff'.")
    return None


def _shown(character: str) -> str:
    return character if character.isprintable() else "character " + " ".join(f"U+{ord(c):04X}" for c in character)


def _unterminated(what: str, text: str, start: int) -> Diagnostic:
    newline = text.find("\n", start)
    return Diagnostic("E011", f"unterminated {what}", Span(start, len(text) if newline < 0 else newline))


def too_deep(span: Span, levels: int = limits.nesting_max) -> Diagnostic:
    message = f"nested too deeply: more than {levels} levels"
    return Diagnostic("E012", message, span, "Name the inner parts as views.")


def _token(kind: str, written: str, span: Span) -> Token:
    match kind:
        case "word":
            type_ = _KEYWORDS.get(written.upper(), TokenType.VAR)
        case "quoted":
            type_, written = TokenType.IDENTIFIER, written[1:-1].replace('""', '"')
        case "string" if written[0] != "'":
            type_, written = TokenType.HEX_STRING, written[2:-1]
        case "string":
            type_, written = TokenType.STRING, written[1:-1].replace("''", "'")
        case "number":
            type_ = TokenType.NUMBER
        case _:
            type_ = _OPERATORS[written]
    return Token(type_, written, start=span.start, end=span.end - 1)


def _deeper(token: Token) -> int:
    if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE):
        return 1
    return -1 if token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END) else 0


def _push(tokens: list[Token], token: Token) -> None:
    """GROUP BY and its like are one token, whatever stands between their words."""
    if tokens and token.token_type == TokenType.VAR and tokens[-1].token_type == TokenType.VAR:
        first = tokens[-1].text.upper()
        if first in _PAIR_STARTS and (type_ := _PAIRS.get((first, token.text.upper()))):
            tokens[-1] = Token(type_, f"{first} {token.text.upper()}", start=tokens[-1].start, end=token.end)
            return
    tokens.append(token)


def _soften(tokens: list[Token]) -> None:
    for i, token in enumerate(tokens):
        before = _ONLY_BEFORE.get(token.text.upper())
        if before and token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING):
            following = tokens[i + 1].token_type if i + 1 < len(tokens) else None
            if following != before:
                tokens[i] = Token(TokenType.VAR, token.text, start=token.start, end=token.end)


def span_of_token(token: Token) -> Span:
    return Span(token.start, token.end + 1)
