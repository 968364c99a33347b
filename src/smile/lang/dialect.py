"""The grammar of queries: that of sqlglot, BEST, and stream functions (TUMBLE, HOP, SESSION, LAST, MERGE) in FROM."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.tokenizer_core import Token, TokenType

from smile import limits
from smile.errors import SmileError, error
from smile.lang.allowlist import CUMULATE_HINT
from smile.lang.expression_parser import ExpressionParser, UnexpectedTokenError
from smile.lang.lexer import nesting_problem, span_of_token
from smile.lang.nodes import BestClause, StreamFunction
from smile.lang.normal_forms import inline_named_windows, move_distinct_on_to_best, with_explicit_null_order
from smile.lang.spans import widen_span
from smile.recursion import continue_in_threads
from smile.source import Span

WINDOW_INTERVAL_COUNTS = {"TUMBLE": (1, 2), "HOP": (2, 3), "SESSION": (1,), "LAST": (1,)}
"""The window functions, with the numbers of intervals that they can have. An offset comes last."""


class SmileParser(ExpressionParser):
    def reset(self) -> None:
        super().reset()
        self._select_tokens: list[Token] = []
        self.depth = 0
        """The number of nested rules in progress."""

    def expression(self, instance: Any, token: Token | None = None, comments: list[str] | None = None) -> Any:
        node = super().expression(instance, token, comments)
        if isinstance(node, exp.Select):
            widen_span(node, span_of_token(self._select_tokens[-1]))
        return node

    def _parse_statement(self) -> exp.Expr | None:
        return self._parse_ddl_select()

    def parse_values(self) -> exp.Expr | None:
        """`VALUES (…), (…)`."""
        return self._parse_derived_table_values()

    def _parse_select_query(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        self.expect(self._curr.token_type != TokenType.FROM, "SELECT")
        self._select_tokens.append(self._curr)
        node = super()._parse_select_query(*args, **kwargs)
        self._select_tokens.pop()
        return node

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if isinstance(this, exp.Select) and self._is_at_best():
            this.set("best", self._parse_best())
            if self._match_set(self.QUERY_MODIFIER_PARSERS, advance=False) or self._is_at_best():
                raise error(
                    "E010",
                    f"{self._curr.text.upper()} cannot follow BEST",
                    span_of_token(self._curr),
                    "BEST must be the last clause of a query. Put the query into a subquery to add other clauses.",
                )
            widen_span(this, span_of_token(self._prev))
        if isinstance(this, exp.Select):
            inline_named_windows(this)
            move_distinct_on_to_best(this)
        return this

    def _is_at_best(self) -> bool:
        return (
            self._curr.token_type == TokenType.VAR
            and self._curr.text.upper() == "BEST"
            and self._next.token_type == TokenType.NUMBER
        )

    def _parse_best(self) -> exp.Expr:
        first = self._curr
        self._advance()
        k = self._parse_number()
        self.expect(self._match_text_seq("BY"), "BY")
        by = with_explicit_null_order(self._parse_csv(self._parse_ordered))
        self.expect(by, "an expression")
        per = []
        if self._match_text_seq("PER"):
            per = self._parse_csv(self._parse_disjunction)
            self.expect(per, "a column")
        best: exp.Expr = self.expression(BestClause(this=k, by=by, per=per or None))
        widen_span(best, span_of_token(first))
        return best

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        function = self._parse_unnest_call() or self._parse_stream_function()
        if function is None:
            first = self._index
            node = super()._parse_table(*args, **kwargs)
            stars = [t for t in self._tokens[first : self._index] if t.token_type == TokenType.STAR]
            if stars and isinstance(node, exp.Table):  # sqlglot ignores a star after the name of a table
                raise UnexpectedTokenError(None, stars[0])
            return node
        if alias := self._parse_table_alias():
            function.set("alias", alias)
        return function

    def _parse_table_alias(self, alias_tokens: Any = None) -> exp.TableAlias | None:
        self._expect_name_after_as()
        return None if self._is_at_best() else super()._parse_table_alias(alias_tokens)

    def _parse_lateral(self) -> Any:
        """sqlglot also stores what LATERAL VIEW and APPLY say."""
        lateral = super()._parse_lateral()
        if isinstance(lateral, exp.Lateral):
            for name in [n for n, value in lateral.args.items() if value is False]:
                lateral.set(name, None)
        return lateral

    def _parse_cte(self) -> Any:
        cte = super()._parse_cte()
        if cte is None:  # sqlglot has moved back to the name
            raise UnexpectedTokenError("AS", self._next or None)
        return cte

    def _parse_string_as_identifier(self) -> None:
        return None

    def _parse_function_parameter(self) -> exp.Expr | None:
        return self._parse_id_var(any_token=False)

    def _parse_unnest_call(self) -> exp.Expr | None:
        """`[LATERAL] UNNEST(array) [WITH ORDINALITY]`."""
        if self._curr.token_type == TokenType.LATERAL and self._next.token_type == TokenType.UNNEST:
            self._advance()
        if self._curr.token_type != TokenType.UNNEST:
            return None
        first = self._curr
        self._advance()
        arrays = self._parse_wrapped_csv(self._parse_disjunction)
        if len(arrays) != 1:
            raise error("E032", "UNNEST takes one array", Span(first.start, self._prev.end + 1))
        offset = self._match_text_seq("WITH", "ORDINALITY")
        unnest: exp.Expr = self.expression(exp.Unnest(expressions=arrays, offset=True if offset else None))
        widen_span(unnest, Span(first.start, self._prev.end + 1))
        return unnest

    def _parse_stream_function(self) -> exp.Expr | None:
        if self._next.token_type != TokenType.L_PAREN or self._curr.token_type != TokenType.VAR:
            return None
        name = self._curr.text.upper()
        if name == "TABLE":
            self._advance(2)
            function_token = self._curr
            if function_token.text.upper() == "CUMULATE":
                span = span_of_token(function_token)
                raise error("E013", "CUMULATE in FROM is not supported", span, CUMULATE_HINT)
            function = self._parse_stream_function()
            self.expect(function, "TUMBLE, HOP or SESSION")
            self._match_r_paren()
            return function
        if name != "MERGE" and name not in WINDOW_INTERVAL_COUNTS:
            return None
        first = self._curr
        self._advance(2)
        node = self._parse_merge_call() if name == "MERGE" else self._parse_window_call(name, first)
        self._match_r_paren()
        widen_span(node, Span(first.start, self._prev.end + 1))
        return node

    def _parse_merge_call(self) -> exp.Expr:
        node: exp.Expr = self.expression(StreamFunction(this="merge", relations=self._parse_csv(self._parse_relation)))
        return node

    def _parse_window_call(self, name: str, first: Token) -> exp.Expr:
        relation = self._parse_relation()
        per = self._parse_session_partition() if name == "SESSION" else []
        self.expect(self._match(TokenType.COMMA), ",")
        has_descriptor = self._match_text_seq("DESCRIPTOR")
        column = self._parse_wrapped(self._parse_column, optional=not has_descriptor)
        self.expect(isinstance(column, exp.Column), "a column")
        self.expect(self._match(TokenType.COMMA), ",")
        intervals = self._parse_csv(self._parse_bitwise)
        zone = intervals.pop() if name == "TUMBLE" and _is_text(intervals[-1]) else None
        if len(intervals) not in WINDOW_INTERVAL_COUNTS[name]:
            optional = "" if name in ("LAST", "SESSION") else ", and an offset if there is one"
            expected = f"two intervals, slide and size{optional}" if name == "HOP" else f"one interval{optional}"
            last = self._curr if self._curr.token_type == TokenType.R_PAREN else self._prev
            raise error("E032", f"{name} takes {expected}", Span(first.start, last.end + 1))
        node: exp.Expr = self.expression(
            StreamFunction(
                this=name.lower(), relations=[relation], column=column, intervals=intervals, per=per or None, zone=zone
            )
        )
        return node

    def _parse_session_partition(self) -> list[exp.Expr]:
        """`PARTITION BY a`, or `PARTITION BY (a, b)`, because a comma follows."""
        if not self._match(TokenType.PARTITION_BY):
            return []
        if self._curr.token_type != TokenType.L_PAREN:
            columns: list[exp.Expr] = [c for c in [self._parse_column()] if c is not None]
        else:
            columns = self._parse_wrapped_csv(self._parse_column)
        self.expect(columns, "a column")
        return columns

    def _parse_relation(self) -> exp.Expr | None:
        """A relation as an argument: `s`, `TABLE s`, `(SELECT …)` or another stream function."""
        if function := self._parse_stream_function():
            return function
        if self._curr.token_type == TokenType.L_PAREN:
            first = self._curr
            query = self._parse_wrapped(self._parse_ddl_select)
            self.expect(query is not None, "SELECT")
            subquery: exp.Expr = self.expression(exp.Subquery(this=query))
            widen_span(subquery, span_of_token(first))
            return subquery
        if self._next.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            self._match_text_seq("TABLE")
        table = self._parse_table_parts(fast=True)
        self.expect(table is not None, "a stream or view")
        return table

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        first = self._curr
        if self._match(TokenType.COMMA):
            table = self._parse_table()
            self.expect(table is not None, "a stream or view")
            comma: exp.Join = self.expression(exp.Join(this=table))
            return comma
        index = self._index
        join_words = self._parse_join_parts()
        if not self._match(TokenType.JOIN):
            self._retreat(index)
            return None
        parts: dict[str, Any] = {
            key: word.text.upper() for key, word in zip(("method", "side", "kind"), join_words, strict=True) if word
        }
        parts["this"] = self._parse_table()
        self.expect(parts["this"] is not None, "a stream or view")
        if self._match(TokenType.ON):
            parts["on"] = self._parse_disjunction()
            self.expect(parts["on"] is not None, "a condition")
        elif self._match(TokenType.USING):
            parts["using"] = self._parse_wrapped_csv(lambda: self._parse_id_var(any_token=False))
            self.expect(parts["using"], "a column")
        elif parts.get("kind") != "CROSS" and parts.get("method") != "NATURAL":
            raise UnexpectedTokenError("ON or USING", self._curr or None)
        join: exp.Join = self.expression(exp.Join(**parts))
        widen_span(join, span_of_token(first))
        return join


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _record_span(parse: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(parse)
    def parse_and_record(self: SmileParser, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        node = parse(self, *args, **kwargs)
        if isinstance(node, exp.Expr) and self._index > first:
            widen_span(node, Span(self._tokens[first].start, self._prev.end + 1))
        return node

    return parse_and_record


def _limit_depth(parse: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(parse)
    def parse_nested(self: SmileParser, *args: Any, **kwargs: Any) -> Any:
        self.depth += 1
        if self.depth > limits.syntax_depth_max:
            raise SmileError(nesting_problem(span_of_token(self._curr or self._prev), limits.syntax_depth_max))
        node = parse(self, *args, **kwargs)
        self.depth -= 1
        return node

    return continue_in_threads(parse_nested)


_RECORDED_RULES = """
    _parse_select _parse_with _parse_cte _parse_from _parse_table _parse_table_alias
    _parse_where _parse_group _parse_having _parse_order _parse_ordered _parse_limit
    _parse_range _parse_in _parse_unary _parse_primary _parse_paren _parse_case
    _parse_column _parse_function _parse_id_var _parse_lambda
"""
for _name in _RECORDED_RULES.split():
    setattr(SmileParser, _name, _record_span(getattr(SmileParser, _name)))
for _name in ("_parse_select", "_parse_unary"):  # whatever recurses, recurses through one of them
    setattr(SmileParser, _name, _limit_depth(getattr(SmileParser, _name)))


class SmileSQL(Postgres):
    Parser = SmileParser
