"""A cursor over the tokens of a statement. It only moves forward."""

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from smile import limits
from smile.errors import SmileError
from smile.lang.allowlist import check_allowed, refuse_words
from smile.lang.dialect import SmileParser, SmileSQL
from smile.lang.expression_parser import NON_RESERVED_WORDS, UnexpectedTokenError, type_name_at
from smile.lang.lexer import nesting_problem, span_of_token
from smile.lang.spans import complete_spans
from smile.lang.statements import Name
from smile.source import Span

_DIALECT = SmileSQL()
_NAME_TOKENS = NON_RESERVED_WORDS | {TokenType.IDENTIFIER}


class TokenCursor:
    def __init__(self, tokens: list[Token], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.index = 0

    @property
    def token(self) -> Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def is_at(self, *words: str, ahead: int = 0) -> bool:
        """Whether the next tokens are these words or signs, unquoted, in any case."""
        following = self.tokens[self.index + ahead : self.index + ahead + len(words)]
        return [unquoted_text(t) for t in following] == list(words)

    def skip(self, *words: str) -> bool:
        if not self.is_at(*words):
            return False
        self.index += len(words)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.skip(word):
                raise UnexpectedTokenError(word, self.token)

    def expect_end(self) -> None:
        if self.token:
            raise UnexpectedTokenError(None, self.token)

    def read_name(self, expected: str) -> Name:
        token = self.token
        if token is None or token.token_type not in _NAME_TOKENS:
            raise UnexpectedTokenError(expected, token)
        self.index += 1
        return Name(token.text, token.token_type == TokenType.IDENTIFIER, span_of_token(token))

    def take_as_names(self, word: str) -> None:
        """From here on, this reserved word is a name. `IS DISTINCT FROM` stays an operator."""
        for i in range(self.index, len(self.tokens)):
            if self.is_at(word, ahead=i - self.index) and unquoted_text(self.tokens[i - 1]) != "DISTINCT":
                old = self.tokens[i]
                self.tokens[i] = Token(TokenType.VAR, old.text, old.line, old.col, old.start, old.end)

    def read_type_name(self) -> tuple[str, Span]:
        token = self.token
        if token is None or token.token_type not in _NAME_TOKENS | {TokenType.INTERVAL}:
            raise UnexpectedTokenError("a type", token)
        written, size = type_name_at(self.tokens, self.index)
        return written, self.span_from(self.index, self.index + size)

    def span_from(self, first: int, end: int | None = None) -> Span:
        """The span from token `first` to the cursor. If `end` is given, the cursor is moved there before."""
        self.index = self.index if end is None else end
        return Span(self.tokens[first].start, self.tokens[self.index - 1].end + 1)

    def read_parenthesised(self) -> list[Token]:
        """The tokens between the parenthesis at the cursor and the one that closes it."""
        self.expect("(")
        depth, first = 1, self.index
        while token := self.token:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            self.index += 1
            if depth == 0:
                return self.tokens[first : self.index - 1]
        raise UnexpectedTokenError(")", None)

    def read_condition(self) -> exp.Expr:
        """The condition of `(…)`, without the parentheses."""
        inner, after = self.read_parenthesised(), self.tokens[self.index - 1]
        return self._parse_tokens(SmileParser._parse_disjunction, "a condition", inner, after)

    def read_condition_before(self, word: str | None) -> exp.Expr:
        """The condition up to this word outside of parentheses, or up to the end."""
        first, depth = self.index, 0
        while self.token and not (depth == 0 and word is not None and self.is_at(word)):
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self.token.token_type, 0)
            self.index += 1
        tokens, after = self.tokens[first : self.index], self.token
        if not tokens:
            raise UnexpectedTokenError("a condition", after)
        return self._parse_tokens(SmileParser._parse_disjunction, "a condition", tokens, after)

    def read_query(self) -> exp.Query:
        tokens = self.tokens[self.index :]
        self.index = len(self.tokens)
        node = self._parse_tokens(SmileParser._parse_ddl_select, "SELECT", tokens, None)
        while isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and node.is_wrapper:
            node = node.this.pop()
        if not isinstance(node, exp.Query):
            raise UnexpectedTokenError("SELECT", tokens[0])
        return node

    def read_values(self) -> list[exp.Tuple]:
        """The rows of `VALUES (…), (…)`, to the end of the statement."""
        tokens = self.tokens[self.index :]
        self.index = len(self.tokens)
        node = self._parse_tokens(SmileParser.parse_values, "VALUES", tokens, None)
        return list(node.expressions)

    def _parse_tokens(
        self,
        rule: Callable[[SmileParser], exp.Expr | None],
        expected: str,
        tokens: list[Token],
        after: Token | None,
    ) -> exp.Expr:
        refuse_words(tokens)
        _refuse_trailing_commas(tokens, after)
        parser = SmileParser(dialect=_DIALECT)
        try:
            node = parser.parse_tokens(lambda: rule(parser), expected, tokens, self.text)
        except UnexpectedTokenError as unexpected:
            raise UnexpectedTokenError(unexpected.expected, unexpected.token or after) from None
        if complete_spans(node) > limits.syntax_depth_max:
            statement_span = Span(self.tokens[0].start, self.tokens[-1].end + 1)
            raise SmileError(nesting_problem(statement_span, limits.syntax_depth_max))
        check_allowed(node, self.text)
        return node


def unquoted_text(token: Token) -> str:
    """The text of a word or sign in upper case, for comparison; the empty string if it is quoted."""
    quoted_types = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.HEX_STRING)
    return "" if token.token_type in quoted_types else token.text.upper()


_INVALID_AFTER_COMMA = frozenset(
    {TokenType.R_PAREN, TokenType.COMMA, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING}
    | {TokenType.ORDER_BY, TokenType.LIMIT, TokenType.JOIN, TokenType.ON, TokenType.USING, TokenType.UNION}
)


def _refuse_trailing_commas(tokens: list[Token], after: Token | None) -> None:
    """sqlglot accepts a comma without an item after it."""
    for token, following in zip(tokens, [*tokens, after][1:], strict=True):
        if token.token_type == TokenType.COMMA and (following is None or following.token_type in _INVALID_AFTER_COMMA):
            raise UnexpectedTokenError("an expression", following)
