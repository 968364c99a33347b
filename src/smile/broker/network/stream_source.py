"""A stream of the log as the source of an export."""

from collections.abc import Callable, Mapping

from smile.broker.imports.exported_stream import ExportedStream
from smile.broker.network.range_relay import RangeRelay
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.links.exports import EventsRange
from smile.log.storage.piece_log import slice_events

RANGE_BYTES = 2**20
"""The size of a range in one message, unless a single piece of the log is larger."""


class LoggedStreamSource:
    """`log_version` changes with every commit. `check_access` raises an error if the neighbour may not read the stream
    any more. `on_close` is called at the end. `relay` passes questions on about what was removed from the log; None if
    there is nobody to ask. If the neighbour publishes to the stream too, `neighbour_log` identifies its log, whose
    origins are not sent, and `received` returns up to which ticks it has sent the others."""

    def __init__(
        self,
        stream: ExportedStream,
        log_version: Callable[[], int],
        check_access: Callable[[], None],
        on_close: Callable[[], None],
        relay: RangeRelay | None = None,
        neighbour_log: str | None = None,
        received: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._stream, self._log_version, self._check_access = stream, log_version, check_access
        self._on_close, self._relay = on_close, relay
        self._neighbour_log, self._received = neighbour_log, received
        self._horizons: Mapping[str, int] = {}
        self._members = 0, b""
        self._read_version: int | None = None

    def horizons(self) -> Mapping[str, int]:
        self._check_access()
        version = self._log_version()
        if version != self._read_version:
            horizons = self._stream.horizons()
            # After the horizons, so that it is not older.
            membership = self._stream.membership()
            self._horizons, self._read_version = horizons, version
            if membership is not None:
                own = {o for o, member in membership.members.items() if member.log == self._neighbour_log}
                self._horizons = {o: tick for o, tick in membership.capped(horizons).items() if o not in own}
                self._members = membership.version, membership.encode()
        return self._horizons

    def members(self) -> tuple[int, bytes]:
        return self._members

    def received(self, origin: str) -> int:
        return self._received().get(origin, HORIZON_MIN)

    def read(self, origin: str, lo: int, hi: int) -> EventsRange | None:
        self._check_access()
        try:
            piece = self._stream.read_range(origin, lo, RANGE_BYTES)
        except SmileError as problem:
            if problem.diagnostics[0].code == "E097" and self._relay is not None:
                piece = self._relay.read(origin, lo, hi)
                if piece is None:
                    return None
                piece = self._stream.select(piece)
            else:
                raise self._explain(problem, lo) from None
        if piece is None:
            return None  # what has come over the neighbour's own link may not be in the log yet
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


class HostedMembersSource:
    """The membership of a stream, for a broker that publishes to it."""

    def __init__(
        self,
        stream: ExportedStream,
        log_version: Callable[[], int],
        check_access: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        self._source = LoggedStreamSource(stream, log_version, check_access, on_close)

    def members(self) -> tuple[int, bytes]:
        self._source.horizons()
        return self._source.members()

    def close(self) -> None:
        self._source.close()
