"""What is known of one value for good: what it may still become only shrinks, until it is final.

`value` is what holds if nothing more happens. It is shown, but takes no part in equality or order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smile.client.values import Column, tick_json

Json = dict[str, Any]


class NotYetKnown(ValueError):
    """A question that what is known does not answer yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """`kind` is the word for it on the wire: exactly, at_least, at_most, between, latest or unknown.

    `low` and `high` bound the final value where they are not None. `latest` is the value as of tick `at`.
    """

    kind: str
    value: Any = None
    low: Any = None
    high: Any = None
    latest: Any = None
    at: int | None = None

    @staticmethod
    def exactly(value: Any) -> "Knowledge":
        return Knowledge("exactly", value, value, value)

    @staticmethod
    def from_json(told: Json, value: Any, column: Column | None = None) -> "Knowledge":
        """`told` is as on the wire, `value` what the row has at present, read already."""

        def read(given: Any) -> Any:
            return given if given is None or column is None else column.read(given)

        match told:
            case {"exactly": given}:
                return Knowledge.exactly(read(given))
            case {"at_least": given}:
                return Knowledge("at_least", value, low=read(given))
            case {"at_most": given}:
                return Knowledge("at_most", value, high=read(given))
            case {"between": [low, high]}:
                return Knowledge("between", value, read(low), read(high))
            case {"latest": given, "at": tick}:
                return Knowledge("latest", value, latest=read(given), at=int(tick))
        return Knowledge("unknown", value)

    def to_json(self, column: Column | None = None) -> Json:
        def write(value: Any) -> Any:
            return value if value is None or column is None else column.write(value)

        match self.kind:
            case "exactly":
                return {"exactly": write(self.low)}
            case "at_least":
                return {"at_least": write(self.low)}
            case "at_most":
                return {"at_most": write(self.high)}
            case "between":
                return {"between": [write(self.low), write(self.high)]}
            case "latest":
                assert self.at is not None
                return {"latest": write(self.latest), "at": tick_json(self.at)}
        return {"unknown": True}

    @property
    def is_final(self) -> bool:
        return self.kind == "exactly"

    def __str__(self) -> str:
        match self.kind:
            case "exactly":
                return f"={text_of(self.low)}"
            case "at_least":
                return f"≥{text_of(self.low)}"
            case "at_most":
                return f"≤{text_of(self.high)}"
            case "between":
                return f"[{text_of(self.low)}..{text_of(self.high)}]"
            case "latest":
                return f"{text_of(self.latest)}@{self.at}"
        return "?"

    def __repr__(self) -> str:
        return f"<{self}>" if self.is_final or self.value is None else f"<{self} now {text_of(self.value)}>"

    # ── equality and order ──────────────────────────────────────────────────────────────────────────────────────────

    def _point(self) -> tuple[Any, ...]:
        return self.kind, self.low, self.high, self.latest, self.at

    def __eq__(self, other: object) -> bool:
        """Whether the same is known. A plain value stands for final knowledge of itself."""
        if isinstance(other, Knowledge):
            return self._point() == other._point()
        return self.is_final and bool(self.low == other)

    def __hash__(self) -> int:
        return hash(_hashable(self.low)) if self.is_final else hash(tuple(map(_hashable, self._point())))

    def evolves_to(self, other: "Knowledge") -> bool:
        """Whether what is known here may become what is known there. Of two values at one tick, either may be the
        later: ticks alone do not tell."""
        if self.is_final:
            return self == other
        if self.kind == "unknown":
            return True
        if self.kind == "latest":
            return other.is_final or (other.at is not None and self.at is not None and self.at <= other.at)
        if other.kind in ("unknown", "latest") or (other.is_final and other.low is None):
            return False
        starts = self.low is None or (other.low is not None and self.low <= other.low)
        ends = self.high is None or (other.high is not None and other.high <= self.high)
        return bool(starts and ends)

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────
    # True and False are for good; None is not known yet. NULL is no value, so that the answer is False.

    def at_least(self, bound: Any) -> bool | None:
        return self._decided(
            lambda: self.low is not None and self.low >= bound, lambda: self.high is not None and self.high < bound
        )

    def more_than(self, bound: Any) -> bool | None:
        return self._decided(
            lambda: self.low is not None and self.low > bound, lambda: self.high is not None and self.high <= bound
        )

    def at_most(self, bound: Any) -> bool | None:
        return self._decided(
            lambda: self.high is not None and self.high <= bound, lambda: self.low is not None and self.low > bound
        )

    def less_than(self, bound: Any) -> bool | None:
        return self._decided(
            lambda: self.high is not None and self.high < bound, lambda: self.low is not None and self.low >= bound
        )

    def equals(self, value: Any) -> bool | None:
        if self.is_final:
            return self.low is not None and bool(self.low == value)
        outside = (self.low is not None and value < self.low) or (self.high is not None and self.high < value)
        return False if outside else None

    def _decided(self, holds: Callable[[], Any], fails: Callable[[], Any]) -> bool | None:
        if self.is_final and self.low is None:
            return False
        return True if holds() else False if fails() else None

    def _answer(self, answer: bool | None, question: str) -> bool:
        if answer is None:
            raise NotYetKnown(f"{self} {question} is not decided yet; ask .at_least(…) and the like, or take .value")
        return answer

    def __ge__(self, bound: Any) -> bool:
        return NotImplemented if isinstance(bound, Knowledge) else self._answer(self.at_least(bound), f">= {bound}")

    def __gt__(self, bound: Any) -> bool:
        return NotImplemented if isinstance(bound, Knowledge) else self._answer(self.more_than(bound), f"> {bound}")

    def __le__(self, bound: Any) -> bool:
        return NotImplemented if isinstance(bound, Knowledge) else self._answer(self.at_most(bound), f"<= {bound}")

    def __lt__(self, bound: Any) -> bool:
        return NotImplemented if isinstance(bound, Knowledge) else self._answer(self.less_than(bound), f"< {bound}")

    def __bool__(self) -> bool:
        return self._answer(bool(self.low) if self.is_final else None, "as a truth")


def text_of(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
    return str(value)


def _hashable(value: Any) -> Any:
    """A nested relation is a list of rows."""
    return repr(value) if isinstance(value, list) else value
