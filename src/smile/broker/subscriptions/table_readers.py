"""Reads the changes of tables from the log, once for all subscriptions whose filters consult them."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from smile.algebra import mmpl
from smile.broker.subscriptions.event_filter import table_streams
from smile.broker.subscriptions.log_ranges import LogRanges
from smile.broker.subscriptions.matching.table_history import TableHistory
from smile.broker.subscriptions.table_checkpoints import TableCheckpoint, TableCheckpoints
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.log.storage.durable import DurableLog
from smile.log.storage.piece_log import slice_events


class TableReader:
    """The history of one table, read up to the horizon of its stream: the least of its origins'."""

    def __init__(
        self, stream: mmpl.StreamDef, history_id: str, ranges: LogRanges, start: TableCheckpoint | None
    ) -> None:
        self.stream, self.history_id, self._ranges = stream, history_id, ranges
        floor, rows = (HORIZON_MIN, {}) if start is None else (start.floor, start.rows)
        self.history = TableHistory(stream, rows, floor)
        self.stored_floor = floor
        """That of the checkpoint on the disk."""
        self._read_to: dict[str, int] = {}
        self._unapplied: list[pa.RecordBatch] = []
        """Changes of origins that are ahead of others."""

    def advance(self) -> None:
        """Reads what is new in the log."""
        name = self.stream.name
        for origin, horizon in self._ranges.horizons(name).items():
            position = self._read_to.setdefault(origin, self.history.floor)
            while position < horizon and (piece := self._ranges.read(name, origin, position)) is not None:
                if piece.events is not None and piece.events.num_rows:
                    self._unapplied.append(piece.events)
                position = self._read_to[origin] = piece.hi
        limit, floor = min(self._read_to.values(), default=HORIZON_MIN), self.history.horizon
        if limit > floor:
            ready = [slice_events(events, floor, limit) for events in self._unapplied]
            left = [slice_events(events, limit, int(events.column(0)[-1].as_py())) for events in self._unapplied]
            self._unapplied = [events for events in left if events.num_rows]
            self.history.advance([events for events in ready if events.num_rows], limit)


class TableReaders:
    """Not thread-safe. `find_history_id` identifies the history of a table's stream, by its name in the program."""

    def __init__(
        self,
        checkpoints: TableCheckpoints,
        log: DurableLog,
        ranges: LogRanges,
        find_history_id: Callable[[str], str],
    ) -> None:
        self._checkpoints, self._log, self._ranges = checkpoints, log, ranges
        self._find_history_id = find_history_id
        self._streams: dict[str, tuple[str, mmpl.StreamDef]] = {}
        self._readers: dict[str, TableReader] = {}

    def set_program(self, program: mmpl.Program) -> None:
        """Readers of tables that were changed are forgotten."""
        self._streams = {stream.name: (name, stream) for name, stream in table_streams(program).items()}
        for name, reader in list(self._readers.items()):
            if self._streams.get(name, ("", None))[1] != reader.stream:
                del self._readers[name]

    def find(self, table: str) -> TableReader:
        """The reader of a table, by the name of its stream in the log. Raises E146 if the log does not have enough."""
        reader = self._readers.get(table)
        if reader is None:
            reader = self._readers[table] = self._open(table)
        return reader

    def _open(self, table: str) -> TableReader:
        if table not in self._streams:
            raise error("E095", f"the table {table} is no longer in the program")
        name, stream = self._streams[table]
        history_id = self._find_history_id(name)
        checkpoint = self._checkpoints.read(stream)
        if checkpoint is not None and checkpoint.history != history_id:
            checkpoint = None
        floor = HORIZON_MIN if checkpoint is None else checkpoint.floor
        removed_to = max(self._log.truncated_ticks(table).values(), default=HORIZON_MIN)
        if removed_to > floor:
            raise unknown_contents_error(table, removed_to)
        return TableReader(stream, history_id, self._ranges, checkpoint)

    def checkpoint(self, limits: Callable[[str], int]) -> Mapping[str, int]:
        """Stores the rows of each table as of the tick that `limits` gives, or of its horizon if that is earlier.
        Returns up to which tick the log need not keep its changes."""
        kept = {}
        for table in self._streams:
            try:
                reader = self.find(table)
                reader.advance()
            except SmileError:
                kept[table] = HORIZON_MIN
                continue
            tick = min(limits(table), reader.history.horizon)
            if tick > reader.stored_floor:
                reader.history.move_floor(tick)
                checkpoint = TableCheckpoint(reader.history_id, tick, reader.history.floor_rows())
                self._checkpoints.write(reader.stream, checkpoint)
                reader.stored_floor = tick
            kept[table] = reader.stored_floor
        return kept


def unknown_contents_error(table: str, tick: int) -> SmileError:
    message = f"the contents of {table} before tick {tick} are not known: its changes were removed from the log"
    hint = "To filter later events only, subscribe with start `kept` or `new`."
    return error("E146", message, hint=hint)
