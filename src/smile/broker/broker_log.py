"""Opens the log of a broker."""

from collections.abc import Sequence
from pathlib import Path

from smile.algebra import mmpl
from smile.broker.program_difference import refuse_changed_streams
from smile.log.storage.durable import DurableLog


def open_log(path: str, streams: Sequence[mmpl.StreamDef], flush: bool) -> DurableLog:
    """Opens the log with the streams of the program and those that the log already has."""
    if not Path(path).exists():
        return DurableLog.open_or_create(path, streams, flush)
    logged = {s.name: s for s in DurableLog.read_definitions(path)}
    refuse_changed_streams(logged, streams)
    log = DurableLog.open_or_create(path, list(logged.values()), flush)
    new_streams = [s for s in streams if logged.get(s.name) != s]
    if new_streams:
        log.add_streams(new_streams)
    return log
