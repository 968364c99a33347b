"""The descriptive views of the producers at this broker, which published events must satisfy.

Most views compare key columns with constants. These are looked up; only the others are evaluated for each event.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl, trees
from smile.algebra.types import BOOL, Value
from smile.columns.values import Bools, Indices
from smile.decoding.checks import StreamChecks
from smile.decoding.stream_schema import StreamSchema

Columns = tuple[str, ...]

_TRUE: Final = mmpl.Constant(True, BOOL)


class ProducerViews:
    """`conditions` are those of the producers. An event satisfies them if one of them is true of it. `held_back` says
    why other producers may not publish now; "" if there are none."""

    def __init__(self, schema: StreamSchema, conditions: Sequence[mmpl.Expr], held_back: str = "") -> None:
        self._schema, self._held_back = schema, held_back
        self._constants: dict[Columns, set[tuple[Value, ...]]] = {}
        self._checks: list[StreamChecks] = []
        for condition in conditions:
            equal = _equated(condition)
            if equal is None:
                is_true = mmpl.Call("is not distinct from", (condition, _TRUE))
                alone = replace(schema.stream, checks=(is_true,))
                self._checks.append(StreamChecks(alone, schema.types))
            else:
                columns = tuple(sorted(equal))
                self._constants.setdefault(columns, set()).add(tuple(equal[c] for c in columns))

    def violations(self, events: pa.RecordBatch) -> Indices:
        """The events that no producer may publish."""
        is_described: Bools = np.zeros(events.num_rows, bool)
        for columns, values in self._constants.items():
            if not columns:
                is_described[:] = True
                continue
            rows = zip(*(events.column(name).to_pylist() for name in columns), strict=True)
            is_described |= np.fromiter((row in values for row in rows), bool, events.num_rows)
        for checks in self._checks:
            if is_described.all():
                break
            is_violated: Bools = np.zeros(events.num_rows, bool)
            is_violated[checks.violations(events)] = True
            is_described |= ~is_violated
        return (~is_described).nonzero()[0]

    def describe(self, events: pa.RecordBatch, row: int) -> str:
        keys = [(name, events.column(name)[row].as_py()) for name in self._schema.stream.channel or ()]
        channel = ", ".join(f"{name} is {'NULL' if value is None else value!r}" for name, value in keys)
        reason = f"; {self._held_back}" if self._held_back else ""
        return f"no producer at this broker is advertised for it in {self._schema.name}: {channel}{reason}"


def _equated(condition: mmpl.Expr) -> dict[str, Value] | None:
    """The constants that columns must equal; None if the condition says anything else."""
    equal: dict[str, Value] = {}
    for part in trees.conjuncts(condition):
        match part:
            case mmpl.Constant(True):
                continue
            case mmpl.Call("=", (mmpl.ColumnRef(name), mmpl.Constant(value))) if name not in equal:
                equal[name] = value
            case _:
                return None
    return equal
