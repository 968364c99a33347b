"""Conditions on the rows of a global stream, and the decisions about them that planning needs.

A condition is an expression, and stands for the rows for which it is true. Decisions are exact where the condition is
a union of boxes; otherwise a solver decides, which may not know. Then a question has the answer None, and the functions
that answer with a bool take the safe side: satisfiable, and not entailed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.folding import fold_expression
from smile.algebra.functions.catalogue import evaluate_expr, expect_type
from smile.algebra.parser import parse_expression
from smile.algebra.printer import print_expression
from smile.algebra.types import BOOL, Value
from smile.errors import error
from smile.registry import boxes as box_sets
from smile.registry.box_expressions import boxes_expression
from smile.registry.boxes import Boxes
from smile.registry.condition_boxes import find_boxes
from smile.registry.interval_set import scale_of
from smile.registry.schema import GlobalSchema

TRUE = mmpl.Constant(True, BOOL)
Row = Mapping[str, Value]


@dataclass(frozen=True)
class Condition:
    """The rows of the stream for which `expr` is true. All coercions in it are explicit."""

    stream: GlobalSchema
    expr: mmpl.Expr

    def __str__(self) -> str:
        return print_expression(self.expr)

    @cached_property
    def boxes(self) -> Boxes | None:
        """The same rows as a union of boxes; None if they are none, or of too many."""
        return find_boxes(self.expr, self.stream.types)

    @cached_property
    def columns(self) -> frozenset[str]:
        return trees.columns_in(self.expr)

    def is_true_of(self, row: Row) -> bool:
        return evaluate_expr(self.expr, row, self.stream.types) is True


def every_row(stream: GlobalSchema) -> Condition:
    return Condition(stream, TRUE)


@lru_cache(maxsize=65_536)
def parse_condition(stream: GlobalSchema, text: str) -> Condition:
    """The condition that was printed as `text`. Raises an error if it is none. The same condition for the same text, so
    that comparisons and decisions about it are fast."""
    return make_condition(stream, parse_expression(text))


def make_condition(stream: GlobalSchema, expr: mmpl.Expr) -> Condition:
    """Raises an error if the expression is no condition on the stream."""
    expect_type(expr, BOOL, stream.types)
    if len(print_expression(expr)) > limits.filter_chars_max:
        hint = "Describe the rows by comparisons of fewer values."
        raise error("E175", f"the condition has more than {limits.filter_chars_max:,} characters", hint=hint)
    return Condition(stream, fold_expression(expr))


def all_of(stream: GlobalSchema, conjuncts: Sequence[mmpl.Expr]) -> Condition:
    return Condition(stream, trees.conjunction(conjuncts) if conjuncts else TRUE)


# ── combinations ────────────────────────────────────────────────────────────────────────────────────────────────────


def conjunction(a: Condition, b: Condition) -> Condition:
    if TRUE in (a.expr, b.expr):
        return a if b.expr == TRUE else b
    expr = fold_expression(trees.conjunction([*trees.conjuncts(a.expr), *trees.conjuncts(b.expr)]))
    return _combined(a, b, expr, box_sets.intersection)


def disjunction(a: Condition, b: Condition) -> Condition:
    expr = fold_expression(mmpl.Call("or", (a.expr, b.expr)))
    return _combined(a, b, expr, box_sets.union)


def complement(a: Condition) -> Condition:
    """The rows for which the condition is not true: false or NULL."""
    return difference(every_row(a.stream), a)


def difference(a: Condition, b: Condition) -> Condition:
    """The rows of `a` that are not rows of `b`."""
    is_not_true = mmpl.Call("is distinct from", (b.expr, TRUE))
    expr = fold_expression(trees.conjunction([*trees.conjuncts(a.expr), is_not_true]))
    return _combined(a, b, expr, box_sets.difference)


BoxOperation = Callable[[Boxes, Boxes, box_sets.Types], Boxes | None]


def _combined(a: Condition, b: Condition, expr: mmpl.Expr, operation: BoxOperation) -> Condition:
    """The combination in a simple form, if there is one. The condition itself is returned if it is the result."""
    if a.boxes is None or b.boxes is None:
        return Condition(a.stream, expr)
    types = a.stream.types
    result = operation(a.boxes, b.boxes, types)
    if result is None:
        return Condition(a.stream, expr)
    for condition in (a, b):
        if condition.boxes == result:
            return condition
    return Condition(a.stream, boxes_expression(result, types))


# ── decisions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def is_satisfiable(condition: Condition) -> bool:
    return decide_satisfiable(condition) is not False


def is_consistent(a: Condition, b: Condition) -> bool:
    """Whether a row may satisfy both."""
    return decide_consistent(a, b) is not False


def entails(a: Condition, b: Condition) -> bool:
    """Whether it is certain that every row of `a` is a row of `b`."""
    return decide_entails(a, b) is True


def decide_satisfiable(condition: Condition) -> bool | None:
    if condition.boxes is not None:
        return bool(condition.boxes)
    return _solve(condition)


def decide_consistent(a: Condition, b: Condition) -> bool | None:
    if a.boxes is not None and b.boxes is not None:
        return not box_sets.is_disjoint(a.boxes, b.boxes)
    return decide_satisfiable(conjunction(a, b))


def decide_entails(a: Condition, b: Condition) -> bool | None:
    if a is b or a.expr == b.expr:
        return True
    if a.boxes is not None and b.boxes is not None:
        answer = box_sets.is_subset(a.boxes, b.boxes, a.stream.types)
        if answer is not None:
            return answer
    satisfiable = decide_satisfiable(difference(a, b))
    return None if satisfiable is None else not satisfiable


def decide_entails_within(a: Condition, b: Condition, within: Condition) -> bool | None:
    """Whether every row of `a` that satisfies `within` is a row of `b`."""
    if a.boxes is not None and b.boxes is not None and within.boxes is not None:
        types = a.stream.types
        both = box_sets.intersection(a.boxes, within.boxes, types)
        answer = None if both is None else box_sets.is_subset(both, b.boxes, types)
        if answer is not None:
            return answer
    return decide_entails(conjunction(a, within), b)


def find_row(condition: Condition) -> Row | None:
    """A row that satisfies the condition; None if there is none, or none is known."""
    if condition.boxes is None:
        return _solver_row(condition)
    if not condition.boxes:
        return None
    box, types = condition.boxes[0], condition.stream.types
    points = {name: box[name].simple_point() if name in box else None for name in types}
    return {name: None if point is None else scale_of(types[name]).value(point) for name, point in points.items()}


@lru_cache(maxsize=65_536)
def _solve(condition: Condition) -> bool | None:
    from smile.registry.solver import Solution, solve  # noqa: PLC0415  # takes memory, and few conditions need it

    solution = solve(condition.expr, condition.stream.types)
    if solution is Solution.NONE:
        return False
    return True if isinstance(solution, dict) else None


def _solver_row(condition: Condition) -> Row | None:
    from smile.registry.solver import solve  # noqa: PLC0415  # takes memory, and few conditions need it

    solution = solve(condition.expr, condition.stream.types)
    return solution if isinstance(solution, dict) else None
