"""Knowledge: the set of values that are still possible in the end. It only shrinks, and is never empty.

Beside it every point carries `now`, what holds if nothing more happens: it is shown, but takes no part in equality or
order.
"""

from typing import Any, Protocol, Self

from smile.algebra.types import Value
from smile.errors import Diagnostic, SmileError

WireKnowledge = dict[str, Any]
"""exactly, at_least, at_most, between, latest with at, or unknown. Values are Python's: encoding is the gateway's."""


class Contradiction(SmileError):
    """Two pieces of knowledge that cannot both be true: nothing is possible any more."""

    def __init__(self, message: str) -> None:
        super().__init__(Diagnostic("E050", message))


class CellKnowledge(Protocol):
    """A point of a monotonic domain."""

    @property
    def now(self) -> Any:
        """What plain SQL gives over what is known so far."""

    @property
    def is_final(self) -> bool:
        """Whether it evolves to nothing but itself."""

    def evolves_to(self, other: object) -> bool:
        """Whether whatever is possible in `other` is possible here. A point of another domain is never reached."""

    def merge(self, other: Self) -> Self:
        """What is known by both together: the least point that both evolve to. Contradiction if there is none.
        `now` stays what it is here, unless the result is exact."""

    def show(self) -> str: ...

    def wire(self) -> WireKnowledge: ...


def format_value(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
