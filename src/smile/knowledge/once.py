"""A stream's column: unknown until its tick is, then a value or silence, for good."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from smile.algebra.types import Value
from smile.knowledge.known import Contradiction, Wire, text_of
from smile.knowledge.range import Range, earlier, later


class Heard(Enum):
    NOTHING = "?"
    VALUE = "value"
    SILENCE = "S"


@dataclass(frozen=True)
class Once:
    """`lo` and `hi` bound the value while it is unknown: the column's domain."""

    heard: Heard = Heard.NOTHING
    value: Value = None
    lo: Any = None
    hi: Any = None

    @staticmethod
    def bottom(lo: Any = None, hi: Any = None) -> "Once":
        return Once(Heard.NOTHING, None, lo, hi)

    @staticmethod
    def exactly(value: Value) -> "Once":
        return Once(Heard.VALUE, value)

    @staticmethod
    def silence() -> "Once":
        return Once(Heard.SILENCE)

    @property
    def now(self) -> Value:
        return self.value

    @property
    def is_final(self) -> bool:
        return self.heard is not Heard.NOTHING

    def range(self) -> Range:
        """What is known of the value, silence being none."""
        return Range.exactly(self.value) if self.is_final else Range.bottom(self.lo, self.hi)

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, Once) or (self.is_final and self != other):
            return False
        return self.range().evolves_to(other.range())

    def merge(self, other: "Once") -> "Once":
        if other.evolves_to(self):
            return self
        if self.evolves_to(other):
            return other
        if self.is_final or other.is_final:
            raise Contradiction(f"{self.show()} and {other.show()} cannot both be true")
        lo, hi = later(self.lo, other.lo), earlier(self.hi, other.hi)
        if lo is not None and hi is not None and hi < lo:
            # Silence and NULL remain, and which of them it will be is still open.
            raise Contradiction(f"no value lies in {text_of(lo)}..{text_of(hi)}")
        return Once.bottom(lo, hi)

    def show(self) -> str:
        return text_of(self.value) if self.heard is Heard.VALUE else self.heard.value

    def wire(self) -> Wire:
        return {"exactly": self.value} if self.is_final else {"unknown": True}
