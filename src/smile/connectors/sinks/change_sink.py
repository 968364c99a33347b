"""The interface of sinks: a sink takes the changes of a view, with their knowledge, and remembers how far it came.

It takes everything up to a progress mark at once. The resume token of the mark is stored with the rows, so a sink that
is opened again continues there; a sink that stores nothing begins with all rows, and finds out itself what is new.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from smile.broker.views.view import ViewFrame
from smile.kernels.transform import InputRelation


@dataclass(frozen=True)
class ViewChanges:
    """Everything between two progress marks. With `is_reset`, these are all rows, and the sink discards what it has.
    `resume` is the token of the mark."""

    frames: Sequence[ViewFrame]
    is_reset: bool
    resume: str | None

    @property
    def row_count(self) -> int:
        return sum(frame.row_count for frame in self.frames)


class ChangeSink(Protocol):
    """Used by one thread. After `close` it may be opened again. With `only_final` it takes rows that are final only."""

    only_final: bool

    def open(self, source: InputRelation) -> str | None:
        """Prepares for the rows of a view. Returns the token with which to continue; None to begin with all rows."""

    def write(self, changes: ViewChanges) -> None:
        """Returns when everything is stored or delivered. After an error, the same or newer changes come again."""

    def close(self) -> None: ...

    def status(self) -> dict[str, Any]:
        """Figures. Thread-safe."""
