"""Scalar expressions over columns of values, computed with the transforms of the pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import BOOL, DataType
from smile.analysis.type_analysis import TypeAnalysis
from smile.broker.views.condition import row_values
from smile.columns import masks
from smile.columns.values import Array, Bools, ValueColumn, from_arrow_text, ints
from smile.graph.build import build_graph
from smile.kernels.compile import compile_graph
from smile.kernels.delta import Delta, RowKnowledge
from smile.kernels.transform import RowWiseTransform

Columns = Mapping[str, ValueColumn]
RowValue = Any
"""A value as `row_values` gives it: a decimal is its integer without the point, NULL is None."""

_TICK = "\0tick"


class RowExpressions:
    """`types` has the columns that the expressions can use."""

    def __init__(self, expressions: Sequence[mmpl.Expr], types: Mapping[str, DataType]) -> None:
        self._names = [f"\0result {n}" for n in range(len(expressions))]
        self._transforms: list[RowWiseTransform] = []
        if not expressions:
            return
        stream = mmpl.StreamDef("rows", _TICK, tuple(types.items()))
        body = mmpl.Extend(mmpl.RelationRef("rows"), tuple(zip(self._names, expressions, strict=True)))
        program = mmpl.Program((stream,), (mmpl.ViewDef("results", body),), ("results",))
        kernels = compile_graph(build_graph(program, TypeAnalysis(program)), (stream,))
        self._transforms = [t for t in kernels.transforms.values() if isinstance(t, RowWiseTransform)]

    def compute(self, columns: Columns, count: int) -> list[ValueColumn]:
        """The columns with the values of the expressions."""
        knowledge = RowKnowledge({}, masks.full(masks.T, count), np.ones(count, np.int64))
        fixed = {**columns, _TICK: ValueColumn(np.arange(count))}
        delta = Delta(fixed, None, knowledge)
        for transform in self._transforms:
            delta = transform.apply(delta)
        return [delta.fixed[name] for name in self._names]

    def compute_rows(self, columns: Columns, count: int) -> list[tuple[RowValue, ...]]:
        """The values of the expressions, for each row."""
        return row_values(self.compute(columns, count)) if self._names else [()] * count


class RowPredicate:
    """A predicate. NULL is not true."""

    def __init__(self, predicate: mmpl.Expr, types: Mapping[str, DataType]) -> None:
        self._expressions = RowExpressions([predicate], types)

    def holds(self, columns: Columns, count: int) -> Bools:
        (truths,) = self._expressions.compute(columns, count)
        return truths.data if truths.valid is None else truths.data & truths.valid


def value_column(values: Sequence[RowValue], data: DataType) -> ValueColumn:
    """The inverse of `row_values`, for one column."""
    if data.is_text or data.name == "bytes":
        return from_arrow_text(pa.array(values, pa.string() if data.is_text else pa.binary()))
    valid = np.fromiter((v is not None for v in values), bool, len(values))
    filled = [0 if v is None else v for v in values]
    array: Array = np.array(filled, float) if data.name == "float" else ints(filled)
    if data == BOOL:
        array = np.array(filled, bool)
    return ValueColumn(array, None if valid.all() else valid)
