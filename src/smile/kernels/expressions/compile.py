"""Compiles expressions over columns of knowledge.

In every row the result is that of `knowledge.values.transfer.expression_knowledge`. A compiled expression is a function
of columns: of exact values if it uses only fixed columns, else of ranges and masks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, NamedTuple

import numpy as np

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.coercions import can_fail, cast, is_monotone_cast
from smile.algebra.functions.base import INCREASING, MONOTONE, NOT_MONOTONE, Signature
from smile.algebra.functions.catalogue import COMPARISONS, SCALAR_FUNCTIONS, resolve_signature, type_of
from smile.algebra.types import BOOL, NULL, DataType
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import ColumnKind, KnowledgeColumn, MaskColumn, RangeColumn
from smile.columns.values import Bools, ValueColumn
from smile.kernels.expressions import choices, column_functions, corners, logic, monotone_ranges
from smile.kernels.expressions.casts import cast_kernel, is_injective
from smile.kernels.expressions.logic import TRUTH_BITS
from smile.kernels.expressions.monotone_ranges import KnowledgeFunction
from smile.kernels.expressions.operands import Operand, canonical_ranges, operand_limits, to_operand
from smile.kernels.expressions.row_by_row import evaluate_row_by_row, row_by_row_function
from smile.kernels.layout import Layout
from smile.knowledge.implied_values import CaseBranch, ValueSets, case_branches
from smile.knowledge.value_set import ValueSet
from smile.knowledge.values.comparison import NULL_TESTS
from smile.knowledge.values.transfer import (
    TYPE_LIMITS,
    ColumnLimits,
    Operand as Limits,
    call_limits,
    cast_limits,
    exact_cell,
    operand_from_values,
    operand_hull,
    type_limits,
)


@dataclass(frozen=True)
class InputColumns:
    """The input columns of an expression."""

    fixed: Mapping[str, ValueColumn]
    columns: Mapping[str, KnowledgeColumn]
    count: int


@dataclass(frozen=True)
class ExpressionNode:
    """A compiled subexpression. `run` returns a ValueColumn if it is `exact`, else a MaskColumn for Booleans and a
    RangeColumn for other types."""

    run: Callable[[InputColumns], Operand]
    exact: bool
    data: DataType
    limits: Limits
    constant: bool = False


@dataclass(frozen=True)
class Expression:
    """A compiled expression. `kind` is "exact" if it uses only fixed columns."""

    expr: mmpl.Expr
    kind: ColumnKind
    data: DataType
    run: Callable[[InputColumns], KnowledgeColumn] = field(repr=False)

    def __call__(
        self, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn], count: int
    ) -> KnowledgeColumn:
        return self.run(InputColumns(fixed, columns, count))


def compile_expression(expr: mmpl.Expr, layout: Layout, limits: ColumnLimits = TYPE_LIMITS) -> Expression:
    """`limits` are those of the columns."""
    types = layout.types
    data = type_of(expr, types)
    names = trees.columns_in(expr)
    exact = all(c in layout.fixed for c in names)
    kind: ColumnKind = (
        "exact" if exact else "mask" if data == BOOL else "object" if data.name == "relation" else "range"
    )
    if all(types[c].name != "relation" for c in names):
        node = _Compiler(layout, limits).compile_node(expr)
        assert node.exact == exact, "a column of type NULL never evolves"
        return Expression(expr, kind, data, node.run)

    def run(inputs: InputColumns) -> KnowledgeColumn:
        columns = {c: inputs.fixed[c] if c in layout.fixed else inputs.columns[c] for c in names}
        return evaluate_row_by_row(expr, columns, types, limits, kind, data, inputs.count)

    return Expression(expr, kind, data, run)


_ENUMERATED_OPERANDS_MAX: Final = 6
"""Up to this number of operands, all combinations of their possible truth values are within `combinations_max`, so that
the row-by-row evaluation is as precise as the column functions. Functions of more operands are evaluated row by row."""
assert limits.combinations_max >= 3**_ENUMERATED_OPERANDS_MAX


class _BranchNode(NamedTuple):
    """A compiled branch of CASE. `is_possible`: the rows in which columns can have the values that it needs; None: all
    rows."""

    result: ExpressionNode
    is_possible: Callable[[InputColumns], Bools] | None


class _Compiler:
    """`branches`: those of CASE around the expression, the outermost first, with the values that columns have there."""

    def __init__(self, layout: Layout, limits: ColumnLimits, branches: tuple[ValueSets, ...] = ()) -> None:
        self.layout, self.limits, self.branches = layout, limits, branches

    def compile_node(self, expr: mmpl.Expr) -> ExpressionNode:
        match expr:
            case mmpl.ColumnRef(name):
                return self._column(name)
            case mmpl.Constant():
                return _constant(expr)
            case mmpl.Call(name, args):
                nodes = [self.compile_node(a) for a in args]
                return self._call(name, nodes, [self._widest_limits(a, n) for a, n in zip(args, nodes, strict=True)])
            case mmpl.Cast():
                return _cast(self.compile_node(expr.arg), expr.type)
            case mmpl.Case(branches, _):
                conditions = [self.compile_node(c) for c, _ in branches]
                return _case(conditions, [self._branch(b) for b in case_branches(expr, self.layout.types)])
        raise AssertionError(expr)

    def _branch(self, branch: CaseBranch) -> _BranchNode:
        if branch.sets is None:
            return _BranchNode(self.compile_node(branch.result), lambda inputs: np.zeros(inputs.count, bool))
        # An exact value decides the conditions, so it needs no clip.
        sets = {name: values for name, values in branch.sets.items() if name not in self.layout.fixed}
        result = _Compiler(self.layout, self.limits, (*self.branches, sets)).compile_node(branch.result)
        columns = [(self._column(name), values) for name, values in sets.items()]
        clips = [(column, choices.RangeClip(values, column.data)) for column, values in columns]

        def is_possible(inputs: InputColumns) -> Bools:
            return reduce(np.logical_and, (clip.is_possible(column.run(inputs)) for column, clip in clips))

        return _BranchNode(result, is_possible if clips else None)

    def _column(self, name: str) -> ExpressionNode:
        data = self.layout.types[name]
        limits = self.limits.get(name, type_limits(data))
        if name in self.layout.fixed:
            return ExpressionNode(lambda inputs: inputs.fixed[name], True, data, limits)
        node = self._evolving_column(name, data, limits)
        for sets in self.branches:
            if name in sets:
                node = _clip(node, sets[name])
        return node

    def _evolving_column(self, name: str, data: DataType, limits: Limits) -> ExpressionNode:
        if self.layout.evolving[name].kind in ("range", "mask"):
            return ExpressionNode(lambda inputs: inputs.columns[name], False, data, limits)  # type: ignore[return-value,arg-type]
        return ExpressionNode(lambda inputs: to_operand(inputs.columns[name], data), False, data, limits)

    def _widest_limits(self, expr: mmpl.Expr, node: ExpressionNode) -> Limits:
        """The limits of a subexpression also in default rows, whose keys are any values of their types."""
        uses_key = not node.constant and not set(self.layout.key).isdisjoint(trees.columns_in(expr))
        return type_limits(node.data) if uses_key else node.limits

    def _call(self, name: str, args: list[ExpressionNode], widest: list[Limits]) -> ExpressionNode:
        signature = resolve_signature(name, tuple(a.data for a in args))
        assert signature is not None, "types have been checked"
        limits = [a.limits for a in args]
        result_limits = call_limits(name, limits, signature)
        if (
            name in COMPARISONS
            and args[0].exact
            and args[1].constant
            and args[0].data.name in ("string", "json", "bytes", "array")
        ):
            text = args[1].run(InputColumns({}, {}, 1))
            if isinstance(text, ValueColumn) and text.valid is None:
                compare = column_functions.comparison_with_text(name, text.data[0])
                return _apply(compare, args[:1], BOOL, result_limits)  # type: ignore[arg-type]
        function = (
            _column_function(name, signature)
            if all(a.exact for a in args)
            else _knowledge_function(name, signature, limits, widest)
        )
        return _apply(function, args, signature.result, result_limits)


def _apply(function: KnowledgeFunction, args: list[ExpressionNode], result: DataType, limits: Limits) -> ExpressionNode:
    exact = all(a.exact for a in args)
    if all(a.constant for a in args):
        one_row = InputColumns({}, {}, 1)
        return _constant_node(function([a.run(one_row) for a in args]), result)
    if len(args) == 1:
        run_argument = args[0].run
        return ExpressionNode(lambda inputs: function((run_argument(inputs),)), exact, result, limits)
    if len(args) == 2:
        a, b = (arg.run for arg in args)
        return ExpressionNode(lambda inputs: function((a(inputs), b(inputs))), exact, result, limits)
    runs = [a.run for a in args]
    return ExpressionNode(lambda inputs: function([run(inputs) for run in runs]), exact, result, limits)


def _constant(expr: mmpl.Constant) -> ExpressionNode:
    return _constant_node(v.from_python([expr.value], expr.type), expr.type)


def _constant_node(value: Operand, data: DataType) -> ExpressionNode:
    assert isinstance(value, ValueColumn)
    repeat = column_functions.repeat_row(value)
    limits = exact_cell(value.value_at(0, data), data)
    return ExpressionNode(lambda inputs: repeat(inputs.count), True, data, limits, constant=True)


def _column_function(name: str, signature: Signature) -> KnowledgeFunction:
    # All operands are ValueColumns.
    return column_functions.column_function(name, signature)  # type: ignore[return-value]


def _knowledge_function(
    name: str, signature: Signature, limits: list[Limits], widest: list[Limits]
) -> KnowledgeFunction:
    """The function on operands of which at least one is not exact. `limits` are those of the operands, and `widest`
    those that they have in default rows too: they say whether the function may be undefined."""
    args, result = signature.args, signature.result
    now = column_functions.column_function(name, signature)
    row_by_row = row_by_row_function(name, args, limits, result)
    if BOOL in args and result != BOOL:
        return row_by_row
    if args[0] == BOOL:
        if len(args) > _ENUMERATED_OPERANDS_MAX and name not in ("and", "or"):
            return row_by_row
        return logic.unary_function(name) if len(args) == 1 else logic.associative_function(name)
    if name in COMPARISONS:
        return logic.comparison_function(name)
    if name in NULL_TESTS:
        return logic.null_test_function(name, now)
    match name:
        case "coalesce" if len(args) <= _ENUMERATED_OPERANDS_MAX:
            return choices.coalesce(now)
        case "greatest" | "least" if len(args) <= _ENUMERATED_OPERANDS_MAX:
            return choices.greatest_or_least(now, name == "greatest")
        case "nullif":
            return choices.nullif(now)
    scalar = SCALAR_FUNCTIONS[name]
    if not scalar.strict:
        return row_by_row
    compute = column_functions.strict_kernel(name, signature)
    definition = operand_limits(limits, args, call_limits(name, widest, signature).contains(None))
    if name in ("*", "/"):
        return corners.ProductFunction(compute, name == "/", definition)
    if name == "abs":
        return corners.AbsoluteFunction(compute, definition)
    if MONOTONE in scalar.monotonicity:
        return row_by_row
    return monotone_ranges.monotone_function(scalar, signature, compute, definition)


def _cast(arg: ExpressionNode, target: DataType) -> ExpressionNode:
    source = arg.data
    if source == target:
        return arg
    if source == NULL:
        return _constant_node(v.from_python([None], target), target)
    compute, limits = cast_kernel(source, target), cast_limits(arg.limits, source, target)
    if arg.exact:
        # The operand is a ValueColumn.
        return _apply(column_functions.strict_function(compute), [arg], target, limits)  # type: ignore[arg-type]
    if source == BOOL:
        return _apply(_boolean_cast(target), [arg], target, limits)
    growth = INCREASING if is_monotone_cast(source, target) else NOT_MONOTONE
    function = monotone_ranges.MonotoneFunction(
        compute,
        (growth,),
        target,
        operand_limits([arg.limits], (source,), limits.contains(None)),
        can_fail(source),
        is_injective=is_injective(source, target),
    )
    return _apply(function, [arg], target, limits)


def _boolean_cast(target: DataType) -> KnowledgeFunction:
    """The cast of a Boolean, by a table: a set of possible truth values is one of only eight."""
    sets = [frozenset(t for t, bit in TRUTH_BITS.items() if possible & bit) for possible in range(8)]
    cells = [operand_from_values(frozenset(cast(t, BOOL, target) for t in s or (None,)), target, None) for s in sets]
    table = k.from_points(cells, "range", target)
    now = v.from_python([cast(min(s, key=str), BOOL, target) if len(s) == 1 else None for s in sets], target)
    assert isinstance(table, RangeColumn)

    def run(operands: Sequence[Operand]) -> RangeColumn:
        (arg,) = operands
        assert isinstance(arg, MaskColumn)
        selected = table.take(np.minimum(arg.possible, 7))
        return canonical_ranges(now.take(np.minimum(arg.now, 7)), selected.lo, selected.hi, selected.nulls)

    return run


def _clip(column: ExpressionNode, values: ValueSet) -> ExpressionNode:
    clip = choices.RangeClip(values, column.data)
    return ExpressionNode(lambda inputs: clip(column.run(inputs)), False, column.data, column.limits)


def _case(conditions: list[ExpressionNode], branches: list[_BranchNode]) -> ExpressionNode:
    results = [branch.result for branch in branches]
    data, count = results[-1].data, len(conditions)
    limits = operand_hull([r.limits for r in results], None)
    nodes = [*conditions, *results]
    if all(n.exact for n in nodes):
        return _apply(lambda args: column_functions.select_case(args[:count], args[count:]), nodes, data, limits)  # type: ignore[arg-type]
    choose = choices.boolean_case if data == BOOL else choices.case

    def run(inputs: InputColumns) -> Operand:
        possible = [None if b.is_possible is None else b.is_possible(inputs) for b in branches]
        return choose([c.run(inputs) for c in conditions], [r.run(inputs) for r in results], possible)

    return ExpressionNode(run, False, data, limits)
