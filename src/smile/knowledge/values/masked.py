"""A value under its row's mask. While the row is hidden the value is shown as `?`, but its knowledge is kept. A
permanently hidden row has no value."""

from dataclasses import dataclass
from typing import Any

from smile.knowledge.values.cell_knowledge import CellKnowledge, Contradiction, WireKnowledge
from smile.knowledge.values.mask import F, Mask


@dataclass(frozen=True)
class MaskedValue:
    """`value` is None exactly if the mask is F, so that all permanently hidden rows are equal."""

    mask: Mask
    value: Any  # CellKnowledge, or None

    def __post_init__(self) -> None:
        mask = self.mask.null_as_false()
        object.__setattr__(self, "mask", mask)
        if mask.is_permanently_hidden:
            object.__setattr__(self, "value", None)

    @staticmethod
    def bottom(value: CellKnowledge) -> "MaskedValue":
        return MaskedValue(Mask.from_truths((True, False), False), value)

    @staticmethod
    def exactly(value: CellKnowledge) -> "MaskedValue":
        return MaskedValue(Mask.exactly(True), value)

    @staticmethod
    def permanently_hidden() -> "MaskedValue":
        return MaskedValue(F, None)

    @property
    def now(self) -> Any:
        return self.value.now if self.mask.is_shown else None

    @property
    def is_final(self) -> bool:
        return self.mask.is_permanently_hidden or bool(self.mask.is_permanently_shown and self.value.is_final)

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, MaskedValue) or not self.mask.evolves_to(other.mask):
            return False
        return other.mask.is_permanently_hidden or bool(self.value.evolves_to(other.value))

    def merge(self, other: "MaskedValue") -> "MaskedValue":
        mask = self.mask.merge(other.mask)
        if mask.is_permanently_hidden:
            return MaskedValue.permanently_hidden()
        try:
            return MaskedValue(mask, self.value.merge(other.value))
        except Contradiction:
            if mask.is_permanently_shown:
                raise
            return MaskedValue.permanently_hidden()  # the row has no possible value, so it is never shown

    def show(self) -> str:
        return self.value.show() if self.mask.is_shown else "?"

    def wire(self) -> WireKnowledge:
        if self.mask.is_permanently_hidden:
            return {"exactly": None}
        return self.value.wire() if self.mask.is_shown else {"unknown": True}
