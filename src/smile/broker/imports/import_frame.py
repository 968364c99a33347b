"""Import frames: what a broker sends to one that imports a view.

A frame has the changes of the view's rows between two sets of horizons, each row once or several times, the last one
with its knowledge at the end. A frame that begins at None is a reset: rows that it does not have are gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Horizons = Mapping[str, int]
"""By stream, as the exporting broker names them."""


@dataclass(frozen=True)
class FramePart:
    """A part of a frame, so that a large one need not be in memory at once. `block` has encoded rows
    (`kernels.row_blocks`), None if there are none. `is_reset`: the frame begins here again, as a reset. `end` is set in
    the last part."""

    start: Horizons | None
    block: bytes | None
    is_reset: bool
    end: Horizons | None
    row_count: int = 0


@dataclass(frozen=True)
class ImportFrame:
    start: Horizons | None
    blocks: tuple[bytes, ...]
    end: Horizons

    @property
    def is_reset(self) -> bool:
        return self.start is None


@dataclass
class FrameAssembly:
    """Puts the parts of one frame after the other together."""

    _blocks: list[bytes] = field(default_factory=list)
    _has_begun: bool = False
    _start: Horizons | None = None

    def add(self, part: FramePart) -> ImportFrame | None:
        """The frame, if this is its last part."""
        if not self._has_begun or part.is_reset:
            self._blocks, self._has_begun = [], True
            self._start = None if part.is_reset else part.start
        if part.block is not None:
            self._blocks.append(part.block)
        if part.end is None:
            return None
        frame = ImportFrame(self._start, tuple(self._blocks), part.end)
        self._blocks, self._has_begun = [], False
        return frame
