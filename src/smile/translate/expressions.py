"""Translates scalar expressions of SQL to MMPL. Names are resolved, and every coercion becomes an explicit CAST."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from smile import lang, limits
from smile.algebra import mmpl
from smile.algebra.coercions import can_cast, common_type, parse_interval, parse_literal
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS, arity_of, resolve_signature
from smile.algebra.functions.regular_expressions import regular_expression_error
from smile.algebra.functions.time_formats import is_time_format
from smile.algebra.functions.time_parsing import is_readable_format
from smile.algebra.periods import UNITS, read_period
from smile.algebra.time_zones import time_zone
from smile.algebra.types import (
    BOOL,
    BYTES,
    DATE,
    INT,
    INT_MAX,
    INT_MIN,
    INTERVAL,
    NULL,
    STRING,
    TIME,
    DataType,
    decimal_type,
    json_hint,
)
from smile.errors import SmileError, did_you_mean, error
from smile.lang import span_of, widen_span
from smile.recursion import continue_in_threads
from smile.source import Span
from smile.translate.date_formats import to_char_format
from smile.translate.function_names import (
    CALLABLE_FUNCTIONS,
    DATE_FORMAT_NAMES,
    FUNCTION_HINTS,
    NO_CLOCK_HINT,
    SYNONYMS,
)
from smile.translate.scope import Scope
from smile.translate.type_names import cast_target_type


@dataclass(frozen=True)
class TypedExpr:
    expr: mmpl.Expr
    type: DataType


BINARY_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||",
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "is not distinct from", exp.NullSafeNEQ: "is distinct from",
}  # fmt: skip
COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"})


def interval_ticks(node: exp.Expr, hint: str = "Write INTERVAL '3' MINUTE.") -> int:
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise error("E046", "an interval is needed here", span_of(node), hint)
    unit = node.args.get("unit")
    try:
        return parse_interval(node.this.name, unit.name if unit is not None else None)
    except ValueError as reason:
        period = (unit.name if unit is not None else node.this.name).upper()
        calendar = (
            "For periods of the calendar, use TUMBLE(s, t, INTERVAL '1' MONTH), or GROUP BY DATE_TRUNC('month', t)."
        )
        raise error("E033", str(reason), span_of(node), calendar if _is_of_calendar(period) else None) from None


def _is_of_calendar(unit: str) -> bool:
    return any(word in unit for word in ("MON", "QUARTER", "YEAR"))


_FIELD_HINTS = {
    "ISODOW": "DOW is 0 on Sunday. Write (EXTRACT(DOW FROM t) + 6) % 7 + 1 for 1 on Monday to 7 on Sunday.",
    **dict.fromkeys(("DECADE", "CENTURY", "MILLENNIUM"), "Write DATE_TRUNC('century', t), or compute it of the YEAR."),
    "ISOYEAR": "Write TO_CHAR(t, 'IYYY').",
}
_PATTERN_HINT = "The syntax is that of RE2: it has no backreferences and no lookaround."
_FORMAT_HINT = "Write for instance 'YYYY-MM-DD HH24:MI:SS.MS', and other words in double quotes."


_JSON_HINT = "The first operand is JSON: write s::json -> 'a' of a text."


@dataclass
class ExpressionTranslator:
    """Translates expressions in a scope. `type_of` gives the types of its columns.

    `lifted_values` are the results of nodes that are computed before the expression (aggregates, windows, subqueries,
    silences), by the identity of the node. `resolve_alias` resolves names that are not columns of the scope, such as
    aliases of the select list; `alias_names` are suggested in errors. `mark_lifted` is applied to every lifted value,
    `finish_expression` to every complete expression.
    """

    scope: Scope
    type_of: Callable[[str, Span | None], DataType]
    resolve_alias: Callable[[exp.Column], TypedExpr | None] = lambda _: None
    alias_names: Sequence[str] = ()
    finish_expression: Callable[[TypedExpr], TypedExpr] = lambda typed: typed
    mark_lifted: Callable[[TypedExpr], TypedExpr] = lambda typed: typed
    lifted_values: dict[int, TypedExpr] = field(default_factory=dict)

    def translate(self, node: exp.Expr) -> TypedExpr:
        return self.finish_expression(self._translate_node(node))

    def translate_predicate(self, node: exp.Expr) -> mmpl.Expr:
        return self.finish_expression(TypedExpr(self._translate_condition(node), BOOL)).expr

    def add_lifted(self, node: exp.Expr, typed: TypedExpr) -> None:
        """Uses `typed` as the translation of the node."""
        self.lifted_values[id(node)] = self.mark_lifted(typed)

    def column_name(self, node: exp.Column) -> str:
        """The column that a name refers to, where only a column is allowed."""
        expr = self.translate(node).expr
        assert isinstance(expr, mmpl.ColumnRef)
        return expr.name

    @continue_in_threads
    def _translate_node(self, node: exp.Expr) -> TypedExpr:
        if id(node) in self.lifted_values:
            return self.lifted_values[id(node)]
        binary = BINARY_OPERATORS.get(type(node))
        if binary is not None and _is_quantified(node.expression):
            return self._comparison_with_elements(binary, node)
        if binary is not None and not (isinstance(node.this, exp.Tuple) or isinstance(node.expression, exp.Tuple)):
            return self._call(binary, [node.this, node.expression], span_of(node))
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise _misplaced_error(node)
        typed: TypedExpr = method(node)
        return typed

    def _translate_condition(self, node: exp.Expr) -> mmpl.Expr:
        typed = self._translate_node(node)
        if typed.type == STRING and isinstance(typed.expr, mmpl.Constant):
            typed = self.adapt_literal(typed, BOOL)
        return self.coerce(typed, BOOL, span_of(node))

    # ── leaves ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _column(self, node: exp.Column) -> TypedExpr:
        """A column of this FROM, an alias of the select list, or a column of the directly enclosing query."""
        span = span_of(node)
        scope: Scope | None = self.scope
        levels_out = 0
        while scope is not None:
            column = scope.find(node, span)
            if column is not None and levels_out:
                self._check_reach(levels_out, span)
            if column is not None:
                return TypedExpr(mmpl.ColumnRef(column, span=span), self.type_of(column, span))
            alias = self.resolve_alias(node) if scope is self.scope and not node.table else None
            if alias is not None:
                return alias
            scope, levels_out = scope.outer, levels_out + 1
        raise self.scope.unknown_column_error(node, span, self.alias_names)

    def _check_reach(self, levels_out: int, span: Span | None) -> None:
        if self.scope.closed:
            message = "only the WHERE of a subquery that consists of FROM and WHERE may refer to the outer query"
            hint = (
                "Define a view that has the column, and compare the column in the WHERE of the subquery. For the value "
                "of the last row, use LATEST(x) without ORDER BY and LIMIT."
            )
            raise error("E047", message, span, hint)
        if levels_out > 1:
            hint = "Define a view that has the column, and read that view in the subquery."
            raise error("E047", "a subquery may refer only to the query directly around it", span, hint)

    def _literal(self, node: exp.Literal) -> TypedExpr:
        if node.is_string:
            return self._constant(node.name, STRING, span_of(node))
        return self._number(node.name, span_of(node))

    def _number(self, text: str, span: Span | None) -> TypedExpr:
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

    def _constant(self, value: object, type: DataType, span: Span | None) -> TypedExpr:
        return TypedExpr(mmpl.Constant(value, type, span=span), type)  # type: ignore[arg-type]

    def _null(self, node: exp.Null) -> TypedExpr:
        return self._constant(None, NULL, span_of(node))

    def _boolean(self, node: exp.Boolean) -> TypedExpr:
        return self._constant(bool(node.this), BOOL, span_of(node))

    def _hexstring(self, node: exp.HexString) -> TypedExpr:
        try:
            return self._constant(parse_literal(f"\\x{node.name}", BYTES), BYTES, span_of(node))
        except ValueError as reason:
            raise error("E033", str(reason), span_of(node)) from None

    def _interval(self, node: exp.Interval) -> TypedExpr:
        return self._constant(interval_ticks(node), INTERVAL, span_of(node))

    # ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _paren(self, node: exp.Paren) -> TypedExpr:
        return self._translate_node(node.this)

    def _neg(self, node: exp.Neg) -> TypedExpr:
        if isinstance(node.this, exp.Literal) and not node.this.is_string and node.this.name == str(-INT_MIN):
            return self._constant(INT_MIN, INT, span_of(node))
        inner = self._translate_node(node.this)
        if isinstance(inner.expr, mmpl.Constant) and inner.type.is_number and inner.expr.value is not None:
            return self._constant(-inner.expr.value, inner.type, span_of(node))  # type: ignore[operator]
        return self.apply_function("neg", [inner], span_of(node))

    def _not(self, node: exp.Not) -> TypedExpr:
        return self.apply_function("not", [TypedExpr(self._translate_condition(node.this), BOOL)], span_of(node))

    def _and(self, node: exp.And) -> TypedExpr:
        return self._connective("and", node)

    def _or(self, node: exp.Or) -> TypedExpr:
        return self._connective("or", node)

    def _connective(self, name: str, node: exp.Connector) -> TypedExpr:
        """Translates a chain of ANDs or ORs without recursion: its tree is as deep as the chain is long."""
        operands: list[exp.Expr] = []
        rest: exp.Expr = node
        while type(rest) is type(node) and id(rest) not in self.lifted_values:
            operands.append(rest.expression)
            rest = rest.this
        predicates = [self._translate_condition(operand) for operand in (rest, *reversed(operands))]
        return TypedExpr(mmpl.Call(name, tuple(predicates), span=span_of(node)), BOOL)

    def _is(self, node: exp.Is) -> TypedExpr:
        """sqlglot puts the NOT of IS NOT NULL into this node, but that of IS NOT TRUE around it."""
        operand, negate = node.expression, bool(node.args.get("negate"))
        if isinstance(operand, exp.Null):
            return self._call("is not null" if negate else "is null", [node.this], span_of(node))
        comparison = "is distinct from" if negate else "is not distinct from"
        return self.apply_function(
            comparison,
            [TypedExpr(self._translate_condition(node.this), BOOL), self._translate_node(operand)],
            span_of(node),
        )

    def _like(self, node: exp.Like | exp.ILike, escape: Sequence[exp.Expr] = ()) -> TypedExpr:
        name = "ilike" if isinstance(node, exp.ILike) else "like"
        typed = self._call(name, [node.this, node.expression, *escape], span_of(node))
        check_constant_arguments(typed.expr)
        return self.apply_function("not", [typed], span_of(node)) if node.args.get("negate") else typed

    def _ilike(self, node: exp.ILike) -> TypedExpr:
        return self._like(node)

    def _escape(self, node: exp.Escape) -> TypedExpr:
        if not isinstance(node.this, exp.Like | exp.ILike):
            raise error("E013", "ESCAPE is supported only after LIKE", span_of(node))
        return self._like(node.this, [node.expression])

    def _eq(self, node: exp.EQ) -> TypedExpr:
        return self._comparison_of_lists(node)

    _neq = _lt = _lte = _gt = _gte = _eq

    def _comparison_of_lists(self, node: exp.Expr) -> TypedExpr:
        return self._compare_lists(BINARY_OPERATORS[type(node)], node.this, node.expression, span_of(node))

    def _compare_lists(self, name: str, a: exp.Expr, b: exp.Expr, span: Span | None) -> TypedExpr:
        if not (isinstance(a, exp.Tuple) and isinstance(b, exp.Tuple) and len(a.expressions) == len(b.expressions)):
            raise error("E044", "a list can only be compared with a list of as many values", span)
        pairs = zip(a.expressions, b.expressions, strict=True)
        return self.compare_lists(name, [(self._translate_node(x), self._translate_node(y)) for x, y in pairs], span)

    def compare_lists(self, name: str, pairs: Sequence[tuple[TypedExpr, TypedExpr]], span: Span | None) -> TypedExpr:
        """`(a, b) = (c, d)` is `a = c AND b = d`, and `(a, b) < (c, d)` is `a < c OR a = c AND b < d`."""

        def compare(operator: str, pair: tuple[TypedExpr, TypedExpr]) -> mmpl.Expr:
            return self.apply_function(operator, list(pair), span).expr

        if len(pairs) == 1:
            return TypedExpr(compare(name, pairs[0]), BOOL)
        if name in ("=", "<>"):
            equal = mmpl.Call("and", tuple(compare("=", pair) for pair in pairs), span=span)
            return TypedExpr(equal if name == "=" else mmpl.Call("not", (equal,), span=span), BOOL)
        *before, last = pairs
        result = compare(name, last)
        for pair in reversed(before):
            rest = mmpl.Call("and", (compare("=", pair), result), span=span)
            result = mmpl.Call("or", (compare(name[0], pair), rest), span=span)
        return TypedExpr(result, BOOL)

    def _comparison_with_elements(self, operator: str, node: exp.Expr) -> TypedExpr:
        """`x = ANY(array)`, or `x <> ALL(array)`."""
        quantifier, span = node.expression, span_of(node)
        is_all = quantifier.name.upper() == "ALL"
        if (operator, is_all) not in (("=", False), ("<>", True)) or len(quantifier.expressions) != 1:
            hint = "Write x = ANY(array) or x <> ALL(array). For other comparisons, join UNNEST(array)."
            raise error("E013", f"{operator} {quantifier.name.upper()} of an array is not supported", span, hint)
        array, value = self._translate_node(quantifier.expressions[0]), self._translate_node(node.this)
        if array.type.name == "array":
            value = self.adapt_literal(value, array.type.element)
        contains = self.apply_function("array_contains", [array, value], span)
        return self.apply_function("not", [contains], span) if is_all else contains

    def _array(self, node: exp.Array) -> TypedExpr:
        if not node.expressions:
            raise error("E031", "an empty array has no type", span_of(node), "Write CAST('{}' AS int[]).")
        elements = [self._translate_node(e) for e in node.expressions]
        if any(e.type.name in ("array", "relation") for e in elements):
            hint = "The elements of an array are plain values."
            raise error("E031", "an array of arrays or relations is not supported", span_of(node), hint)
        return self.apply_function("array", elements, span_of(node))

    def _bracket(self, node: exp.Bracket) -> TypedExpr:
        return self._call("subscript", [node.this, *node.expressions], span_of(node))

    def _between(self, node: exp.Between) -> TypedExpr:
        span = span_of(node)
        low = self._call(">=", [node.this, node.args["low"]], span)
        high = self._call("<=", [node.this, node.args["high"]], span)
        return TypedExpr(mmpl.Call("and", (low.expr, high.expr), span=span), BOOL)

    def _in(self, node: exp.In) -> TypedExpr:
        if node.args.get("query") is not None:
            raise _misplaced_error(node)
        span = span_of(node)
        if isinstance(node.this, exp.Tuple):
            lists = [self._compare_lists("=", node.this, v, span_of(v) or span).expr for v in node.expressions]
            return TypedExpr(mmpl.Call("or", tuple(lists), span=span) if len(lists) > 1 else lists[0], BOOL)
        subject = self._translate_node(node.this)
        comparisons = [
            self.apply_function("=", [subject, self._translate_node(v)], span_of(v) or span).expr
            for v in node.expressions
        ]
        return TypedExpr(
            mmpl.Call("or", tuple(comparisons), span=span) if len(comparisons) > 1 else comparisons[0], BOOL
        )

    def _cast(self, node: exp.Cast) -> TypedExpr:
        arg, span = self._translate_node(node.this), span_of(node)
        target = cast_target_type(node.args["to"], span_of(node.args["to"]) or span)
        if isinstance(arg.expr, mmpl.Constant) and arg.type == STRING and target != STRING:
            return self.adapt_literal(arg, target)
        return TypedExpr(self.coerce(arg, target, span, explicit=True), target)

    def _case(self, node: exp.Case) -> TypedExpr:
        subject = self._translate_node(node.this) if node.this is not None else None
        conditions: list[mmpl.Expr] = []
        values: list[TypedExpr] = []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self._translate_condition(branch.this))
            else:
                conditions.append(
                    self.apply_function("=", [subject, self._translate_node(branch.this)], span_of(branch.this)).expr
                )
            values.append(self._translate_node(branch.args["true"]))
        default = node.args.get("default")
        values.append(
            self._translate_node(default) if default is not None else TypedExpr(mmpl.Constant(None, NULL), NULL)
        )
        values = self._adapt_literals(values)
        target = self._common_type(values, span_of(node))
        exprs = [self.coerce(v, target, v.expr.span) for v in values]
        pairs = tuple(zip(conditions, exprs[:-1], strict=True))
        return TypedExpr(mmpl.Case(pairs, exprs[-1], span=span_of(node)), target)

    def _extract(self, node: exp.Extract) -> TypedExpr:
        name = f"extract_{node.name.lower()}"
        if name not in SCALAR_FUNCTIONS:
            fields = [f.removeprefix("extract_").upper() for f in SCALAR_FUNCTIONS if f.startswith("extract_")]
            hint = _FIELD_HINTS.get(node.name.upper()) or did_you_mean(node.name, fields)
            raise error("E026", f"EXTRACT has no field {node.name}", span_of(node), hint)
        return self._call(name, [node.expression], span_of(node))

    def _anonymous(self, node: exp.Anonymous) -> TypedExpr:
        written, args = str(node.this).lower(), node.expressions
        if written in DATE_FORMAT_NAMES and len(args) == 2:
            written, args = "to_char", [args[0], _to_char_format(args[1])]
        name = SYNONYMS.get(written, written)
        if name == "position" and len(args) == 2:
            args = [args[1], args[0]]  # STRPOS(text, part) is POSITION(part IN text)
        if written == "date" and len(args) == 1:
            arg, span = self._translate_node(args[0]), span_of(node)
            if isinstance(arg.expr, mmpl.Constant) and arg.type == STRING:
                return self.adapt_literal(arg, DATE)
            return TypedExpr(self.coerce(arg, DATE, span, explicit=True), DATE)
        if written in ("array_length", "array_upper") and len(args) == 2:
            return self._array_length(node)
        if written == "iif" and len(args) == 3:
            condition, value, default = args
            return self._case(exp.Case(ifs=[exp.If(this=condition, true=value)], default=default))
        if name not in CALLABLE_FUNCTIONS and name not in SYNONYMS.values():
            raise error(
                "E026",
                f"there is no function {written}",
                span_of(node),
                FUNCTION_HINTS.get(written) or did_you_mean(written, sorted(CALLABLE_FUNCTIONS)),
            )
        if written in ("concat", "concat_ws"):
            return self.apply_function(name, [_as_output(self._translate_node(a)) for a in args], span_of(node))
        typed = self._call(name, args, span_of(node))
        check_constant_arguments(typed.expr)
        return typed

    def _array_length(self, node: exp.Anonymous) -> TypedExpr:
        """That of an empty array is NULL."""
        array, dimension = node.expressions
        if not isinstance(dimension, exp.Literal) or dimension.name != "1":
            raise error("E013", "an array has one dimension", span_of(dimension), "Write CARDINALITY(a).")
        length = self._call("cardinality", [array], span_of(node))
        return self.apply_function("nullif", [length, TypedExpr(mmpl.Constant(0, INT), INT)], span_of(node))

    def _silencecall(self, node: lang.SilenceCall) -> TypedExpr:
        message = "SILENCE can only be compared with an interval in WHERE"
        raise error("E045", message, span_of(node), "Write WHERE SILENCE(t) > INTERVAL '3' MINUTE.")

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _call(self, name: str, args: Sequence[exp.Expr], span: Span | None) -> TypedExpr:
        least, most = arity_of(name)
        if len(args) < least or (most is not None and len(args) > most):
            expected = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
            plural = "" if expected.endswith(" 1") or expected == "1" else "s"
            raise error("E032", f"{name} takes {expected} argument{plural}, not {len(args)}", span)
        return self.apply_function(name, [self._translate_node(a) for a in args], span)

    def apply_function(self, name: str, args: list[TypedExpr], span: Span | None) -> TypedExpr:
        explicit = SCALAR_FUNCTIONS[name].casts_arguments
        signature = resolve_signature(name, tuple(a.type for a in args))
        if signature is None and len(args) >= 2 and not explicit:
            args = self._adapt_literals(args)
            signature = resolve_signature(name, tuple(a.type for a in args))
        if signature is None:
            types = [str(a.type) for a in args]
            hint = _JSON_HINT if name.startswith("json_") else json_hint(a.type for a in args)
            if name in COMPARISONS:
                raise error("E030", f"{types[0]} cannot be compared with {types[1]}", span, hint)
            raise error("E031", f"{name} cannot be applied to {' and '.join(types) or 'nothing'}", span, hint)
        pairs = zip(args, signature.args, strict=True)
        coerced = tuple(self.coerce(a, t, a.expr.span, explicit=explicit) for a, t in pairs)
        return TypedExpr(mmpl.Call(name, coerced, span=span), signature.result)

    def _adapt_literals(self, args: list[TypedExpr]) -> list[TypedExpr]:
        """A quoted literal takes the type of the other operands, and a whole number next to a time is a tick."""
        target_types = [a.type for a in args if not isinstance(a.expr, mmpl.Constant) and a.type not in (STRING, NULL)]
        target_types += [
            a.type for a in args if isinstance(a.expr, mmpl.Constant) and a.type not in (STRING, INT, NULL)
        ]
        if not target_types:
            return args
        return [self.adapt_literal(a, target_types[0]) for a in args]

    def adapt_literal(self, arg: TypedExpr, target: DataType) -> TypedExpr:
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

    def _common_type(self, values: Sequence[TypedExpr], span: Span | None) -> DataType:
        result = NULL
        for value in values:
            common = common_type(result, value.type)
            if common is None:
                raise error(
                    "E030",
                    f"the branches of CASE have the incompatible types {result} and {value.type}",
                    value.expr.span or span,
                )
            result = common
        return STRING if result == NULL else result

    def coerce(self, arg: TypedExpr, target: DataType, span: Span | None, explicit: bool = False) -> mmpl.Expr:
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


def _is_quantified(node: exp.Expr) -> bool:
    """Whether it is the ANY or ALL of an array."""
    return isinstance(node, exp.Anonymous) and str(node.this).upper() in ("ANY", "SOME", "ALL")


def _to_char_format(node: exp.Expr) -> exp.Expr:
    """The format of DATE_FORMAT, as TO_CHAR has it."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise error("E198", "the format of DATE_FORMAT must be a constant", span_of(node), _FORMAT_HINT)
    format = to_char_format(node.name)
    if format is None:
        raise error(
            "E198", f"'{node.name}' is not a format of DATE_FORMAT", span_of(node), f"Use TO_CHAR. {_FORMAT_HINT}"
        )
    literal = exp.Literal.string(format)
    if span := span_of(node):
        widen_span(literal, span)
    return literal


