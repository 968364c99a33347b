"""Compiles expressions over columns of knowledge.

In every row the result is that of `knowledge.values.transfer.expression_knowledge`. A compiled expression is a function
of columns: of exact values if it uses only fixed columns, else of ranges and masks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.coercions import cast, is_monotone_cast
from smile.algebra.functions.base import INCREASING, MONOTONE, NOT_MONOTONE, Signature
from smile.algebra.functions.catalogue import COMPARISONS, SCALAR_FUNCTIONS, resolve_signature, type_of
from smile.algebra.types import BOOL, NULL, DataType
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import ColumnKind, KnowledgeColumn, MaskColumn, RangeColumn
from smile.columns.values import ValueColumn
from smile.kernels.expressions import choices, column_functions, corners, logic, monotone_ranges
from smile.kernels.expressions.casts import cast_kernel, is_injective
from smile.kernels.expressions.logic import TRUTH_BITS
from smile.kernels.expressions.monotone_ranges import KnowledgeFunction
from smile.kernels.expressions.operands import Operand, canonical_ranges, domain_ends, to_operand
from smile.kernels.expressions.python_kernels import to_python
from smile.kernels.expressions.row_by_row import evaluate_row_by_row, row_by_row_function
from smile.kernels.layout import Layout
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.comparison import NULL_TESTS
from smile.knowledge.values.transfer import operand_from_values


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
    constant: bool = False


@dataclass(frozen=True)
class Expression:
    """A compiled expression. `kind` is "exact" if it uses only fixed columns."""

    expr: mmpl.Expr
    kind: ColumnKind
    data: DataType
    layout: Layout
    bottoms: Mapping[str, CellKnowledge]
    run: Callable[[InputColumns], KnowledgeColumn] = field(repr=False)

    def __call__(
        self, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn], count: int
    ) -> KnowledgeColumn:
        return self.run(InputColumns(fixed, columns, count))


def compile_expression(expr: mmpl.Expr, layout: Layout, bottoms: Mapping[str, CellKnowledge]) -> Expression:
    types = layout.types
    data = type_of(expr, types)
    names = trees.columns_in(expr)
    exact = all(c in layout.fixed for c in names)
    kind: ColumnKind = (
        "exact" if exact else "mask" if data == BOOL else "object" if data.name == "relation" else "range"
    )
    if all(types[c].name != "relation" and _is_representable(c, layout, bottoms) for c in names):
        node = _Compiler(layout, bottoms).compile_node(expr)
        assert node.exact == exact, "a column of type NULL never evolves"
        return Expression(expr, kind, data, layout, bottoms, node.run)

    def run(inputs: InputColumns) -> KnowledgeColumn:
        columns = {c: inputs.fixed[c] if c in layout.fixed else inputs.columns[c] for c in names}
        return evaluate_row_by_row(expr, columns, types, bottoms, kind, data, inputs.count)

    return Expression(expr, kind, data, layout, bottoms, run)


def _is_representable(name: str, layout: Layout, bottoms: Mapping[str, CellKnowledge]) -> bool:
    """Whether the ends of the column's domain, which only "latest" columns use, are values of the column's type."""
    if name in layout.fixed or layout.evolving[name].kind != "latest":
        return True
    data = layout.evolving[name].data
    for end in domain_ends(bottoms[name]):
        if end is not None and to_python(v.from_python([end], data).data, data) != [end]:
            return False
    return True


_ENUMERATED_OPERANDS_MAX: Final = 6
"""Up to this number of operands, all combinations of their possible truth values are within `combinations_max`, so that
the row-by-row evaluation is as precise as the column functions. Functions of more operands are evaluated row by row."""
assert limits.combinations_max >= 3**_ENUMERATED_OPERANDS_MAX


class _Compiler:
    def __init__(self, layout: Layout, bottoms: Mapping[str, CellKnowledge]) -> None:
        self.layout, self.bottoms = layout, bottoms

    def compile_node(self, expr: mmpl.Expr) -> ExpressionNode:
        match expr:
            case mmpl.ColumnRef(name):
                return self._column(name)
            case mmpl.Constant():
                return _constant(expr)
            case mmpl.Call(name, args):
                return self._call(name, [self.compile_node(a) for a in args])
            case mmpl.Cast():
                return _cast(self.compile_node(expr.arg), expr.type)
            case mmpl.Case(branches, otherwise):
                conditions = [self.compile_node(c) for c, _ in branches]
                return _case(conditions, [*(self.compile_node(r) for _, r in branches), self.compile_node(otherwise)])
        raise AssertionError(expr)

    def _column(self, name: str) -> ExpressionNode:
        if name in self.layout.fixed:
            return ExpressionNode(lambda inputs: inputs.fixed[name], True, self.layout.fixed[name])
        evolving, bottom = self.layout.evolving[name], self.bottoms[name]
        data = evolving.data
        if evolving.kind in ("range", "mask"):
            return ExpressionNode(lambda inputs: inputs.columns[name], False, data)  # type: ignore[return-value,arg-type]
        return ExpressionNode(lambda inputs: to_operand(inputs.columns[name], bottom, data), False, data)

    def _call(self, name: str, args: list[ExpressionNode]) -> ExpressionNode:
        signature = resolve_signature(name, tuple(a.data for a in args))
        assert signature is not None, "types have been checked"
        if name in COMPARISONS and args[0].exact and args[1].constant and args[0].data.name in ("string", "bytes"):
            text = args[1].run(InputColumns({}, {}, 1))
            if isinstance(text, ValueColumn) and text.valid is None:
                return _apply(column_functions.comparison_with_text(name, text.data[0]), args[:1], BOOL)  # type: ignore[arg-type]
        function = _column_function if all(a.exact for a in args) else _knowledge_function
        return _apply(function(name, signature), args, signature.result)


def _apply(function: KnowledgeFunction, args: list[ExpressionNode], result: DataType) -> ExpressionNode:
    exact = all(a.exact for a in args)
    if all(a.constant for a in args):
        one_row = InputColumns({}, {}, 1)
        return _constant_node(function([a.run(one_row) for a in args]), result)
    if len(args) == 1:
        run_argument = args[0].run
        return ExpressionNode(lambda inputs: function((run_argument(inputs),)), exact, result)
    if len(args) == 2:
        a, b = (arg.run for arg in args)
        return ExpressionNode(lambda inputs: function((a(inputs), b(inputs))), exact, result)
    runs = [a.run for a in args]
    return ExpressionNode(lambda inputs: function([run(inputs) for run in runs]), exact, result)


def _constant(expr: mmpl.Constant) -> ExpressionNode:
    return _constant_node(v.from_python([expr.value], expr.type), expr.type)


def _constant_node(value: Operand, data: DataType) -> ExpressionNode:
    assert isinstance(value, ValueColumn)
    repeat = column_functions.repeat_row(value)
    return ExpressionNode(lambda inputs: repeat(inputs.count), True, data, constant=True)


def _column_function(name: str, signature: Signature) -> KnowledgeFunction:
    # All operands are ValueColumns.
    return column_functions.column_function(name, signature)  # type: ignore[return-value]


def _knowledge_function(name: str, signature: Signature) -> KnowledgeFunction:
    """The function on operands of which at least one is not exact."""
    args, result = signature.args, signature.result
    now = column_functions.column_function(name, signature)
    if args[0] == BOOL:
        if len(args) > _ENUMERATED_OPERANDS_MAX and name not in ("and", "or"):
            return row_by_row_function(name, args, result)
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
        return row_by_row_function(name, args, result)
    compute = column_functions.strict_kernel(name, signature)
    if name in ("*", "/"):
        return corners.ProductFunction(compute, name == "/")
    if name == "abs":
        return corners.AbsoluteFunction(compute)
    if MONOTONE in scalar.monotonicity:
        return row_by_row_function(name, args, result)
    return monotone_ranges.monotone_function(scalar, signature, compute)


def _cast(arg: ExpressionNode, target: DataType) -> ExpressionNode:
    source = arg.data
    if source == target:
        return arg
    if source == NULL:
        return _constant_node(v.from_python([None], target), target)
    compute = cast_kernel(source, target)
    if arg.exact:
        # The operand is a ValueColumn.
        return _apply(column_functions.strict_function(compute), [arg], target)  # type: ignore[arg-type]
    if source == BOOL:
        return _apply(_boolean_cast(target), [arg], target)
    growth = INCREASING if is_monotone_cast(source, target) else NOT_MONOTONE
    function = monotone_ranges.MonotoneFunction(
        compute, (growth,), target, source.name == "string", is_injective=is_injective(source, target)
    )
    return _apply(function, [arg], target)


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


def _case(conditions: list[ExpressionNode], results: list[ExpressionNode]) -> ExpressionNode:
    data = results[-1].data
    nodes = [*conditions, *results]
    count = len(conditions)
    if all(n.exact for n in nodes):
        return _apply(lambda args: column_functions.select_case(args[:count], args[count:]), nodes, data)  # type: ignore[arg-type]
    choose = choices.boolean_case if data == BOOL else choices.case
    return _apply(lambda args: choose(args[:count], args[count:]), nodes, data)
