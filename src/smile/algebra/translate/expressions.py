"""Scalar expressions of SQL to MMPL's: names resolved, every coercion an explicit CAST."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from smile import lang, limits
from smile.algebra import mmpl
from smile.algebra.coercions import can_cast, common_type, parse_interval, parse_literal
from smile.algebra.scalars import SCALARS, arity_of, resolve
from smile.algebra.translate.scope import Scope
from smile.algebra.translate.typenames import base_type
from smile.algebra.types import (
    BOOL,
    BYTES,
    INT,
    INT_MAX,
    INT_MIN,
    INTERVAL,
    NULL,
    STRING,
    TIME,
    DataType,
    decimal_type,
)
from smile.errors import SmileError, error, nearest
from smile.lang import span_of
from smile.source import Span


@dataclass(frozen=True)
class Typed:
    expr: mmpl.Expr
    type: DataType


BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||",
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "is not distinct from", exp.NullSafeNEQ: "is distinct from",
}  # fmt: skip
COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"})
SYNONYMS = {
    "ceiling": "ceil", "pow": "power", "char_length": "length", "character_length": "length", "len": "length",
    "substr": "substring", "strpos": "position", "ucase": "upper", "lcase": "lower", "mod": "%", "ifnull": "coalesce",
    "btrim": "trim",
}  # fmt: skip
OPERATORS = frozenset({"and", "or", "not", "neg", "like", "ilike"})
FUNCTIONS = frozenset({n for n in SCALARS if n.isidentifier() and not n.startswith("extract_")} - OPERATORS | {"%"})
"""What may be called by name."""


def interval_ticks(node: exp.Expr, hint: str = "Write INTERVAL '3' MINUTE.") -> int:
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise error("E046", "an interval is needed here", span_of(node), hint)
    unit = node.args.get("unit")
    try:
        return parse_interval(node.this.name, unit.name if unit is not None else None)
    except ValueError as reason:
        raise error("E033", str(reason), span_of(node)) from None


@dataclass
class Expressions:
    """Translates against a scope whose columns have the types `type_of` gives.

    `lifted` are nodes that were computed beforehand (aggregates, windows, subqueries, silences), by identity; `alias`
    is what a name means that no column of the scope has, such as one of the select list; `begin` is done to whatever
    is lifted, `finish` to every whole expression.
    """

    scope: Scope
    type_of: Callable[[str, Span | None], DataType]
    alias: Callable[[exp.Column], Typed | None] = lambda _: None
    aliases: Sequence[str] = ()
    finish: Callable[[Typed], Typed] = lambda typed: typed
    begin: Callable[[Typed], Typed] = lambda typed: typed
    lifted: dict[int, Typed] = field(default_factory=dict)

    def translate(self, node: exp.Expr) -> Typed:
        return self.finish(self._node(node))

    def predicate(self, node: exp.Expr) -> mmpl.Expr:
        return self.finish(Typed(self._condition(node), BOOL)).expr

    def lift(self, node: exp.Expr, typed: Typed) -> None:
        """The node was computed beforehand."""
        self.lifted[id(node)] = self.begin(typed)

    def column(self, node: exp.Column) -> str:
        """The one column that a name means, where no other expression may stand."""
        expr = self.translate(node).expr
        assert isinstance(expr, mmpl.Column)
        return expr.name

    def _node(self, node: exp.Expr) -> Typed:
        if id(node) in self.lifted:
            return self.lifted[id(node)]
        binary = BINARY.get(type(node))
        if binary is not None:
            return self._call(binary, [node.this, node.expression], span_of(node))
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise _misplaced(node)
        typed: Typed = method(node)
        return typed

    def _condition(self, node: exp.Expr) -> mmpl.Expr:
        typed = self._node(node)
        if typed.type == STRING and isinstance(typed.expr, mmpl.Constant):
            typed = self._adapted(typed, BOOL)
        return self.coerce(typed, BOOL, span_of(node))

    # ── leaves ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _column(self, node: exp.Column) -> Typed:
        """A column of this FROM, an alias of the select list, or a column of the query right around."""
        span = span_of(node)
        scope: Scope | None = self.scope
        around = 0
        while scope is not None:
            found = scope.find(node, span)
            if found is not None and around:
                self._check_reach(around, span)
            if found is not None:
                return Typed(mmpl.Column(found, span=span), self.type_of(found, span))
            alias = self.alias(node) if scope is self.scope and not node.table else None
            if alias is not None:
                return alias
            scope, around = scope.outer, around + 1
        raise self.scope.unknown_column(node, span, self.aliases)

    def _check_reach(self, around: int, span: Span | None) -> None:
        if self.scope.closed:
            raise error(
                "E047", "only the WHERE of a subquery that is FROM and WHERE alone may refer to the query around it",
                span, "Make a view that has the column, and compare it in the WHERE of the subquery.",
            )  # fmt: skip
        if around > 1:
            raise error("E047", "a subquery may refer to the query right around it, not further out", span)

    def _literal(self, node: exp.Literal) -> Typed:
        if node.is_string:
            return self._constant(node.name, STRING, span_of(node))
        return self._number(node.name, span_of(node))

    def _number(self, text: str, span: Span | None) -> Typed:
        if re.fullmatch(r"[0-9]+", text):
            value = int(text)
            if value <= INT_MAX:
                return self._constant(value, INT, span)
        try:
            decimal = Decimal(text)
        except ArithmeticError:
            raise error("E033", f"{text} is not a number", span) from None
        sign, digits, exponent = decimal.as_tuple()
        assert isinstance(exponent, int)
        scale = max(0, -exponent)
        width = max(len(digits) + max(0, exponent), scale)
        if width > limits.decimal_digits_max:
            raise error("E033", f"a number has at most {limits.decimal_digits_max} digits", span)
        whole = int("".join(map(str, digits))) * 10 ** max(0, exponent)
        written = Decimal((sign, tuple(map(int, str(whole))), -scale))
        return self._constant(written, decimal_type(max(width, 1), scale), span)

    def _constant(self, value: object, type: DataType, span: Span | None) -> Typed:
        return Typed(mmpl.Constant(value, type, span=span), type)  # type: ignore[arg-type]

    def _null(self, node: exp.Null) -> Typed:
        return self._constant(None, NULL, span_of(node))

    def _boolean(self, node: exp.Boolean) -> Typed:
        return self._constant(bool(node.this), BOOL, span_of(node))

    def _hexstring(self, node: exp.HexString) -> Typed:
        try:
            return self._constant(parse_literal(f"\\x{node.name}", BYTES), BYTES, span_of(node))
        except ValueError as reason:
            raise error("E033", str(reason), span_of(node)) from None

    def _interval(self, node: exp.Interval) -> Typed:
        return self._constant(interval_ticks(node), INTERVAL, span_of(node))

    # ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _paren(self, node: exp.Paren) -> Typed:
        return self._node(node.this)

    def _neg(self, node: exp.Neg) -> Typed:
        if isinstance(node.this, exp.Literal) and not node.this.is_string and node.this.name == str(-INT_MIN):
            return self._constant(INT_MIN, INT, span_of(node))
        inner = self._node(node.this)
        if isinstance(inner.expr, mmpl.Constant) and inner.type.is_number and inner.expr.value is not None:
            return self._constant(-inner.expr.value, inner.type, span_of(node))  # type: ignore[operator]
        return self.apply("neg", [inner], span_of(node))

    def _not(self, node: exp.Not) -> Typed:
        return self.apply("not", [Typed(self._condition(node.this), BOOL)], span_of(node))

    def _and(self, node: exp.And) -> Typed:
        return self._connective("and", node)

    def _or(self, node: exp.Or) -> Typed:
        return self._connective("or", node)

    def _connective(self, name: str, node: exp.Connector) -> Typed:
        """A chain of ANDs leans to the left, as deep as it is long: it is not walked by recursion."""
        operands: list[exp.Expr] = []
        rest: exp.Expr = node
        while type(rest) is type(node) and id(rest) not in self.lifted:
            operands.append(rest.expression)
            rest = rest.this
        predicates = [self._condition(operand) for operand in (rest, *reversed(operands))]
        return Typed(mmpl.Call(name, tuple(predicates), span=span_of(node)), BOOL)

    def _is(self, node: exp.Is) -> Typed:
        """sqlglot has NOT inside of IS NOT NULL, but outside of IS NOT TRUE."""
        what, negate = node.expression, bool(node.args.get("negate"))
        if isinstance(what, exp.Null):
            return self._call("is not null" if negate else "is null", [node.this], span_of(node))
        comparison = "is distinct from" if negate else "is not distinct from"
        return self.apply(comparison, [Typed(self._condition(node.this), BOOL), self._node(what)], span_of(node))

    def _like(self, node: exp.Like | exp.ILike, escape: Sequence[exp.Expr] = ()) -> Typed:
        name = "ilike" if isinstance(node, exp.ILike) else "like"
        typed = self._call(name, [node.this, node.expression, *escape], span_of(node))
        return self.apply("not", [typed], span_of(node)) if node.args.get("negate") else typed

    def _ilike(self, node: exp.ILike) -> Typed:
        return self._like(node)

    def _escape(self, node: exp.Escape) -> Typed:
        if not isinstance(node.this, exp.Like | exp.ILike):
            raise error("E013", "ESCAPE is supported after LIKE only", span_of(node))
        return self._like(node.this, [node.expression])

    def _between(self, node: exp.Between) -> Typed:
        span = span_of(node)
        low = self._call(">=", [node.this, node.args["low"]], span)
        high = self._call("<=", [node.this, node.args["high"]], span)
        return Typed(mmpl.Call("and", (low.expr, high.expr), span=span), BOOL)

    def _in(self, node: exp.In) -> Typed:
        if node.args.get("query") is not None:
            raise _misplaced(node)
        span, subject = span_of(node), self._node(node.this)
        tests = [self.apply("=", [subject, self._node(v)], span_of(v) or span).expr for v in node.expressions]
        return Typed(mmpl.Call("or", tuple(tests), span=span) if len(tests) > 1 else tests[0], BOOL)

    def _cast(self, node: exp.Cast) -> Typed:
        arg, span = self._node(node.this), span_of(node)
        target = base_type(node.args["to"], span_of(node.args["to"]) or span)
        if isinstance(arg.expr, mmpl.Constant) and arg.type == STRING and target != STRING:
            return self._adapted(arg, target)
        return Typed(self.coerce(arg, target, span, explicit=True), target)

    def _case(self, node: exp.Case) -> Typed:
        subject = self._node(node.this) if node.this is not None else None
        conditions: list[mmpl.Expr] = []
        values: list[Typed] = []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self._condition(branch.this))
            else:
                conditions.append(self.apply("=", [subject, self._node(branch.this)], span_of(branch.this)).expr)
            values.append(self._node(branch.args["true"]))
        default = node.args.get("default")
        values.append(self._node(default) if default is not None else Typed(mmpl.Constant(None, NULL), NULL))
        values = self._adapt_literals(values)
        target = self._common(values, span_of(node))
        exprs = [self.coerce(v, target, v.expr.span) for v in values]
        pairs = tuple(zip(conditions, exprs[:-1], strict=True))
        return Typed(mmpl.Case(pairs, exprs[-1], span=span_of(node)), target)

    def _extract(self, node: exp.Extract) -> Typed:
        name = f"extract_{node.name.lower()}"
        if name not in SCALARS:
            fields = [f.removeprefix("extract_").upper() for f in SCALARS if f.startswith("extract_")]
            raise error("E026", f"EXTRACT has no field {node.name}", span_of(node), nearest(node.name, fields))
        return self._call(name, [node.expression], span_of(node))

    def _anonymous(self, node: exp.Anonymous) -> Typed:
        written, args = str(node.this).lower(), node.expressions
        name = SYNONYMS.get(written, written)
        if name == "position" and len(args) == 2:
            args = [args[1], args[0]]  # STRPOS(text, part) is POSITION(part IN text)
        if name not in FUNCTIONS:
            raise error("E026", f"there is no function {written}", span_of(node), nearest(written, sorted(FUNCTIONS)))
        return self._call(name, args, span_of(node))

    def _silence(self, node: lang.Silence) -> Typed:
        raise error(
            "E045", "SILENCE may only be compared with an interval in WHERE", span_of(node),
            "Write WHERE SILENCE(t) > INTERVAL '3' MINUTE.",
        )  # fmt: skip

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _call(self, name: str, args: Sequence[exp.Expr], span: Span | None) -> Typed:
        least, most = arity_of(name)
        if len(args) < least or (most is not None and len(args) > most):
            wanted = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
            plural = "" if wanted.endswith(" 1") or wanted == "1" else "s"
            raise error("E032", f"{name} takes {wanted} argument{plural}, not {len(args)}", span)
        return self.apply(name, [self._node(a) for a in args], span)

    def apply(self, name: str, args: list[Typed], span: Span | None) -> Typed:
        signature = resolve(name, tuple(a.type for a in args))
        if signature is None and len(args) >= 2:
            args = self._adapt_literals(args)
            signature = resolve(name, tuple(a.type for a in args))
        if signature is None:
            types = [str(a.type) for a in args]
            if name in COMPARISONS:
                raise error("E030", f"{types[0]} cannot be compared with {types[1]}", span)
            raise error("E031", f"{name} cannot be applied to {' and '.join(types) or 'nothing'}", span)
        # What a string is put together with becomes text, whatever it is.
        text = name in ("||", "concat")
        pairs = zip(args, signature.args, strict=True)
        coerced = tuple(self.coerce(a, t, a.expr.span, explicit=text) for a, t in pairs)
        return Typed(mmpl.Call(name, coerced, span=span), signature.result)

    def _adapt_literals(self, args: list[Typed]) -> list[Typed]:
        """A quoted literal takes the type it stands beside, and a whole number beside a time is a tick."""
        others = [a.type for a in args if not isinstance(a.expr, mmpl.Constant) and a.type not in (STRING, NULL)]
        others += [a.type for a in args if isinstance(a.expr, mmpl.Constant) and a.type not in (STRING, INT, NULL)]
        if not others:
            return args
        return [self._adapted(a, others[0]) for a in args]

    def _adapted(self, arg: Typed, target: DataType) -> Typed:
        constant = arg.expr
        if not isinstance(constant, mmpl.Constant):
            return arg
        if arg.type == INT and target == TIME:
            return self._constant(constant.value, TIME, constant.span)
        if arg.type == STRING and target != STRING:
            try:
                return self._constant(parse_literal(str(constant.value), target), target, constant.span)
            except ValueError:
                message = f"'{constant.value!s}' is not {'an' if target.name[0] in 'aeiou' else 'a'} {target.name}"
                raise error("E033", message, constant.span) from None
        return arg

    def _common(self, values: Sequence[Typed], span: Span | None) -> DataType:
        result = NULL
        for value in values:
            common = common_type(result, value.type)
            if common is None:
                raise error("E030", f"{result} and {value.type} cannot both be a value here", value.expr.span or span)
            result = common
        return STRING if result == NULL else result

    def coerce(self, arg: Typed, target: DataType, span: Span | None, explicit: bool = False) -> mmpl.Expr:
        if arg.type == target:
            return arg.expr
        if isinstance(arg.expr, mmpl.Constant) and arg.expr.value is None and (arg.type == NULL or explicit):
            return mmpl.Constant(None, target, span=arg.expr.span)
        implicit = common_type(arg.type, target) == target
        if not implicit and not (explicit and can_cast(arg.type, target)):
            if explicit:
                raise error("E031", f"{arg.type} cannot be cast to {target}", span)
            raise error("E031", f"expected {target}, found {arg.type}", span)
        return mmpl.Cast(arg.expr, target, span=arg.expr.span)


def _misplaced(node: exp.Expr) -> SmileError:
    """The error of a node that would have been lifted, had it stood where it may."""
    span = span_of(node)
    if isinstance(node, exp.Window):
        hint = "Put it in the select list of a view, and go on from that view."
        return error("E042", "OVER stands in a select list only", span, hint)
    if isinstance(node, exp.AggFunc):
        return error("E042", f"an aggregate cannot stand here: {type(node).__name__.upper()}", span)
    if isinstance(node, exp.Query | exp.Exists | exp.In):
        return error("E047", "a subquery cannot stand here", span, "Make it a view, and join that.")
    return error("E013", f"{type(node).__name__} is not supported here", span)
