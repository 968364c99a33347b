"""What the tests of publishing share: streams, a publisher on a log, and all that the log has."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import INT, STRING
from smile.broker.publishing.publication import ProducerSequence, Publication, PublishResult, SilencePublication
from smile.broker.publishing.publisher import Publisher
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError
from smile.log.clock import Clock, TickGenerator, wall_clock
from smile.log.position import BatchLimit
from smile.log.storage.durable import DurableLog
from tests.processes import WAIT_S

COLUMNS = (("v", INT), ("w", STRING))
STREAMS = [
    mmpl.StreamDef("R", "t", COLUMNS),
    mmpl.StreamDef("S", "t", COLUMNS),
    mmpl.StreamDef("T", "t", COLUMNS, publisher_timed=True),
]


@contextmanager
def publisher_at(
    path: Path,
    clock: Clock = wall_clock,
    origin: int = 0,
    silence_ms: int = 50,
    idle_ms: int = 10_000,
    streams: Sequence[mmpl.StreamDef] = STREAMS,
    **given: Any,
) -> Iterator[Publisher]:
    """Silence is rare unless it is asked for."""
    log = DurableLog.open_or_create(str(path), streams, flush=False)
    publisher = Publisher(log, TickGenerator(origin, clock), silence_ms, idle_ms, streams, **given)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop()
        log.close()


def numbered(stream: str, rows: list[tuple[Any, ...]], seq: int, producer: str = "p") -> Publication:
    return Publication(stream, rows, ProducerSequence("anna", producer, seq))


def taken(publisher: Publisher, order: Publication | SilencePublication) -> PublishResult:
    return publisher.submit(order).result(WAIT_S)


def answer(future: Future[PublishResult]) -> tuple[list[int], int] | str:
    """Ticks and how many of them were there before, or the code of the error."""
    try:
        result = future.result(WAIT_S)
    except SmileError as problem:
        return problem.diagnostics[0].code
    return list(result.ticks), result.repeated


def as_batch(rows: list[tuple[Any, ...]], stream: str) -> pa.RecordBatch:
    """The same rows as Arrow."""
    definition = next(s for s in STREAMS if s.name == stream)
    names = [*(["t"] if definition.publisher_timed else []), *(name for name, _ in COLUMNS)]
    kinds = [pa.string() if name == "w" else pa.int64() for name in names]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    return EventDecoder(STREAMS).decode_batch(stream, pa.record_batch(columns, names))


def content(path: Path, stream: str, streams: Sequence[mmpl.StreamDef] = STREAMS) -> dict[int, tuple[Any, ...]]:
    """Every event of a stream by its tick, read commit by commit by somebody else."""
    log = DurableLog(str(path), streams)
    rows: dict[int, tuple[Any, ...]] = {}
    position = log.start()
    while (end := log.after(position, BatchLimit(commits=1))) != position:
        for row in log.read(stream, position, end).to_pylist():
            assert row["t"] not in rows
            rows[row["t"]] = (row["v"], row["w"])
        position = end
    log.close()
    return rows
