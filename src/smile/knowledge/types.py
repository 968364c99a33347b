"""Monotonic types: how the knowledge of a column's values and of a relation's rows can evolve. A type holds for every
value at every time."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from smile.algebra.heading import Heading
from smile.algebra.types import DataType, Value
from smile.knowledge.functional_dependencies import FunctionalDependencies
from smile.knowledge.seals import Reach, Seal, TimeConstraints
from smile.knowledge.symbolic import ONE, Bound, Interval, Number


class Direction(Enum):
    """How the current value moves once it is known. UP also says that it equals its lower bound until it is final."""

    FIXED = "fixed"
    UP = "up"
    DOWN = "down"
    EITHER = "either"

    def combine(self, other: "Direction") -> "Direction":
        if Direction.FIXED in (self, other):
            return other if self is Direction.FIXED else self
        return self if self is other else Direction.EITHER

    @property
    def opposite(self) -> "Direction":
        return {Direction.UP: Direction.DOWN, Direction.DOWN: Direction.UP}.get(self, self)


class MaskDirection(Enum):
    """How a mask changes while its row is known. A rise or fall that the name mentions is permanent."""

    DECIDED = "decided on arrival"
    RISES = "rises for good"
    FALLS = "falls for good"
    PEAKS = "rises, then falls for good"
    EITHER = "either way"


@dataclass(frozen=True)
class MaskType:
    """A row begins hidden (f). `steps` is the greatest number of times it can appear or disappear.

    `can_be_final_true`: T can be reached before the end of time. Otherwise a shown row may always disappear again.
    """

    direction: MaskDirection = MaskDirection.DECIDED
    steps: Bound = ONE
    can_be_final_true: bool = True

    @property
    def never_falls(self) -> bool:
        return self.direction in (MaskDirection.DECIDED, MaskDirection.RISES)

    @property
    def falls_for_good(self) -> bool:
        return self.direction in (MaskDirection.FALLS, MaskDirection.PEAKS)


@dataclass(frozen=True)
class ColumnType:
    """`evolves`: its knowledge can change while the row is shown. `null_evolves`: so can whether it is NULL.

    `range` holds for every row that is not permanently hidden, and for the default row. `narrow_range` holds while the
    row is shown; None: it is the same. `values` are those that it can have in shown rows, if they are few.
    `mask` is the type of a Boolean column as a mask. `has_default`: the default row has a value in this column, such as
    0 for a sum. `is_by_source`: it is the latest value of rows of several sources, which can share a tick.
    `follows_group_key`: in the default row, its value follows from the key that is looked up, which can be any.
    `per_event`: the absolute value is at most this number times the events that the row has absorbed. A sum of sums
    does not overflow, because the groups of a relation share its events.
    """

    data: DataType
    domain: str
    range: Interval | None = None
    steps: Bound = ONE
    direction: Direction = Direction.FIXED
    evolves: bool = False
    nullable: bool = True
    null_evolves: bool = False
    mask: MaskType | None = None
    has_default: bool = False
    is_by_source: bool = False
    follows_group_key: bool = False
    narrow_range: Interval | None = None
    values: frozenset[Value] | None = None
    per_event: Number | None = None

    @property
    def shown_range(self) -> Interval | None:
        """The range while the row is shown."""
        return self.range if self.narrow_range is None else self.narrow_range

    def with_range(self, range_: Interval | None) -> "ColumnType":
        """The column with another range, of which nothing more is known."""
        return replace(self, range=range_, narrow_range=None, values=None)

    def hull(self, other: "ColumnType") -> "ColumnType":
        """The column with the ranges and values of both."""
        range_, shown_range = (
            a.hull(b) if a is not None and b is not None else None
            for a, b in ((self.range, other.range), (self.shown_range, other.shown_range))
        )
        values = None if self.values is None or other.values is None else self.values | other.values
        narrow_range = None if shown_range == range_ else shown_range
        return replace(self, range=range_, narrow_range=narrow_range, values=values, per_event=None)


@dataclass(frozen=True)
class Displacement:
    """A shown row leaves only if another row takes its place: one that precedes it in the order, and agrees with it on
    `per`. So the rows of BEST over rows that never leave do not get fewer.

    At most `rows_max` rows are shown that agree on `per`; None: columns of `per` have been projected away. `order` is
    the column by which rows precede others first, if it is one.
    """

    per: frozenset[str]
    rows_max: int | None
    order: str | None
    descending: bool

    def rename(self, names: Mapping[str, str]) -> "Displacement":
        order = None if self.order is None else names.get(self.order, self.order)
        return replace(self, per=frozenset(names.get(c, c) for c in self.per), order=order)

    def project(self, columns: Collection[str]) -> "Displacement":
        """What remains if only these columns do."""
        per = self.per.intersection(columns)
        order = self.order if self.order in columns else None
        return replace(self, per=per, rows_max=self.rows_max if per == self.per else None, order=order)


@dataclass(frozen=True)
class Sessions:
    """The rows that agree on `columns` are a session: the next row with the same values comes at most `gap` after the
    `tick` of the one before it, and rows never leave a session but together. So a session is over when the horizons
    are `gap` beyond its last row."""

    columns: frozenset[str]
    tick: str
    gap: int

    def rename(self, names: Mapping[str, str]) -> "Sessions":
        columns = frozenset(names.get(c, c) for c in self.columns)
        return replace(self, columns=columns, tick=names.get(self.tick, self.tick))

    def project(self, columns: Collection[str]) -> "Sessions | None":
        """What remains if only these columns do."""
        return self if self.columns.issubset(columns) and self.tick in columns else None


@dataclass(frozen=True)
class RelationType:
    """`rows` is the greatest number of rows, `steps` of the events that one row absorbs, `events` of all rows together.

    `seals` has, for each stream that can affect a row, the last tick that can. `constraints` bound the distances
    between time columns. `reach` says for each stream how far a row's column can lie above the tick of an event that
    affects the row; a column that is not listed can lie anywhere. `can_become_absent`: a row can become absent and
    appear again, as a group does that all its members leave. Then the presence of a row does not exclude that others
    appear. `shares_ticks`: rows that only their windows tell apart have one tick, as those of HOP.
    `has_early_rows`: a row can come before the horizon of its stream reaches its tick, because the stream has many
    origins. `displacement`: how rows leave, if it is only by it. `sessions`: which rows are a session.
    """

    heading: Heading
    columns: Mapping[str, ColumnType]
    mask: MaskType
    rows: Bound
    steps: Bound
    events: Bound
    seals: Mapping[str, Seal] = field(default_factory=dict)
    constraints: TimeConstraints = field(default_factory=TimeConstraints)
    reach: Reach = field(default_factory=dict)
    can_become_absent: bool = False
    dependencies: FunctionalDependencies = field(default_factory=FunctionalDependencies)
    shares_ticks: bool = False
    has_early_rows: bool = False
    displacement: Displacement | None = None
    sessions: Sessions | None = None

    @property
    def never_leaves(self) -> bool:
        return self.mask.never_falls

    @property
    def nullable_columns(self) -> frozenset[str]:
        return frozenset(name for name, column in self.columns.items() if column.nullable)

    @property
    def key_seals(self) -> Mapping[str, Seal]:
        """The seals of a row of which only the key is known."""
        return {s: self.constraints.express_seal(seal, self.heading.key) for s, seal in self.seals.items()}

    @property
    def is_sealed_on_arrival(self) -> bool:
        """Whether the horizon has reached the seal of a row when the row comes. A row of MERGE also waits for the
        horizons of the other streams, and a row of a stream with many origins for those of the other origins."""
        tick = self.heading.tick
        is_sealed = bool(tick) and list(self.seals.values()) == [Seal.from_column(tick[0])]
        return is_sealed and not self.has_early_rows

    @property
    def is_append_only(self) -> bool:
        """Whether every row is final when it appears, as in a stream or in a restriction or extension of one."""
        tick = self.heading.tick
        seals_at_tick = bool(tick) and all(seal == Seal.from_column(tick[0]) for seal in self.seals.values())
        return seals_at_tick and self.never_leaves and not any(c.evolves for c in self.columns.values())
