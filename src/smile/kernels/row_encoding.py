"""Encodes the rows of relations for state tables: each knowledge column becomes a few columns of plain values.

A row is stored with its mask and steps. Decoding returns exactly what was encoded.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import DataType
from smile.columns import values as v
from smile.columns.knowledge import COLUMN_CLASSES, KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels import point_codec
from smile.kernels.delta import Delta, RowKnowledge
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.knowledge.values.cells import null_cell
from smile.state.row_lookup import RowLookup

MASK, STEPS = "mask", "steps"
"""Additional columns of a stored row. The names of the relation's own columns are stored with a leading dot."""


EXACT: Final = 3
"""The code of an exact value in stored columns of latest values, beside those of `NULLABILITY_BY_CODE`."""


def table_columns(layout: Layout) -> dict[str, pa.DataType]:
    """The columns of a table that stores rows of this layout."""
    fixed = {stored_column(name): arrow_type(data) for name, data in layout.fixed.items()}
    parts = {part: kind for name, e in layout.evolving.items() for part, kind in _part_types(name, e).items()}
    return {**fixed, **parts, MASK: pa.uint8(), STEPS: pa.int64()}


def stored_column(name: str) -> str:
    return f".{name}"


def _part_types(name: str, evolving: EvolvingColumnLayout) -> dict[str, pa.DataType]:
    value_type = arrow_type(evolving.data) if evolving.kind != "object" else pa.binary()
    ranges = {
        f".{name}": value_type,
        f".{name}.lo": value_type,
        f".{name}.hi": value_type,
        f".{name}.nulls": pa.uint8(),
    }
    match evolving.kind:
        case "range":
            return ranges
        case "mask":
            return {f".{name}": pa.uint8(), f".{name}.possible": pa.uint8()}
        case "latest":
            times = {f".{name}.tick": pa.int64(), f".{name}.source": pa.int64()}
            return {**ranges, f".{name}.value": value_type, **times}
        case _:
            return {f".{name}": value_type}


def encode_rows(layout: Layout, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge) -> dict[str, ValueColumn]:
    """The rows in the columns of `table_columns`. Parts that are None are omitted."""
    rows = {stored_column(name): fixed[name] for name in layout.fixed}
    for name, evolving in layout.evolving.items():
        column = knowledge.columns[name]
        assert isinstance(column, COLUMN_CLASSES[evolving.kind]), (name, type(column).__name__, evolving.kind)
        rows.update(_encode_column(name, column))
    return {**rows, MASK: ValueColumn(knowledge.mask), STEPS: ValueColumn(knowledge.steps)}


def _encode_column(name: str, column: KnowledgeColumn) -> dict[str, ValueColumn]:
    match column:
        case RangeColumn(now=now, lo=lo, hi=hi):
            nulls = None if column.nulls is None else ValueColumn(column.nulls)
            parts = {f".{name}": now, f".{name}.lo": lo, f".{name}.hi": hi, f".{name}.nulls": nulls}
            return {part: values for part, values in parts.items() if values is not None}
        case MaskColumn(now=now, possible=possible):
            return {f".{name}": ValueColumn(now), f".{name}.possible": ValueColumn(possible)}
        case LatestColumn(value=value, tick=tick):
            times = {f".{name}.tick": tick, f".{name}.source": ValueColumn(column.source)}
            return {**_encode_column(name, _without_exact_ends(column.bounds)), f".{name}.value": value, **times}
        case ObjectColumn(points=points):
            encoded = [b"" if p is None else point_codec.encode_point(p) for p in points]
            return {f".{name}": ValueColumn(pa.array(encoded, pa.binary()))}
    raise AssertionError(column)


def _without_exact_ends(ranges: RangeColumn) -> RangeColumn:
    """The ranges of latest values, of which most have no ends until they are exact. Those that are exact get a code of
    their own instead of ends, so that most of the time no ends are stored."""
    is_exact = ranges.is_final() & (ranges.null_codes() == 0)
    if not is_exact.any():
        return ranges
    nulls = np.where(is_exact, EXACT, ranges.null_codes()).astype(np.uint8)
    return RangeColumn(ranges.now, _ends_except(ranges.lo, is_exact), _ends_except(ranges.hi, is_exact), nulls)


def _ends_except(ends: ValueColumn | None, omitted: Bools) -> ValueColumn | None:
    if ends is None or not (is_valid := ends.is_valid() & ~omitted).any():
        return None
    return ValueColumn(ends.data, is_valid)


def _with_exact_ends(ranges: RangeColumn) -> RangeColumn:
    is_exact = ranges.null_codes() == EXACT
    if not is_exact.any():
        return ranges
    now, nulls = ranges.now, np.where(is_exact, 0, ranges.null_codes()).astype(np.uint8)
    if is_exact.all():
        return RangeColumn(now, now, now, nulls)
    absent = v.nulls_like(now, len(now))
    lo, hi = (v.where(is_exact, now, absent if end is None else end) for end in (ranges.lo, ranges.hi))
    return RangeColumn(now, lo, hi, nulls)


class StoredEvolvingColumns(Mapping[str, KnowledgeColumn]):
    """The evolving columns of stored rows, each decoded on access."""

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
                lo, hi, nulls = (_optional_column(rows, f".{name}.{part}") for part in ("lo", "hi", "nulls"))
                return RangeColumn(now, lo, hi, None if nulls is None else nulls.data)
            case "mask":
                return MaskColumn(rows[f".{name}.possible"].data, now.data)
            case "latest":
                lo, hi, nulls = (_optional_column(rows, f".{name}.{part}") for part in ("lo", "hi", "nulls"))
                bounds = _with_exact_ends(RangeColumn(now, lo, hi, None if nulls is None else nulls.data))
                value, tick, source = (rows[f".{name}.{part}"] for part in ("value", "tick", "source"))
                return LatestColumn(bounds, value, tick, source.data)
        return ObjectColumn(_decode_points(now, evolving.data))


def _optional_column(rows: Mapping[str, ValueColumn], name: str) -> ValueColumn | None:
    """A column that encoding may have omitted. A lookup would return NULLs for it."""
    return rows.stored_column_or_none(name) if isinstance(rows, RowLookup) else rows.get(name)


def _decode_points(column: ValueColumn, data: DataType) -> Array:
    """The encoded points. A row that is not stored has no point: it becomes NULL."""
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
    """The knowledge of encoded rows. If a row is not stored, its mask is ABSENT."""
    mask = rows[MASK]
    codes = mask.data if mask.valid is None else np.where(mask.valid, mask.data, 0).astype(np.uint8)
    return RowKnowledge(StoredEvolvingColumns(layout, rows), codes, rows[STEPS].data)


def decode_fixed(layout: Layout, rows: Mapping[str, ValueColumn]) -> Mapping[str, ValueColumn]:
    return StoredFixedColumns(layout, rows)


def decode_rows(layout: Layout, rows: Mapping[str, ValueColumn]) -> Delta:
    """Encoded rows as a delta in which all rows are new."""
    return Delta(decode_fixed(layout, rows), None, decode_knowledge(layout, rows))
