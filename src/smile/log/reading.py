"""Logs as pipelines read them: by ranges of ticks, from wherever they were left."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from smile.algebra import mmpl
from smile.log.database import HEADER, not_a_log
from smile.log.durable import DurableLog
from smile.log.frame import NOTHING, Frame
from smile.log.lines import unreadable
from smile.log.parquet import ParquetLog
from smile.log.position import Limit, Log, Position

__all__ = ["Limit", "Log", "Position", "frames", "opened"]


def opened(path: str, streams: Sequence[mmpl.StreamDef]) -> Log:
    """The durable log in a file, or the recorded events in a directory of Parquet files."""
    place = Path(path).absolute()  # whoever reads it may have another working directory
    if place.is_dir():
        return ParquetLog.at(str(place), streams)
    try:
        with place.open("rb") as file:
            header = file.read(len(HEADER))
    except OSError as problem:
        raise unreadable(path, problem) from None
    if header != HEADER:
        raise not_a_log(path)
    log = DurableLog(str(place), streams)
    log.verify()
    return log


def frames(log: Log, limit: Limit, start: Position | None = None) -> Iterator[Frame]:
    """All that the log has after a position, a batch to a frame."""
    position = log.start() if start is None else start
    while (end := log.after(position, limit)) != position:
        before, horizons = position.streams(), end.streams()
        moved = [stream for stream in log.streams if horizons[stream] > before.get(stream, NOTHING)]
        if moved:
            events = {stream: log.read(stream, position, end) for stream in moved}
            yield Frame({stream: batch for stream, batch in events.items() if batch.num_rows}, horizons)
        position = end
