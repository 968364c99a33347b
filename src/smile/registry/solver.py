"""Decides by z3 whether a row satisfies a condition.

Each expression becomes a term for its value and one for whether it is NULL. An expression that z3 has no word for, such
as `upper(a)`, becomes an unknown value of its own: so "no row" is always right, and a row is checked by evaluating the
condition. The steps are limited and the seed is fixed: the answer is the same everywhere.
"""

import re
import struct
import threading
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple

import z3

from smile import limits
from smile.algebra import mmpl
from smile.algebra.coercions import EXACT_CONTEXT, digits_and_scale
from smile.algebra.functions.catalogue import evaluate_expr, type_of
from smile.algebra.functions.text import compile_pattern, is_any_string
from smile.algebra.types import BOOL, BYTES, FLOAT, INT, INT_MAX, INT_MIN, STRING, DataType, Value
from smile.registry.interval_set import scale_of

Z3Term = Any  # z3 has no types
Types = Mapping[str, DataType]
Row = Mapping[str, Value]

_LOCK: Final = threading.Lock()
"""z3's default context is for one thread at a time."""

_CHARACTER_MAX: Final = 0x2FFFF
"""The last character of z3's strings."""


class Solution(Enum):
    NONE = "no row satisfies the condition"
    UNKNOWN = "not decided"


class _Term(NamedTuple):
    value: Z3Term
    is_null: Z3Term


def solve(condition: mmpl.Expr, types: Types) -> Row | Solution:
    """A row that satisfies the condition, if one is found."""
    with _LOCK:
        solver = z3.SimpleSolver()
        solver.set("rlimit", limits.solver_steps_max)
        solver.set("random_seed", 0)
        translation = _Translation(types)
        wanted = translation.term(condition)
        solver.add(*translation.constraints, z3.Not(wanted.is_null), wanted.value)
        answer = solver.check()
        if answer == z3.unsat:
            return Solution.NONE
        if answer == z3.unknown:
            return Solution.UNKNOWN
        row = translation.row(solver.model())
    if row is None or evaluate_expr(condition, row, types) is not True:
        return Solution.UNKNOWN
    return row


