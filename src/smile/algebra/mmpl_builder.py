"""Builds MMPL nodes from Lark's parse tree, from the leaves up.

Every node has the span of its text. The span of an operator is its own line, without its input.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal as OneOf, cast

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from smile import limits
from smile.algebra import mmpl, types
from smile.algebra.coercions import parse_interval, parse_literal
from smile.algebra.types import DataType, Value
from smile.errors import did_you_mean, error
from smile.source import Span

Names = tuple[str, ...]
Pairs = tuple[tuple[str, str], ...]
Field = tuple[str, DataType]
Fields = tuple[Field, ...]
Aggregates = tuple[tuple[str, mmpl.Aggregate], ...]
Operator = Callable[[mmpl.Rel], mmpl.Rel]

NO_NESTED_ARRAYS_HINT: Final = "The elements of an array are plain values, such as int or string."
_JOIN_KINDS: Final = {text: kind for kind, text in mmpl.JOIN_KEYWORDS.items()}
_OPERATORS: Final = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.__name__).lower(): node for node in mmpl.Rel.__subclasses__()
}


# ── values and types ────────────────────────────────────────────────────────────────────────────────────────────────


def _with_span(build: Callable[..., Any], _rule: str, children: list[Any], meta: Meta) -> Any:
    return build(Span(0, 0) if meta.empty else Span(meta.start_pos, meta.end_pos), *children)


def _parse_value(text: str, data_type: DataType, span: Span) -> Value:
    try:
        return parse_literal(text, data_type)
    except ValueError as problem:
        raise error("E033", str(problem), span) from None


def _parse_count(text: str, span: Span) -> int:
    return cast(int, _parse_value(text, types.INT, span))


def _parse_constant(text: str, data_type: DataType, span: Span) -> mmpl.Constant:
    return mmpl.Constant(_parse_value(text, data_type, span), data_type, span=span)


def _checked_decimal_type(span: Span, digits: int, scale: int) -> DataType:
    if not (1 <= digits <= limits.decimal_digits_max and scale <= digits):
        hint = f"A decimal has from 1 to {limits.decimal_digits_max} digits, 0 or more of them after the decimal point."
        raise error("E025", f"there is no type decimal({digits}, {scale})", span, hint)
    return types.decimal_type(digits, scale)


def _written_digits_and_scale(text: str) -> tuple[int, int]:
    """The digits and scale of a decimal as it is written."""
    try:
        _, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return 1, 0
    if not isinstance(exponent, int):
        return 1, 0
    return max(len(digits) + max(exponent, 0), -exponent, 1), max(-exponent, 0)


@v_args(wrapper=_with_span)
class MmplBuilder(Transformer_NonRecursive[Token, Any]):
    """Has one method for each rule of the grammar, called with the span of the rule and the values of its parts.

    A rule without a method is an operator if it has the name of one: its parts are the fields of the node after its
    input, in their order. The value of any other rule without a method is the tuple of its parts.
    """

    def __default__(self, rule: str, parts: list[Any], meta: Meta) -> tuple[Any, ...] | Operator:
        if rule not in _OPERATORS:
            return tuple(parts)
        node: Callable[..., mmpl.Rel] = _OPERATORS[rule]
        return lambda rel: node(rel, *parts, span=Span(meta.start_pos, meta.end_pos))

    def NAME(self, token: Token) -> str:
        return str(token)

    def QUOTED_NAME(self, token: Token) -> str:
        return token[1:-1].replace('""', '"')

    def STRING(self, token: Token) -> str:
        return token[1:-1].replace("''", "'")

    def interval(self, span: Span, text: str, unit: tuple[Token]) -> int:
        try:
            return parse_interval(text, unit[0])
        except ValueError as problem:
            raise error("E033", str(problem), span) from None

    # statements

    def program(self, _span: Span, *statements: object) -> mmpl.Program:
        return mmpl.Program(
            tuple(s for s in statements if isinstance(s, mmpl.StreamDef)),
            tuple(s for s in statements if isinstance(s, mmpl.ViewDef)),
            tuple(name for s in statements if isinstance(s, tuple) for name in s),
            tuple(s for s in statements if isinstance(s, mmpl.ImportDef)),
            tuple(s for s in statements if isinstance(s, mmpl.Advertisement)),
            tuple(s for s in statements if isinstance(s, mmpl.RepublisherHistory)),
        )

    def history(self, span: Span, relation: str, ticks: int) -> mmpl.RepublisherHistory:
        return mmpl.RepublisherHistory(relation, ticks, span=span)

    def advertisement(self, span: Span, relation: str, condition: mmpl.Expr, name: str) -> mmpl.Advertisement:
        return mmpl.Advertisement(name, relation, condition, span=span)

    def import_(
        self,
        span: Span,
        relation: str,
        broker: str,
        other_brokers: tuple[str, ...],
        condition: mmpl.Expr | None,
        name: str | None,
        edition: str | None,
        definition: mmpl.Program | None,
    ) -> mmpl.ImportDef:
        own_name = relation if name is None else name
        number = 1 if edition is None else _parse_count(edition, span)
        return mmpl.ImportDef(own_name, broker, relation, condition, definition, number, other_brokers, span=span)

    def other_brokers(self, _span: Span, *names: str) -> tuple[str, ...]:
        return names

    def stream(
        self,
        span: Span,
        name: str,
        tick: Field,
        columns: Fields | None,
        publisher_timed: tuple[()] | None,
        many_origins: tuple[()] | None,
        home: str | None,
        whole_commits: tuple[()] | None,
        is_table: tuple[()] | None,
        channel: tuple[str, ...] | None,
        *constraints: mmpl.Expr | tuple[str, ...],
    ) -> mmpl.StreamDef:
        if tick[1] != types.TIME:
            raise error("E031", f"the key of a stream is a time, not {tick[1]}", span, f"Write {tick[0]}: time.")
        checks = tuple(c for c in constraints if isinstance(c, mmpl.Expr))
        unique = tuple(c for c in constraints if isinstance(c, tuple))
        options = (publisher_timed is not None, whole_commits is not None)
        stream = mmpl.StreamDef(name, tick[0], columns or (), checks, *options, unique, span=span)
        many, is_table_ = many_origins is not None, is_table is not None
        return replace(stream, many_origins=many, home=home, is_table=is_table_, channel=channel)

    def channel(self, _span: Span, columns: tuple[str, ...]) -> tuple[str, ...]:
        return columns

    def unique(self, _span: Span, *columns: str) -> tuple[str, ...]:
        return columns

    def view(self, span: Span, name: str, body: mmpl.Rel) -> mmpl.ViewDef:
        return mmpl.ViewDef(name, body, span=span)

    def shared_view(self, span: Span, name: str, body: mmpl.Rel) -> mmpl.ViewDef:
        return mmpl.ViewDef(name, body, shared=True, span=span)

    def simple_type(self, span: Span, name: str) -> DataType:
        known_types = {**types.SIMPLE_TYPES, "null": types.NULL}
        if name not in known_types:
            raise error("E025", f"unknown type {name}", span, did_you_mean(name, [*known_types, "decimal", "relation"]))
        return known_types[name]

    def decimal_type(self, span: Span, name: str, digits: str, scale: str) -> DataType:
        if name != "decimal":
            raise error("E025", f"the type {name} has no parameters", span, "Only decimal(digits, scale) has.")
        return _checked_decimal_type(span, _parse_count(digits, span), _parse_count(scale, span))

    def relation_type(self, span: Span, name: str, columns: Fields | None) -> DataType:
        if name != "relation":
            raise error("E025", f"the type {name} has no columns", span, "Only relation{name: type, …} has.")
        return types.relation_type(columns or ())

    def array_type(self, span: Span, element: DataType) -> DataType:
        if element.name not in types.ELEMENT_TYPES:
            raise error("E025", f"there is no type {types.array_type(element)}", span, NO_NESTED_ARRAYS_HINT)
        return types.array_type(element)

    # relations

    def apply(self, _span: Span, rel: mmpl.Rel, operator: Operator) -> mmpl.Rel:
        return operator(rel)

    def ref(self, span: Span, name: str) -> mmpl.Rel:
        return mmpl.RelationRef(name, span=span)

    def merge(self, span: Span, inputs: tuple[mmpl.Rel, ...]) -> mmpl.Rel:
        return mmpl.Merge(inputs, span=span)

    def union(self, span: Span, inputs: tuple[mmpl.Rel, ...]) -> mmpl.Rel:
        return mmpl.Union(inputs, span=span)

    def values(self, span: Span, columns: Fields, key: Names, *rows: tuple[mmpl.Expr, ...]) -> mmpl.Rel:
        """The types of the constants are those of the columns."""
        for row in rows:
            for cell, (name, data) in zip(row, columns, strict=False):
                if not isinstance(cell, mmpl.Constant) or cell.type != data:
                    raise error("E031", f"expected a constant of type {data} for {name}", cell.span)
        values = tuple(tuple(cell.value for cell in row if isinstance(cell, mmpl.Constant)) for row in rows)
        return mmpl.Values(columns, key, values, span=span)

    def extend(self, span: Span, *assignments: tuple[str, mmpl.Expr]) -> Operator:
        return lambda rel: mmpl.Extend(rel, assignments, span=span)

    def rename(self, span: Span, *pairs: tuple[str, str]) -> Operator:
        return lambda rel: mmpl.Rename(rel, pairs, span=span)

    def pair(self, _span: Span, left: str, right: str | None) -> tuple[str, str]:
        return left, left if right is None else right

    def join(
        self, span: Span, words: Names, right: mmpl.Rel, on: Pairs, null_aware: tuple[()] | None, when: mmpl.Expr | None
    ) -> Operator:
        kind = _JOIN_KINDS[" ".join(words)]
        return lambda left: mmpl.Join(kind, left, right, on, when, None, null_aware is not None, span=span)

    def match(
        self,
        span: Span,
        right: mmpl.Rel,
        on: Pairs,
        null_aware: tuple[()] | None,
        when: mmpl.Expr | None,
        match_column: str,
    ) -> Operator:
        return lambda left: mmpl.Join("match", left, right, on, when, match_column, null_aware is not None, span=span)

    def asof(self, span: Span, words: Names, right: mmpl.Rel, on: Pairs, left_tick: str, right_tick: str) -> Operator:
        kind: OneOf["inner", "left"] = "left" if "LEFT" in words else "inner"
        return lambda left: mmpl.Asof(kind, left, right, on, (left_tick, right_tick), span=span)

    def best(self, span: Span, k: int, *rest: Any) -> Operator:
        *by, per = rest
        return lambda rel: mmpl.Best(rel, k, tuple(by), per, span=span)

    def ascending(self, _span: Span, expr: mmpl.Expr) -> tuple[mmpl.Expr, bool]:
        return expr, False

    def descending(self, _span: Span, expr: mmpl.Expr) -> tuple[mmpl.Expr, bool]:
        return expr, True

    def tumble(self, span: Span, on: str, size: int, offset: int | None) -> Operator:
        return lambda rel: mmpl.Window("tumble", rel, on, size, offset=offset or 0, span=span)

    def hop(self, span: Span, on: str, slide: int, size: int, offset: int | None) -> Operator:
        return lambda rel: mmpl.Window("hop", rel, on, size, slide, offset or 0, span=span)

    def last(self, span: Span, on: str, size: int) -> Operator:
        return lambda rel: mmpl.Window("last", rel, on, size, span=span)

    def ungroup(self, span: Span, left: tuple[()] | None, column: str, names: Names, ordinality: str) -> Operator:
        return lambda rel: mmpl.Ungroup(rel, column, names, ordinality, left is not None, span=span)

    def number(self, span: Span, text: str) -> int:
        return _parse_count(text, span)

    def negative_number(self, span: Span, text: str) -> int:
        return _parse_count(f"-{text}", span)

    def unbounded(self, _span: Span) -> None:
        return None

    def aggregate(self, span: Span, function: tuple[Token], arg: mmpl.Expr) -> mmpl.Aggregate:
        return mmpl.Aggregate(cast(mmpl.AggregateName, function[0].lower()), arg, span=span)

    def count(self, span: Span, arg: mmpl.Expr | None = None) -> mmpl.Aggregate:
        return mmpl.Aggregate("count", arg, span=span)

    def count_distinct(self, span: Span, arg: mmpl.Expr) -> mmpl.Aggregate:
        return mmpl.Aggregate("count_distinct", arg, span=span)

    def group(self, span: Span, columns: Names) -> mmpl.Aggregate:
        return mmpl.Aggregate("group", columns=columns, span=span)

    def percentile_aggregate(
        self, span: Span, words: tuple[Token], text: str, order: tuple[mmpl.Expr, bool]
    ) -> mmpl.Aggregate:
        fraction, (arg, descending) = _parse_constant(text, types.FLOAT, span).value, order
        if not isinstance(fraction, float) or not 0 <= fraction <= 1:
            raise error("E033", f"{words[0]} takes a fraction from 0 to 1, not {text}", span)
        function = cast(mmpl.AggregateName, words[0].lower())
        return mmpl.Aggregate(function, arg, fraction=fraction, descending=descending, span=span)

    def distinct_string_aggregate(self, span: Span, order: tuple[mmpl.Expr, bool], separator: str) -> mmpl.Aggregate:
        arg, descending = order
        return mmpl.Aggregate("string_agg", arg, descending=descending, separator=separator, distinct=True, span=span)

    def string_aggregate(
        self, span: Span, arg: mmpl.Expr, separator: str, *order: tuple[str, bool] | None
    ) -> mmpl.Aggregate:
        columns = [part for part in order if part is not None]
        names, directions = tuple(name for name, _ in columns), tuple(descending for _, descending in columns)
        return mmpl.Aggregate("string_agg", arg, names, separator=separator, directions=directions, span=span)

    def distinct_array_aggregate(self, span: Span, order: tuple[mmpl.Expr, bool]) -> mmpl.Aggregate:
        arg, descending = order
        return mmpl.Aggregate("array_concat_agg", arg, descending=descending, distinct=True, span=span)

    def array_aggregate(self, span: Span, arg: mmpl.Expr, *order: tuple[str, bool] | None) -> mmpl.Aggregate:
        columns = [part for part in order if part is not None]
        names, directions = tuple(name for name, _ in columns), tuple(descending for _, descending in columns)
        return mmpl.Aggregate("array_concat_agg", arg, names, directions=directions, span=span)

    def ascending_column(self, _span: Span, name: str) -> tuple[str, bool]:
        return name, False

    def descending_column(self, _span: Span, name: str) -> tuple[str, bool]:
        return name, True

    # expressions

    def operation(self, span: Span, *parts: mmpl.Expr | Token) -> mmpl.Expr:
        """The words around the operands are the name of the function, such as `is not null`."""
        function = " ".join(p for p in parts if isinstance(p, Token)).lower()
        return mmpl.Call(function, tuple(p for p in parts if isinstance(p, mmpl.Expr)), span=span)

    def connective(self, span: Span, *parts: mmpl.Expr | Token) -> mmpl.Expr:
        """A chain of ANDs or of ORs is one call."""
        operands = tuple(p for p in parts if isinstance(p, mmpl.Expr))
        return mmpl.Call(str(parts[1]).lower(), operands, span=span)

    def neg(self, span: Span, arg: mmpl.Expr) -> mmpl.Expr:
        return mmpl.Call("neg", (arg,), span=span)

    def call(self, span: Span, function: str, *args: mmpl.Expr) -> mmpl.Expr:
        return mmpl.Call(function, args, span=span)

    def column(self, span: Span, name: str) -> mmpl.Expr:
        return mmpl.ColumnRef(name, span=span)

    def cast(self, span: Span, arg: mmpl.Expr, data_type: DataType) -> mmpl.Expr:
        return mmpl.Cast(arg, data_type, span=span)

    def case(self, span: Span, *parts: Any) -> mmpl.Expr:
        *branches, otherwise = parts
        return mmpl.Case(tuple(branches), otherwise, span=span)

    def integer(self, span: Span, text: str) -> mmpl.Expr:
        return _parse_constant(text, types.INT, span)

    def negative_integer(self, span: Span, text: str) -> mmpl.Expr:
        return _parse_constant(f"-{text}", types.INT, span)

    def string(self, span: Span, text: str) -> mmpl.Expr:
        return mmpl.Constant(text, types.STRING, span=span)

    def boolean(self, span: Span, word: Token) -> mmpl.Expr:
        return mmpl.Constant(word == "TRUE", types.BOOL, span=span)

    def null(self, span: Span, data_type: DataType | None) -> mmpl.Expr:
        return mmpl.Constant(None, data_type or types.NULL, span=span)

    def decimal(self, span: Span, digits: str | None, scale: str | None, text: str) -> mmpl.Expr:
        digits_and_scale = (
            (_parse_count(digits, span), _parse_count(scale, span))
            if digits and scale
            else _written_digits_and_scale(text)
        )
        return _parse_constant(text, _checked_decimal_type(span, *digits_and_scale), span)

    def array_constant(self, span: Span, element: DataType, text: str) -> mmpl.Expr:
        return _parse_constant(text, self.array_type(span, element), span)

    def typed_constant(self, span: Span, data_type: tuple[Token], text: str) -> mmpl.Expr:
        return _parse_constant(text, types.SIMPLE_TYPES[data_type[0].lower()], span)

    def interval_constant(self, span: Span, ticks: int) -> mmpl.Expr:
        return mmpl.Constant(ticks, types.INTERVAL, span=span)
