"""Random expressions with every scalar function, over random columns of every kind, which include extreme values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

from smile.algebra import mmpl
from smile.algebra.arrays import encode_array
from smile.algebra.coercions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, can_cast, type_ends
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS, Signature, resolve_signature
from smile.algebra.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT,
    INT,
    INT_MAX,
    INT_MIN,
    INTERVAL,
    JSON,
    STRING,
    TIME,
    TIMESTAMP,
    DataType,
    Value,
    decimal_type,
)
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import ColumnKind, KnowledgeColumn, RangeColumn
from smile.columns.values import ValueColumn
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.range import MAYBE, NEVER, Range
from smile.knowledge.values.transfer import ColumnLimits
from tests.knowledge.chains import DOCUMENTS

TYPES = (
    INT, INT, FLOAT, BOOL, STRING, JSON, TIME, INTERVAL, TIMESTAMP, DATE, BYTES,
    *(decimal_type(*shape) for shape in ((38, 0), (19, 0), (10, 2), (1, 1), (38, 10), (38, 38))),
)  # fmt: skip
_FLOATS = (
    0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 0.1, 1e15, -1e300, 1.7e308, 5e-324, 2.0**53, 2.0**63, -(2.0**63),
    0.49999999999999994,
)  # fmt: skip
_TEXTS = (
    "", "a", "b", "ab", "%", "a%", "é", "\U0001f600", "\uffff", "1", "-7", "1.5", "true", "f", "day", "month",
    "2020-02-29", "  3 ",
)  # fmt: skip


def value(random: Random, data: DataType) -> Any:
    small = random.random() < 0.6
    match data.name:
        case "bool":
            return random.random() < 0.5
        case "int" | "time" | "interval":
            if small:
                return random.randint(-3, 3)
            extremes = (INT_MIN, INT_MIN + 1, INT_MAX, INT_MAX - 1, 2**32, -(2**31), 1024)
            return random.choice((*extremes, random.randint(INT_MIN, INT_MAX)))
        case "float":
            return random.choice(_FLOATS) if small else random.uniform(-1e3, 1e3)
        case "decimal":
            assert data.digits is not None
            most = 10**data.digits - 1
            if small:
                digits = random.randint(-3, 3)
            else:
                digits = random.choice((most, -most, random.randint(-most, most), 10 ** (data.digits // 2)))
            return Decimal(f"{digits}E-{data.scale}")
        case "string":
            return random.choice(_TEXTS)
        case "json":
            return random.choice(DOCUMENTS)
        case "bytes":
            return random.choice((b"", b"a", b"\xff", b"ab"))
        case "array":
            return encode_array([nullable(random, data.element) for _ in range(random.choice((0, 1, 2)))], data.element)
        case "timestamp":
            return random.choice((TIMESTAMP_MIN, TIMESTAMP_MAX, 0, 1, -1, random.randint(TIMESTAMP_MIN, TIMESTAMP_MAX)))
        case "date":
            return random.choice((DATE_MIN, DATE_MAX, 0, 1, -1, random.randint(DATE_MIN, DATE_MAX)))
    raise AssertionError(data)


def nullable(random: Random, data: DataType, null_probability: float = 0.15) -> Value:
    return None if random.random() < null_probability else value(random, data)


def point(random: Random, data: DataType, bounds: tuple[float, float], nulls: float) -> Range:
    """A random range. `bounds`: the probabilities of a lower and of an upper bound."""
    if random.random() < 0.3:
        return Range.exactly(nullable(random, data, nulls / 2))
    values = sorted(value(random, data) for _ in range(random.choice((1, 2, 3))))
    lo = values[0] if random.random() < bounds[0] else None
    hi = values[-1] if random.random() < bounds[1] else None
    can_be_null = random.random() < nulls
    now = None if random.random() < (0.3 if can_be_null else 0.05) else random.choice(values)
    return Range(lo, hi, MAYBE if can_be_null else NEVER, now)


def mask(random: Random) -> Mask:
    possible = [t for t in (True, False, None) if random.random() < 0.6] or [random.choice((True, False, None))]
    return Mask.from_truths(possible, random.choice(possible))


def latest(random: Random, data: DataType, sealed: float) -> LatestValue:
    if random.random() < sealed:
        return LatestValue.exactly(nullable(random, data))
    occurred_at = None if random.random() < 0.2 else (random.randint(0, 9), 0)
    return LatestValue(nullable(random, data), occurred_at, point(random, data, (0.5, 0.5), 0.5))


@dataclass
class Table:
    """Columns of `count` rows, with their layout and limits."""

    layout: Layout
    fixed: Mapping[str, ValueColumn]
    columns: Mapping[str, KnowledgeColumn]
    count: int
    limits: ColumnLimits = field(default_factory=dict)


def _limits(data: DataType, *values: ValueColumn | None) -> Range | None:
    """The narrowest limits that contain all these values; None for types without limits, or without values."""
    found = [c.value_at(i, data) for c in values if c is not None for i in range(len(c))]
    present: list[Any] = [x for x in found if x is not None]
    return Range(min(present), max(present)) if present and type_ends(data) is not None else None


def _ranges(random: Random, data: DataType, count: int) -> RangeColumn:
    """A random column, in the fast representations too: a bound that no row has is None, and a bound can be the same
    object as `now`."""
    bounds = random.choice(((0.8, 0.8), (1, 1), (1, 0), (0, 1), (1, 0.5), (0, 0)))
    nulls = random.choice((0.0, 0.3))
    points = [point(random, data, bounds, nulls) for _ in range(count)]
    if random.random() < 0.15:
        points = [Range(p.lo, p.lo, p.nulls, None if p.nulls is MAYBE else p.lo) for p in points]
    column = k.from_points(points, "range", data)
    assert isinstance(column, RangeColumn)
    lo, hi, codes = column.lo, column.hi, column.nulls
    assert lo is not None and hi is not None and codes is not None
    lo = None if lo.is_null().all() else column.now if lo.same(column.now).all() else lo
    hi = None if hi.is_null().all() else column.now if hi.same(column.now).all() else hi
    if lo is not None and hi is not None and lo.same(hi).all():
        hi = lo
    return RangeColumn(column.now, lo, hi, codes if codes.any() else None)


def table(random: Random, types: list[DataType], count: int) -> Table:
    """For each type, a column of every kind that it can have."""
    fixed: dict[str, ValueColumn] = {}
    fixed_types: dict[str, DataType] = {}
    columns: dict[str, KnowledgeColumn] = {}
    evolving: dict[str, EvolvingColumnLayout] = {}
    limits: dict[str, Range | None] = {}
    for n, data in enumerate(types):
        nulls = random.choice((0.0, 0.2))
        fixed_types[f"x{n}"] = data
        fixed[f"x{n}"] = v.from_python([nullable(random, data, nulls) for _ in range(count)], data)
        limits[f"x{n}"] = _limits(data, fixed[f"x{n}"])
        kinds: tuple[ColumnKind, ...] = ("mask", "latest") if data == BOOL else ("range", "range", "latest")
        for kind in kinds:
            name = f"{kind[0]}{len(columns)}"
            evolving[name] = EvolvingColumnLayout(kind, data)
            column = columns[name] = _column(random, kind, data, count)
            if isinstance(column, RangeColumn):
                limits[name] = _limits(data, column.now, column.lo, column.hi)
    chosen = {n: r for n, r in limits.items() if r is not None and random.random() < 0.5}
    return Table(Layout((), fixed_types, evolving), fixed, columns, count, chosen)


def _column(random: Random, kind: ColumnKind, data: DataType, count: int) -> KnowledgeColumn:
    if kind == "range":
        return _ranges(random, data, count)
    if kind == "mask":
        return k.from_points([mask(random) for _ in range(count)], kind, data)
    # A column of latest values can hold ranges and masks too.
    sealed, mixed = random.choice((0.0, 0.5, 1.0)), random.choice((0.0, 0.0, 0.5))
    return k.from_points(
        [
            latest(random, data, sealed) if random.random() >= mixed
            else mask(random) if data == BOOL
            else point(random, data, (0.7, 0.7), 0.3)
            for _ in range(count)
        ],
        kind, data,
    )  # fmt: skip


class Expressions:
    """Draws well-typed expressions. Casts are explicit, as after translation."""

    def __init__(self, random: Random, types: Mapping[str, DataType]) -> None:
        self.random, self.types = random, types

    def draw(self, depth: int) -> tuple[mmpl.Expr, DataType]:
        choice = self.random.random()
        if depth == 0 or choice < 0.05:
            return self._leaf()
        if choice < 0.2:
            return self._cast(depth)
        if choice < 0.3:
            return self._case(depth)
        while True:
            call = self.call(self.random.choice(list(SCALAR_FUNCTIONS)), depth)
            if call is not None:
                return call

    def _leaf(self) -> tuple[mmpl.Expr, DataType]:
        if self.random.random() < 0.2:
            data = self.random.choice(TYPES)
            return mmpl.Constant(nullable(self.random, data), data), data
        name = self.random.choice(list(self.types))
        return mmpl.ColumnRef(name), self.types[name]

    def _of_type(self, data: DataType, depth: int) -> mmpl.Expr:
        fitting = [n for n, t in self.types.items() if t == data]
        for _ in range(5):
            if fitting and self.random.random() < 0.3:
                return mmpl.ColumnRef(self.random.choice(fitting))
            expr, drawn_type = self.draw(depth)
            if can_cast(drawn_type, data) and (drawn_type == data or self.random.random() < 0.3):
                return expr if drawn_type == data else mmpl.Cast(expr, data)
        if fitting:
            return mmpl.ColumnRef(self.random.choice(fitting))
        return mmpl.Constant(nullable(self.random, data), data)

    def call(self, name: str, depth: int) -> tuple[mmpl.Expr, DataType] | None:
        """A call of the function with arguments of drawn types; None if none of them fit."""
        least, greatest = SCALAR_FUNCTIONS[name].arity
        count = self.random.randint(least, min(least + 1, greatest or least + 1))
        if greatest is None and self.random.random() < 0.03:
            count = 8
        for _ in range(20):
            first: mmpl.Expr | None
            first, data = self.draw(depth - 1)
            types = [data] + [
                data if self.random.random() < 0.6 else self.random.choice(TYPES) for _ in range(count - 1)
            ]
            self.random.shuffle(types)
            signature = resolve_signature(name, tuple(types))
            if signature is None:
                continue
            args = []
            for wanted in signature.args:
                if first is not None and can_cast(data, wanted) and self.random.random() < 0.7:
                    args.append(first if data == wanted else mmpl.Cast(first, wanted))
                    first = None
                else:
                    args.append(self._of_type(wanted, depth - 1))
            return mmpl.Call(name, tuple(args)), signature.result
        return None

    def call_with(self, name: str, signature: Signature) -> mmpl.Expr:
        """A call of the function with columns, casts of columns and constants of these types."""
        return mmpl.Call(name, tuple(self._of_type(wanted, 0) for wanted in signature.args))

    def _cast(self, depth: int) -> tuple[mmpl.Expr, DataType]:
        expr, data = self.draw(depth - 1)
        target = self.random.choice([t for t in TYPES if can_cast(data, t)])
        return mmpl.Cast(expr, target), target

    def _case(self, depth: int) -> tuple[mmpl.Expr, DataType]:
        otherwise, data = self.draw(depth - 1)
        branches = tuple(
            (self._of_type(BOOL, depth - 1), self._of_type(data, depth - 1)) for _ in range(self.random.randint(1, 2))
        )
        return mmpl.Case(branches, otherwise), data
