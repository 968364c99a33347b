"""Splits a condition into one on key attributes, which chooses channels, and one on the other columns.

A republisher without some measurements of a channel could not be replaced by others without disturbing the channel's
order. So plans need the two parts, and a condition that is no conjunction of two such parts is refused.
"""

from collections.abc import Set
from dataclasses import dataclass
from itertools import product

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.printer import print_expression
from smile.algebra.types import BOOL
from smile.errors import SmileError, error
from smile.registry import boxes as box_sets
from smile.registry.box_expressions import boxes_expression
from smile.registry.boxes import Boxes
from smile.registry.conditions import (
    Condition,
    Row,
    all_of,
    conjunction,
    decide_entails,
    decide_satisfiable,
    difference,
    disjunction,
    find_row,
)
from smile.registry.schema import GlobalSchema


@dataclass(frozen=True)
class DecoupledCondition:
    """Equivalent to the conjunction of both parts."""

    key: Condition
    measurement: Condition


def split(condition: Condition) -> DecoupledCondition:
    """Raises E176 with the reason if it is impossible."""
    stream = condition.stream
    key, measurement, mixed = list[mmpl.Expr](), list[mmpl.Expr](), list[mmpl.Expr]()
    for part in trees.conjuncts(condition.expr):
        columns = trees.columns_in(part)
        (key if columns <= stream.key_names else mixed if columns & stream.key_names else measurement).append(part)
    if not mixed:
        return DecoupledCondition(all_of(stream, key), all_of(stream, measurement))
    split_parts = _project_boxes(condition) if condition.boxes is not None else _project_disjuncts(condition)
    _check_product(condition, split_parts)
    return split_parts


def _check_product(condition: Condition, parts: DecoupledCondition) -> None:
    """Both parts together must give no other rows than the condition."""
    both = conjunction(parts.key, parts.measurement)
    if decide_entails(both, condition) is True:
        return
    row = find_row(difference(both, condition))
    reason = "" if row is None else f": {_explain_row(row, condition)}"
    raise _decoupling_error(f"key attributes and measurements depend on each other in {condition}{reason}")


def _explain_row(row: Row, condition: Condition) -> str:
    keys = condition.columns & condition.stream.key_names
    key, other = (_row_text(row, names, condition.stream) for names in (keys, condition.columns - keys))
    return f"it accepts {key} with other measurements, but not with {other}"


def _row_text(row: Row, columns: Set[str], stream: GlobalSchema) -> str:
    constants = {c: mmpl.Constant(row[c], data_type) for c, data_type in stream.types.items() if c in columns}
    return " and ".join(print_expression(mmpl.Call("=", (mmpl.ColumnRef(c), v))) for c, v in constants.items())


def _decoupling_error(message: str) -> SmileError:
    hint = "Write it as AND of a condition on key attributes and one on measurements, or make two queries of it."
    return error("E176", message, hint=hint)


def _project_boxes(condition: Condition) -> DecoupledCondition:
    """The values of the key attributes that any row has, and those of the other columns."""
    stream, boxes = condition.stream, condition.boxes
    assert boxes is not None

    def project(is_key: bool) -> Condition:
        projected: Boxes | None = box_sets.NO_ROW
        for box in boxes:
            part = {c: values for c, values in box.items() if (c in stream.key_names) == is_key}
            projected = None if projected is None else box_sets.union(projected, (part,), stream.types)
        assert projected is not None, "a projection has no more boxes than the condition"
        return Condition(stream, boxes_expression(projected, stream.types))

    return DecoupledCondition(project(is_key=True), project(is_key=False))


_Disjunct = tuple[mmpl.Expr, ...]


def _project_disjuncts(condition: Condition) -> DecoupledCondition:
    """The same for conditions that are no boxes: by the conjunctions of which the condition is an OR."""
    stream = condition.stream
    key = measurement = Condition(stream, mmpl.Constant(False, BOOL))
    for literals in _disjuncts(condition.expr, wanted=True):
        for literal in literals:
            columns = trees.columns_in(literal)
            if columns & stream.key_names and columns - stream.key_names:
                raise _decoupling_error(f"{print_expression(literal)} compares a key attribute with a measurement")
        is_key = [bool(trees.columns_in(literal) & stream.key_names) for literal in literals]
        parts = [
            all_of(stream, [e for e, belongs in zip(literals, is_key, strict=True) if belongs == wanted])
            for wanted in (True, False)
        ]
        if all(decide_satisfiable(part) is not False for part in parts):
            key, measurement = disjunction(key, parts[0]), disjunction(measurement, parts[1])
    return DecoupledCondition(key, measurement)


def _disjuncts(expr: mmpl.Expr, wanted: bool) -> list[_Disjunct]:
    """The expression is true (or false, as wanted) where all literals of one of these are true."""
    match expr:
        case mmpl.Call("not", (arg,)):
            return _disjuncts(arg, not wanted)
        case mmpl.Call("and" | "or" as function, args):
            alternatives = [_disjuncts(arg, wanted) for arg in args]
            if (function == "or") == wanted:
                combined = [disjunct for part in alternatives for disjunct in part]
            else:
                combined = _products(alternatives)
            if len(combined) > limits.condition_boxes_max:
                raise _decoupling_error(f"{print_expression(expr)} has too many alternatives")
            return combined
    return [(expr if wanted else mmpl.Call("not", (expr,)),)]


def _products(alternatives: list[list[_Disjunct]]) -> list[_Disjunct]:
    count = 1
    for part in alternatives:
        count *= len(part)
    if count > limits.condition_boxes_max:
        raise _decoupling_error("the condition has too many alternatives")
    return [sum(choice, ()) for choice in product(*alternatives)]
