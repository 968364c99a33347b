"""Functions that only Python has, value by value: slow, and right because nothing is written here twice.

What is the same for several rows is computed once, but for floats, of which two are equal and not the same.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from smile.algebra.coercions import EXACT
from smile.algebra.types import FLOAT, DataType, Value
from smile.columns import values as v
from smile.columns.values import Bools
from smile.kernels.exprs.numbers import Data, Kernel, Result

Compute = Callable[[tuple[Any, ...]], Value]


def by_value(compute: Compute, args: Sequence[DataType], result: DataType) -> Kernel:
    """A kernel of a function that gives NULL for any NULL."""
    remembers = FLOAT not in args

    def run(operands: Sequence[Data], valid: Bools | None) -> Result:
        lists = [python_of(data, arg) for data, arg in zip(operands, args, strict=True)]
        known: dict[tuple[Any, ...], Value] = {}
        found: list[Value] = [None] * len(operands[0])
        for i in range(len(found)) if valid is None else np.flatnonzero(valid).tolist():
            values = tuple([part[i] for part in lists])
            if not remembers:
                found[i] = _computed(compute, values)
                continue
            if values not in known:
                known[values] = _computed(compute, values)
            found[i] = known[values]
        column = v.of_python(found, result)
        return column.data, None if column.valid is None else ~column.valid

    return run


def _computed(compute: Compute, values: tuple[Any, ...]) -> Value:
    try:
        return compute(values)
    except (ArithmeticError, ValueError):
        # No function raises on a value of its type. In rows nobody has heard of stands what is none.
        return None


def python_of(data: Data, type_: DataType) -> list[Any]:
    """The values of a column as Python has them."""
    if isinstance(data, pa.Array):
        return data.to_pylist()  # type: ignore[no-any-return]
    found: list[Any] = data.tolist()
    if type_.name != "decimal":
        return found
    scale = -(type_.scale or 0)
    return [EXACT.scaleb(Decimal(n), scale) for n in found]
