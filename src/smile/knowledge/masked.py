"""A column under its row's mask: `?` while hidden, though its knowledge is kept; hidden for good, it is nothing."""

from dataclasses import dataclass
from typing import Any

from smile.knowledge.known import Contradiction, Known, Wire
from smile.knowledge.mask import F, Mask


@dataclass(frozen=True)
class Masked:
    """`inner` is None exactly if the mask is F: rows that are gone are all alike."""

    mask: Mask
    inner: Any  # Known, or None

    def __post_init__(self) -> None:
        mask = self.mask.filter()
        object.__setattr__(self, "mask", mask)
        if mask.gone:
            object.__setattr__(self, "inner", None)

    @staticmethod
    def bottom(inner: Known) -> "Masked":
        return Masked(Mask.of((True, False), False), inner)

    @staticmethod
    def exactly(inner: Known) -> "Masked":
        return Masked(Mask.exactly(True), inner)

    @staticmethod
    def nothing() -> "Masked":
        return Masked(F, None)

    @property
    def now(self) -> Any:
        return self.inner.now if self.mask.shown else None

    @property
    def is_final(self) -> bool:
        return self.mask.gone or bool(self.mask.stays and self.inner.is_final)

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, Masked) or not self.mask.evolves_to(other.mask):
            return False
        return other.mask.gone or bool(self.inner.evolves_to(other.inner))

    def merge(self, other: "Masked") -> "Masked":
        mask = self.mask.merge(other.mask)
        if mask.gone:
            return Masked.nothing()
        try:
            return Masked(mask, self.inner.merge(other.inner))
        except Contradiction:
            if mask.stays:
                raise
            return Masked.nothing()  # no value is left that the row could be shown with

    def show(self) -> str:
        return self.inner.show() if self.mask.shown else "?"

    def wire(self) -> Wire:
        if self.mask.gone:
            return {"exactly": None}
        return self.inner.wire() if self.mask.shown else {"unknown": True}
