"""Monotonic types: how the values of a column, and the rows of a relation, may become known. What a type says holds
of every value at every time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from smile.algebra.heading import Heading
from smile.algebra.types import DataType
from smile.knowledge.seals import Reach, Seal, TimeConstraints
from smile.knowledge.symbolic import ONE, Bound, Interval


class Direction(Enum):
    """Where the current value moves once it is known. UP also says that it stands at its lower bound until final."""

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
    """How a mask moves while its row is known. Rises and falls that the name implies are for good."""

    DECIDED = "decided on arrival"
    RISES = "rises for good"
    FALLS = "falls for good"
    PEAKS = "rises, then falls for good"
    EITHER = "either way"


@dataclass(frozen=True)
class MaskType:
    """A row begins hidden (f). `steps` is the greatest number of times it can appear or vanish.

    `final_true`: T can be reached before the end of time; without it a row that is shown may always vanish yet.
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

    `mask` is a Boolean's course. `by_default`: a group nobody has heard of has a value here, such as a sum's 0.
    Overflow, which gives NULL, is not reckoned with: it is counted when it happens.
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


@dataclass(frozen=True)
class RelationType:
    """`rows` is how many rows there can be, `steps` how many events one can absorb, `events` all of them together.

    `seals` has, of each stream that can affect a row, the last tick that can. `ties` are what is known of the distances
    between time columns. `reach` says of each stream how far a row's column can lie above the tick of an event that
    affects the row; a column that is not there can lie anywhere. `forgets`: a row may be heard of no more, and later
    again, as a group is that all its members leave; so that one was heard of says nothing of what may come.
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

    @property
    def never_leaves(self) -> bool:
        return self.mask.never_falls

    @property
    def is_append_only(self) -> bool:
        """Every row is final when it appears: a stream, or what restricts and extends one."""
        tick = self.heading.tick
        seals_at_tick = bool(tick) and all(seal == Seal.from_column(tick[0]) for seal in self.seals.values())
        return seals_at_tick and self.never_leaves and not any(c.evolves for c in self.columns.values())