class _Translation:
    def __init__(self, types: Types) -> None:
        self._types = types
        self._opaque: dict[mmpl.Expr, _Term] = {}
        self.constraints: list[Z3Term] = []
        self.columns = {n: self._variable(f"c{i}", t) for i, (n, t) in enumerate(types.items())}

    def _variable(self, name: str, data_type: DataType) -> _Term:
        """Any value of the type, or NULL."""
        if data_type == BOOL:
            value = z3.Bool(name)
        elif data_type in (STRING, BYTES):
            value = z3.String(name)
            if data_type == BYTES:
                self.constraints.append(z3.InRe(value, z3.Star(z3.Range(chr(0), chr(255)))))
        elif data_type == FLOAT:
            value = z3.FP(name, z3.Float64())
            self.constraints.append(z3.Not(z3.Or(z3.fpIsNaN(value), z3.fpIsInf(value))))
        else:
            value = z3.Int(name)
            first, end = scale_of(data_type).all_points
            self.constraints += [first <= value, value < end]
        return _Term(value, z3.Bool(f"{name}?"))

    def term(self, expr: mmpl.Expr) -> _Term:
        match expr:
            case mmpl.ColumnRef(name):
                return self.columns[name]
            case mmpl.Constant(value, data_type) if value is not None and _has_term(value):
                return _Term(_constant(value, data_type), z3.BoolVal(False))
            case mmpl.Constant(None, data_type):
                return _Term(self._unknown(expr, data_type).value, z3.BoolVal(True))
            case mmpl.Cast(arg, target):
                return self._cast(expr, arg, target)
            case mmpl.Call():
                return self._call(expr)
            case mmpl.Case(branches, otherwise):
                result = self.term(otherwise)
                for condition, chosen in reversed(branches):
                    result = _choice(_is_true(self.term(condition)), self.term(chosen), result)
                return result
        return self._unknown(expr, type_of(expr, self._types))

    def _unknown(self, expr: mmpl.Expr, data_type: DataType) -> _Term:
        """One value for equal expressions, about which nothing is known."""
        if expr not in self._opaque:
            self._opaque[expr] = self._variable(f"u{len(self._opaque)}", data_type)
        return self._opaque[expr]

    def _cast(self, expr: mmpl.Expr, arg: mmpl.Expr, target: DataType) -> _Term:
        """Integers and decimals become decimals with the same number of digits behind the point, or more."""
        source = type_of(arg, self._types)
        if target.name == "decimal" and source.name in ("int", "decimal"):
            added = digits_and_scale(target)[1] - digits_and_scale(source)[1]
            if added >= 0:
                term = self.term(arg)
                return _limited(term.value * 10**added, term.is_null, target)
        return self._unknown(expr, target)

    def _call(self, call: mmpl.Call) -> _Term:
        name, args = call.function, call.args
        types = [type_of(arg, self._types) for arg in args]
        if name in _COMPARISONS:
            return _strict(_COMPARISONS[name], [self.term(a) for a in args])
        if name in _LOGIC or name in _NULL_TESTS:
            return (_LOGIC | _NULL_TESTS)[name]([self.term(a) for a in args])
        if name in _ARITHMETIC and set(types) == {INT}:
            terms = [self.term(a) for a in args]
            return _limited(_ARITHMETIC[name](*[t.value for t in terms]), z3.Or([t.is_null for t in terms]), INT)
        if name == "||" and set(types) == {STRING}:
            return _strict(z3.Concat, [self.term(a) for a in args])
        if name == "like" and len(args) == 2 and isinstance(args[1], mmpl.Constant):
            return self._like(call, args[0], args[1].value)
        return self._unknown(call, type_of(call, self._types))

    def _like(self, call: mmpl.Call, text: mmpl.Expr, pattern: Value) -> _Term:
        parts = compile_pattern(pattern, "\\") if isinstance(pattern, str) and _has_term(pattern) else None
        if parts is None:
            return self._unknown(call, BOOL)
        any_character = z3.AllChar(z3.ReSort(z3.StringSort()))
        pieces = [
            z3.Re(_text_constant(part)) if isinstance(part, str) else _wildcard(part, any_character) for part in parts
        ]
        expression = z3.Concat(*pieces) if len(pieces) > 1 else pieces[0] if pieces else z3.Re(z3.StringVal(""))
        return _strict(lambda value: z3.InRe(value, expression), [self.term(text)])

    def row(self, model: Z3Term) -> Row | None:
        """The values of the columns in the model; None if one of them is no value of its type."""
        row: dict[str, Value] = {}
        for name, term in self.columns.items():
            if z3.is_true(model.eval(term.is_null, model_completion=True)):
                row[name] = None
                continue
            value = _python_value(model.eval(term.value, model_completion=True), self._types[name])
            if value is None:
                return None
            row[name] = value
        return row


def _wildcard(part: object, any_character: Z3Term) -> Z3Term:
    return z3.Star(any_character) if is_any_string(part) else any_character


# ── terms ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_true(term: _Term) -> Z3Term:
    return z3.And(z3.Not(term.is_null), term.value)


def _is_false(term: _Term) -> Z3Term:
    return z3.And(z3.Not(term.is_null), z3.Not(term.value))


def _choice(condition: Z3Term, then: _Term, otherwise: _Term) -> _Term:
    return _Term(z3.If(condition, then.value, otherwise.value), z3.If(condition, then.is_null, otherwise.is_null))


def _strict(function: Callable[..., Z3Term], terms: list[_Term]) -> _Term:
    return _Term(function(*[t.value for t in terms]), z3.Or([t.is_null for t in terms]))


def _limited(value: Z3Term, is_null: Z3Term, data_type: DataType) -> _Term:
    """NULL where the value leaves the range of the type."""
    first, end = scale_of(data_type).all_points if data_type != INT else (INT_MIN, INT_MAX + 1)
    return _Term(value, z3.Or(is_null, value < first, value >= end))