def _as_output(typed: TypedExpr) -> TypedExpr:
    """The argument of CONCAT. A Boolean is t or f there, as PostgreSQL prints it."""
    if typed.type != BOOL:
        return typed
    texts = [mmpl.Constant(letter, STRING) for letter in "tf"]
    is_false = mmpl.Call("not", (typed.expr,))
    case = mmpl.Case(((typed.expr, texts[0]), (is_false, texts[1])), mmpl.Constant(None, STRING), span=typed.expr.span)
    return TypedExpr(case, STRING)


def check_constant_arguments(call: mmpl.Expr) -> None:
    """Raises an error if a pattern or format that is written as a constant is not valid."""
    match call:
        case mmpl.Call(name, (_, mmpl.Constant(str(pattern)), *_)) if name.startswith("regexp_"):
            if reason := regular_expression_error(pattern):
                raise error("E198", f"'{pattern}' is not a regular expression: {reason}", call.span, _PATTERN_HINT)
        case mmpl.Call("to_timestamp", (_, mmpl.Constant(str(format)))) if not is_readable_format(format):
            raise error("E198", f"'{format}' is not a format of times that have a year", call.span, _FORMAT_HINT)
        case mmpl.Call("to_char", (_, mmpl.Constant(str(format)))) if not is_time_format(format):
            raise error("E198", f"'{format}' is not a format of times", call.span, _FORMAT_HINT)
        case mmpl.Call("like" | "ilike", (_, mmpl.Constant(str(pattern)))) if _ends_with_escape(pattern):
            hint = "Write two backslashes for one, or another character: LIKE 'a!' ESCAPE '!'."
            raise error("E198", "the pattern of LIKE ends with its escape character", call.span, hint)
        case mmpl.Call("date_trunc" | "period_end" as name, (mmpl.Constant(str(period)), _, *zone)):
            if read_period(period) is None:
                message, units = f"'{period}' is not a unit of {name.upper()}", ", ".join(UNITS)
                raise error("E198", message, call.span, f"The units are {units}.")
            if zone and isinstance(zone[0], mmpl.Constant):
                check_zone(period, str(zone[0].value), call.span)


