"""Batches of generations in this process: reads events from the log, advances the generations, delivers the changes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smile import limits
from smile.broker.maintenance.local_generation import LocalGeneration
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.view_error import ViewError
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit, Log, Position, refuse_truncated_start


@dataclass(frozen=True)
class BatchFigures:
    """What a batch took: its events, the rows that it changed, and seconds."""

    events: int
    changed_rows: int
    read_s: float
    kernels_s: float


BatchCallback = Callable[[BatchFigures], None]


def advance_each(
    generations: Sequence[LocalGeneration],
    log: Log,
    delivery: OrderedDelivery,
    failures: list[ViewError],
    on_batch: BatchCallback,
) -> bool:
    """Advances each generation by at most one batch. Those at the same position share the batch. Adds the errors of
    those that cannot be advanced to `failures`. Returns whether any has advanced."""
    positions = [local.position for local in generations]
    distinct_positions = [position for i, position in enumerate(positions) if position not in positions[:i]]
    advanced = False
    for position in distinct_positions:
        at_position = [local for local in generations if local.position == position]
        advanced |= advance_together(at_position, log, delivery, failures, on_batch)
    return advanced


def advance_together(
    generations: Sequence[LocalGeneration],
    log: Log,
    delivery: OrderedDelivery,
    failures: list[ViewError],
    on_batch: BatchCallback,
) -> bool:
    """Like `advance_each`, for generations at the same position."""
    start_s, position = time.perf_counter(), generations[0].position
    new = [local for local in generations if not local.version]
    for local in new:
        refuse_truncated_start(position, local.streams)
        # The first delivery has the rows that exist before any event.
        _advance_generation(local, InputBatch({}, {}), position, delivery, failures)
    rows_max = min(local.rows_max for local in generations)
    end = log.after(position, BatchLimit(rows_max, limits.batch_bytes_max))
    if end == position:
        return bool(new)
    input_batch = _read_batch(generations, log, position, end)
    read_s = time.perf_counter()
    changed_rows = sum(_advance_generation(local, input_batch, end, delivery, failures) for local in generations)
    events = sum(batch.num_rows for batch in input_batch.events.values())
    on_batch(BatchFigures(events, changed_rows, read_s - start_s, time.perf_counter() - read_s))
    return True


def _advance_generation(
    local: LocalGeneration, input_batch: InputBatch, end: Position, delivery: OrderedDelivery, failures: list[ViewError]
) -> int:
    """Returns the number of changed rows. If the batch needs too much memory, it is repeated with fewer events."""
    try:
        changed_rows = local.advance(input_batch, end, delivery)
    except ViewError as failure:
        rows = sum(batch.num_rows for batch in input_batch.events.values())
        if not (failure.is_lack_of_memory and local.shrink_batches(rows)):
            failures.append(failure)
        return 0
    local.grow_batches()
    return changed_rows


def _read_batch(generations: Sequence[LocalGeneration], log: Log, start: Position, end: Position) -> InputBatch:
    streams = dict.fromkeys(stream for local in generations for stream in local.streams)
    events = {stream: log.read(stream, start, end) for stream in streams}
    return InputBatch({stream: batch for stream, batch in events.items() if batch.num_rows}, end.named_horizons())
