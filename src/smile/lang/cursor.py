"""A statement's tokens, read from left to right. What has been read is never read again."""

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from smile import limits
from smile.errors import SmileError
from smile.lang.allowed import check, refuse_words
from smile.lang.dialect import SmileParser, SmileSQL
from smile.lang.expressions import SOFT_WORDS, Expected, type_text
from smile.lang.lexer import span_of_token, too_deep
from smile.lang.spans import complete
from smile.lang.statements import Name
from smile.source import Span

_DIALECT = SmileSQL()
_NAMES = SOFT_WORDS | {TokenType.IDENTIFIER}


class Cursor:
    def __init__(self, tokens: list[Token], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.at = 0

    @property
    def token(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def is_word(self, *words: str, ahead: int = 0) -> bool:
        """Whether the tokens from here on are these words or signs, unquoted, in any case."""
        here = self.tokens[self.at + ahead : self.at + ahead + len(words)]
        return [plain(t) for t in here] == list(words)

    def skip(self, *words: str) -> bool:
        if not self.is_word(*words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.skip(word):
                raise Expected(word, self.token)

    def expect_end(self) -> None:
        if self.token:
            raise Expected(None, self.token)

    def name(self, what: str) -> Name:
        token = self.token
        if token is None or token.token_type not in _NAMES:
            raise Expected(what, token)
        self.at += 1
        return Name(token.text, token.token_type == TokenType.IDENTIFIER, span_of_token(token))

    def type_name(self) -> tuple[str, Span]:
        token = self.token
        if token is None or token.token_type not in _NAMES | {TokenType.INTERVAL}:
            raise Expected("a type", token)
        written, size = type_text(self.tokens, self.at)
        return written, self.since(self.at, self.at + size)

    def since(self, first: int, end: int | None = None) -> Span:
        """The span of the tokens from number `first` to here; `end` moves here first."""
        self.at = self.at if end is None else end
        return Span(self.tokens[first].start, self.tokens[self.at - 1].end + 1)

    def in_parentheses(self) -> list[Token]:
        """The tokens up to the parenthesis that closes the one here, both left out."""
        self.expect("(")
        depth, first = 1, self.at
        while token := self.token:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            self.at += 1
            if depth == 0:
                return self.tokens[first : self.at - 1]
        raise Expected(")", None)

    def condition(self) -> exp.Expr:
        """`(…)`, without its parentheses."""
        inner, after = self.in_parentheses(), self.tokens[self.at - 1]
        return self._read(SmileParser._parse_disjunction, "a condition", inner, after)

    def query(self) -> exp.Query:
        rest = self.tokens[self.at :]
        self.at = len(self.tokens)
        node = self._read(SmileParser._parse_ddl_select, "SELECT", rest, None)
        while isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and node.is_wrapper:
            node = node.this.pop()
        if not isinstance(node, exp.Query):
            raise Expected("SELECT", rest[0])
        return node

    def _read(
        self,
        rule: Callable[[SmileParser], exp.Expr | None],
        what: str,
        tokens: list[Token],
        after: Token | None,
    ) -> exp.Expr:
        refuse_words(tokens)
        _refuse_idle_commas(tokens, after)
        parser = SmileParser(dialect=_DIALECT)
        try:
            node = parser.read_all(lambda: rule(parser), what, tokens, self.text)
        except Expected as missing:
            raise Expected(missing.what, missing.token or after) from None
        if complete(node) > limits.expression_depth_max:
            whole = Span(self.tokens[0].start, self.tokens[-1].end + 1)
            raise SmileError(too_deep(whole, limits.expression_depth_max))
        check(node, self.text)
        return node


def plain(token: Token) -> str:
    """What a word or a sign is, for comparison; the empty string for what is quoted."""
    quoted = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.HEX_STRING)
    return "" if token.token_type in quoted else token.text.upper()


_AFTER_NO_COMMA = frozenset(
    {TokenType.R_PAREN, TokenType.COMMA, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING}
    | {TokenType.ORDER_BY, TokenType.LIMIT, TokenType.JOIN, TokenType.ON, TokenType.USING, TokenType.UNION}
)


def _refuse_idle_commas(tokens: list[Token], after: Token | None) -> None:
    """sqlglot overlooks a comma after which nothing comes."""
    for token, following in zip(tokens, [*tokens, after][1:], strict=True):
        if token.token_type == TokenType.COMMA and (following is None or following.token_type in _AFTER_NO_COMMA):
            raise Expected("an expression", following)
