"""Knowledge of one value: the set of values that it may still have in the end. The set only shrinks, until it has one
element and the knowledge is final.

`value` is the current value: the one in the end if there are no more events. It is displayed, but equality and order
ignore it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smile.client.values import ViewColumn, tick_json

Json = dict[str, Any]


class NotYetKnown(ValueError):
    """The present knowledge does not answer the question yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """`kind` is its key in JSON: exactly, at_least, at_most, between, latest or unknown.

    `low` and `high` bound the final value; None is no bound. `latest` is the value as of tick `at`.
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
    def from_json(encoded: Json, value: Any, column: ViewColumn | None = None) -> "Knowledge":
        """`encoded` is as the broker sends it. `value` is the current value, already decoded."""

        def decode(encoded_value: Any) -> Any:
            return encoded_value if encoded_value is None or column is None else column.decode(encoded_value)

        match encoded:
            case {"exactly": encoded_value}:
                return Knowledge.exactly(decode(encoded_value))
            case {"at_least": encoded_value}:
                return Knowledge("at_least", value, low=decode(encoded_value))
            case {"at_most": encoded_value}:
                return Knowledge("at_most", value, high=decode(encoded_value))
            case {"between": [low, high]}:
                return Knowledge("between", value, decode(low), decode(high))
            case {"latest": encoded_value, "at": tick}:
                return Knowledge("latest", value, latest=decode(encoded_value), at=int(tick))
        return Knowledge("unknown", value)

    def to_json(self, column: ViewColumn | None = None) -> Json:
        def encode(value: Any) -> Any:
            return value if value is None or column is None else column.encode(value)

        match self.kind:
            case "exactly":
                return {"exactly": encode(self.low)}
            case "at_least":
                return {"at_least": encode(self.low)}
            case "at_most":
                return {"at_most": encode(self.high)}
            case "between":
                return {"between": [encode(self.low), encode(self.high)]}
            case "latest":
                assert self.at is not None
                return {"latest": encode(self.latest), "at": tick_json(self.at)}
        return {"unknown": True}

    @property
    def is_final(self) -> bool:
        return self.kind == "exactly"

    def __str__(self) -> str:
        match self.kind:
            case "exactly":
                return f"={value_text(self.low)}"
            case "at_least":
                return f"≥{value_text(self.low)}"
            case "at_most":
                return f"≤{value_text(self.high)}"
            case "between":
                return f"[{value_text(self.low)}..{value_text(self.high)}]"
            case "latest":
                return f"{value_text(self.latest)}@{self.at}"
        return "?"

    def __repr__(self) -> str:
        return f"<{self}>" if self.is_final or self.value is None else f"<{self} now {value_text(self.value)}>"

    # ── equality and order ──────────────────────────────────────────────────────────────────────────────────────────

    def _comparison_key(self) -> tuple[Any, ...]:
        return self.kind, self.low, self.high, self.latest, self.at

    def __eq__(self, other: object) -> bool:
        """Whether both are the same knowledge. A plain value stands for final knowledge of that value."""
        if isinstance(other, Knowledge):
            return self._comparison_key() == other._comparison_key()
        return self.is_final and bool(self.low == other)

    def __hash__(self) -> int:
        return hash(_hashable(self.low)) if self.is_final else hash(tuple(map(_hashable, self._comparison_key())))

    def evolves_to(self, other: "Knowledge") -> bool:
        """Whether this knowledge may become `other`. Of two latest values with the same tick, either may be the later:
        the tick alone does not decide."""
        if self.is_final:
            return self == other
        if self.kind == "unknown":
            return True
        if self.kind == "latest":
            return other.is_final or (other.at is not None and self.at is not None and self.at <= other.at)
        if other.kind in ("unknown", "latest") or (other.is_final and other.low is None):
            return False
        low_holds = self.low is None or (other.low is not None and self.low <= other.low)
        high_holds = self.high is None or (other.high is not None and other.high <= self.high)
        return bool(low_holds and high_holds)

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────
    # True and False are permanent; None means undecided. A final NULL compares as False.

    def at_least(self, bound: Any) -> bool | None:
        return self._decide(
            lambda: self.low is not None and self.low >= bound, lambda: self.high is not None and self.high < bound
        )

    def more_than(self, bound: Any) -> bool | None:
        return self._decide(
            lambda: self.low is not None and self.low > bound, lambda: self.high is not None and self.high <= bound
        )

    def at_most(self, bound: Any) -> bool | None:
        return self._decide(
            lambda: self.high is not None and self.high <= bound, lambda: self.low is not None and self.low > bound
        )

    def less_than(self, bound: Any) -> bool | None:
        return self._decide(
            lambda: self.high is not None and self.high < bound, lambda: self.low is not None and self.low >= bound
        )

    def equals(self, value: Any) -> bool | None:
        if self.is_final:
            return self.low is not None and bool(self.low == value)
        outside = (self.low is not None and value < self.low) or (self.high is not None and self.high < value)
        return False if outside else None

    def _decide(self, holds: Callable[[], Any], fails: Callable[[], Any]) -> bool | None:
        if self.is_final and self.low is None:
            return False
        return True if holds() else False if fails() else None

    def _require_decided(self, answer: bool | None, question: str) -> bool:
        if answer is None:
            raise NotYetKnown(f"{self} {question} is not decided yet; use .at_least(…) and similar methods, or .value")
        return answer

    def __ge__(self, bound: Any) -> bool:
        return (
            NotImplemented
            if isinstance(bound, Knowledge)
            else self._require_decided(self.at_least(bound), f">= {bound}")
        )

    def __gt__(self, bound: Any) -> bool:
        return (
            NotImplemented
            if isinstance(bound, Knowledge)
            else self._require_decided(self.more_than(bound), f"> {bound}")
        )

    def __le__(self, bound: Any) -> bool:
        return (
            NotImplemented
            if isinstance(bound, Knowledge)
            else self._require_decided(self.at_most(bound), f"<= {bound}")
        )

    def __lt__(self, bound: Any) -> bool:
        return (
            NotImplemented
            if isinstance(bound, Knowledge)
            else self._require_decided(self.less_than(bound), f"< {bound}")
        )

    def __bool__(self) -> bool:
        return self._require_decided(bool(self.low) if self.is_final else None, "as a truth value")


def value_text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
    return str(value)


def _hashable(value: Any) -> Any:
    """A nested relation is a list of rows, which cannot be hashed."""
    return repr(value) if isinstance(value, list) else value
