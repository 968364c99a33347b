"""A stream of the log as the source of an export."""

from collections.abc import Callable, Mapping

from smile.broker.imports.exported_stream import ExportedStream
from smile.errors import SmileError, error
from smile.links.exports import EventsRange
from smile.log.storage.piece_log import slice_events

RANGE_BYTES = 2**20
"""The size of a range in one message, unless a single piece of the log is larger."""


class LoggedStreamSource:
    """`log_version` changes with every commit. `check_access` raises an error if the neighbour may not read the stream
    any more. `on_close` is called at the end."""

    def __init__(
        self,
        stream: ExportedStream,
        log_version: Callable[[], int],
        check_access: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        self._stream, self._log_version, self._check_access = stream, log_version, check_access
        self._on_close = on_close
        self._horizons: Mapping[str, int] = {}
        self._read_version: int | None = None

    def horizons(self) -> Mapping[str, int]:
        self._check_access()
        version = self._log_version()
        if version != self._read_version:
            self._horizons, self._read_version = self._stream.horizons(), version
        return self._horizons

    def read(self, origin: str, lo: int, hi: int) -> EventsRange:
        self._check_access()
        try:
            piece = self._stream.read_range(origin, lo, RANGE_BYTES)
        except SmileError as problem:
            raise self._explain(problem, lo) from None
        assert piece is not None, "the horizon says that there is something"
        end, events = min(piece.hi, hi), piece.events
        if events is not None and end < piece.hi:
            events = slice_events(events, lo, end)
        if events is None or not events.num_rows:
            return EventsRange(end)
        return EventsRange(end, bytes(events.serialize()), events.num_rows)

    def close(self) -> None:
        self._on_close()

    def _explain(self, problem: SmileError, lo: int) -> SmileError:
        """What was removed from the log is gone for the neighbour too."""
        if problem.diagnostics[0].code != "E097":
            return problem
        message = f"events of {self._stream.name} above tick {lo} are no longer in the log"
        hint = (
            "The importing broker was away for longer than `away_max`, or has begun after they were removed. "
            "Import a view of the stream instead: its present rows are always there."
        )
        return error("E097", message, hint=hint)