def check_zone(period: str, zone: str, span: Span | None) -> None:
    """Raises an error if there is no such time zone, or if its clocks do not divide time into such periods."""
    if time_zone(zone) is None:
        raise error("E198", f"there is no time zone '{zone}'", span, "Write a name such as 'Europe/Berlin' or 'UTC'.")
    if read_period(period, zone) is None:
        hint = "Use a period of days, weeks, months or years, or leave the time zone out."
        raise error("E198", f"'{period}' is no whole number of days, as periods in a time zone are", span, hint)


def _ends_with_escape(pattern: str) -> bool:
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1


def misplaced_clock_error(node: exp.Expr) -> SmileError:
    message = "NOW() has a meaning only where WHERE compares the tick with it"
    return error("E199", message, span_of(node), NO_CLOCK_HINT)


def _misplaced_error(node: exp.Expr) -> SmileError:
    """The error for a node that is lifted where it is allowed, and was found elsewhere."""
    span = span_of(node)
    if isinstance(node, exp.CurrentTimestamp):
        return misplaced_clock_error(node)
    if isinstance(node, exp.Window):
        hint = "Compute it in the select list of a view, and read that view."
        return error("E042", "OVER is allowed only in a select list", span, hint)
    if isinstance(node, exp.AggFunc):
        derived = {kind: name for name, kind in (*lang.DERIVED_AGGREGATES.items(), *lang.PERCENTILES.items())}
        derived |= {lang.StringAggregate: "STRING_AGG", lang.ArrayAggregate: "ARRAY_AGG"}
        name = "GROUP" if isinstance(node, lang.NestedGroup) else derived.get(type(node), type(node).__name__.upper())
        return error("E042", f"the aggregate {name} is not allowed here", span)
    if isinstance(node, exp.Query | exp.Exists | exp.In):
        return error("E047", "a subquery is not allowed here", span, "Define it as a view, and join that view.")
    return error("E013", f"{type(node).__name__} is not supported here", span)
