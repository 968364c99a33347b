"""Evaluates expressions row by row with `smile.knowledge.values.transfer.expression_knowledge`, which is slow.

Only for rare cases: nested relations, functions of many operands, CONCAT of values that are not exact.
"""

from collections.abc import Callable, Mapping, Sequence

from smile.algebra import mmpl
from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k
from smile.columns.knowledge import ColumnKind, KnowledgeColumn, MaskColumn, RangeColumn
from smile.errors import SmileError
from smile.kernels.expressions.operands import Operand
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.transfer import ColumnLimits, Operand as Limits, expression_knowledge, unknown_operand


def evaluate_row_by_row(
    expr: mmpl.Expr,
    columns: Mapping[str, KnowledgeColumn],
    types: Mapping[str, DataType],
    limits: ColumnLimits,
    kind: ColumnKind,
    data: DataType,
    count: int,
) -> KnowledgeColumn:
    """Evaluates the expression on columns of any kind."""

    def point(index: int) -> CellKnowledge:
        try:
            cells = {c: k.knowledge_at(column, index, types[c]) for c, column in columns.items()}
            if None not in cells.values():
                return expression_knowledge(expr, cells, types, limits)
        except (SmileError, LookupError, ArithmeticError, ValueError):
            pass
        # Only in absent rows, whose data need not be a point of the column's domain.
        return unknown_operand(data, nullable=True, now=None)

    return k.from_points([point(i) for i in range(count)], kind, data)


def row_by_row_function(
    name: str, args: tuple[DataType, ...], limits: Sequence[Limits], result: DataType
) -> Callable[[Sequence[Operand]], Operand]:
    """The function on operands with these limits, evaluated row by row."""
    names = [str(n) for n in range(len(args))]
    types = dict(zip(names, args, strict=True))
    expr = mmpl.Call(name, tuple(map(mmpl.ColumnRef, names)))
    column_limits = dict(zip(names, limits, strict=True))
    kind: ColumnKind = "mask" if result == BOOL else "range"

    def run(operands: Sequence[Operand]) -> Operand:
        columns = dict(zip(names, operands, strict=True))
        column = evaluate_row_by_row(expr, columns, types, column_limits, kind, result, len(operands[0]))
        assert isinstance(column, RangeColumn | MaskColumn)
        return column

    return run
