"""Groups: how many members a group can have, and how many values a column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from smile.algebra import mmpl
from smile.algebra.coercions import cast
from smile.algebra.types import BOOL, INT, INTERVAL, TIME
from smile.knowledge.expression_types import expression_type
from smile.knowledge.seals import Seal
from smile.knowledge.symbolic import INFINITE, MAXTIME, ONE, Bound, tighter_bound
from smile.knowledge.types import ColumnType, Direction, Displacement, RelationType, Sessions
from smile.knowledge.values.range import ONLY, Range
from smile.limits import relation_rows_max


@dataclass(frozen=True)
class Membership:
    """The members of one group: how many there can be, how many events they absorb together, whether members can leave,
    whether there is never more than one, whether the group is shown even without members, and whether several of them
    can have one tick. `displacement`: a member leaves only if another one takes its place in the group."""

    members: Bound
    steps: Bound
    can_leave: bool
    is_single: bool
    is_always_shown: bool = False
    shares_ticks: bool = False
    displacement: Displacement | None = None


def membership(source: RelationType, per: tuple[str, ...]) -> Membership:
    members = ONE
    for column in source.heading.key:
        if column not in per:
            members = members * _value_count_in_group(source, column, per)
    has_evolving_keys = any(source.columns[c].evolves for c in per)
    is_single = (
        bool(per)
        and not has_evolving_keys
        and not source.can_become_absent
        and set(source.heading.key) <= source.dependencies.determined_by(per, source.nullable_columns)
    )
    displacement = None if is_single else _displacement_in_group(source, per)
    members = ONE if is_single else tighter_bound(members, source.rows)
    members = replace(members, extreme=min(members.extreme, relation_rows_max))
    steps = source.steps if is_single else tighter_bound(members * source.steps, source.events)
    if displacement is not None and displacement.rows_max is not None:
        # Only at a time: rows that have left have been absorbed as well.
        members = Bound.from_number(displacement.rows_max)
    key_rest = [c for c in source.heading.key if c not in per and c not in source.heading.tick]
    shares_ticks = source.shares_ticks and any(_value_count_in_group(source, c, per) != ONE for c in key_rest)
    can_leave = has_evolving_keys or not source.never_leaves
    return Membership(
        members, steps, can_leave, is_single, is_always_shown=not per, shares_ticks=shares_ticks,
        displacement=displacement,
    )  # fmt: skip


def _displacement_in_group(source: RelationType, per: tuple[str, ...]) -> Displacement | None:
    """How members of a group leave. The row that takes the place of a member is in the same group if rows that agree on
    the columns of the displacement are. If the group is by fewer columns, it has any number of members."""
    displacement = source.displacement
    if displacement is None or not displacement.per.issuperset(per):
        return None
    return displacement if displacement.per == set(per) else replace(displacement, rows_max=None)


@dataclass(frozen=True)
class DisplacedValue:
    """How an aggregate evolves whose members leave only by displacement. Its value moves in one `direction` only, for
    some aggregates only once the group `must_be_full`. `never_null`: it stays a value once it is one. `most`: the
    greatest value that it can have."""

    direction: Direction
    must_be_full: bool = False
    never_null: bool = False
    most: int | None = None


def displaced_value(call: mmpl.Aggregate, source: RelationType, group: Membership) -> DisplacedValue | None:
    """`source` is the type of the members. None: displacement says nothing of the aggregate."""
    displacement = group.displacement
    if displacement is None or call.function not in ("count", "min", "max", "sum", "avg"):
        return None
    arg = None if call.arg is None else expression_type(call.arg, source.columns)
    if call.function == "count" and (arg is None or not arg.nullable):
        return DisplacedValue(Direction.UP, most=displacement.rows_max)
    if call.function == "count" or arg is None or arg.null_evolves:
        return None
    is_ordered = isinstance(call.arg, mmpl.ColumnRef) and call.arg.name == displacement.order
    # NULL comes last in ascending order, so the least value stays among the first rows.
    if is_ordered and call.function == "min" and not displacement.descending:
        return DisplacedValue(Direction.DOWN, never_null=True)
    if arg.nullable:
        return None
    never_null = call.function != "sum"
    if not is_ordered:
        return DisplacedValue(Direction.EITHER, never_null=True) if never_null else None
    direction = Direction.UP if displacement.descending else Direction.DOWN
    if call.function == "max" and displacement.descending:
        return DisplacedValue(direction, never_null=True)
    values = arg.shown_range
    if call.function == "sum" and values is not None:
        is_along = values.is_nonnegative if direction is Direction.UP else values.is_nonpositive
        if is_along:
            return DisplacedValue(direction)
    if displacement.rows_max is None:
        return DisplacedValue(Direction.EITHER, never_null=True) if never_null else None
    return DisplacedValue(direction, must_be_full=True, never_null=never_null)


def group_closing_seals(source: RelationType, per: tuple[str, ...]) -> Mapping[str, Seal]:
    """The last tick of each stream that can add a member to a group or change one. The seals are on columns of the
    members on which all members of the group agree: those that the group is by, and those that these determine."""
    if any(source.columns[c].evolves for c in per):
        return dict.fromkeys(source.seals, Seal.NEVER)
    columns = sorted(source.dependencies.determined_by(per, source.nullable_columns)) if per else []
    return {s: _earliest_seal(seal, source, per, columns) for s, seal in source.seals.items()}


def grouped_sessions(source: RelationType, per: tuple[str, ...]) -> Sessions | None:
    """The sessions that the groups are; None if the groups are something else."""
    sessions = source.sessions
    if sessions is None or not sessions.columns.issubset(per):
        return None
    same = source.dependencies.determined_by(tuple(sessions.columns), source.nullable_columns)
    return sessions if same.issuperset(per) else None


def _earliest_seal(seal: Seal, source: RelationType, per: tuple[str, ...], columns: Sequence[str]) -> Seal:
    """The columns of the group itself are preferred: they are known for groups without members too."""
    by_group = source.constraints.express_seal(seal, per)
    return source.constraints.express_seal(seal, columns) if by_group.is_never else by_group


def value_count(column: ColumnType) -> Bound:
    """The number of values that a column can have, without NULL."""
    if column.values is not None:
        return Bound.from_number(len(column.values))
    if column.data == BOOL:
        return Bound.from_number(2)
    range_ = column.shown_range
    if range_ is None or column.data.name in ("float", "string", "json", "bytes"):
        return INFINITE
    if column.data == TIME and not range_.hi.is_finite:
        return Bound.symbol(MAXTIME, relation_rows_max)
    if not range_.size.is_finite:
        return INFINITE
    step = Bound.from_number(10 ** (column.data.scale or 0))
    return (range_.hi - range_.lo) * step + ONE


def argument_domain(domain: Range, arg: ColumnType) -> Range:
    """The domain of the argument of an aggregate, which ignores NULL. So the sign of an argument is known even if it
    may overflow and be NULL, as a price times a quantity may. This is for values that never change: one that evolves
    may become NULL, and then it leaves the aggregate."""
    if (
        arg.evolves
        or arg.shown_range is None
        or domain.nulls is ONLY
        or not (arg.data.is_number or arg.data == INTERVAL)
    ):
        return domain
    zero = cast(0, INT, arg.data) if arg.data.is_number else 0
    lo = zero if domain.lo is None and arg.shown_range.is_nonnegative else domain.lo
    hi = zero if domain.hi is None and arg.shown_range.is_nonpositive else domain.hi
    return Range(lo, hi, domain.nulls, domain.now)


def distinct_values_max(column: ColumnType, domain: Range) -> int | None:
    """The number of different values that COUNT(DISTINCT) can reach, if the domain of the column bounds it. Ticks are
    not counted, nor what types know by counting them."""
    counts = [] if column.values is None else [len(column.values)]
    if domain.lo is not None and domain.hi is not None and column.data.name in ("bool", "int", "date", "decimal"):
        counts.append(int((domain.hi - domain.lo) * 10 ** (column.data.scale or 0)) + 1)
    return min(counts, default=None)


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
