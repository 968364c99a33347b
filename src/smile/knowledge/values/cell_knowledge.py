"""The knowledge of a cell: the set of final values that are still possible. The set only shrinks and is never empty.

Every point also has `now`, the value that holds if nothing more happens. `now` is shown, but equality and order ignore
it.
"""

from typing import Any, Protocol, Self

from smile.algebra.types import Value
from smile.errors import Diagnostic, SmileError

WireKnowledge = dict[str, Any]
"""The keys are exactly, at_least, at_most, between, latest with at and perhaps source, rows with open, or unknown.
Values are Python values, not yet encoded as JSON."""


class Contradiction(SmileError):
    """Two pieces of knowledge that cannot both be true: no value is possible any more."""

    def __init__(self, message: str) -> None:
        super().__init__(Diagnostic("E050", message))


class CellKnowledge(Protocol):
    """A point of a monotonic domain."""

    @property
    def now(self) -> Any:
        """The result of plain SQL over the events known so far."""

    @property
    def is_final(self) -> bool:
        """Whether it can evolve only to itself."""

    def evolves_to(self, other: object) -> bool:
        """Whether every value that is possible in `other` is possible here. Never true of a point of another domain."""

    def merge(self, other: Self) -> Self:
        """The knowledge of both together: the least point that both evolve to. Raises Contradiction if there is none.
        `now` is that of `self`, unless the result is exact."""

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
