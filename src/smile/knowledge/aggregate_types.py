"""The types of aggregates, from the type of what they aggregate and how many members a group can have."""

from dataclasses import dataclass

from smile.algebra import mmpl
from smile.algebra.heading import aggregate_type
from smile.algebra.types import TIME
from smile.knowledge.expression_types import MEASURED, expression_type
from smile.knowledge.symbolic import INFINITE, MAXTIME, ONE, UNBOUNDED, ZERO, Bound, Interval, at_most, greatest, least
from smile.knowledge.types import ColumnType, Direction, RelationType


@dataclass(frozen=True)
class Membership:
    """Of one group: how many members it can have, how many events they absorb together, whether members ever leave,
    whether there is only ever the one that made the group, and whether the group is there even without members."""

    members: Bound
    steps: Bound
    leaving: bool
    single: bool
    always: bool = False


def membership(source: RelationType, per: tuple[str, ...]) -> Membership:
    members = ONE
    for column in source.heading.key:
        if column not in per:
            members = members * _values_given(source, column, per)
    members = at_most(members, source.rows)
    moving = any(source.columns[c].evolves for c in per)
    single = bool(per) and set(source.heading.key) <= set(per) and not moving and not source.forgets
    steps = source.steps if single else at_most(members * source.steps, source.events)
    return Membership(members, steps, moving or not source.never_leaves, single, always=not per)


def values_of(column: ColumnType) -> Bound:
    """How many values a column can have."""
    if column.range is None or column.data.name not in ("int", "time", "timestamp", "date", "interval"):
        return Bound.of(2) if column.data.name == "bool" else INFINITE
    if column.data == TIME and not column.range.hi.is_finite:
        return Bound.symbol(MAXTIME)
    return column.range.size if column.range.size.is_finite else INFINITE


def values_and_null(column: ColumnType) -> Bound:
    """How many groups a column can make: NULLs are one more."""
    return values_of(column) + ONE if column.nullable else values_of(column)


def _values_given(source: RelationType, column: str, per: tuple[str, ...]) -> Bound:
    """How many values a column can have in rows that agree on `per`: ties to one of those may leave few."""
    values = values_and_null(source.columns[column])
    ties = source.ties.at_most
    for group in per:
        above, below = ties.get((column, group)), ties.get((group, column))
        # Any number of members can be in the group of NULL.
        if source.columns[group].nullable:
            continue
        if above is not None and below is not None:
            values = at_most(Bound.of(max(0, above + below + 1)), values)
    return values


def aggregate_column(aggregate: mmpl.Aggregate, source: RelationType, group: Membership) -> ColumnType:
    data = aggregate_type(aggregate, source.heading, aggregate.span)
    arg = expression_type(aggregate.arg, source.columns) if aggregate.arg is not None else None
    evolving = (arg is not None and arg.evolves) or any(source.columns[c].evolves for c in aggregate.columns)
    evolves = not group.single or group.leaving or evolving
    domain, range_, direction, nullable = _shape(aggregate, arg, group)
    by_default = aggregate.function in ("sum", "count", "count_distinct", "group")
    if not evolves:
        return ColumnType(data, "once", range_, ONE, Direction.FIXED, False, nullable, by_default=by_default)
    if data.name not in MEASURED:
        range_ = None
    return ColumnType(data, domain, range_, group.steps, direction, True, nullable, nullable, by_default=by_default)


def _shape(
    aggregate: mmpl.Aggregate, arg: ColumnType | None, group: Membership
) -> tuple[str, Interval | None, Direction, bool]:
    staying = not group.leaving
    match aggregate.function:
        case "count":
            counted = staying and (arg is None or not arg.null_evolves)
            return "range", Interval(ZERO, group.members), _if(counted, Direction.UP), False
        case "count_distinct":
            assert arg is not None
            most = at_most(group.members, values_of(arg))
            return "range", Interval(ZERO, most), _if(staying and not arg.evolves, Direction.UP), False
        case "group":
            return "relation", None, Direction.EITHER, False
    assert arg is not None
    # A member whose value becomes NULL leaves as far as the aggregate is concerned.
    staying = staying and not arg.null_evolves
    nullable = arg.nullable or group.always
    match aggregate.function:
        case "sum":
            range_ = arg.range or UNBOUNDED
            total = Interval(least(ZERO, group.members * range_.lo), greatest(ZERO, group.members * range_.hi))
            return "range", total, _sum_direction(arg, range_, staying), False
        case "max":
            up = staying and (not arg.evolves or arg.direction is Direction.UP)
            return ("upper" if up else "range"), arg.range, _if(up, Direction.UP), nullable
        case "min":
            down = staying and (not arg.evolves or arg.direction is Direction.DOWN)
            return ("lower" if down else "range"), arg.range, _if(down, Direction.DOWN), nullable
        case "avg":
            return "range", arg.range, Direction.EITHER, nullable
        case _:
            return ("latest" if staying and not arg.evolves else "range"), arg.range, Direction.EITHER, nullable


def _if(holds: bool, direction: Direction) -> Direction:
    return direction if holds else Direction.EITHER


def _sum_direction(arg: ColumnType, range_: Interval, staying: bool) -> Direction:
    """Members that only come, and only grow, can only raise a sum of what is never below zero."""
    if staying and range_.is_nonnegative and arg.direction in (Direction.FIXED, Direction.UP):
        return Direction.UP
    if staying and range_.is_nonpositive and arg.direction in (Direction.FIXED, Direction.DOWN):
        return Direction.DOWN
    return Direction.EITHER
