"""The latest value: the final value is the one at `occurred_at`, or a later one. Points are ordered by tick and source,
not by value."""

from dataclasses import dataclass, field
from typing import Any

from smile.algebra.types import Value
from smile.knowledge.values.cell_knowledge import Contradiction, WireKnowledge, format_value
from smile.knowledge.values.range import Range

TickAndSource = tuple[int, int]
"""Of two events at one tick, the one with the greater source is the later."""

_SAME_AS_VALUE: Any = object()


@dataclass(frozen=True)
class LatestValue:
    """`occurred_at` is None while there is no value. `sealed`: no later value can come; without a value it is then
    NULL.

    `now` differs from `value` if a later row is shown that may still be hidden.
    """

    value: Value = None
    occurred_at: TickAndSource | None = None
    sealed: bool = False
    now: Value = field(default=_SAME_AS_VALUE, compare=False)

    def __post_init__(self) -> None:
        if self.occurred_at is None:
            object.__setattr__(self, "value", None)
        if self.now is _SAME_AS_VALUE or self.sealed:
            object.__setattr__(self, "now", self.value)

    @staticmethod
    def bottom() -> "LatestValue":
        return LatestValue()

    @staticmethod
    def exactly(value: Value, occurred_at: TickAndSource | None = None) -> "LatestValue":
        return LatestValue(value, occurred_at, sealed=True)

    @property
    def is_final(self) -> bool:
        return self.sealed

    def to_range(self) -> Range:
        """The knowledge of the value without its tick."""
        return Range.exactly(self.value) if self.sealed else Range.bottom(now=self.now)

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, LatestValue):
            return False
        if self.occurred_at == other.occurred_at:
            return self.value == other.value and other.sealed >= self.sealed
        return not self.sealed and (
            self.occurred_at is None or (other.occurred_at is not None and self.occurred_at < other.occurred_at)
        )

    def merge(self, other: "LatestValue") -> "LatestValue":
        if other.evolves_to(self):
            return self
        if not self.evolves_to(other):
            raise Contradiction(f"{self.show()} and {other.show()} cannot both be true")
        return LatestValue(other.value, other.occurred_at, other.sealed, other.value if other.sealed else self.now)

    def show(self) -> str:
        if self.sealed:
            return f"={format_value(self.value)}"
        return "?" if self.occurred_at is None else f"{format_value(self.value)}@{self.occurred_at[0]}"

    def wire(self) -> WireKnowledge:
        if self.sealed:
            return {"exactly": self.value}
        return {"unknown": True} if self.occurred_at is None else {"latest": self.value, "at": self.occurred_at[0]}
