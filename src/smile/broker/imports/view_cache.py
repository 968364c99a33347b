"""The cache of an imported view: the frames that arrive are appended to the log. The pipeline reads them from there.

Appending is idempotent: a frame that brings nothing new is dropped, and one that leaves a gap is not appended. Each
frame is one commit, with the horizons at its end. So the rows of a batch are always those at its horizons.
"""

from typing import Final

import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.broker.imports.import_frame import Horizons, ImportFrame
from smile.broker.imports.receipt import Receipt
from smile.decoding.arrow_messages import MALFORMED, check_decoded_size
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN, select_streams, split_name
from smile.kernels.layout import Layout
from smile.kernels.row_blocks import check_block
from smile.log.position import DEFAULT_ORIGIN
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece


class ViewCache:
    """Only the thread that writes the log may call `take`, `record_commit` and `discard_taken`. Nobody else appends to
    the streams of this import. `layout` is that of the imported view."""

    has_whole_commits: Final = True
    """Whether everything of a commit must be processed in one batch."""

    def __init__(self, import_: mmpl.ImportDef, layout: Layout, log: DurableLog) -> None:
        self.import_, self._layout, self._log = import_, layout, log
        self._changes = import_.log_streams[0]
        self.frames = 0
        """What was appended since this object was created."""
        self._load()

    def _load(self) -> None:
        horizons, import_ = self._log.newest().named_horizons(), self.import_
        prefix = import_.horizon_name("")
        named = select_streams(horizons, map(import_.horizon_name, import_.base_streams))
        self._taken: Horizons = {name.removeprefix(prefix): tick for name, tick in named.items()}
        self.horizons: Horizons = self._taken
        """The horizons of the streams that the view is computed from, as the exporting broker names them."""
        self._last_block = max(0, horizons[import_.changes_name])
        self._last_reset = horizons[import_.resets_name]
        self._needs_reload = False

    @property
    def log_horizons(self) -> Horizons:
        """The horizons of this import's streams in the log."""
        named = {self.import_.horizon_name(s): tick for s, tick in self.horizons.items()}
        changes = self._last_block or HORIZON_MIN  # without any block, the log knows nothing of them
        return {self.import_.changes_name: changes, self.import_.resets_name: self._last_reset, **named}

    def append(self, frame: ImportFrame, time_us: int = 0) -> Receipt:
        """Appends a frame to the log at once."""
        self.check(frame)
        receipt, pieces = self.take(frame)
        if pieces:
            self._log.append(pieces, time_us=time_us, whole=True)
            self.record_commit()
        return receipt

    def check(self, frame: ImportFrame) -> int:
        """The number of rows in a frame. Raises E125 if it is not a frame of this view."""
        for horizons in (frame.end, *([] if frame.start is None else [frame.start])):
            self._check_horizons(horizons)
        return sum(self._check_block(block) for block in frame.blocks)

    def _check_horizons(self, horizons: Horizons) -> None:
        streams, many = set(self.import_.base_streams), self.import_.many_origins
        by_stream: dict[str, list[int]] = {}
        for name, tick in horizons.items():
            stream, origin = split_name(name, streams)
            if origin is not None and stream in many:
                by_stream.setdefault(stream, []).append(tick)
            elif name not in streams:
                raise self._wrong_frame("it has the horizons of other streams")
        least = {stream: min(by_stream.get(stream, [HORIZON_MIN])) for stream in many}
        if not streams <= horizons.keys() or any(horizons[stream] != tick for stream, tick in least.items()):
            raise self._wrong_frame("it does not have the horizons of all streams and origins")

    def take(self, frame: ImportFrame) -> tuple[Receipt, list[StreamPiece]]:
        """What is to be appended of a frame that was checked. Call `record_commit` or `discard_taken` afterwards."""
        if self._needs_reload:
            self._load()
        receipt = self.compare(frame)
        if receipt is not Receipt.APPENDED:
            return receipt, []
        first, last = self._last_block + 1, self._last_block + len(frame.blocks)
        import_, pieces = self.import_, []
        if frame.blocks:
            numbers = pa.array(range(first, last + 1), pa.int64())
            events = pa.RecordBatch.from_arrays(
                [numbers, pa.array(frame.blocks, pa.binary())], schema=stream_schema(self._changes)
            )
            pieces.append(StreamPiece(import_.changes_name, DEFAULT_ORIGIN, HORIZON_MIN, last, events))
        if frame.is_reset:
            pieces.append(StreamPiece(import_.resets_name, DEFAULT_ORIGIN, HORIZON_MIN, self._last_block))
        for name, tick in frame.end.items():
            stream, origin = split_name(name, import_.base_streams)
            if origin is not None or stream not in import_.many_origins:
                pieces.append(StreamPiece(import_.horizon_name(stream), origin or DEFAULT_ORIGIN, HORIZON_MIN, tick))
        self._last_reset = self._last_block if frame.is_reset else self._last_reset
        self._last_block, self._taken = last, dict(frame.end)
        self.frames += 1
        return receipt, pieces

    def record_commit(self) -> None:
        """What was taken is in the log."""
        self.horizons = self._taken

    def discard_taken(self) -> None:
        """What was taken is not in the log, or may not be."""
        self._needs_reload = True

    def compare(self, frame: ImportFrame) -> Receipt:
        """What `take` would do with a frame."""
        known = self._taken
        is_ahead = not _reaches(known, frame.end)
        if not _reaches(frame.end, known):
            return Receipt.INCOMPARABLE if is_ahead else Receipt.REDUNDANT
        if not is_ahead and not self._is_first(frame):
            return Receipt.REDUNDANT
        if frame.start is not None and not _reaches(known, frame.start):
            return Receipt.GAP
        return Receipt.APPENDED

    def _is_first(self, frame: ImportFrame) -> bool:
        """Whether it is the first one, which may be from before any event."""
        return frame.is_reset and self._last_reset == HORIZON_MIN

    def _check_block(self, block: bytes) -> int:
        """The number of rows in a block."""
        try:
            check_decoded_size(block[1:], limits.publication_bytes_max)
            return check_block(self._layout, block)
        except MALFORMED as problem:
            raise self._wrong_frame(str(problem)) from None

    def _wrong_frame(self, problem: str) -> SmileError:
        hint = f"Check whether {self.import_.broker} runs the same version of SMILE, and has not changed the view."
        return error("E125", f"a frame of {self.import_.name} cannot be used: {problem}", hint=hint)


def _reaches(horizons: Horizons, others: Horizons) -> bool:
    """Whether none of the other horizons is later. Origins that are missing are not known yet."""
    return all(horizons.get(name, HORIZON_MIN) >= tick for name, tick in others.items())
