"""Watches what a simulated broker commits to its log: what is published there becomes true, and what is imported must be
true already. Kills the broker in the middle of a commit if that is planned."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from smile.algebra import mmpl
from smile.horizons import HORIZON_MIN, with_origins
from smile.log.membership import StreamMembership
from smile.log.storage.pieces import StreamPiece
from smile.log.storage.producers import ProducerRecord
from tests.simulation.programs import base_streams
from tests.simulation.truth import ONLY_ORIGIN
from tests.simulation.world import BrokerKilled

if TYPE_CHECKING:
    from tests.simulation.brokers import SimulatedBroker


class LogWatch:
    """That of one run of a broker."""

    def __init__(self, broker: "SimulatedBroker") -> None:
        self._broker, self._log, self._world = broker, broker.broker.log, broker.world
        self._real_append = self._log.append
        self._program: mmpl.Program | None = None
        self._bases: dict[str, str] = {}
        log: Any = self._log
        log._transact, log.append = self._watched(log._transact, broker.disk.note_commit), self._append
        store: Any = broker.broker.subscriptions._records._store
        store._commit = self._watched(store._commit, broker.disk.note_commit)

    def _watched(self, commit: Callable[[Any], Any], note: Callable[[], None]) -> Callable[[Any], Any]:
        """The commit of a database. The broker is killed before it, in the middle of a transaction, or after it."""

        def watched(action: Any) -> Any:
            point = self._broker.crash_point
            if point == "before" or (point == "uncommitted" and not callable(action)):
                raise BrokerKilled

            def act(db: Any) -> Any:
                result = action(db)
                if point == "uncommitted":
                    raise BrokerKilled
                return result

            result = commit(act if callable(action) else action)
            if point == "committed":
                raise BrokerKilled
            note()
            return result

        return watched

    def _append(
        self,
        pieces: Iterable[StreamPiece],
        records: Sequence[ProducerRecord] = (),
        time_us: int = 0,
        whole: bool = False,
        memberships: Sequence[StreamMembership] = (),
        notes: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        appended = list(pieces)
        commit = self._real_append(appended, records, time_us, whole, memberships, notes)
        for membership in memberships:
            self._world.note(self._broker.name, f"logs {membership}")
            self._note_membership(membership)
        for piece in appended:
            text = f"logs {piece.stream} {piece.origin} {piece.lo}-{piece.hi}: {piece.rows}"
            self._world.note(self._broker.name, text)
            if piece.origin in self._own_origins(piece.stream):
                problems = self._world.truth.log(piece.stream, piece.origin, piece.hi, piece.events)
                self._world.complain_all(problems)
        self._check_imported(appended, {membership.stream for membership in memberships})
        return commit

    def _note_membership(self, membership: StreamMembership) -> None:
        published = self._world.truth.streams.get(membership.stream)
        is_hosted = membership.stream in self._broker.publisher.streams
        if published is not None and is_hosted and self._broker.is_home_of(membership.stream):
            self._world.truth.set_members(membership)

    def _own_origins(self, stream: str) -> set[str]:
        """The origins of a stream that this broker publishes as. A stream with one origin may have any name for it."""
        if stream not in self._broker.publisher.streams:
            return set()
        if not self._world.truth.streams[stream].has_many_origins:
            return {*self._log.stream_horizons(stream), ONLY_ORIGIN}
        membership = self._log.membership(stream)
        members = {} if membership is None else membership.members
        return {origin for origin, member in members.items() if member.broker == self._broker.name}

    def _check_imported(self, pieces: Sequence[StreamPiece], streams: set[str]) -> None:
        """What the log has of streams that come from elsewhere is what their origins have logged."""
        bases = self._find_bases()
        for piece in pieces:
            base = bases.get(piece.stream)
            if base is None:
                continue  # rows of an imported view
            streams = streams | {piece.stream}
            if piece.origin in self._own_origins(piece.stream) or piece.stream not in self._log.schemas:
                continue
            expected = self._world.truth.ticks(self._log.schemas[piece.stream].stream, base, piece)
            logged = [] if piece.events is None else piece.events.column(0).to_pylist()
            if logged != expected:
                where = f"{base} of origin {piece.origin} from {piece.lo} to {piece.hi}"
                self._world.complain(f"{self._broker.name} logs {where} as {logged} instead of {expected}")
        for stream in sorted(streams & bases.keys()):
            horizons = self._log.stream_horizons(stream)
            named = {stream: min(horizons.values(), default=HORIZON_MIN)}
            if self._world.truth.streams[bases[stream]].has_many_origins:
                named = with_origins(stream, horizons)
            who = f"the log of {self._broker.name}"
            self._world.complain_all(self._world.truth.announce_all(bases[stream], stream, named, who))

    def _find_bases(self) -> Mapping[str, str]:
        """The published stream that each stream of the program is."""
        program = self._broker.broker.program
        if program is not self._program:
            imported = {i.stream.name for i in program.imports if i.stream is not None}
            names = imported | {stream.name for stream in program.streams}
            self._bases = {name: base for name, base in base_streams(program).items() if name in names}
            self._program = program
        return self._bases

    def reconcile(self) -> None:
        """After a restart: the log has everything that was committed, and perhaps what was being committed."""
        truth = self._world.truth
        for stream in self._broker.publisher.streams:
            membership = self._log.membership(stream)
            if membership is not None:
                self._note_membership(membership)
            horizons, own_origins = self._log.stream_horizons(stream), self._own_origins(stream)
            for origin in sorted(own_origins & horizons.keys()):
                horizon, known = horizons[origin], truth.logged_to(stream, origin)
                if horizon < known:
                    self._world.complain(f"the log of {self._broker.name} ends at {horizon} in {stream}, not {known}")
                piece = self._log.read_range(stream, origin, known, 2**30) if horizon > known else None
                if piece is not None:
                    self._world.complain_all(truth.log(stream, origin, piece.hi, piece.events))
