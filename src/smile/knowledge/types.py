"""Monotonic types: how the knowledge of a column's values and of a relation's rows can evolve. A type holds for every
value at every time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from smile.algebra.heading import Heading
from smile.algebra.types import DataType
from smile.knowledge.seals import Reach, Seal, TimeConstraints
from smile.knowledge.symbolic import ONE, Bound, Interval


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

    `mask` is the type of a Boolean column as a mask. `has_default`: the default row has a value in this column, such as
    0 for a sum. Overflow, which gives NULL, is not considered here: it is counted when it happens.
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
    """`rows` is the greatest number of rows, `steps` of the events that one row absorbs, `events` of all rows together.

    `seals` has, for each stream that can affect a row, the last tick that can. `constraints` bound the distances
    between time columns. `reach` says for each stream how far a row's column can lie above the tick of an event that
    affects the row; a column that is not listed can lie anywhere. `can_become_absent`: a row can become absent and
    appear again, as a group does that all its members leave. Then the presence of a row does not exclude that others
    appear.
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
        """Whether every row is final when it appears, as in a stream or in a restriction or extension of one."""
        tick = self.heading.tick
        seals_at_tick = bool(tick) and all(seal == Seal.from_column(tick[0]) for seal in self.seals.values())
        return seals_at_tick and self.never_leaves and not any(c.evolves for c in self.columns.values())
