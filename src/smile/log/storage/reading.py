"""Opens logs for reading, and reads them as input batches."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from smile.algebra import mmpl
from smile.horizons import HORIZON_MIN, split_name
from smile.log.input_batch import InputBatch
from smile.log.lines import unreadable_error
from smile.log.position import BatchLimit, Log, Position
from smile.log.storage.database import HEADER, not_a_log_error
from smile.log.storage.durable import DurableLog
from smile.log.storage.parquet import ParquetLog

__all__ = ["BatchLimit", "Log", "Position", "open_log", "read_batches"]


def open_log(path: str, streams: Sequence[mmpl.StreamDef]) -> Log:
    """The durable log in a file, or the log in a directory of Parquet files."""
    absolute_path = Path(path).absolute()  # other processes may have another working directory
    if absolute_path.is_dir():
        return ParquetLog.open(str(absolute_path), streams)
    try:
        with absolute_path.open("rb") as file:
            header = file.read(len(HEADER))
    except OSError as problem:
        raise unreadable_error(path, problem) from None
    if header != HEADER:
        raise not_a_log_error(path)
    log = DurableLog(str(absolute_path), streams)
    log.verify()
    return log


def read_batches(log: Log, limit: BatchLimit, start: Position | None = None) -> Iterator[InputBatch]:
    """The content of the log after a position, in batches within the limit."""
    position = log.start() if start is None else start
    while (end := log.after(position, limit)) != position:
        before, horizons = position.named_horizons(), end.named_horizons()
        advanced = [name for name, horizon in horizons.items() if horizon > before.get(name, HORIZON_MIN)]
        if advanced:
            streams = dict.fromkeys(split_name(name, log.streams)[0] for name in advanced)
            events = {stream: log.read(stream, position, end) for stream in streams}
            yield InputBatch({stream: batch for stream, batch in events.items() if batch.num_rows}, horizons)
        position = end
