"""Exports a stream: the ranges of its events that another broker needs to import it, each origin for itself.

A range has all events between two ticks that satisfy the condition of the import. Where there is none, it is silence.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.columns.values import ValueColumn, from_arrow, true_indices
from smile.horizons import HORIZON_MIN
from smile.kernels.expressions import compile_expression
from smile.kernels.layout import Layout
from smile.log.membership import StreamMembership
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece


class ExportedStream:
    """`condition` is that of the import, None if it has none. Besides the tick, only `columns` are exported; all if
    that is None. With `begins_with_kept`, what was removed from the beginning of the log counts as silence. The
    membership is that of the log, unless `find_membership` returns another one."""

    def __init__(
        self,
        log: DurableLog,
        stream: mmpl.StreamDef,
        condition: mmpl.Expr | None,
        columns: tuple[str, ...] | None = None,
        begins_with_kept: bool = False,
        find_membership: Callable[[], StreamMembership | None] | None = None,
    ) -> None:
        self._log, self._stream, self.name = log, stream, stream.name
        self._columns = None if columns is None else [stream.tick, *columns]
        self._begins_with_kept, self._find_membership = begins_with_kept, find_membership
        self._predicate = None
        if condition is not None:
            layout = Layout((stream.tick,), stream_types(stream), certain=True)
            self._predicate = compile_expression(condition, layout)

    def horizons(self) -> Mapping[str, int]:
        """The horizon of each origin."""
        return self._log.stream_horizons(self._stream.name)

    def membership(self) -> StreamMembership | None:
        """Who the origins are, if the stream has many and they are known."""
        if self._find_membership is not None:
            return self._find_membership()
        return self._log.membership(self._stream.name) if self._stream.many_origins else None

    def read_range(self, origin: str, after: int, bytes_max: int) -> StreamPiece | None:
        """What follows tick `after` of an origin, as much as fits in this size before the condition is applied; None if
        nothing is new. Raises E097 if it was removed from the log."""
        if self._begins_with_kept and after == HORIZON_MIN:
            truncated_to = self._log.truncated_ticks(self._stream.name).get(origin, HORIZON_MIN)
            if truncated_to > after:
                return StreamPiece(self._stream.name, origin, after, truncated_to, None)
        piece = self._log.read_range(self._stream.name, origin, after, bytes_max)
        return None if piece is None else self.select(piece)

    def select(self, piece: StreamPiece) -> StreamPiece:
        """The events of a piece that satisfy the condition, with the exported columns."""
        events = piece.events
        if events is not None and self._predicate is not None:
            events = self._matching_events(events)
        if events is not None and self._columns is not None:
            events = events.select(self._columns)
        return StreamPiece(piece.stream, piece.origin, piece.lo, piece.hi, events)

    def _matching_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        assert self._predicate is not None
        columns = {name: from_arrow(events.column(name)) for name in events.schema.names}
        truths = self._predicate(columns, {}, events.num_rows)
        assert isinstance(truths, ValueColumn), "all columns of a stream are fixed"
        holds = truths.data if truths.valid is None else truths.data & truths.valid
        matching = true_indices(holds)
        return events.take(pa.array(matching)) if len(matching) else None
