"""The latest value: what is possible is the value at `at`, or another that is later. It is ordered by tick alone."""

from dataclasses import dataclass, field
from typing import Any

from smile.algebra.types import Value
from smile.knowledge.cell_knowledge import Contradiction, WireKnowledge, format_value
from smile.knowledge.range import Range

TickAndSource = tuple[int, int]
"""Tick and source: of two events at one tick, that of the greater source is the later."""

_SAME_AS_VALUE: Any = object()


@dataclass(frozen=True)
class LatestValue:
    """`at` is None while there is no value. `sealed`: nothing later can come; a sealed one without a value is NULL.

    `now` differs from `value` where a later row is shown that may yet leave.
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
        """What is known of the value alone."""
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
