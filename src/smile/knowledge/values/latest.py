"""The latest value: the final value is the one at `occurred_at`, or a later one. Points are ordered by tick and source,
and by the bounds of the final value."""

from dataclasses import dataclass

from smile.algebra.types import Value
from smile.knowledge.values.cell_knowledge import Contradiction, WireKnowledge, format_value
from smile.knowledge.values.range import Range

TickAndSource = tuple[int, int]
"""Of two events at one tick, the one with the greater source is the later. The source is 0 if all events are of one
source, so that no two share a tick."""

_UNKNOWN = Range.bottom()


@dataclass(frozen=True)
class LatestValue:
    """`value` is that of the latest event that stays and whose value is final; `occurred_at` is None while there is
    none. `bounds` contain the final value and have the current one, which differs from `value` if it is of a later
    event that may still leave or change. Once the bounds are exact, no event matters any more."""

    value: Value = None
    occurred_at: TickAndSource | None = None
    bounds: Range = _UNKNOWN

    def __post_init__(self) -> None:
        if self.bounds.is_final:
            object.__setattr__(self, "occurred_at", None)
        if self.occurred_at is None:
            object.__setattr__(self, "value", None)

    @staticmethod
    def bottom() -> "LatestValue":
        return LatestValue()

    @staticmethod
    def exactly(value: Value) -> "LatestValue":
        return LatestValue(bounds=Range.exactly(value))

    @staticmethod
    def at(value: Value, tick: int, source: int = 0) -> "LatestValue":
        """A value that is also the current one, and without bounds."""
        return LatestValue(value, (tick, source), Range.bottom(now=value))

    @property
    def now(self) -> Value:
        return self.bounds.now

    @property
    def is_final(self) -> bool:
        return self.bounds.is_final

    def to_range(self) -> Range:
        """The knowledge of the value without its tick."""
        return self.bounds

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, LatestValue) or not self.bounds.evolves_to(other.bounds):
            return False
        if other.is_final or self.occurred_at is None:
            return True
        if self.occurred_at == other.occurred_at:
            return self.value == other.value
        return other.occurred_at is not None and self.occurred_at < other.occurred_at

    def merge(self, other: "LatestValue") -> "LatestValue":
        bounds = self.bounds.merge(other.bounds)
        if self.occurred_at is None or other.occurred_at is None:
            later = other if self.occurred_at is None else self
        elif self.occurred_at == other.occurred_at and self.value != other.value:
            raise Contradiction(f"{self.show()} and {other.show()} cannot both be true")
        else:
            later = max(self, other, key=lambda point: point.occurred_at or (0, 0))
        return LatestValue(later.value, later.occurred_at, bounds)

    def show(self) -> str:
        if self.occurred_at is None:
            return self.bounds.show()
        tick, source = self.occurred_at
        return f"{format_value(self.value)}@{tick}" + (f"/{source}" if source else "")

    def wire(self) -> WireKnowledge:
        if self.occurred_at is None:
            # The bounds of a Boolean say nothing.
            is_boolean = isinstance(self.bounds.lo, bool) and not self.is_final
            return {"unknown": True} if is_boolean else self.bounds.wire()
        tick, source = self.occurred_at
        return {"latest": self.value, "at": tick} | ({"source": source} if source else {})