def _and(terms: list[_Term]) -> _Term:
    is_false = z3.Or([_is_false(t) for t in terms])
    return _Term(z3.Not(is_false), z3.And(z3.Not(is_false), z3.Or([t.is_null for t in terms])))


def _or(terms: list[_Term]) -> _Term:
    is_true = z3.Or([_is_true(t) for t in terms])
    return _Term(is_true, z3.And(z3.Not(is_true), z3.Or([t.is_null for t in terms])))


def _not(terms: list[_Term]) -> _Term:
    return _Term(z3.Not(terms[0].value), terms[0].is_null)


def _known(value: Z3Term) -> _Term:
    return _Term(value, z3.BoolVal(False))


def _is_distinct(terms: list[_Term]) -> Z3Term:
    a, b = terms
    both = z3.And(z3.Not(a.is_null), z3.Not(b.is_null))
    return z3.Or(a.is_null != b.is_null, z3.And(both, z3.Not(_equal(a.value, b.value))))


def _coalesce(terms: list[_Term]) -> _Term:
    result = terms[-1]
    for term in reversed(terms[:-1]):
        result = _choice(term.is_null, result, term)
    return result


def _equal(a: Z3Term, b: Z3Term) -> Z3Term:
    return z3.fpEQ(a, b) if z3.is_fp(a) else a == b


def _less(a: Z3Term, b: Z3Term) -> Z3Term:
    """false is less than true."""
    return z3.And(z3.Not(a), b) if z3.is_bool(a) else a < b


_COMPARISONS: Final[dict[str, Callable[[Z3Term, Z3Term], Z3Term]]] = {
    "=": _equal,
    "<>": lambda a, b: z3.Not(_equal(a, b)),
    "<": _less,
    "<=": lambda a, b: z3.Or(_less(a, b), _equal(a, b)),
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: z3.Or(_less(b, a), _equal(a, b)),
}
_LOGIC: Final[dict[str, Callable[[list[_Term]], _Term]]] = {"and": _and, "or": _or, "not": _not}
_NULL_TESTS: Final[dict[str, Callable[[list[_Term]], _Term]]] = {
    "is null": lambda terms: _known(terms[0].is_null),
    "is not null": lambda terms: _known(z3.Not(terms[0].is_null)),
    "is distinct from": lambda terms: _known(_is_distinct(terms)),
    "is not distinct from": lambda terms: _known(z3.Not(_is_distinct(terms))),
    "coalesce": _coalesce,
}
_ARITHMETIC: Final[dict[str, Callable[..., Z3Term]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
}


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _has_term(value: Value) -> bool:
    return not isinstance(value, str) or all(ord(c) <= _CHARACTER_MAX for c in value)


def _constant(value: Value, data_type: DataType) -> Z3Term:
    match value:
        case bool():
            return z3.BoolVal(value)
        case str():
            return _text_constant(value)
        case bytes():
            return _text_constant(value.decode("latin-1"))
        case float():
            return z3.FPVal(value, z3.Float64())
    return z3.IntVal(scale_of(data_type).point(value))


def _text_constant(text: str) -> Z3Term:
    """z3 reads `\\u{…}` in a text as a character: so every character that is no letter or digit is written so."""
    return z3.StringVal("".join(c if c.isascii() and c.isalnum() else f"\\u{{{ord(c):x}}}" for c in text))


_ESCAPED: Final = re.compile(r"\\u\{([0-9a-fA-F]+)\}")


def _python_value(value: Z3Term, data_type: DataType) -> Value:
    """None if it is no value of the type."""
    if data_type == BOOL:
        return bool(z3.is_true(value))
    if data_type in (STRING, BYTES):
        text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value.as_string())
        if any("\ud800" <= c <= "\udfff" for c in text):
            return None
        return text if data_type == STRING else text.encode("latin-1")
    if data_type == FLOAT:
        bits = z3.simplify(z3.fpToIEEEBV(value)).as_long()
        number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
        return number
    if data_type.name == "decimal":
        return Decimal(value.as_long()).scaleb(-digits_and_scale(data_type)[1], EXACT_CONTEXT)
    integer: int = value.as_long()
    return integer
