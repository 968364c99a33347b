"""A mask: which of true, false and NULL a predicate may still become. At least one of them is possible."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

from smile.knowledge.known import Contradiction, Wire, text_of
from smile.knowledge.range import MAYBE, NEVER, ONLY, Range

Truth = bool | None


@dataclass(frozen=True)
class Mask:
    possible: frozenset[Truth]
    now: Truth = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.possible:
            raise Contradiction("a predicate has no value left")
        if len(self.possible) == 1:
            object.__setattr__(self, "now", next(iter(self.possible)))

    @staticmethod
    def of(possible: Iterable[Truth], now: Truth = None) -> "Mask":
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
    def is_for_good(self) -> bool:
        """Whether the row it hides or shows stays so: T or F."""
        return True not in self.possible or self.is_final

    @property
    def stays(self) -> bool:
        """T: shown for good."""
        return self.possible == {True}

    @property
    def gone(self) -> bool:
        """F: hidden for good. That it may be NULL changes nothing: NULL hides too."""
        return True not in self.possible

    @property
    def shown(self) -> bool:
        return self.now is True

    def filter(self) -> "Mask":
        """The same mask as a restriction sees it, to which NULL is false."""
        return Mask(frozenset(v is True for v in self.possible), self.now is True)

    def evolves_to(self, other: object) -> bool:
        return isinstance(other, Mask) and other.possible <= self.possible

    def merge(self, other: "Mask") -> "Mask":
        both = self.possible & other.possible
        if not both:
            raise Contradiction(f"{self.show()} and {other.show()} cannot both be true")
        return Mask(both, self.now)

    def range(self) -> Range:
        truths = [v for v in self.possible if v is not None]
        nulls = NEVER if None not in self.possible else MAYBE if truths else ONLY
        return Range(min(truths, default=None), max(truths, default=None), nulls, self.now)

    def show(self) -> str:
        letter = "t" if self.now is True else "f"
        return ("T" if self.stays else "F") if self.is_for_good else letter

    def wire(self) -> Wire:
        return {"exactly": next(iter(self.possible))} if self.is_final else {"unknown": True}

    def __repr__(self) -> str:
        return f"Mask({{{', '.join(sorted(map(text_of, self.possible)))}}}, now={text_of(self.now)})"


T = Mask.exactly(True)
F = Mask.exactly(False)


def image(function: Callable[..., Truth], *masks: Mask) -> Mask:
    """What the function may become, the masks being independent of each other."""
    return Mask(
        frozenset(function(*values) for values in product(*(m.possible for m in masks))),
        function(*(m.now for m in masks)),
    )


UNHEARD = Mask.of((True, False), False)
"""Whether something nobody has heard of will turn out to be there."""


def kleene_and(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def kleene_or(a: Truth, b: Truth) -> Truth:
    return True if a is True or b is True else None if a is None or b is None else False


def all_of(*masks: Mask) -> Mask:
    return reduce(lambda a, b: image(kleene_and, a, b), masks, T)


def any_of(masks: Iterable[Mask]) -> Mask:
    return reduce(lambda a, b: image(kleene_or, a, b), masks, F)


def none_of(mask: Mask) -> Mask:
    return image(lambda a: None if a is None else not a, mask)
