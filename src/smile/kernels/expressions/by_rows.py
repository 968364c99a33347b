"""Expressions row by row, through `smile.knowledge.transfer.know`: slow, and right because nothing is computed twice.

It serves what is rare: nested relations, functions of many operands, knowledge of texts joined together.
"""

from collections.abc import Callable, Mapping, Sequence

from smile.algebra import mmpl
from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k
from smile.columns.knowledge import Column, Kind, Masks, Ranges
from smile.errors import SmileError
from smile.kernels.expressions.operands import Operand
from smile.knowledge.cells import as_operand
from smile.knowledge.known import Known
from smile.knowledge.transfer import know, unknown


def by_rows(
    expr: mmpl.Expr,
    columns: Mapping[str, Column],
    types: Mapping[str, DataType],
    bottoms: Mapping[str, Known],
    kind: Kind,
    data: DataType,
    count: int,
) -> Column:
    """The expression of columns of any kind."""

    def point(index: int) -> Known:
        try:
            cells = {c: k.known(column, index, types[c]) for c, column in columns.items()}
            if None not in cells.values():
                row = {c: as_operand(cell, bottoms[c], types[c]) for c, cell in cells.items()}
                return know(expr, row, types)
        except (SmileError, LookupError, ArithmeticError, ValueError):
            pass
        # Only in rows nobody has heard of, where what stands in a column need not be a point of its domain.
        return unknown(data, nullable=True, now=None)

    return k.of_points([point(i) for i in range(count)], kind, data)


def call_by_rows(name: str, args: tuple[DataType, ...], result: DataType) -> Callable[[Sequence[Operand]], Operand]:
    """A function of operands."""
    names = [str(n) for n in range(len(args))]
    types = dict(zip(names, args, strict=True))
    expr = mmpl.Call(name, tuple(map(mmpl.Column, names)))
    bottoms: dict[str, Known] = {n: unknown(t, nullable=True, now=None) for n, t in types.items()}
    kind: Kind = "mask" if result == BOOL else "range"

    def run(operands: Sequence[Operand]) -> Operand:
        columns = dict(zip(names, operands, strict=True))
        found = by_rows(expr, columns, types, bottoms, kind, result, len(operands[0]))
        assert isinstance(found, Ranges | Masks)
        return found

    return run
