"""Aggregate functions: the data type and the monotonic type of each, and its value in the default row.

The value of an aggregate over knowledge is in `smile.knowledge.values.aggregates`, its accumulator in
`smile.kernels.aggregates`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple

from smile.algebra import mmpl
from smile.algebra.coercions import cast
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading, check_columns_exist, check_unique
from smile.algebra.types import BOOL, FLOAT, INT, SUM_OF_INTS, DataType, Value, decimal_type, relation_type
from smile.errors import error
from smile.knowledge.aggregate_types import Membership, value_count
from smile.knowledge.expression_types import RANGED_TYPES, expression_type
from smile.knowledge.symbolic import ONE, UNBOUNDED, ZERO, Interval, greatest, least, tighter_bound
from smile.knowledge.types import ColumnType, Direction, RelationType
from smile.knowledge.values.aggregates import aggregate
from smile.knowledge.values.cells import to_operand_in_domain, to_range
from smile.knowledge.values.nested import NestedRelation
from smile.knowledge.values.range import Range
from smile.operators.operator import BottomRow, BottomRowLookup
from smile.source import Span

NamedAggregates = tuple[tuple[str, mmpl.Aggregate], ...]


class Evolution(NamedTuple):
    """How an aggregate over members that come, change or leave evolves."""

    domain: str
    range: Interval | None
    direction: Direction
    nullable: bool


class AggregateFunction(ABC):
    """An aggregate of the values of an argument. The argument of a member whose value is NULL is ignored."""

    has_default: ClassVar[bool] = False
    """The default row has a value: 0, or no rows."""
    is_value_of_one_member: ClassVar[bool] = False
    """When that member leaves, the others decide the value: all of them are needed."""

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        """`arg` is the type of the argument. By default it is the type of the result too."""
        return arg

    @abstractmethod
    def evolution(self, arg: ColumnType, group: Membership) -> Evolution: ...


class _Count(AggregateFunction):
    has_default = True

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        return INT

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        only_counts_up = not group.can_leave and not arg.null_evolves
        return Evolution("range", Interval(ZERO, group.members), _up_if(only_counts_up), False)


class _CountDistinct(AggregateFunction):
    has_default = True

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        if not arg.is_ordered:
            raise error("E031", f"COUNT(DISTINCT) cannot compare a {arg.name}", span)
        return INT

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        value_count_max = tighter_bound(group.members, value_count(arg))
        return Evolution(
            "range", Interval(ZERO, value_count_max), _up_if(not group.can_leave and not arg.evolves), False
        )


class _Group(AggregateFunction):
    has_default = True

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        check_columns_exist(call.columns, heading, span)
        check_unique(call.columns, span)
        return relation_type(tuple((c, heading.columns[c]) for c in call.columns))

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        return Evolution("relation", None, Direction.EITHER, False)


class _Sum(AggregateFunction):
    has_default = True

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        _check_number(call, arg, span)
        if arg.name == "decimal":
            assert arg.scale is not None
            return decimal_type(38, arg.scale)
        return arg if arg.name == "interval" else SUM_OF_INTS if arg == INT else FLOAT

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        """If members never leave and their values are not negative and never decrease, the sum never decreases."""
        values = arg.range or UNBOUNDED
        total = Interval(least(ZERO, group.members * values.lo), greatest(ZERO, group.members * values.hi))
        direction = Direction.EITHER
        if _values_stay(arg, group):
            if values.is_nonnegative and arg.direction in (Direction.FIXED, Direction.UP):
                direction = Direction.UP
            elif values.is_nonpositive and arg.direction in (Direction.FIXED, Direction.DOWN):
                direction = Direction.DOWN
        return Evolution("range", total, direction, False)


class _Average(AggregateFunction):
    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        _check_number(call, arg, span)
        return arg if arg.name == "interval" else FLOAT

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        return Evolution("range", arg.range, Direction.EITHER, _is_nullable(arg, group))


class _Extreme(AggregateFunction):
    is_value_of_one_member = True

    def __init__(self, bound_domain: str, direction: Direction) -> None:
        self.bound_domain, self.direction = bound_domain, direction

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        if not arg.is_ordered:
            raise error("E031", f"{call.function.upper()} cannot be applied to a {arg.name}", span)
        return arg

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        is_directed = _values_stay(arg, group) and (not arg.evolves or arg.direction is self.direction)
        domain, direction = (self.bound_domain, self.direction) if is_directed else ("range", Direction.EITHER)
        return Evolution(domain, arg.range, direction, _is_nullable(arg, group))


class _Latest(AggregateFunction):
    is_value_of_one_member = True

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        if not heading.tick:
            hint = "Take LATEST of a stream, or group so that the tick stays in the key."
            raise error("E043", "LATEST needs rows that have a tick, and these have none", span, hint)
        return arg

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        domain = "latest" if _values_stay(arg, group) and not arg.evolves else "range"
        return Evolution(domain, arg.range, Direction.EITHER, _is_nullable(arg, group))


AGGREGATES: Final[Mapping[mmpl.AggregateName, AggregateFunction]] = {
    "sum": _Sum(),
    "count": _Count(),
    "min": _Extreme("lower", Direction.DOWN),
    "max": _Extreme("upper", Direction.UP),
    "avg": _Average(),
    "latest": _Latest(),
    "count_distinct": _CountDistinct(),
    "group": _Group(),
}


def _check_number(call: mmpl.Aggregate, arg: DataType, span: Span | None) -> None:
    if arg.name != "interval" and not arg.is_number:
        raise error("E031", f"{call.function.upper()} needs a number or an interval, not {arg}", span)


def _values_stay(arg: ColumnType, group: Membership) -> bool:
    """Whether no value leaves the group. A member whose value becomes NULL leaves it, for the aggregate."""
    return not group.can_leave and not arg.null_evolves


def _is_nullable(arg: ColumnType, group: Membership) -> bool:
    return arg.nullable or group.is_always_shown


def _up_if(condition: bool) -> Direction:
    return Direction.UP if condition else Direction.EITHER


# ── calls of aggregates ─────────────────────────────────────────────────────────────────────────────────────────────

_ROW: Final = ColumnType(BOOL, "once", nullable=False)
"""The type of the argument of an aggregate that has none."""


def aggregate_type(call: mmpl.Aggregate, heading: Heading, span: Span | None) -> DataType:
    """The data type of an aggregate over rows with this heading. Raises an error if it is not valid."""
    arg = type_of(call.arg, heading.columns) if call.arg is not None else BOOL
    return AGGREGATES[call.function].data_type(call, arg, heading, call.span or span)


def default_value(call: mmpl.Aggregate, data: DataType) -> Value:
    """The value of an aggregate of this data type over no members. No value stands for a nested relation without
    rows."""
    if not AGGREGATES[call.function].has_default:
        return None
    return cast(0, INT, data) if data.is_number else 0 if data.name == "interval" else None


def aggregate_column_type(call: mmpl.Aggregate, source: RelationType, group: Membership) -> ColumnType:
    function, data = AGGREGATES[call.function], aggregate_type(call, source.heading, call.span)
    arg = expression_type(call.arg, source.columns) if call.arg is not None else _ROW
    evolves = (
        not group.is_single or group.can_leave or arg.evolves or any(source.columns[c].evolves for c in call.columns)
    )
    domain, range_, direction, nullable = function.evolution(arg, group)
    if not evolves:
        return ColumnType(data, "once", range_, ONE, Direction.FIXED, False, nullable, has_default=function.has_default)
    if data.name not in RANGED_TYPES:
        range_ = None
    return ColumnType(
        data, domain, range_, group.steps, direction, True, nullable, nullable, has_default=function.has_default
    )


def aggregate_bottoms(rel: mmpl.Summarize | mmpl.Over, lookup: BottomRowLookup) -> BottomRow:
    """The aggregates of a group without members, to which any members may be added."""
    bottoms: BottomRow = {}
    types, input_types = lookup.heading_of(rel).columns, lookup.heading_of(rel.input).columns
    for name, call in rel.aggregates:
        lo, hi, type_ = None, None, BOOL
        if call.arg is not None:
            argument = to_range(lookup.expression_bottom(call.arg, rel.input))
            lo, hi = argument.lo, argument.hi
            type_ = type_of(call.arg, input_types)
        empty_aggregate = aggregate(call.function, [], False, lo, hi, type_)
        bottoms[name] = (
            empty_aggregate
            if isinstance(empty_aggregate, NestedRelation)
            else to_operand_in_domain(empty_aggregate, Range.bottom(lo, hi), types[name])
        )
    return bottoms


def map_arguments(aggregates: NamedAggregates, change: Callable[[mmpl.Expr], mmpl.Expr]) -> NamedAggregates:
    return tuple((n, a if a.arg is None else replace(a, arg=change(a.arg))) for n, a in aggregates)
