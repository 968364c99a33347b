"""Aggregate functions: the data type and the monotonic type of each, and its value in the default row.

The value of an aggregate over knowledge is in `smile.knowledge.values.aggregates`, its accumulator in
`smile.kernels.aggregates`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar, Final, Literal, NamedTuple

from smile.algebra import mmpl
from smile.algebra.coercions import cast
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading, check_columns_exist, check_unique
from smile.algebra.types import (
    BOOL,
    FLOAT,
    INT,
    INTERVAL,
    STRING,
    SUM_OF_INTS,
    DataType,
    Value,
    decimal_type,
    json_hint,
    relation_type,
)
from smile.errors import error
from smile.knowledge.aggregate_types import (
    Membership,
    argument_domain,
    displaced_value,
    distinct_values_max,
    value_count,
)
from smile.knowledge.column_values import value_limits
from smile.knowledge.expression_types import RANGED_TYPES, expression_type, magnitude_per_event
from smile.knowledge.symbolic import (
    ONE,
    UNBOUNDED,
    ZERO,
    Interval,
    Number,
    add_extremes,
    greatest,
    least,
    multiply_extremes,
    tighter_bound,
)
from smile.knowledge.types import ColumnType, Direction, RelationType
from smile.knowledge.values.aggregates import Member, aggregate
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.mask import T
from smile.knowledge.values.nested import NestedRelation
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import to_operand
from smile.limits import decimal_digits_max, relation_rows_max
from smile.operators.operator import BottomRow, BottomRowLookup
from smile.source import Span

NamedAggregates = tuple[tuple[str, mmpl.Aggregate], ...]


class Evolution(NamedTuple):
    """How an aggregate over members that come, change or leave evolves. `range_with_member` is its range in a group
    that has a value of the argument; None: it is the same."""

    domain: str
    range: Interval | None
    direction: Direction
    nullable: bool
    range_with_member: Interval | None = None
    per_event: Number | None = None


class AggregateFunction(ABC):
    """An aggregate of the values of an argument. The argument of a member whose value is NULL is ignored."""

    has_default: ClassVar[bool] = False
    """The default row has a value: 0, or no rows."""
    reads_members: ClassVar[bool] = False
    """If a member leaves or changes, the others decide the value, so all of them are stored. The retractable
    accumulator says the same."""
    stores: ClassVar[Literal["totals", "values", "members"]] = "totals"
    """What is stored of members that stay and do not change: only totals of the group, their distinct values, or the
    members themselves."""

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
        range_, range_with_member = Interval(ZERO, group.members), Interval(ONE, group.members)
        return Evolution("range", range_, _up_if(only_counts_up), False, range_with_member)


class _CountDistinct(AggregateFunction):
    has_default = True
    stores = "values"

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        if not arg.is_comparable:
            raise error("E031", f"COUNT(DISTINCT) cannot compare a {arg.name}", span)
        return INT

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        value_count_max = tighter_bound(group.members, value_count(arg))
        range_, range_with_member = Interval(ZERO, value_count_max), Interval(ONE, value_count_max)
        direction = _up_if(not group.can_leave and not arg.evolves)
        return Evolution("range", range_, direction, False, range_with_member)


class _Group(AggregateFunction):
    has_default = True
    stores = "members"

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
        return sum_type(arg)

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        """If members never leave and their values are not negative and never decrease, the sum never decreases, unless
        it can overflow."""
        values = arg.shown_range or UNBOUNDED
        total = Interval(least(ZERO, group.members * values.lo), greatest(ZERO, group.members * values.hi))
        total, can_overflow = _sum_limits(total, arg, group)
        with_member = Interval(
            values.lo if values.is_nonnegative else total.lo, values.hi if values.is_nonpositive else total.hi
        )
        direction = Direction.EITHER
        if _values_stay(arg, group) and not can_overflow:
            if values.is_nonnegative and arg.direction in (Direction.FIXED, Direction.UP):
                direction = Direction.UP
            elif values.is_nonpositive and arg.direction in (Direction.FIXED, Direction.DOWN):
                direction = Direction.DOWN
        return Evolution("range", total, direction, can_overflow, with_member, magnitude_per_event(arg))


class _Average(AggregateFunction):
    reads_members = True

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        _check_number(call, arg, span)
        return arg if arg.name == "interval" else FLOAT

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        return Evolution("range", arg.shown_range, Direction.EITHER, _is_nullable(arg, group), per_event=arg.per_event)


class _Percentile(AggregateFunction):
    """A value of a member, or one between those of two."""

    reads_members = True
    stores = "values"

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        name = call.function.upper()
        if call.function == "percentile_cont":
            if arg not in (FLOAT, INTERVAL):
                raise error("E031", f"{name} needs floats or intervals, not {arg}", span)
        elif not _has_order_of_64_bits(arg):
            hint = f"Cast it to decimal({_DIGITS_IN_64_BITS}, 0), or to float." if arg.name == "decimal" else None
            raise error("E031", f"{name} cannot be applied to a {arg}", span, hint)
        return arg

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        return Evolution("range", arg.shown_range, Direction.EITHER, _is_nullable(arg, group), per_event=arg.per_event)


class _JoiningAggregate(AggregateFunction):
    """The texts of the members in one string, or the elements of their arrays in one array."""

    reads_members = True
    stores = "members"

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        name = call.function.upper()
        if call.function == "string_agg" and arg != STRING:
            raise error("E031", f"STRING_AGG joins strings, not {arg}", span, "Cast it to string.")
        if call.function == "array_concat_agg" and arg.name != "array":
            raise error("E031", f"ARRAY_CONCAT_AGG joins arrays, not {arg}", span, "Write array(x) for one element.")
        check_columns_exist(call.columns, heading, span)
        for column in call.columns:
            if not heading.columns[column].is_ordered:
                raise error("E031", f"{name} cannot be ordered by a {heading.columns[column].name}", span)
        return arg

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        return Evolution("range", None, Direction.EITHER, _is_nullable(arg, group))


_DIGITS_IN_64_BITS: Final = 18


def _has_order_of_64_bits(data: DataType) -> bool:
    """Whether the values of a type are ordered as integers of 64 bits can be."""
    if data.name == "decimal":
        assert data.digits is not None
        return data.digits <= _DIGITS_IN_64_BITS
    return data.name in ("int", "float", "time", "interval", "timestamp", "date")


class _Extreme(AggregateFunction):
    reads_members = True

    def __init__(self, bound_domain: str, direction: Direction) -> None:
        self.bound_domain, self.direction = bound_domain, direction

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        if not arg.is_ordered:
            raise error("E031", f"{call.function.upper()} cannot be applied to a {arg.name}", span, json_hint([arg]))
        return arg

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        is_directed = _values_stay(arg, group) and (not arg.evolves or arg.direction is self.direction)
        domain, direction = (self.bound_domain, self.direction) if is_directed else ("range", Direction.EITHER)
        return Evolution(domain, arg.shown_range, direction, _is_nullable(arg, group), per_event=arg.per_event)


class _Timed(AggregateFunction):
    """The value of the first or last member by tick and source."""

    reads_members = True

    def data_type(self, call: mmpl.Aggregate, arg: DataType, heading: Heading, span: Span | None) -> DataType:
        if not heading.tick:
            name = call.function.upper()
            hint = f"Take {name} of a stream, or group so that the tick stays in the key."
            raise error("E043", f"{name} needs rows that have a tick, and these have none", span, hint)
        return arg


class _Latest(_Timed):
    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        return Evolution("latest", arg.shown_range, Direction.EITHER, _is_nullable(arg, group), per_event=arg.per_event)


class _Earliest(_Timed):
    """The mirror of LATEST. Members that appear later are later, so its value is a range that becomes exact at once."""

    def evolution(self, arg: ColumnType, group: Membership) -> Evolution:
        return Evolution("range", arg.shown_range, Direction.EITHER, _is_nullable(arg, group), per_event=arg.per_event)


AGGREGATES: Final[Mapping[mmpl.AggregateName, AggregateFunction]] = {
    "sum": _Sum(),
    "count": _Count(),
    "min": _Extreme("lower", Direction.DOWN),
    "max": _Extreme("upper", Direction.UP),
    "avg": _Average(),
    "latest": _Latest(),
    "earliest": _Earliest(),
    "count_distinct": _CountDistinct(),
    "group": _Group(),
    "percentile_cont": _Percentile(),
    "percentile_disc": _Percentile(),
    "string_agg": _JoiningAggregate(),
    "array_concat_agg": _JoiningAggregate(),
}


def _check_number(call: mmpl.Aggregate, arg: DataType, span: Span | None) -> None:
    if arg.name != "interval" and not arg.is_number:
        raise error("E031", f"{call.function.upper()} needs a number or an interval, not {arg}", span, json_hint([arg]))


def _values_stay(arg: ColumnType, group: Membership) -> bool:
    """Whether no value leaves the group. A member whose value becomes NULL leaves it, for the aggregate."""
    return not group.can_leave and not arg.null_evolves


def sum_type(arg: DataType) -> DataType:
    """The type of a sum of values of this type."""
    if arg.name == "decimal":
        assert arg.scale is not None
        return decimal_type(decimal_digits_max, arg.scale)
    return arg if arg.name == "interval" else SUM_OF_INTS if arg == INT else FLOAT


def _sum_limits(total: Interval, arg: ColumnType, group: Membership) -> tuple[Interval, bool]:
    """The range of a sum with its extremes, and whether the sum can overflow. All members together have absorbed no
    more events than the group; rows that have absorbed none count besides."""
    limits, result_limits = value_limits(arg), value_limits(ColumnType(sum_type(arg.data), "range"))
    assert isinstance(limits, Range) and isinstance(result_limits, Range)
    count, zero = group.members.extreme, Fraction(0)
    lo = multiply_extremes(count, min(zero, Fraction(limits.lo)))
    hi = multiply_extremes(count, max(zero, Fraction(limits.hi)))
    if arg.per_event is not None:
        magnitude = multiply_extremes(arg.per_event, add_extremes(group.steps.extreme, relation_rows_max))
        lo, hi = max(lo, -magnitude), min(hi, magnitude)
    can_overflow = lo < Fraction(result_limits.lo) or hi > Fraction(result_limits.hi)
    return total.with_extremes(lo, hi), can_overflow


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
    if call.function in ("latest", "earliest") and group.shares_ticks:
        name = call.function.upper()
        hint = f"Group by window_end as well, or take {name} of the rows before HOP or UNNEST."
        message = f"{name} needs rows of which no two have one tick, but rows of HOP and UNNEST do"
        raise error("E043", message, call.span, hint)
    arg = expression_type(call.arg, source.columns) if call.arg is not None else _ROW
    evolves = (
        not group.is_single or group.can_leave or arg.evolves or any(source.columns[c].evolves for c in call.columns)
    )
    domain, range_, direction, nullable, range_with_member, per_event = function.evolution(arg, group)
    displaced = displaced_value(call, source, group)
    # A sum that can overflow has no direction.
    if displaced is not None and not displaced.must_be_full and not (call.function == "sum" and nullable):
        direction = displaced.direction
    # A group is shown while it has a member, and then every argument that is never NULL has a value.
    narrow_range = None if arg.nullable or group.is_always_shown or range_with_member == range_ else range_with_member
    if data.name not in RANGED_TYPES:
        range_, narrow_range = None, None
    values = arg.values if isinstance(function, _Extreme | _Timed) else None
    if not evolves:
        domain, direction = "once", Direction.FIXED
    return ColumnType(
        data, domain, range_, group.steps if evolves else ONE, direction, evolves, nullable, evolves and nullable,
        has_default=function.has_default, is_by_source=evolves and domain == "latest" and len(source.heading.tick) > 1,
        narrow_range=narrow_range, values=values, per_event=per_event,
    )  # fmt: skip


def aggregate_bottoms(
    rel: mmpl.Summarize | mmpl.Over | mmpl.OverRows, lookup: BottomRowLookup, has_member: bool = False
) -> BottomRow:
    """The aggregates of a group to which any members may be added, and which has one member of which nothing is known,
    or none."""
    bottoms: BottomRow = {}
    types, input_types = lookup.heading_of(rel).columns, lookup.heading_of(rel.input).columns
    columns = lookup.relation_type(rel).columns
    for name, call in rel.aggregates:
        argument, type_ = Range(), BOOL
        if call.arg is not None:
            # Members contribute only if they are shown.
            argument_type = expression_type(call.arg, lookup.relation_type(rel.input).columns)
            argument = argument_domain(
                to_range(lookup.shown_rows.expression_bottom(call.arg, rel.input)), argument_type
            )
            type_ = type_of(call.arg, input_types)
        is_counted = has_member and call.function not in ("latest", "earliest", "group")
        order = tuple(Range() for _ in call.columns)
        members = [Member(T, argument if call.arg is not None else None, order=order)] if is_counted else []
        values_max = None
        if call.arg is not None:
            values_max = distinct_values_max(
                expression_type(call.arg, lookup.relation_type(rel.input).columns), argument
            )
        bottom = aggregate(
            call.function, members, False, argument.lo, argument.hi, type_, can_overflow=columns[name].nullable,
            values_max=values_max, call=call,
        )  # fmt: skip
        bottoms[name] = bottom if isinstance(bottom, NestedRelation) else to_operand(bottom, types[name])
    return bottoms


def map_arguments(aggregates: NamedAggregates, change: Callable[[mmpl.Expr], mmpl.Expr]) -> NamedAggregates:
    return tuple((n, a if a.arg is None else replace(a, arg=change(a.arg))) for n, a in aggregates)
