"""The types of aggregates. They follow from the type of the argument and from the number of members that a group can
have."""

from dataclasses import dataclass

from smile.algebra import mmpl
from smile.algebra.heading import aggregate_type
from smile.algebra.types import TIME
from smile.knowledge.expression_types import RANGED_TYPES, expression_type
from smile.knowledge.symbolic import (
    INFINITE,
    MAXTIME,
    ONE,
    UNBOUNDED,
    ZERO,
    Bound,
    Interval,
    greatest,
    least,
    tighter_bound,
)
from smile.knowledge.types import ColumnType, Direction, RelationType


@dataclass(frozen=True)
class Membership:
    """The members of one group: how many there can be, how many events they absorb together, whether members can leave,
    whether there is never more than one, and whether the group is shown even without members."""

    members: Bound
    steps: Bound
    can_leave: bool
    is_single: bool
    is_always_shown: bool = False


def membership(source: RelationType, per: tuple[str, ...]) -> Membership:
    members = ONE
    for column in source.heading.key:
        if column not in per:
            members = members * _value_count_in_group(source, column, per)
    members = tighter_bound(members, source.rows)
    has_evolving_keys = any(source.columns[c].evolves for c in per)
    is_single = (
        bool(per) and set(source.heading.key) <= set(per) and not has_evolving_keys and not source.can_become_absent
    )
    steps = source.steps if is_single else tighter_bound(members * source.steps, source.events)
    return Membership(members, steps, has_evolving_keys or not source.never_leaves, is_single, is_always_shown=not per)


def value_count(column: ColumnType) -> Bound:
    """The number of values that a column can have, without NULL."""
    if column.range is None or column.data.name not in ("int", "time", "timestamp", "date", "interval"):
        return Bound.from_number(2) if column.data.name == "bool" else INFINITE
    if column.data == TIME and not column.range.hi.is_finite:
        return Bound.symbol(MAXTIME)
    return column.range.size if column.range.size.is_finite else INFINITE


def value_count_with_null(column: ColumnType) -> Bound:
    """The number of groups that a column can form: NULL is one more."""
    return value_count(column) + ONE if column.nullable else value_count(column)


def _value_count_in_group(source: RelationType, column: str, per: tuple[str, ...]) -> Bound:
    """The number of values that a column can have in rows that agree on `per`. Constraints may leave only a few."""
    values = value_count_with_null(source.columns[column])
    distances = source.constraints.distance_max
    for group_column in per:
        above, below = distances.get((column, group_column)), distances.get((group_column, column))
        # The group of NULL can have any number of members.
        if source.columns[group_column].nullable:
            continue
        if above is not None and below is not None:
            values = tighter_bound(Bound.from_number(max(0, above + below + 1)), values)
    return values


def aggregate_column_type(aggregate: mmpl.Aggregate, source: RelationType, group: Membership) -> ColumnType:
    data = aggregate_type(aggregate, source.heading, aggregate.span)
    arg = expression_type(aggregate.arg, source.columns) if aggregate.arg is not None else None
    evolving = (arg is not None and arg.evolves) or any(source.columns[c].evolves for c in aggregate.columns)
    evolves = not group.is_single or group.can_leave or evolving
    domain, range_, direction, nullable = _aggregate_properties(aggregate, arg, group)
    has_default = aggregate.function in ("sum", "count", "count_distinct", "group")
    if not evolves:
        return ColumnType(data, "once", range_, ONE, Direction.FIXED, False, nullable, has_default=has_default)
    if data.name not in RANGED_TYPES:
        range_ = None
    return ColumnType(data, domain, range_, group.steps, direction, True, nullable, nullable, has_default=has_default)


def _aggregate_properties(
    aggregate: mmpl.Aggregate, arg: ColumnType | None, group: Membership
) -> tuple[str, Interval | None, Direction, bool]:
    never_leave = not group.can_leave
    match aggregate.function:
        case "count":
            only_counts_up = never_leave and (arg is None or not arg.null_evolves)
            return "range", Interval(ZERO, group.members), _direction_if(only_counts_up, Direction.UP), False
        case "count_distinct":
            assert arg is not None
            value_count_max = tighter_bound(group.members, value_count(arg))
            return (
                "range",
                Interval(ZERO, value_count_max),
                _direction_if(never_leave and not arg.evolves, Direction.UP),
                False,
            )
        case "group":
            return "relation", None, Direction.EITHER, False
    assert arg is not None
    # For the aggregate, a member whose value becomes NULL leaves the group.
    never_leave = never_leave and not arg.null_evolves
    nullable = arg.nullable or group.is_always_shown
    match aggregate.function:
        case "sum":
            range_ = arg.range or UNBOUNDED
            total = Interval(least(ZERO, group.members * range_.lo), greatest(ZERO, group.members * range_.hi))
            return "range", total, _sum_direction(arg, range_, never_leave), False
        case "max":
            up = never_leave and (not arg.evolves or arg.direction is Direction.UP)
            return ("upper" if up else "range"), arg.range, _direction_if(up, Direction.UP), nullable
        case "min":
            down = never_leave and (not arg.evolves or arg.direction is Direction.DOWN)
            return ("lower" if down else "range"), arg.range, _direction_if(down, Direction.DOWN), nullable
        case "avg":
            return "range", arg.range, Direction.EITHER, nullable
        case _:
            return ("latest" if never_leave and not arg.evolves else "range"), arg.range, Direction.EITHER, nullable


def _direction_if(condition: bool, direction: Direction) -> Direction:
    return direction if condition else Direction.EITHER


def _sum_direction(arg: ColumnType, range_: Interval, never_leave: bool) -> Direction:
    """If members never leave and their values are not negative and never decrease, the sum never decreases."""
    if never_leave and range_.is_nonnegative and arg.direction in (Direction.FIXED, Direction.UP):
        return Direction.UP
    if never_leave and range_.is_nonpositive and arg.direction in (Direction.FIXED, Direction.DOWN):
        return Direction.DOWN
    return Direction.EITHER
