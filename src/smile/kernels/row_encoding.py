"""Rows of relations in tables: each column of knowledge is a few columns of plain values.

A row is stored with its mask and steps; what is read back is what was stored.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import DataType
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.values import Array, ValueColumn
from smile.kernels import point_codec
from smile.kernels.delta import RowKnowledge
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.knowledge.cells import null_cell

MASK, STEPS = "mask", "steps"
"""Columns of a stored row beside its own; those of the relation have a dot before their names."""


def table_columns(layout: Layout) -> dict[str, pa.DataType]:
    """What a table has that stores the relation's rows."""
    fixed = {stored_column(name): arrow_type(data) for name, data in layout.fixed.items()}
    parts = {part: kind for name, e in layout.evolving.items() for part, kind in _part_types(name, e).items()}
    return {**fixed, **parts, MASK: pa.uint8(), STEPS: pa.int64()}


def stored_column(name: str) -> str:
    return f".{name}"


def _part_types(name: str, evolving: EvolvingColumnLayout) -> dict[str, pa.DataType]:
    value_type = arrow_type(evolving.data) if evolving.kind != "object" else pa.binary()
    match evolving.kind:
        case "range":
            return {
                f".{name}": value_type,
                f".{name}.lo": value_type,
                f".{name}.hi": value_type,
                f".{name}.nulls": pa.uint8(),
            }
        case "mask":
            return {f".{name}": pa.uint8(), f".{name}.possible": pa.uint8()}
        case "latest":
            times = {f".{name}.tick": pa.int64(), f".{name}.source": pa.int64(), f".{name}.sealed": pa.bool_()}
            return {f".{name}": value_type, f".{name}.value": value_type, **times}
        case _:
            return {f".{name}": value_type}


def encode_rows(layout: Layout, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge) -> dict[str, ValueColumn]:
    """Rows as a table stores them."""
    rows = {stored_column(name): fixed[name] for name in layout.fixed}
    for name in layout.evolving:
        rows.update(_encode_column(name, knowledge.columns[name]))
    return {**rows, MASK: ValueColumn(knowledge.mask), STEPS: ValueColumn(knowledge.steps)}


def _encode_column(name: str, column: KnowledgeColumn) -> dict[str, ValueColumn]:
    match column:
        case RangeColumn(now=now, lo=lo, hi=hi):
            nulls = None if column.nulls is None else ValueColumn(column.nulls)
            parts = {f".{name}": now, f".{name}.lo": lo, f".{name}.hi": hi, f".{name}.nulls": nulls}
            return {part: values for part, values in parts.items() if values is not None}
        case MaskColumn(now=now, possible=possible):
            return {f".{name}": ValueColumn(now), f".{name}.possible": ValueColumn(possible)}
        case LatestColumn(value=value, tick=tick, now=now):
            source, sealed = ValueColumn(column.source), ValueColumn(column.sealed)
            rest = {f".{name}.tick": tick, f".{name}.source": source, f".{name}.sealed": sealed}
            return {f".{name}": now, f".{name}.value": value, **rest}
        case ObjectColumn(points=known_points):
            return {
                f".{name}": ValueColumn(
                    pa.array([b"" if p is None else point_codec.encode_point(p) for p in known_points], pa.binary())
                )
            }
    raise AssertionError(column)


class StoredEvolvingColumns(Mapping[str, KnowledgeColumn]):
    """The evolving columns of stored rows, each put together when it is asked for."""

    def __init__(self, layout: Layout, rows: Mapping[str, ValueColumn]) -> None:
        self.layout, self.rows = layout, rows

    def __len__(self) -> int:
        return len(self.layout.evolving)

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.evolving)

    def __getitem__(self, name: str) -> KnowledgeColumn:
        rows, evolving = self.rows, self.layout.evolving[name]
        now = rows[f".{name}"]
        match evolving.kind:
            case "range":
                lo, hi, nulls = (rows.get(f".{name}.{part}") for part in ("lo", "hi", "nulls"))
                return RangeColumn(now, lo, hi, None if nulls is None else nulls.data)
            case "mask":
                return MaskColumn(rows[f".{name}.possible"].data, now.data)
            case "latest":
                value, tick, source, sealed = (
                    rows[f".{name}.{part}"] for part in ("value", "tick", "source", "sealed")
                )
                return LatestColumn(value, tick, source.data, sealed.data, now)
        return ObjectColumn(_decode_points(now, evolving.data), evolving.data)


def _decode_points(column: ValueColumn, data: DataType) -> Array:
    """Where a row is from no table nothing is stored: whoever looks nevertheless finds NULL."""
    decoded, null_point = np.empty(len(column), object), null_cell(data)
    decoded[:] = [point_codec.decode_point(p) if p else null_point for p in column.data.to_pylist()]
    return decoded


class StoredFixedColumns(Mapping[str, ValueColumn]):
    """The fixed columns of stored rows."""

    def __init__(self, layout: Layout, rows: Mapping[str, ValueColumn]) -> None:
        self.layout, self.rows = layout, rows

    def __len__(self) -> int:
        return len(self.layout.fixed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.fixed)

    def __getitem__(self, name: str) -> ValueColumn:
        if name not in self.layout.fixed:
            raise KeyError(name)
        return self.rows[f".{name}"]


def decode_knowledge(layout: Layout, rows: Mapping[str, ValueColumn]) -> RowKnowledge:
    """Of rows read from a table; where there was none the mask is ABSENT."""
    mask = rows[MASK]
    codes = mask.data if mask.valid is None else np.where(mask.valid, mask.data, 0).astype(np.uint8)
    return RowKnowledge(StoredEvolvingColumns(layout, rows), codes, rows[STEPS].data)


def decode_fixed(layout: Layout, rows: Mapping[str, ValueColumn]) -> Mapping[str, ValueColumn]:
    return StoredFixedColumns(layout, rows)
