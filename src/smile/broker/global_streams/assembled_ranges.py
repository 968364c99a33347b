"""Reads ranges of an origin from the sources of a plan, and merges them into one range in tick order."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from smile.broker.imports.exported_stream import ExportedStream
from smile.decoding.stream_schema import StreamSchema
from smile.log.storage.piece_log import slice_events
from smile.log.storage.pieces import StreamPiece

RANGE_BYTES = 2**20
"""What is read of each source at once, unless a single piece of the log is larger."""


def read_range(
    sources: Sequence[ExportedStream], schema: StreamSchema, origin: str, lo: int, hi: int
) -> StreamPiece | None:
    """The events of an origin in (lo, hi] that any source has, as far as one step reads; None if a source has nothing
    yet. All sources must have the origin up to `hi`. The same event of two sources is there once."""
    pieces = [source.read_range(origin, lo, RANGE_BYTES) for source in sources]
    present = [piece for piece in pieces if piece is not None]
    if len(present) < len(pieces) or not present:
        return None
    end = min(hi, *(piece.hi for piece in present))
    batches = [slice_events(p.events, lo, end) for p in present if p.events is not None]
    events = merge_events([batch for batch in batches if batch.num_rows], schema)
    return StreamPiece(schema.name, origin, lo, end, events)


def merge_events(batches: Sequence[pa.RecordBatch], schema: StreamSchema) -> pa.RecordBatch | None:
    """In tick order, each tick once. Each batch is in tick order."""
    if not batches:
        return None
    names, target = list(schema.types), schema.arrow_schema
    alike = [pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=target) for batch in batches]
    if len(alike) == 1:
        return alike[0]
    table = pa.concat_batches(alike)
    table = table.take(pc.sort_indices(table.column(0)))
    ticks = table.column(0)
    is_new = pc.not_equal(ticks.slice(1), ticks.slice(0, len(ticks) - 1))
    return table.filter(pa.concat_arrays([pa.array([True]), is_new]))
