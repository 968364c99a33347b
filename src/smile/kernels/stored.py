"""Rows of relations in tables: each column of knowledge is a few columns of plain values.

A row is stored with its mask and steps; what is read back is what was stored.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import DataType
from smile.columns.knowledge import Column, Latests, Masks, Objects, Ranges
from smile.columns.values import Array, Values
from smile.kernels import points
from smile.kernels.changes import Version
from smile.kernels.layout import Evolving, Layout
from smile.knowledge.cells import null

MASK, STEPS = "mask", "steps"
"""Columns of a stored row beside its own; those of the relation have a dot before their names."""


def columns_of(layout: Layout) -> dict[str, pa.DataType]:
    """What a table has that stores the relation's rows."""
    fixed = {stored(name): arrow_type(data) for name, data in layout.fixed.items()}
    parts = {part: kind for name, e in layout.evolving.items() for part, kind in _parts_of(name, e).items()}
    return {**fixed, **parts, MASK: pa.uint8(), STEPS: pa.int64()}


def stored(name: str) -> str:
    return f".{name}"


def _parts_of(name: str, evolving: Evolving) -> dict[str, pa.DataType]:
    plain = arrow_type(evolving.data) if evolving.kind != "object" else pa.binary()
    match evolving.kind:
        case "range":
            return {f".{name}": plain, f".{name}.lo": plain, f".{name}.hi": plain, f".{name}.nulls": pa.uint8()}
        case "mask":
            return {f".{name}": pa.uint8(), f".{name}.possible": pa.uint8()}
        case "latest":
            times = {f".{name}.tick": pa.int64(), f".{name}.source": pa.int64(), f".{name}.sealed": pa.bool_()}
            return {f".{name}": plain, f".{name}.value": plain, **times}
        case _:
            return {f".{name}": plain}


def flat(layout: Layout, fixed: Mapping[str, Values], version: Version) -> dict[str, Values]:
    """Rows as a table stores them."""
    rows = {stored(name): fixed[name] for name in layout.fixed}
    for name in layout.evolving:
        rows.update(_flat(name, version.columns[name]))
    return {**rows, MASK: Values(version.mask), STEPS: Values(version.steps)}


def _flat(name: str, column: Column) -> dict[str, Values]:
    match column:
        case Ranges(now=now, lo=lo, hi=hi):
            nulls = None if column.nulls is None else Values(column.nulls)
            parts = {f".{name}": now, f".{name}.lo": lo, f".{name}.hi": hi, f".{name}.nulls": nulls}
            return {part: values for part, values in parts.items() if values is not None}
        case Masks(now=now, possible=possible):
            return {f".{name}": Values(now), f".{name}.possible": Values(possible)}
        case Latests(value=value, tick=tick, now=now):
            source, sealed = Values(column.source), Values(column.sealed)
            rest = {f".{name}.tick": tick, f".{name}.source": source, f".{name}.sealed": sealed}
            return {f".{name}": now, f".{name}.value": value, **rest}
        case Objects(points=found):
            return {f".{name}": Values(pa.array([b"" if p is None else points.written(p) for p in found], pa.binary()))}
    raise AssertionError(column)


class StoredColumns(Mapping[str, Column]):
    """The evolving columns of stored rows, each put together when it is asked for."""

    def __init__(self, layout: Layout, rows: Mapping[str, Values]) -> None:
        self.layout, self.rows = layout, rows

    def __len__(self) -> int:
        return len(self.layout.evolving)

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.evolving)

    def __getitem__(self, name: str) -> Column:
        rows, evolving = self.rows, self.layout.evolving[name]
        now = rows[f".{name}"]
        match evolving.kind:
            case "range":
                lo, hi, nulls = (rows.get(f".{name}.{part}") for part in ("lo", "hi", "nulls"))
                return Ranges(now, lo, hi, None if nulls is None else nulls.data)
            case "mask":
                return Masks(rows[f".{name}.possible"].data, now.data)
            case "latest":
                value, tick, source, sealed = (
                    rows[f".{name}.{part}"] for part in ("value", "tick", "source", "sealed")
                )
                return Latests(value, tick, source.data, sealed.data, now)
        return Objects(_points(now, evolving.data), evolving.data)


def _points(column: Values, data: DataType) -> Array:
    """Where a row is from no table nothing is stored: whoever looks nevertheless finds NULL."""
    found, absent = np.empty(len(column), object), null(data)
    found[:] = [points.read(p) if p else absent for p in column.data.to_pylist()]
    return found


class StoredFixed(Mapping[str, Values]):
    """The fixed columns of stored rows."""

    def __init__(self, layout: Layout, rows: Mapping[str, Values]) -> None:
        self.layout, self.rows = layout, rows

    def __len__(self) -> int:
        return len(self.layout.fixed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.fixed)

    def __getitem__(self, name: str) -> Values:
        if name not in self.layout.fixed:
            raise KeyError(name)
        return self.rows[f".{name}"]


def version_of(layout: Layout, rows: Mapping[str, Values]) -> Version:
    """Of rows read from a table; where there was none the mask is ABSENT."""
    mask = rows[MASK]
    codes = mask.data if mask.valid is None else np.where(mask.valid, mask.data, 0).astype(np.uint8)
    return Version(StoredColumns(layout, rows), codes, rows[STEPS].data)


def fixed_of(layout: Layout, rows: Mapping[str, Values]) -> Mapping[str, Values]:
    return StoredFixed(layout, rows)
