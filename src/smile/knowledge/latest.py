"""The latest value: what is possible is the value at `at`, or another that is later. It is ordered by tick alone."""

from dataclasses import dataclass, field
from typing import Any

from smile.algebra.types import Value
from smile.knowledge.known import Contradiction, Wire, text_of
from smile.knowledge.range import Range

At = tuple[int, int]
"""Tick and source: of two events at one tick, that of the greater source is the later."""

_SAME: Any = object()


@dataclass(frozen=True)
class Latest:
    """`at` is None while there is no value. `sealed`: nothing later can come; a sealed one without a value is NULL.

    `now` differs from `value` where a later row is shown that may yet leave.
    """

    value: Value = None
    at: At | None = None
    sealed: bool = False
    now: Value = field(default=_SAME, compare=False)

    def __post_init__(self) -> None:
        if self.at is None:
            object.__setattr__(self, "value", None)
        if self.now is _SAME or self.sealed:
            object.__setattr__(self, "now", self.value)

    @staticmethod
    def bottom() -> "Latest":
        return Latest()

    @staticmethod
    def exactly(value: Value, at: At | None = None) -> "Latest":
        return Latest(value, at, sealed=True)

    @property
    def is_final(self) -> bool:
        return self.sealed

    def range(self) -> Range:
        """What is known of the value alone."""
        return Range.exactly(self.value) if self.sealed else Range.bottom(now=self.now)

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, Latest):
            return False
        if self.at == other.at:
            return self.value == other.value and other.sealed >= self.sealed
        return not self.sealed and (self.at is None or (other.at is not None and self.at < other.at))

    def merge(self, other: "Latest") -> "Latest":
        if other.evolves_to(self):
            return self
        if not self.evolves_to(other):
            raise Contradiction(f"{self.show()} and {other.show()} cannot both be true")
        return Latest(other.value, other.at, other.sealed, other.value if other.sealed else self.now)

    def show(self) -> str:
        if self.sealed:
            return f"={text_of(self.value)}"
        return "?" if self.at is None else f"{text_of(self.value)}@{self.at[0]}"

    def wire(self) -> Wire:
        if self.sealed:
            return {"exactly": self.value}
        return {"unknown": True} if self.at is None else {"latest": self.value, "at": self.at[0]}
