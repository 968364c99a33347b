"""Knowledge of one value: the set of values that it may still have in the end. The set only shrinks, until it has one
element and the knowledge is final.

`value` is the current value: the one in the end if there are no more events. It is displayed, but equality and order
ignore it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR
from html import escape
from typing import Any

from smile.client.ticks import tick_text
from smile.client.value_text import rows_text, value_text
from smile.client.values import ViewColumn, tick_json

Json = dict[str, Any]


class NotYetKnown(ValueError):
    """The present knowledge does not answer the question yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """`kind` is its key in JSON: exactly, at_least, at_most, between, latest, rows or unknown.

    `low` and `high` bound the final value; None is no bound. `latest` is the value as of tick `at`. If events of
    several sources can share a tick, `source` says of which it is: of two at one tick, the greater is later.

    Of a nested relation, `value` is the list of its current rows. `row_states` has the state of each: "final", "stays"
    (it is there for good, and its values may change) or "shown" (it may leave). `is_open`: rows may come or leave.
    """

    kind: str
    value: Any = None
    low: Any = None
    high: Any = None
    latest: Any = None
    at: int | None = None
    source: int | None = None
    row_states: tuple[str, ...] = ()
    is_open: bool = False

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
                return Knowledge(
                    "latest", value, latest=decode(encoded_value), at=int(tick), source=encoded.get("source")
                )
            case {"rows": states, "open": is_open}:
                return Knowledge("rows", value, row_states=tuple(states), is_open=is_open)
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
                source = {} if self.source is None else {"source": self.source}
                return {"latest": encode(self.latest), "at": tick_json(self.at), **source}
            case "rows":
                return {"rows": list(self.row_states), "open": self.is_open}
        return {"unknown": True}

    @property
    def is_final(self) -> bool:
        return self.kind == "exactly"

    @property
    def rows_for_good(self) -> list[Json]:
        """The rows of a nested relation that will always be in it. Values of rows that are not final may change."""
        if self.is_final:
            return list(self.low or ())
        return [row for row, state in zip(self.value or (), self.row_states, strict=False) if state != "shown"]

    def _final_rows(self) -> list[str]:
        if self.is_final:
            return sorted(map(repr, self.low or ()))
        return sorted(repr(r) for r, state in zip(self.value or (), self.row_states, strict=False) if state == "final")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{self}>"

    def _repr_html_(self) -> str:
        return f"<code>{escape(str(self))}</code>"

    def text(self, column: ViewColumn | None = None, today: date | None = None) -> str:
        """For people. `≥3` is also the current value, 3. A current value that is not itself a bound is marked, as in
        `7~` and `5~ ≥3`: it may rise and fall. `3 [3..9]` can only rise. `?` is for what is not known at all."""
        if self.kind == "rows":
            return rows_text(self.value or [], column, today, self.row_states, self.is_open)
        bounds = self._bounds_text(column, today)
        if self.value is None or self.value == self._value_in_text():
            return bounds or "?"
        is_bound = self.kind == "between" and self.value in (self.low, self.high)
        return f"{value_text(self.value, column, today)}{'' if is_bound else '~'} {bounds}".rstrip()

    def _bounds_text(self, column: ViewColumn | None, today: date | None) -> str:
        """What is known for good. Rounded bounds hold too: they are rounded outwards."""
        match self.kind:
            case "exactly":
                return f"={value_text(self.low, column, today)}"
            case "at_least":
                return f"≥{value_text(self.low, column, today, ROUND_FLOOR)}"
            case "at_most":
                return f"≤{value_text(self.high, column, today, ROUND_CEILING)}"
            case "between":
                low = value_text(self.low, column, today, ROUND_FLOOR)
                return f"[{low}..{value_text(self.high, column, today, ROUND_CEILING)}]"
            case "latest":
                assert self.at is not None
                source = "" if self.source is None else f"/{self.source}"
                return f"{value_text(self.latest, column, today)}@{tick_text(self.at, today)}{source}"
        return ""

    def _value_in_text(self) -> Any:
        """The current value, if the text of the bounds says it."""
        by_kind = {"exactly": self.low, "at_least": self.low, "at_most": self.high, "latest": self.latest}
        return by_kind.get(self.kind)

    # ── equality and order ──────────────────────────────────────────────────────────────────────────────────────────

    def _comparison_key(self) -> tuple[Any, ...]:
        final_rows = tuple(self._final_rows()) if self.kind == "rows" else ()
        return (
            self.kind, self.low, self.high, self.latest, self.at, self.source, self.row_states, self.is_open, final_rows
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        """Whether both are the same knowledge. A plain value stands for final knowledge of that value."""
        if isinstance(other, Knowledge):
            return self._comparison_key() == other._comparison_key()
        return self.is_final and bool(self.low == other)

    def __hash__(self) -> int:
        return hash(_hashable(self.low)) if self.is_final else hash(tuple(map(_hashable, self._comparison_key())))

    def evolves_to(self, other: "Knowledge") -> bool:
        """Whether this knowledge may become `other`."""
        if self.is_final:
            return self == other
        if self.kind == "unknown":
            return True
        if self.kind == "rows":
            return self._rows_evolve_to(other)
        if self.kind == "latest":
            return other.is_final or self == other or (other.kind == "latest" and self._time() < other._time())
        if other.kind == "latest":  # bounds of a column hold for its latest values too
            return other.latest is not None and self._contains(other.latest)
        if other.kind == "unknown" or (other.is_final and other.low is None):
            return False
        low_holds = self.low is None or (other.low is not None and _order(self.low) <= _order(other.low))
        high_holds = self.high is None or (other.high is not None and _order(other.high) <= _order(self.high))
        return bool(low_holds and high_holds)

    def _rows_evolve_to(self, other: "Knowledge") -> bool:
        """Final rows stay as they are, rows that stay do not get fewer, and if no rows may come, none do."""
        if other.kind not in ("rows", "exactly") or (other.is_open and not self.is_open):
            return False
        remaining, rows = Counter(other._final_rows()), other.low if other.is_final else other.value
        remaining.subtract(self._final_rows())
        has_grown = not self.is_open and len(rows or ()) > len(self.value or ())
        keeps_rows = len(other.rows_for_good) >= len(self.rows_for_good)
        return min(remaining.values(), default=0) >= 0 and keeps_rows and not has_grown

    def _contains(self, value: Any) -> bool:
        """Whether the value is within the bounds."""
        return bool(
            (self.low is None or _order(self.low) <= _order(value))
            and (self.high is None or _order(value) <= _order(self.high))
        )

    def _time(self) -> tuple[int, int]:
        """What orders latest values."""
        return self.at or 0, self.source or 0

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────
    # True and False are permanent; None means undecided. A final NULL compares as False.

    def at_least(self, bound: Any) -> bool | None:
        return self._decide(
            lambda: self.low is not None and _order(self.low) >= _order(bound),
            lambda: self.high is not None and _order(self.high) < _order(bound),
        )

    def more_than(self, bound: Any) -> bool | None:
        return self._decide(
            lambda: self.low is not None and _order(self.low) > _order(bound),
            lambda: self.high is not None and _order(self.high) <= _order(bound),
        )

    def at_most(self, bound: Any) -> bool | None:
        return self._decide(
            lambda: self.high is not None and _order(self.high) <= _order(bound),
            lambda: self.low is not None and _order(self.low) > _order(bound),
        )

    def less_than(self, bound: Any) -> bool | None:
        return self._decide(
            lambda: self.high is not None and _order(self.high) < _order(bound),
            lambda: self.low is not None and _order(self.low) >= _order(bound),
        )

    def equals(self, value: Any) -> bool | None:
        if self.is_final:
            return self.low is not None and bool(self.low == value)
        outside = (self.low is not None and _order(value) < _order(self.low)) or (
            self.high is not None and _order(self.high) < _order(value)
        )
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


def _order(value: Any) -> Any:
    """What orders a value: in arrays, which are tuples, NULL comes after all other elements, as in the broker."""
    return tuple((element is None, element) for element in value) if isinstance(value, tuple) else value


def _hashable(value: Any) -> Any:
    """A nested relation is a list of rows, which cannot be hashed."""
    return repr(value) if isinstance(value, list) else value
