"""The grammar of expressions, derived from sqlglot's. Every parsed node has a span.

sqlglot accepts many dialects and tolerates errors. This grammar is strict: what SmileSQL does not have is an error.
Rules backtrack only over a type name or over the words before JOIN, so that parsing takes linear time.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from smile.errors import error
from smile.lang.lexer import span_of_token
from smile.lang.nodes import (
    AGGREGATE_SYNONYMS,
    AGGREGATES,
    DERIVED_AGGREGATES,
    PERCENTILES,
    QUANTILE_SYNONYMS,
    STRING_AGGREGATE_SYNONYMS,
    NestedGroup,
    Percentile,
    PercentileCont,
    SilenceCall,
)
from smile.lang.normal_forms import (
    array_aggregate,
    conditional,
    filtered_aggregate,
    ordered_aggregate,
    path_steps,
    string_aggregate,
    with_explicit_null_order,
    with_listed_values,
)
from smile.lang.spans import span_of, widen_span
from smile.source import Span

NON_RESERVED_WORDS = frozenset(
    {TokenType.VAR, TokenType.DATE, TokenType.TIME, TokenType.TIMESTAMP, TokenType.TIMESTAMPTZ}
    | {TokenType.RANGE, TokenType.ROWS, TokenType.FILTER}
)
"""Words that are names wherever no clause expects them."""

_NAME_TOKENS = NON_RESERVED_WORDS | {TokenType.IDENTIFIER}
_TYPE_TOKENS = _NAME_TOKENS | {TokenType.INTERVAL}
_LITERAL_TYPE_TOKENS = frozenset({TokenType.DATE, TokenType.TIME, TokenType.TIMESTAMP, TokenType.TIMESTAMPTZ})
"""Types of literals such as DATE '2020-01-01'."""


class UnexpectedTokenError(ParseError):
    """`expected` was missing at `token`, or after the last token if that is None."""

    def __init__(self, expected: str | None, token: Token | None) -> None:
        super().__init__(expected or "unexpected")
        self.expected = expected
        self.token = token


class _WrongArgumentCount(Exception):
    """A function has too few or too many arguments. The caller knows its name and its span."""


def _one_argument_builder(kind: type[exp.Func]) -> Callable[[list[exp.Expr]], exp.Func]:
    def build(args: list[exp.Expr]) -> exp.Func:
        if len(args) != 1:
            raise _WrongArgumentCount("one argument")
        return kind(this=args[0])

    return build


def _extreme_builder(kind: type[exp.Func]) -> Callable[[list[exp.Expr]], exp.Func]:
    """DISTINCT makes no difference to an extreme."""
    build_plain = _one_argument_builder(kind)

    def build(args: list[exp.Expr]) -> exp.Func:
        return build_plain(args[0].expressions if len(args) == 1 and isinstance(args[0], exp.Distinct) else args)

    return build


def _two_arguments_builder(kind: type[exp.Func]) -> Callable[[list[exp.Expr]], exp.Func]:
    def build(args: list[exp.Expr]) -> exp.Func:
        if len(args) != 2:
            raise _WrongArgumentCount("two arguments")
        return kind(this=args[0], expression=args[1])

    return build


def _build_now(args: list[exp.Expr]) -> exp.Expr:
    if args:
        raise _WrongArgumentCount("no arguments")
    return exp.CurrentTimestamp()


def _build_date_part(args: list[exp.Expr]) -> exp.Expr:
    """`DATE_PART('hour', t)` is `EXTRACT(HOUR FROM t)`."""
    if len(args) != 2 or not (isinstance(args[0], exp.Literal) and args[0].is_string):
        raise _WrongArgumentCount("two arguments, of which the first is a string such as 'hour'")
    return exp.Extract(this=exp.Var(this=args[0].name.upper()), expression=args[1])


def _build_conditional(args: list[exp.Expr]) -> exp.Expr:
    if len(args) not in (2, 3):
        raise _WrongArgumentCount("two or three arguments")
    return conditional(args)


def _build_distinct_count(args: list[exp.Expr]) -> exp.Expr:
    if len(args) != 1:
        raise _WrongArgumentCount("one argument")
    return exp.Count(this=exp.Distinct(expressions=args))


def _percentile_builder(kind: type[Percentile]) -> Callable[[list[exp.Expr]], exp.Expr]:
    def build(args: list[exp.Expr]) -> exp.Expr:
        if len(args) != 1:
            raise _WrongArgumentCount("one argument, and WITHIN GROUP (ORDER BY …) after it")
        return kind(fraction=args[0])

    return build


def _quantile_builder(kind: type[Percentile]) -> Callable[[list[exp.Expr]], exp.Expr]:
    def build(args: list[exp.Expr]) -> exp.Expr:
        if len(args) != 2:
            raise _WrongArgumentCount("two arguments, the value and the fraction")
        return kind(this=args[0], fraction=args[1])

    return build


def _string_aggregate_builder(name: str, default_separator: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    def build(args: list[exp.Expr]) -> exp.Expr:
        count = sum(len(a.expressions) if isinstance(a, exp.Distinct) else 1 for a in map(_unordered, args))
        if not 1 <= count <= 2 or (count == 1 and name == "STRING_AGG"):
            raise _WrongArgumentCount("two arguments, the text and the separator")
        return string_aggregate(args, default_separator)

    return build


def _build_array_aggregate(args: list[exp.Expr]) -> exp.Expr:
    if len(args) != 1 or (isinstance(_unordered(args[0]), exp.Distinct) and len(_unordered(args[0]).expressions) != 1):
        raise _WrongArgumentCount("one argument")
    return array_aggregate(args[0])


def _unordered(arg: exp.Expr) -> exp.Expr:
    return arg.this if isinstance(arg, exp.Order) else arg


def _build_median(args: list[exp.Expr]) -> exp.Expr:
    if len(args) != 1:
        raise _WrongArgumentCount("one argument")
    return PercentileCont(this=args[0], fraction=exp.Literal.number("0.5"))


_AGGREGATE_BUILDERS: dict[str, Callable[..., exp.Expr]] = {
    **{name: _one_argument_builder(node) for name, node in (*AGGREGATES.items(), *DERIVED_AGGREGATES.items())},
    **{name: _extreme_builder(AGGREGATES[name]) for name in ("MIN", "MAX")},
    **{name: _extreme_builder(DERIVED_AGGREGATES[name]) for name in ("BOOL_AND", "BOOL_OR")},
    **{name: _two_arguments_builder(DERIVED_AGGREGATES[name]) for name in ("ARG_MAX", "ARG_MIN")},
}


_SQLGLOT_EXPECTATIONS = (
    ("Expecting )", ")"),
    ("Expecting (", "("),
    ("Expected END", "END"),
    ("Expected AS", "AS"),
    ("Expected TYPE", "a type"),
    ("Expected type", "a type"),
    ("Expected table name", "a stream or view"),
    ("Expected CTE to have alias", "a name"),
    ("Expected FROM or comma", "FROM"),
    ("Failed to parse any statement", "SELECT"),
    ("Required", "an expression"),
)


class ExpressionParser(PostgresParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {
        **_AGGREGATE_BUILDERS,
        **{name: _AGGREGATE_BUILDERS[synonym] for name, synonym in AGGREGATE_SYNONYMS.items()},
        **dict.fromkeys(("APPROX_COUNT_DISTINCT", "APPROX_DISTINCT"), _build_distinct_count),
        **{name: _percentile_builder(node) for name, node in PERCENTILES.items()},
        **{name: _quantile_builder(PERCENTILES[synonym]) for name, synonym in QUANTILE_SYNONYMS.items()},
        **{name: _string_aggregate_builder(name, s) for name, s in STRING_AGGREGATE_SYNONYMS.items()},
        "ARRAY_AGG": _build_array_aggregate,
        "MEDIAN": _build_median,
        "GROUP": lambda args: NestedGroup(expressions=args),
        "IF": _build_conditional,
        "NOW": _build_now,
        "DATE_PART": _build_date_part,
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CAST": lambda self: self._parse_cast(True),
        "EXTRACT": lambda self: self._parse_extract(),
        "POSITION": lambda self: self._parse_position_call(),
        "SILENCE": lambda self: self._parse_silence(),
        "SUBSTRING": lambda self: self._parse_substring_call(),
        "TRIM": lambda self: self._parse_trim_call(),
        "SAFE_CAST": lambda self: self._parse_cast(True),
        "TRY_CAST": lambda self: self._parse_cast(True),
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {"CASE": lambda self: self._parse_case()}
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, type[exp.Expr]]] = {
        TokenType.CURRENT_TIMESTAMP: exp.CurrentTimestamp,
        TokenType.LOCALTIMESTAMP: exp.CurrentTimestamp,
    }
    FUNC_TOKENS: ClassVar[set[TokenType]] = {
        *NON_RESERVED_WORDS,
        TokenType.IDENTIFIER,
        TokenType.LEFT,
        TokenType.RIGHT,
        TokenType.EXISTS,
        TokenType.ANY,
        TokenType.SOME,
        TokenType.ALL,
    }
    SUBQUERY_PREDICATES: ClassVar[dict[TokenType, Any]] = {
        TokenType.EXISTS: exp.Exists,
        TokenType.ANY: exp.Any,
        TokenType.SOME: exp.Any,
        TokenType.ALL: exp.All,
    }
    STATEMENT_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {}
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        TokenType.WHERE: lambda self: ("where", self._parse_where()),
        TokenType.GROUP_BY: lambda self: ("group", self._parse_group()),
        TokenType.HAVING: lambda self: ("having", self._parse_having()),
        TokenType.QUALIFY: lambda self: ("qualify", self._parse_qualify()),
        TokenType.ORDER_BY: lambda self: ("order", self._parse_order()),
        TokenType.LIMIT: lambda self: ("limit", self._parse_limit()),
        TokenType.FETCH: lambda self: ("limit", self._parse_fetch()),
        TokenType.WINDOW: lambda self: ("windows", self._parse_window_clause()),
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)
    RANGE_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **{
            token: PostgresParser.RANGE_PARSERS[token]
            for token in (TokenType.BETWEEN, TokenType.ILIKE, TokenType.IN, TokenType.IS, TokenType.LIKE)
        },
        TokenType.RLIKE: lambda self, this: self._parse_regular_expression(this),
    }
    UNARY_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        token: PostgresParser.UNARY_PARSERS[token] for token in (TokenType.PLUS, TokenType.NOT, TokenType.DASH)
    }
    COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        token: PostgresParser.COLUMN_OPERATORS[token] for token in (TokenType.DOT, TokenType.DCOLON)
    }
    JSON_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        TokenType.ARROW: lambda self, this, key: self._parse_json_call("JSON_GET", this, key),
        TokenType.DARROW: lambda self, this, key: self._parse_json_call("JSON_GET_TEXT", this, key),
        TokenType.HASH_ARROW: lambda self, this, path: self._parse_json_path("JSON_PATH", this, path),
        TokenType.DHASH_ARROW: lambda self, this, path: self._parse_json_path("JSON_PATH_TEXT", this, path),
        TokenType.PLACEHOLDER: lambda self, this, key: self._parse_json_call("JSON_HAS_KEY", this, key),
    }
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Any]] = {}
    LAMBDAS: ClassVar[dict[TokenType, Any]] = {}
    BITWISE: ClassVar[dict[TokenType, Any]] = {}
    EXPONENT: ClassVar[dict[TokenType, Any]] = {
        TokenType.CARET: lambda this, expression: exp.Anonymous(this="POWER", expressions=[this, expression])
    }
    AMBIGUOUS_ALIAS_TOKENS: ClassVar[Any] = ()
    ID_VAR_TOKENS: ClassVar[set[TokenType]] = set(NON_RESERVED_WORDS)
    ALIAS_TOKENS: ClassVar[set[TokenType]] = set(NON_RESERVED_WORDS)
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = set(NON_RESERVED_WORDS)
    RESERVED_TOKENS: ClassVar[set[TokenType]] = set(TokenType) - NON_RESERVED_WORDS - {TokenType.IDENTIFIER}
    OPTIONAL_ALIAS_TOKEN_CTE = False
    SUPPORTS_TABLE_QUERY = False

    # ── spans and errors ───────────────────────────────────────────────────────────────────────────────────────

    def expression(self, instance: Any, token: Token | None = None, comments: list[str] | None = None) -> Any:
        node = super().expression(instance, token, comments)
        if last := token or self._prev:
            widen_span(node, span_of_token(last))
        return node

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        expected = next((expected for start, expected in _SQLGLOT_EXPECTATIONS if message.startswith(start)), None)
        is_duplicate = message.startswith("Found multiple")
        raise UnexpectedTokenError(expected, (is_duplicate and token) or self._curr or None)

    def expect(self, matched: object, expected: str) -> None:
        if not matched:
            raise UnexpectedTokenError(expected, self._curr or None)

    def parse_tokens(
        self, parse: Callable[[], exp.Expr | None], expected: str, tokens: list[Token], text: str
    ) -> exp.Expr:
        """Parses all of `tokens` with one rule of this parser."""
        self.reset()
        self.sql, self._tokens, self._tokens_size = text, tokens, len(tokens)
        self._index = -1
        self._advance()
        node = parse()
        self.expect(node is not None, expected)
        if self._curr:
            raise UnexpectedTokenError(None, self._curr)
        assert node is not None
        return node

    # ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        """A type name is stored as written. Whether the type exists is checked later."""
        if self._curr.token_type not in (_TYPE_TOKENS if allow_identifiers else _LITERAL_TYPE_TOKENS):
            return None
        index = self._index
        text, size = type_name_at(self._tokens, index)
        self._advance(size)
        if check_func and self._curr.token_type != TokenType.STRING:
            self._retreat(index)
            return None
        node: exp.Expr = self.expression(exp.DataType(this=exp.DType.USERDEFINED, kind=text))
        widen_span(node, span_of_token(self._tokens[index]))
        return node

    def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
        literals = (TokenType.STRING, TokenType.NUMBER)
        if self._curr.token_type != TokenType.INTERVAL or self._next.token_type not in literals:
            return None
        self._advance(2)
        amount = self.expression(exp.Literal.string(self._prev.text))
        unit = None if any(c.isalpha() for c in amount.name) else self._parse_var(upper=True)
        interval = self.expression(exp.Interval(this=amount, unit=unit))
        if unit:
            widen_span(interval.args["unit"], span_of_token(self._prev))
        if self._match_text_seq("TO"):
            raise error("E013", "an interval of two units is not supported", span_of_token(self._prev))
        return interval

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise()
        self.expect(self._match(TokenType.AND), "AND")
        between: exp.Between = self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))
        return between

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        self.expect(self._curr.token_type == TokenType.L_PAREN, "(")
        if self._next.token_type == TokenType.R_PAREN:
            raise UnexpectedTokenError("an expression", self._next)
        node = super()._parse_in(this)
        return with_listed_values(node)

    def _parse_regular_expression(self, this: exp.Expr | None) -> exp.Expr:
        """`a ~ p` is REGEXP_LIKE(a, p); `!` negates it, and `*` ignores case."""
        operator = self._prev.text
        flags = [exp.Literal.string("i")] if operator.endswith("*") else []
        call = self._anonymous_call("REGEXP_LIKE", [this, self._parse_bitwise(), *flags])
        return exp.Not(this=call) if operator.startswith("!") else call

    def _parse_json_call(self, name: str, this: exp.Expr | None, key: exp.Expr | None) -> exp.Expr:
        """`j -> 'a'` is JSON_GET(j, 'a')."""
        return self._anonymous_call(name, [this, key])

    def _parse_json_path(self, name: str, this: exp.Expr | None, path: exp.Expr | None) -> exp.Expr:
        """`j #> '{a,0}'` is JSON_PATH(j, 'a', '0')."""
        self.expect(path is not None, "a path")
        assert path is not None
        steps = path_steps(path.name) if isinstance(path, exp.Literal) and path.is_string else None
        if steps is None:
            hint = f"Write '{{a,0}}' for the first element of the member a, or call {name}(j, 'a', '0')."
            raise error("E033", "a path is a list of names and positions, such as '{a,0}'", span_of(path), hint)
        literals = [exp.Literal.string(step) for step in steps]
        if span := span_of(path):
            for literal in literals:
                widen_span(literal, span)
        return self._anonymous_call(name, [this, *literals])

    def _parse_order(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        node = super()._parse_order(*args, **kwargs)
        if isinstance(node, exp.Order):
            node.set("expressions", with_explicit_null_order(node.expressions))
        return node

    def _parse_plain_order(self) -> exp.Expr:
        """An ORDER BY in which NULLS FIRST and NULLS LAST make no difference, because NULLs do not count."""
        order = super()._parse_order()
        self.expect(isinstance(order, exp.Order), "ORDER BY")
        assert isinstance(order, exp.Order)
        return order

    def _parse_fetch(self) -> exp.Expr:
        """`FETCH FIRST 3 ROWS ONLY` is `LIMIT 3`."""
        self._advance()
        self.expect(self._match_text_seq("FIRST") or self._match_text_seq("NEXT"), "FIRST")
        count = self._parse_number() or exp.Literal.number(1)
        self.expect(self._match_text_seq("ROWS") or self._match_text_seq("ROW"), "ROWS")
        self.expect(self._match_text_seq("ONLY"), "ONLY")
        limit: exp.Expr = self.expression(exp.Limit(expression=count))
        return limit

    def _parse_primary(self) -> exp.Expr | None:
        """sqlglot parses a separate point and the token after it as a number, whatever that token is."""
        if self._curr.token_type == TokenType.DOT:
            raise UnexpectedTokenError("an expression", self._curr)
        return super()._parse_primary()

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        node = super()._parse_is(this)
        if node is None:
            raise UnexpectedTokenError("NULL, TRUE, FALSE or DISTINCT FROM", self._next or None)
        return node

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        self._expect_name_after_as()
        return super()._parse_alias(this, explicit)

    def _expect_name_after_as(self) -> None:
        """sqlglot accepts an AS without a name after it."""
        if self._curr.token_type == TokenType.ALIAS and self._next.token_type not in _NAME_TOKENS:
            raise UnexpectedTokenError("a name", self._next or None)

    def _parse_case(self) -> exp.Expr:
        operand = None
        if self._curr.token_type != TokenType.WHEN:
            operand = self._parse_disjunction()
        branches = []
        while self._match(TokenType.WHEN):
            first = self._prev
            condition = self._parse_disjunction()
            self.expect(self._match(TokenType.THEN), "THEN")
            branches.append(self.expression(exp.If(this=condition, true=self._parse_disjunction())))
            widen_span(branches[-1], span_of_token(first))
        self.expect(branches, "WHEN")
        default = None
        if self._match(TokenType.ELSE):
            default = self._parse_disjunction()
            self.expect(default is not None, "an expression")
        self.expect(self._match(TokenType.END), "END")
        case: exp.Expr = self.expression(exp.Case(this=operand, ifs=branches, default=default))
        return case

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        return self._parse_csv(self._parse_lambda)

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        first = self._curr
        try:
            return super()._parse_function_call(*args, **kwargs)
        except _WrongArgumentCount as wrong:
            last = self._curr if self._curr.token_type == TokenType.R_PAREN else self._prev
            span = Span(first.start, last.end + 1)
            raise error("E032", f"{first.text.upper()} takes {wrong}", span) from None

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """`ARRAY[a, b]`, or the element `a[1]`."""
        if this is None or not self._match(TokenType.L_BRACKET):
            return this
        is_array = isinstance(this, exp.Column) and not this.table and _is_word(this.this, "ARRAY")
        is_empty = self._curr.token_type == TokenType.R_BRACKET
        parts = [] if is_empty else self._parse_csv(self._parse_disjunction)
        self.expect(is_array or len(parts) == 1, "an expression")
        self.expect(self._match(TokenType.R_BRACKET), "]")
        node = exp.Array(expressions=parts) if is_array else exp.Bracket(this=this, expressions=parts)
        bracket: exp.Expr = self.expression(node)
        if span := span_of(this):
            widen_span(bracket, span)
        return self._parse_bracket(bracket)

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        """sqlglot calls this after each function call: the span of the call ends at the previous token.

        For functions with a special syntax, sqlglot does not require the closing parenthesis.
        """
        if this is not None:
            if (start := this.meta.get("start")) is not None:
                widen_span(this, Span(start, start))
            widen_span(this, span_of_token(self._prev))
            if not isinstance(this, exp.Case) and not alias:
                self.expect(self._prev.token_type == TokenType.R_PAREN, ")")
        if this is not None and self._match_text_seq("WITHIN", "GROUP"):
            order = self._parse_wrapped(self._parse_plain_order)
            within = self.expression(exp.WithinGroup(this=this, expression=order))
            if call := span_of(this):
                widen_span(within, call)
            this = ordered_aggregate(within)
            widen_span(this, span_of_token(self._prev))
        if self._curr.token_type == TokenType.OVER and self._next.token_type not in _NAME_TOKENS | {TokenType.L_PAREN}:
            raise UnexpectedTokenError("(", self._next or None)
        node = super()._parse_window(this, alias)
        if isinstance(node, exp.Filter):
            widen_span(node, span_of_token(self._prev))
            node = filtered_aggregate(node)
        elif isinstance(node, exp.Window) and isinstance(node.this, exp.Filter):
            node.set("this", filtered_aggregate(node.this))
        if node is not None and isinstance(spec := node.args.get("spec"), exp.WindowSpec):
            _normalise_frame(spec)
        return node

    def _parse_per(self, this: exp.Expr | None) -> exp.Expr | None:
        return this

    def _parse_silence(self) -> exp.Expr:
        tick = self._parse_column()
        self.expect(tick is not None, "a column")
        per = []
        if self._match_text_seq("PER"):
            per = self._parse_csv(self._parse_column)
            self.expect(per, "a column")
        silence: exp.Expr = self.expression(SilenceCall(this=tick, per=per or None))
        return silence

    def _parse_substring_call(self) -> exp.Expr:
        args: list[Any] = self._parse_csv(self._parse_bitwise)
        if self._match(TokenType.FROM):
            args += [self._parse_bitwise()]
        if self._match(TokenType.FOR):
            args += [exp.Literal.number(1)] * (len(args) == 1) + [self._parse_bitwise()]
        return self._anonymous_call("SUBSTRING", args)

    def _parse_trim_call(self) -> exp.Expr:
        function = "BTRIM"
        if self._curr.token_type == TokenType.VAR and self._next.token_type != TokenType.R_PAREN:
            for word, name in (("BOTH", "BTRIM"), ("LEADING", "LTRIM"), ("TRAILING", "RTRIM")):
                function = name if self._match_text_seq(word) else function
        args: list[Any] = [] if self._curr.token_type == TokenType.FROM else self._parse_csv(self._parse_bitwise)
        if self._match(TokenType.FROM):
            args.insert(0, self._parse_bitwise())
        return self._anonymous_call(function, args)

    def _parse_position_call(self) -> exp.Expr:
        args = self._parse_csv(self._parse_bitwise)
        self.expect(self._match(TokenType.IN), "IN")
        return self._anonymous_call("STRPOS", [self._parse_bitwise(), *args])

    def _anonymous_call(self, name: str, args: list[Any]) -> exp.Expr:
        self.expect(all(a is not None for a in args), "an expression")
        call: exp.Expr = self.expression(exp.Anonymous(this=name, expressions=args))
        return call


def _is_word(name: exp.Expr, word: str) -> bool:
    return isinstance(name, exp.Identifier) and not name.args.get("quoted") and name.name.upper() == word


def _normalise_frame(spec: exp.WindowSpec) -> None:
    """Frames with and without an explicit end at CURRENT ROW become equal."""
    if spec.args.get("end") == "CURRENT ROW":
        spec.set("end", None)
    for word in ("kind", "start_side", "end_side"):
        if isinstance(value := spec.args.get(word), str):
            spec.set(word, value.upper())


def type_name_at(tokens: list[Token], index: int) -> tuple[str, int]:
    """The type name that starts at `index`, with one space between words, and the number of its tokens."""
    position = index + 1
    words = [_written_word(tokens[index])]
    texts = [t.text.upper() if t.token_type != TokenType.IDENTIFIER else "" for t in tokens[index : index + 5]]
    if texts[:2] in (["DOUBLE", "PRECISION"], ["CHARACTER", "VARYING"]):
        words.append(tokens[position].text)
        position += 1
    if position + 1 < len(tokens) and tokens[position].token_type == TokenType.L_PAREN:
        close = position + 1
        while close < len(tokens) and tokens[close].token_type in (TokenType.NUMBER, TokenType.COMMA):
            close += 1
        if close < len(tokens) and tokens[close].token_type == TokenType.R_PAREN:
            numbers = [t.text for t in tokens[position + 1 : close] if t.token_type == TokenType.NUMBER]
            words[-1] += f"({', '.join(numbers)})"
            position = close + 1
    while [t.text for t in tokens[position : position + 2]] == ["[", "]"]:
        words[-1] += "[]"
        position += 2
    zone = [t.text.upper() for t in tokens[position : position + 3]]
    if zone in (["WITH", "TIME", "ZONE"], ["WITHOUT", "TIME", "ZONE"]):
        words += [t.text for t in tokens[position : position + 3]]
        position += 3
    return " ".join(words), position - index


def _written_word(token: Token) -> str:
    return '"' + token.text.replace('"', '""') + '"' if token.token_type == TokenType.IDENTIFIER else token.text
