"""A mask: which of true, false and NULL a predicate may still become. At least one of them is possible."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

from smile.knowledge.values.cell_knowledge import Contradiction, WireKnowledge, format_value
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range

Truth = bool | None


@dataclass(frozen=True)
class Mask:
    possible: frozenset[Truth]
    now: Truth = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.possible:
            raise Contradiction("a predicate has no possible value")
        if len(self.possible) == 1:
            object.__setattr__(self, "now", next(iter(self.possible)))

    @staticmethod
    def from_truths(possible: Iterable[Truth], now: Truth = None) -> "Mask":
        return Mask(frozenset(possible), now)

    @staticmethod
    def exactly(value: Truth) -> "Mask":
        return Mask(frozenset((value,)), value)

    @staticmethod
    def bottom(now: Truth = None) -> "Mask":
        return Mask(frozenset((True, False, None)), now)

    @property
    def is_final(self) -> bool:
        return len(self.possible) == 1

    @property
    def is_decided(self) -> bool:
        """Whether the row stays shown (T) or hidden (F)."""
        return True not in self.possible or self.is_final

    @property
    def is_permanently_shown(self) -> bool:
        """True is the only possible value (T): the row stays shown."""
        return self.possible == {True}

    @property
    def is_permanently_hidden(self) -> bool:
        """True is not possible (F): the row stays hidden. NULL may still be possible, since it hides the row too."""
        return True not in self.possible

    @property
    def is_shown(self) -> bool:
        return self.now is True

    def contains(self, value: Truth) -> bool:
        return value in self.possible

    def null_as_false(self) -> "Mask":
        """The mask as a restriction uses it: NULL counts as false."""
        return Mask(frozenset(v is True for v in self.possible), self.now is True)

    def evolves_to(self, other: object) -> bool:
        return isinstance(other, Mask) and other.possible <= self.possible

    def merge(self, other: "Mask") -> "Mask":
        common = self.possible & other.possible
        if not common:
            raise Contradiction(f"{self.show()} and {other.show()} cannot both be true")
        return Mask(common, self.now)

    def to_range(self) -> Range:
        truths = [v for v in self.possible if v is not None]
        nulls = NEVER if None not in self.possible else MAYBE if truths else ONLY
        return Range(min(truths, default=None), max(truths, default=None), nulls, self.now)

    def show(self) -> str:
        letter = "t" if self.now is True else "f"
        return ("T" if self.is_permanently_shown else "F") if self.is_decided else letter

    def wire(self) -> WireKnowledge:
        return {"exactly": next(iter(self.possible))} if self.is_final else {"unknown": True}

    def __repr__(self) -> str:
        return f"Mask({{{', '.join(sorted(map(format_value, self.possible)))}}}, now={format_value(self.now)})"


T = Mask.exactly(True)
F = Mask.exactly(False)


def image(function: Callable[..., Truth], *masks: Mask) -> Mask:
    """The possible results of the function. The masks are treated as independent of each other."""
    return Mask(
        frozenset(function(*values) for values in product(*(m.possible for m in masks))),
        function(*(m.now for m in masks)),
    )


MAY_APPEAR = Mask.from_truths((True, False), False)
"""The mask of a row that is absent and may still appear."""


def kleene_and(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def kleene_or(a: Truth, b: Truth) -> Truth:
    return True if a is True or b is True else None if a is None or b is None else False


def all_of(*masks: Mask) -> Mask:
    return reduce(lambda a, b: image(kleene_and, a, b), masks, T)


def any_of(masks: Iterable[Mask]) -> Mask:
    return reduce(lambda a, b: image(kleene_or, a, b), masks, F)


def negation(mask: Mask) -> Mask:
    return image(lambda a: None if a is None else not a, mask)
