"""The cache of an imported stream: the ranges of events that arrive are appended to the log, each origin for itself.

Appending is idempotent: what is known is dropped, and a range that leaves a gap is not appended.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from smile.algebra import mmpl
from smile.broker.imports.receipt import Receipt
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN, with_origins
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece, check_piece


class StreamCache:
    """Only the thread that writes the log may call `take`, `record_commit` and `discard_taken`. Nobody else appends to
    this stream."""

    has_whole_commits: Final = False
    """Whether everything of a commit must be processed in one batch."""

    def __init__(self, import_: mmpl.ImportDef, log: DurableLog) -> None:
        assert import_.stream is not None
        self.import_, self._stream, self._log = import_, import_.stream, log
        self._schema = StreamSchema(self._stream)
        self.events = 0
        """What was appended since this object was created."""
        self._load()

    def _load(self) -> None:
        newest = self._log.newest().horizons[self._stream.name]
        self._taken = {origin: tick for origin, tick in newest.items() if tick > HORIZON_MIN}
        self.horizons: Mapping[str, int] = dict(self._taken)
        """The horizon of each origin that anything is known of."""
        self._needs_reload = False

    @property
    def log_horizons(self) -> Mapping[str, int]:
        """The horizon of this stream in the log."""
        if self._stream.many_origins:
            return with_origins(self._stream.name, self.horizons)
        return {self._stream.name: min(self.horizons.values(), default=HORIZON_MIN)}

    def append(self, origin: str, lo: int, hi: int, events: pa.RecordBatch | None, time_us: int = 0) -> Receipt:
        """Appends all events of an origin in (lo, hi] to the log at once."""
        receipt, pieces = self.take(StreamPiece(self._stream.name, origin, lo, hi, events))
        if pieces:
            self._log.append(pieces, time_us=time_us)
            self.record_commit()
        return receipt

    def decode(self, origin: str, lo: int, hi: int, body: bytes) -> StreamPiece:
        """The events of a message; empty bytes mean silence. Raises E125 if they are not events of this stream."""
        events = None
        try:
            if body:
                events = pa.ipc.read_record_batch(pa.py_buffer(body), self._schema.arrow_schema)
                events.validate(full=True)
            piece = StreamPiece(self._stream.name, origin, lo, hi, events)
            check_piece(piece, {self._stream.name: self._schema})
        except (pa.ArrowException, OSError, EOFError, ValueError, SmileError) as problem:
            raise self._wrong_events(str(problem)) from None
        if events is not None and len(violations := self._schema.checks.violations(events)):
            raise self._wrong_events(self._schema.checks.describe(events, int(violations[0])))
        return piece

    def take(self, piece: StreamPiece) -> tuple[Receipt, list[StreamPiece]]:
        """What is to be appended of a range. Call `record_commit` or `discard_taken` afterwards."""
        if self._needs_reload:
            self._load()
        known = self._taken.get(piece.origin, HORIZON_MIN)
        if piece.hi <= known:
            return Receipt.REDUNDANT, []
        if piece.lo > known:
            return Receipt.GAP, []
        new = piece.above(known)
        self._taken[piece.origin] = piece.hi
        self.events += new.rows
        return Receipt.APPENDED, [new]

    def record_commit(self) -> None:
        """What was taken is in the log."""
        self.horizons = dict(self._taken)

    def discard_taken(self) -> None:
        """What was taken is not in the log, or may not be."""
        self._needs_reload = True

    def _wrong_events(self, problem: str) -> SmileError:
        hint = f"Check whether {self.import_.broker} runs the same version of SMILE, and has not changed the stream."
        return error("E125", f"events of {self.import_.name} cannot be used: {problem}", hint=hint)
