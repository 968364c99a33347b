"""Splits a program into statements and these into tokens. `start` and `end` (the last character) of a token are
positions in the whole text.

A semicolon outside strings and comments always ends a statement, also within parentheses. A statement with a lexical
error has at most its first three tokens. It does not affect the other statements.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from smile import limits
from smile.errors import Diagnostic
from smile.source import Span

_KEYWORD_LIST = """
    ALL AND ANTI ANY ASC ASOF BETWEEN CASE COLLATE CREATE CROSS CUBE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DATE DESC DISTINCT ELSE END ESCAPE EXCEPT EXISTS FALSE FETCH FILTER FOR FROM FULL HAVING ILIKE
    IN INNER INTERSECT INTERVAL INTO IS ISNULL JOIN LATERAL LEFT LIKE LIMIT LOCALTIME LOCALTIMESTAMP
    MATCH_RECOGNIZE NATURAL NOT NOTNULL NULL OFFSET ON OR OUTER OVER PIVOT QUALIFY RANGE RECURSIVE RIGHT ROLLUP
    ROWS SELECT SEMI SOME THEN TIME TIMESTAMP TIMESTAMPTZ TRUE UNION UNNEST UNPIVOT USING VALUES WHEN WHERE
    WINDOW WITH
"""
KEYWORDS = {name: TokenType[name] for name in _KEYWORD_LIST.split()}
KEYWORDS |= {"AS": TokenType.ALIAS, "TABLESAMPLE": TokenType.TABLE_SAMPLE}

WORD_PAIRS = {
    ("GROUP", "BY"): TokenType.GROUP_BY,
    ("ORDER", "BY"): TokenType.ORDER_BY,
    ("PARTITION", "BY"): TokenType.PARTITION_BY,
    ("GROUPING", "SETS"): TokenType.GROUPING_SETS,
    ("SIMILAR", "TO"): TokenType.SIMILAR_TO,
}
_WORD_PAIR_STARTS = {first for first, _ in WORD_PAIRS}

_KEYWORD_ONLY_BEFORE = {
    **dict.fromkeys(("CUBE", "PIVOT", "ROLLUP", "UNNEST", "UNPIVOT", "VALUES", "MATCH_RECOGNIZE"), TokenType.L_PAREN),
    **dict.fromkeys(("ANTI", "SEMI"), TokenType.JOIN),
}
"""Words that are names unless a token of this type follows."""

_OPERATORS = {
    "!~*": TokenType.RLIKE,
    "!~": TokenType.RLIKE,
    "~*": TokenType.RLIKE,
    "#>>": TokenType.DHASH_ARROW,
    "#>": TokenType.HASH_ARROW,
    "->>": TokenType.DARROW,
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
    "?": TokenType.PLACEHOLDER,
}

_CHARACTER_HINTS = {
    "$": "Write a string in single quotes: 'text'. There are no functions of users.",
    "@": "Write ABS(a).",
    "`": 'Write a name with special characters in double quotes: "name".',
    "‘": "Write a string in single quotes: 'text'.",
    "’": "Write a string in single quotes: 'text'.",
    "“": "Write a string in single quotes: 'text', and a name with special characters in double quotes: \"name\".",
    "”": "Write a string in single quotes: 'text', and a name with special characters in double quotes: \"name\".",
    "≤": "Write <=.",
    "≥": "Write >=.",
    "≠": "Write <>.",
    "→": "Write ->.",
    "−": "Write -.",
    "==": "Write =.",
    "<=>": "Write IS NOT DISTINCT FROM.",
    "~~": "Write LIKE.",
    "^@": "Write STARTS_WITH(a, b).",
}

# Python's \w does not include the combining marks that many scripts use for vowels.
_COMBINING_MARKS = "".join(
    re.escape(chr(c)) for c in (*range(0x300, 0x3100), 0x200C, 0x200D) if unicodedata.category(chr(c)) in ("Mn", "Mc")
)
_LEXEME = re.compile(
    rf"""
      (?P<space>   [\s\ufeff]+ )
    | (?P<string>  [xX]?'[^']*(?:''[^']*)*(?P<string_end>'?) )
    | (?P<word>    (?:[^\W\d]|\#(?=[\w]))[\w$\#{_COMBINING_MARKS}]* )
    | (?P<number>  (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?P<junk>[\w$\#]*) )
    | (?P<remark>  --[^\n]* )
    | (?P<comment> /\* )
    | (?P<wrong>   == | <=> | ~~ | \^@ )
    | (?P<operator> {"|".join(re.escape(o) for o in _OPERATORS)} )
    | (?P<quoted>  "[^"]*(?:""[^"]*)*(?P<name_end>"?) )
    | (?P<end>     ; )
    | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_TO_SEMICOLON = re.compile(r"""(?:[^;'"/-]+|'[^']*(?:''[^']*)*'?|"[^"]*(?:""[^"]*)*"?|--[^\n]*|-|/(?!\*))*""")
_BETWEEN_STATEMENTS = re.compile(r"[;\s\ufeff]*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_INVALID_CHARACTER = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Lexeme:
    """A piece of a text. Its kind is a group of `_LEXEME`: `space`, `remark` (to the end of its line), `comment`,
    `word`, `end` (a semicolon) and so on."""

    kind: str
    start: int
    end: int


def read_lexemes(text: str) -> Iterator[Lexeme]:
    """All of the text, space and comments included. An unterminated comment reaches to the end."""
    position = 0
    while position < len(text):
        lexeme = _LEXEME.match(text, position)
        assert lexeme is not None, "every character is at least `other`"
        kind, start = lexeme.lastgroup or "", position
        position = (_comment_end(text, lexeme.end()) or len(text)) if kind == "comment" else lexeme.end()
        yield Lexeme(kind, start, position)


def _comment_end(text: str, position: int) -> int | None:
    """The end of the comment that contains this position; None if it has none. Comments nest, as in PostgreSQL."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, position)
        if edge is None:
            return None
        depth += 1 if edge.group() == "/*" else -1
        position = edge.end()
    return position


@dataclass
class StatementTokens:
    """One statement. `end` is the position of its semicolon, or the end of the text."""

    tokens: list[Token] = field(default_factory=list)
    end: int = 0
    problem: Diagnostic | None = None


def split_statements(text: str) -> Iterator[StatementTokens]:
    """The statements of a text, without those that contain only space and comments."""
    position = _BETWEEN_STATEMENTS.match(text, 0).end()  # type: ignore[union-attr]  # matches the empty string
    while position < len(text):
        statement = _StatementLexer(text, position).read()
        position = _BETWEEN_STATEMENTS.match(text, statement.end).end()  # type: ignore[union-attr]
        if statement.problem:
            del statement.tokens[3:]  # enough for `unparsed_names`
        if statement.tokens or statement.problem:
            _demote_keywords(statement.tokens)
            yield statement


class _StatementLexer:
    """Reads one statement, from `position` to its semicolon."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.depth = 0
        self.statement = StatementTokens()

    def read(self) -> StatementTokens:
        match, size, statement = _LEXEME.match, len(self.text), self.statement
        while self.position < size:
            lexeme = match(self.text, self.position)
            assert lexeme is not None, "every character is at least `other`"
            kind = lexeme.lastgroup or ""
            if kind == "end":
                break
            start, self.position = lexeme.span()
            if kind == "comment":
                self._skip_comment(start)
            elif kind != "space" and kind != "remark":
                self._add_token(kind, lexeme)
            if statement.problem:
                self._skip_to_semicolon()
        statement.end = min(self.position, size)
        return statement

    def _add_token(self, kind: str, lexeme: re.Match[str]) -> None:
        statement, span = self.statement, Span(*lexeme.span())
        statement.problem = _lexeme_problem(kind, lexeme, self.text)
        if statement.problem:
            return
        token = _make_token(kind, lexeme.group(), span)
        _append_token(statement.tokens, token)
        self.depth += _depth_change(token)
        if self.depth > limits.nesting_max:
            statement.problem = nesting_problem(span)
        elif len(statement.tokens) > limits.statement_tokens_max:
            message = f"the statement is too large: more than {limits.statement_tokens_max} tokens"
            statement.problem = Diagnostic("E003", message, span_of_token(statement.tokens[0]))

    def _skip_comment(self, start: int) -> None:
        end = _comment_end(self.text, self.position)
        if end is None:
            self.statement.problem = _unterminated_problem("comment", self.text, start)
        self.position = len(self.text) if end is None else end

    def _skip_to_semicolon(self) -> None:
        problem = self.statement.problem
        while self.position < len(self.text):
            match = _TO_SEMICOLON.match(self.text, self.position)
            self.position = match.end() if match else self.position
            if self.text[self.position : self.position + 2] != "/*":
                break
            self.position += 2
            self._skip_comment(self.position - 2)
        self.statement.problem = problem


def _lexeme_problem(kind: str, lexeme: re.Match[str], text: str) -> Diagnostic | None:
    match kind:
        case "word" if text.startswith("'", lexeme.end()) and lexeme.group().upper() in ("E", "B", "N"):
            message = f"{lexeme.group()}'…' is not supported"
            return Diagnostic("E013", message, Span(*lexeme.span()), "Write a string as 'text' and bytes as x'00ff'.")
        case "string":
            return _quoting_problem("string", lexeme, "string_end", text)
        case "quoted":
            return _quoting_problem("quoted name", lexeme, "name_end", text)
        case "number" if lexeme.group("junk"):
            message = f"{_printable_text(lexeme.group())} is neither a number nor a name"
            return Diagnostic("E010", message, Span(*lexeme.span()))
        case "wrong" | "other":
            character = lexeme.group()
            return Diagnostic(
                "E010",
                f"unexpected {_printable_text(character)}",
                Span(*lexeme.span()),
                _CHARACTER_HINTS.get(character),
            )
        case _:
            return None


def _quoting_problem(construct: str, lexeme: re.Match[str], closing_group: str, text: str) -> Diagnostic | None:
    if not lexeme.group(closing_group):
        return _unterminated_problem(construct, text, lexeme.start())
    span = Span(*lexeme.span())
    if invalid := _INVALID_CHARACTER.search(lexeme.group()):
        position = lexeme.start() + invalid.start()
        return Diagnostic("E010", f"{_printable_text(invalid.group())} in a {construct}", Span(position, position + 1))
    if lexeme.group() == '""':
        return Diagnostic("E010", "a name cannot be empty", span)
    if lexeme.group()[0] in "xX" and not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", lexeme.group()[2:-1]):
        return Diagnostic(
            "E033", "not a valid byte string", span, "Write two hexadecimal digits for each byte: x'00ff'."
        )
    return None


def _printable_text(character: str) -> str:
    return character if character.isprintable() else "character " + " ".join(f"U+{ord(c):04X}" for c in character)


def _unterminated_problem(construct: str, text: str, start: int) -> Diagnostic:
    newline = text.find("\n", start)
    return Diagnostic("E011", f"unterminated {construct}", Span(start, len(text) if newline < 0 else newline))


def nesting_problem(span: Span, levels: int = limits.nesting_max) -> Diagnostic:
    message = f"nested too deeply: more than {levels} levels"
    return Diagnostic("E012", message, span, "Define the inner parts as views.")


def _make_token(kind: str, written: str, span: Span) -> Token:
    match kind:
        case "word":
            type_ = KEYWORDS.get(written.upper(), TokenType.VAR)
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


def _depth_change(token: Token) -> int:
    if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE):
        return 1
    return -1 if token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END) else 0


def _append_token(tokens: list[Token], token: Token) -> None:
    """Word pairs such as GROUP BY become one token, also with space or comments between the words."""
    if tokens and token.token_type == TokenType.VAR and tokens[-1].token_type == TokenType.VAR:
        first = tokens[-1].text.upper()
        if first in _WORD_PAIR_STARTS and (type_ := WORD_PAIRS.get((first, token.text.upper()))):
            tokens[-1] = Token(type_, f"{first} {token.text.upper()}", start=tokens[-1].start, end=token.end)
            return
    tokens.append(token)


def _demote_keywords(tokens: list[Token]) -> None:
    for i, token in enumerate(tokens):
        required_next = _KEYWORD_ONLY_BEFORE.get(token.text.upper())
        if required_next and token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING):
            next_type = tokens[i + 1].token_type if i + 1 < len(tokens) else None
            if next_type != required_next:
                tokens[i] = Token(TokenType.VAR, token.text, start=token.start, end=token.end)


def span_of_token(token: Token) -> Span:
    return Span(token.start, token.end + 1)
