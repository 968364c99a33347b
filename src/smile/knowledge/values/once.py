"""A column of a stream: unknown until its tick is known, then permanently a value or silence."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from smile.algebra.types import Value
from smile.knowledge.values.cell_knowledge import Contradiction, WireKnowledge, format_value
from smile.knowledge.values.range import Range, max_lower_bound, min_upper_bound


class OnceStatus(Enum):
    UNKNOWN = "?"
    VALUE = "value"
    SILENCE = "S"


@dataclass(frozen=True)
class OnceValue:
    """`lo` and `hi` bound the value while it is unknown: the column's domain."""

    status: OnceStatus = OnceStatus.UNKNOWN
    value: Value = None
    lo: Any = None
    hi: Any = None

    @staticmethod
    def bottom(lo: Any = None, hi: Any = None) -> "OnceValue":
        return OnceValue(OnceStatus.UNKNOWN, None, lo, hi)

    @staticmethod
    def exactly(value: Value) -> "OnceValue":
        return OnceValue(OnceStatus.VALUE, value)

    @staticmethod
    def silence() -> "OnceValue":
        return OnceValue(OnceStatus.SILENCE)

    @property
    def now(self) -> Value:
        return self.value

    @property
    def is_final(self) -> bool:
        return self.status is not OnceStatus.UNKNOWN

    def to_range(self) -> Range:
        """The knowledge of the value. Silence counts as NULL."""
        return Range.exactly(self.value) if self.is_final else Range.bottom(self.lo, self.hi)

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, OnceValue) or (self.is_final and self != other):
            return False
        return self.to_range().evolves_to(other.to_range())

    def merge(self, other: "OnceValue") -> "OnceValue":
        if other.evolves_to(self):
            return self
        if self.evolves_to(other):
            return other
        if self.is_final or other.is_final:
            raise Contradiction(f"{self.show()} and {other.show()} cannot both be true")
        lo, hi = max_lower_bound(self.lo, other.lo), min_upper_bound(self.hi, other.hi)
        if lo is not None and hi is not None and hi < lo:
            # Silence and NULL are still possible, but no point of this domain stands for just these two.
            raise Contradiction(f"no value lies in {format_value(lo)}..{format_value(hi)}")
        return OnceValue.bottom(lo, hi)

    def show(self) -> str:
        return format_value(self.value) if self.status is OnceStatus.VALUE else self.status.value

    def wire(self) -> WireKnowledge:
        return {"exactly": self.value} if self.is_final else {"unknown": True}
