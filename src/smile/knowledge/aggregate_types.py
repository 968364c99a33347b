"""Groups: how many members a group can have, and how many values a column."""

from dataclasses import dataclass

from smile.algebra.types import TIME
from smile.knowledge.symbolic import INFINITE, MAXTIME, ONE, Bound, tighter_bound
from smile.knowledge.types import ColumnType, RelationType


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
