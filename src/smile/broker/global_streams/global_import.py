"""A global import of this broker: the plan that feeds it, and how far it is.

The ranges of the plan's sources are in the log, each source in a stream of its own. They are merged and appended to the
stream of the import. What is known is never appended again, so those who read the import do not notice that plans
change.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from smile.algebra import mmpl
from smile.broker.global_streams.assembled_ranges import read_range
from smile.broker.global_streams.known_publishers import HostOrigin, Registrations
from smile.broker.global_streams.log_sources import LogSources
from smile.broker.global_streams.plan_source import RunningSource
from smile.broker.global_streams.relation_planning import PlannedSource, RelationPlanning, condition_text
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.imports.exported_stream import ExportedStream
from smile.broker.imports.stream_cache import StreamCache, StreamRange
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.log.membership import HOME_ORIGIN, START_MIN, StreamMember, StreamMembership
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from smile.registry.assembly import Assembly, OriginRange


class GlobalImportHost(Protocol):
    """What a global import needs of its broker."""

    @property
    def log(self) -> DurableLog: ...

    def append_imported(self, append: CacheAppend) -> "Future[Any]": ...


class RunningPlans(msgspec.Struct):
    """The plans of a global import that run, the latest one last. It survives a restart."""

    plans: list[list[RunningSource]] = msgspec.field(default_factory=list)


class GlobalImport:
    """`planning` is that of its global stream. `broker` is the name of this broker. `history` identifies the import,
    also for others if it is republished. Used by one thread at a time."""

    def __init__(
        self,
        import_: mmpl.ImportDef,
        planning: RelationPlanning,
        sources: LogSources,
        host: GlobalImportHost,
        broker: str,
        history: str,
        running: RunningPlans,
    ) -> None:
        assert import_.stream is not None and import_.definition is not None
        self.import_, self._log_sources, self._host = import_, sources, host
        self._broker, self.history = broker, history
        self.stream, self.query = planning.stream, planning.query_of(import_)
        self.condition = self.query.condition
        self._where = condition_text(self.condition)
        self._schema = StreamSchema(import_.stream)
        self._cache = StreamCache(import_.name, import_.stream, ["its producers"], host.log)
        self._registrations = Registrations(import_.relation)
        self._planning = planning
        self._assembly: Assembly[RunningSource] = Assembly(
            self._may_have_origin, lambda source: source.since, self._has_all
        )
        self._made_for: dict[Sequence[RunningSource], dict[str, int]] = {}
        """The versions of the producers of each origin that a plan was made for last."""
        self._assembly.plans = [tuple(plan) for plan in running.plans]
        self._pending: list[Future[Any]] = []
        self._registered: dict[str, int] = {}
        """The version of the producers of each origin that is needed for what is passed on."""
        self._step_problem: SmileError | None = None
        """Why the last step could not pass on what is there."""
        self.views: Sequence[str] = ()
        """The views that read it."""
        self.plan_problem: SmileError | None = None
        """Why its plan does not follow the registrations."""

    @property
    def name(self) -> str:
        return self.import_.name

    @property
    def log_stream(self) -> str:
        return self._schema.name

    @property
    def is_republisher(self) -> bool:
        return not mmpl.is_consumer_name(self.name)

    @property
    def running(self) -> RunningPlans:
        return RunningPlans([list(plan) for plan in self._assembly.plans])

    @property
    def plan(self) -> Sequence[RunningSource]:
        """The latest one."""
        return self._assembly.plans[-1] if self._assembly.plans else ()

    @property
    def sources(self) -> list[RunningSource]:
        """Those of all plans that run."""
        return self._assembly.sources

    @property
    def absent(self) -> list[RunningSource]:
        """The sources that are not asked, because the lease of their producers has ended."""
        return [source for source in self.sources if self._is_absent(source)]

    def _is_absent(self, source: RunningSource) -> bool:
        return source.stream == self.stream.name and source.host in self._registrations.absent

    def _has_absent_host(self, origin: str) -> bool:
        """Then nobody may have as much of the origin as was passed on. A switch does not wait for that."""
        claim = self._registrations.origins.get(origin)
        return claim is not None and claim.host in self._registrations.absent

    @property
    def horizons(self) -> dict[str, int]:
        """Up to which tick each origin was passed on; those of producers only."""
        return {origin: tick for origin, tick in self._cache.horizons.items() if origin != HOME_ORIGIN}

    # ── plans ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_registrations(self, registrations: Registrations) -> None:
        self._registrations = registrations

    def set_plan(self, planned: Sequence[PlannedSource]) -> bool:
        """Switches to another plan if this one is different from the one that runs. Returns whether it is."""
        self._assembly.horizons = self._cache.horizons
        lacking = self._assembly.lacking(self._origins)
        is_new = set(planned) != {source.key for source in self.plan} or bool(lacking)
        if is_new:
            present = {source.key: source for source in self.sources if source not in lacking}
            since = min((self.horizons.get(origin, HORIZON_MIN) for origin in self._origins), default=HORIZON_MIN)
            self._assembly.begin([present.get(key, RunningSource(*key, since)) for key in planned])
        self._made_for = {plan: made for plan in self._assembly.plans if (made := self._made_for.get(plan)) is not None}
        claims = self._registrations.origins
        self._made_for[self.plan] = {origin: claim.registered for origin, claim in claims.items()}
        return is_new

    @property
    def _origins(self) -> list[str]:
        """Those with producers that may have something for the query, and those that were passed on."""
        relevant = (
            claim.origin
            for claim in self._registrations.origins.values()
            if self._planning.has_producer(claim.host, self._where) or self._has_withdrawn(claim)
        )
        return sorted({*relevant, *self.horizons})

    def _may_have_origin(self, source: RunningSource, origin: str) -> bool:
        """Whether a producer at the origin may publish something that the source passes on."""
        claim = self._registrations.origins.get(origin)
        if claim is None or (source.stream == self.stream.name and source.host != claim.host):
            return False
        return self._has_withdrawn(claim) or self._planning.has_producer(claim.host, source.condition, source.view)

    def _has_all(self, plan: Sequence[RunningSource], origin: str) -> bool:
        """Whether a plan was made for the producers that the origin has now. The sources of another one may lack a
        producer that has joined since."""
        claim = self._registrations.origins.get(origin)
        return claim is None or self._made_for.get(plan, {}).get(origin) == claim.registered

    def _has_withdrawn(self, claim: HostOrigin) -> bool:
        """Whether events of producers that have withdrawn may be missing here. They may be of any channel."""
        return self._cache.horizons.get(claim.origin, HORIZON_MIN) < claim.withdrawn_to

    @property
    def hosts_with_withdrawn(self) -> list[str]:
        return [claim.host for claim in self._registrations.origins.values() if self._has_withdrawn(claim)]

    # ── passing on ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> bool:
        """Appends what the sources have to the stream of the import. Returns whether there was something."""
        self._pending = [future for future in self._pending if not future.done()]
        if self._pending:
            return False
        news = self._new_membership() or self._end_of_epoch()
        if news is not None:
            self._append(news, 0, 0)
            return True
        self._assembly.horizons = self._cache.horizons
        opened = {
            s: stream for s in self.sources if (stream := self._log_sources.open(s, self.stream.tick)) is not None
        }
        reached = {source: self._reached(stream) for source, stream in opened.items()}
        displaced = self._find_displaced()
        origins = [origin for origin in self._origins if origin not in displaced]
        ranges = self._assembly.next_ranges(origins, reached)
        if ranges and (membership := self._new_membership()) is not None:
            self._append(membership, 0, 0)
            return True
        if not ranges:
            return self._assembly.end_plans([o for o in origins if not self._has_absent_host(o)], reached)
        self._step_problem = None
        for range_ in ranges:
            self._pass_on(range_, [opened[source] for source in range_.sources])
        return True

    def _reached(self, source: ExportedStream) -> dict[str, int]:
        """The horizons of a source, of those origins whose producers are known here as well as the source has known
        them. Otherwise there may be a producer whose events come from another source, which nobody waits for."""
        horizons = source.horizons()
        # After the horizons, so that it is not older.
        membership = source.membership()
        members = {} if membership is None else membership.members
        claims = self._registrations.origins
        known = [
            o
            for o, m in members.items()
            if o in claims and m.registered <= claims[o].registered and m.broker == claims[o].host
        ]
        for origin in known:
            if members[origin].registered > self._registered.get(origin, 0):
                self._registered[origin] = members[origin].registered
        return {origin: horizons[origin] for origin in known if origin in horizons}

    def _pass_on(self, range_: OriginRange[RunningSource], streams: Sequence[ExportedStream]) -> bool:
        try:
            piece = read_range(streams, self._schema, range_.origin, range_.lo, range_.hi)
        except SmileError as problem:
            self._step_problem = problem
            return False
        if piece is None:
            return False
        version = 0 if self._cache.membership is None else self._cache.membership.version
        self._append(StreamRange(piece, version), piece.rows, piece.bytes)
        return True

    def _append(self, data: StreamRange | StreamMembership, rows: int, size: int) -> None:
        self._pending.append(self._host.append_imported(CacheAppend(self._cache.name, self._cache, data, rows, size)))

    def _new_membership(self) -> StreamMembership | None:
        """The membership with origins that are new, versions of producers, and the epoch; None if nothing is new. This
        broker has the number of a home: it says who the origins are, up to the end of the epoch."""
        known = self._cache.membership
        if known is None:
            home = {HOME_ORIGIN: StreamMember(self._broker, self.history, START_MIN)}
            return StreamMembership(self.log_stream, self.history, 1, home)
        claims = self._registrations.origins
        # Up to the end of an epoch, an origin that is new here has nothing for this query.
        start = max(START_MIN, self._cache.horizons.get(HOME_ORIGIN, START_MIN))
        members = dict(known.members)
        for origin in self._origins:
            registered = self._registered.get(origin, 0)
            if origin in claims and origin not in members:
                members[origin] = StreamMember(claims[origin].host, claims[origin].log, start, registered=registered)
            elif origin in claims and members[origin].registered < registered:
                members[origin] = replace(members[origin], registered=registered)
        epoch = self._registrations.epoch
        digest = known.epoch if epoch is None or self._find_strangers(known) else epoch.digest
        if (members, digest) == (known.members, known.epoch):
            return None
        return StreamMembership(self.log_stream, self.history, known.version + 1, members, digest)

    def _end_of_epoch(self) -> StreamRange | None:
        """The home's silence to the end of the epoch: nobody else publishes anything up to it. Only if the membership
        has all origins that count for the epoch."""
        known, epoch = self._cache.membership, self._registrations.epoch
        lo = self._cache.horizons.get(HOME_ORIGIN, HORIZON_MIN)
        if known is None or epoch is None or known.epoch != epoch.digest or lo >= epoch.closed_to:
            return None
        return StreamRange(StreamPiece(self.log_stream, HOME_ORIGIN, lo, epoch.closed_to), known.version)

    def _find_strangers(self, membership: StreamMembership) -> list[str]:
        """Brokers of which this import has events, although they are no members of the epoch."""
        epoch, claims = self._registrations.epoch, self._registrations.origins
        members = set() if epoch is None else {(m.origin, m.log) for m in epoch.members}
        return [
            member.broker
            for origin, member in membership.members.items()
            if origin != HOME_ORIGIN
            and (origin, member.log) not in members
            and (origin not in claims or claims[origin].log != member.log)
        ]

    def _find_displaced(self) -> dict[str, str]:
        """By number, the brokers of which this import has events, although their numbers are those of others now. Some
        of the others' events would be missed without notice: so nothing more is taken of these numbers."""
        members = {} if self._cache.membership is None else self._cache.membership.members
        claims = self._registrations.origins
        return {
            origin: member.broker
            for origin, member in members.items()
            if origin in claims and origin != HOME_ORIGIN and claims[origin].host != member.broker
        }

    @property
    def epoch(self) -> str:
        """The digest of the closed epoch with respect to which rows become final; "" if there is none."""
        return "" if self._cache.membership is None else self._cache.membership.epoch

    @property
    def problem(self) -> SmileError | None:
        """Why it does not go on, or why nothing becomes final."""
        epoch, membership = self._registrations.epoch, self._cache.membership
        if epoch is not None and membership is not None and (strangers := self._find_strangers(membership)):
            message = f"{self.name} has events of {', '.join(strangers)}, no member of epoch {epoch.digest}"
            hint = "Nothing more of it becomes final. Select something else, or begin with a new broker."
            return error("E186", message, hint=hint)
        for origin, broker in self._find_displaced().items():
            holder = self._registrations.origins[origin].host
            message = f"{self.name} has events of {broker}, whose number {origin} is that of {holder}"
            hint = "It takes no more events with this number. Select something else, or begin with a new broker."
            return error("E183", message, hint=hint)
        return self._step_problem or self.plan_problem

    def fail(self, problem: SmileError) -> None:
        """A step has failed. It will be repeated."""
        self._step_problem = problem
