"""The publishers of global streams that a broker plans with: what it knows of the registrations now, and the closed
epoch that it has adopted.

A republisher counts as long as it can be reached: others have what it has. A producer counts until it withdraws, since
nobody else has its events: what it may have had holds its origin back. Its registration is a lease: if its broker
cannot be reached for longer than that, it is absent, and plans do not ask it until it is back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from smile.algebra import mmpl
from smile.broker.network.producer_registry import PRODUCER, REPUBLISHER
from smile.broker.network.routed_stream import read_routed
from smile.broker.network.routing import declared_epochs
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.links.messages import AdvertisementEntry
from smile.links.routing.names import RoutedStream
from smile.registry.epochs import (
    ClosedEpoch,
    EpochMember,
    MemberClaim,
    choose_epoch,
    is_stranger,
    missing_members,
    number_order,
)


@dataclass(frozen=True)
class KnownPublisher:
    """`name` is unique among the publishers of the host."""

    name: str
    host: str
    role: str
    relation: str
    condition: str
    cost: int = 0
    """How many links are on the way to it."""
    version: int = field(default=0, compare=False)
    """The greater one of two was registered later."""
    history: str = ""
    """Identifies what a republisher has."""
    load: int = 0
    """About how many subscriptions there are to a republisher."""
    declared: mmpl.StreamDef | None = None
    """The global stream as its broker declares it; None if that is not known."""

    @property
    def key(self) -> str:
        return f"{self.name}@{self.host}"


@dataclass(frozen=True)
class HostOrigin:
    """What a broker is in a global stream that it publishes: the number of its origin, and its log. `registered` is the
    version of its producers that is known here."""

    host: str
    origin: str
    log: str
    registered: int
    withdrawn_to: int = HORIZON_MIN
    """Up to this tick, it may have had other producers."""
    confirmed: str = ""
    """The digest of the closed epoch that it has confirmed."""
    begins: int = HORIZON_MIN
    """It has published nothing at or below this tick."""
    producers: int = 0

    @property
    def member(self) -> EpochMember:
        return EpochMember(self.origin, self.host, self.log)


@dataclass(frozen=True)
class Registrations:
    """Those of one global stream. `origins` are the hosts of producers, by number; `conflicts` has those that claim the
    number of another one, after that one: their producers are held back. What is final is so with respect to `epoch`.
    `strangers` may have published before its end without being members: their events are not shown. `declared` are the
    epochs that are known, each with the members that have not confirmed it. The leases of the hosts that are `absent`
    have ended."""

    relation: str
    publishers: tuple[KnownPublisher, ...] = ()
    origins: Mapping[str, HostOrigin] = field(default_factory=dict)
    conflicts: tuple[tuple[HostOrigin, HostOrigin], ...] = ()
    epoch: ClosedEpoch | None = None
    strangers: tuple[HostOrigin, ...] = ()
    declared: tuple[tuple[ClosedEpoch, tuple[EpochMember, ...]], ...] = ()
    absent: frozenset[str] = frozenset()


class KnownPublishers:
    """Used by one thread at a time. `find_entries` returns advertisements, each with whether it can be reached; the
    same object as long as nothing changes. `adopted` are the epochs that were adopted before, by global stream.
    `clock` returns microseconds, as `lease_us` counts them."""

    def __init__(
        self,
        find_entries: Callable[[], Sequence[tuple[AdvertisementEntry, bool]]],
        adopted: Mapping[str, ClosedEpoch],
        clock: Callable[[], int],
        lease_us: int,
    ) -> None:
        self._find_entries, self.epochs = find_entries, adopted
        self._clock, self._lease_us = clock, lease_us
        self._unreachable_since: dict[str, int] = {}
        """By host."""
        self._entries: Sequence[tuple[AdvertisementEntry, bool]] = ()
        self._absent: frozenset[str] = frozenset()
        self._registrations: dict[str, Registrations] = {}

    def find(self, relation: str) -> Registrations:
        """The same object as long as nothing changes."""
        return self._registrations.setdefault(relation, Registrations(relation))

    def update(self) -> None:
        """Takes in what has been registered and withdrawn."""
        entries = self._find_entries()
        if entries is not self._entries:
            self._find_unreachable(entries)
        now = self._clock()
        absent = frozenset(h for h, since in self._unreachable_since.items() if now - since > self._lease_us)
        if entries is not self._entries or absent != self._absent:
            self._entries, self._absent = entries, absent
            self._read(entries, absent)

    def _find_unreachable(self, entries: Iterable[tuple[AdvertisementEntry, bool]]) -> None:
        now, reachable = self._clock(), {entry.host for entry, is_live in entries if is_live}
        unreachable = {entry.host for entry, _ in entries} - reachable
        self._unreachable_since = {host: self._unreachable_since.get(host, now) for host in unreachable}

    def _read(self, entries: Sequence[tuple[AdvertisementEntry, bool]], absent: frozenset[str]) -> None:
        publishers: dict[str, list[KnownPublisher]] = {}
        claims: dict[str, list[HostOrigin]] = {}
        hosts = {(e.relation, e.host): _declared_by(e) for e, _ in entries if not e.role and e.origin}
        for entry, is_live in entries:
            if entry.role == PRODUCER or (entry.role == REPUBLISHER and is_live):
                cost = len(entry.path) - 1
                publisher = KnownPublisher(
                    entry.stream,
                    entry.host,
                    entry.role,
                    entry.relation,
                    entry.condition,
                    cost,
                    entry.version,
                    entry.history,
                    entry.load,
                    hosts.get((entry.relation, entry.host)) if entry.role == PRODUCER else _declared_by(entry),
                )
                publishers.setdefault(entry.relation, []).append(publisher)
            elif not entry.role and entry.origin:
                claims.setdefault(entry.relation, []).append(_claim_of(entry))
        declared: dict[str, list[ClosedEpoch]] = {}
        for epoch in declared_epochs(entry for entry, _ in entries):
            declared.setdefault(epoch.relation, []).append(epoch)
        before, self._registrations = self._registrations, {}
        for relation in {*publishers, *claims, *self.epochs}:
            adopted, said = self.epochs.get(relation), declared.get(relation, [])
            epochs = said if adopted is None else [adopted]
            registered = _registrations_of(relation, publishers.get(relation, []), claims.get(relation, []), epochs)
            known = _with_epoch(registered, adopted, said, absent)
            self._registrations[relation] = before[relation] if before.get(relation) == known else known
        self.epochs = {name: r.epoch for name, r in self._registrations.items() if r.epoch is not None}


def _declared_by(entry: AdvertisementEntry) -> mmpl.StreamDef | None:
    try:
        return read_routed(entry.description, RoutedStream(entry.stream, entry.host)).streams[0]
    except SmileError:
        return None


def _claim_of(entry: AdvertisementEntry) -> HostOrigin:
    return HostOrigin(
        entry.host,
        entry.origin,
        entry.history,
        entry.registered,
        entry.withdrawn_to,
        entry.epoch,
        entry.begins,
        entry.producers,
    )


def _with_epoch(
    known: Registrations, adopted: ClosedEpoch | None, declared: Iterable[ClosedEpoch], absent: frozenset[str]
) -> Registrations:
    """Adopts an epoch if all of its members have confirmed it. Without its strangers."""
    producers = Counter(p.host for p in known.publishers if p.role == PRODUCER)
    claims = {
        claim: MemberClaim(claim.member, claim.confirmed, claim.begins, producers[claim.host] == claim.producers)
        for claim in known.origins.values()
    }
    declared = sorted(set(declared), key=lambda e: (e.closed_to, e.digest))
    epoch = choose_epoch(adopted, declared, claims.values())
    strangers = tuple(c for c, said in claims.items() if epoch is not None and is_stranger(epoch, said))
    hosts = {claim.host for claim in strangers}
    return replace(
        known,
        publishers=tuple(p for p in known.publishers if p.role != PRODUCER or p.host not in hosts),
        origins={origin: claim for origin, claim in known.origins.items() if claim not in strangers},
        epoch=epoch,
        strangers=strangers,
        absent=absent,
        declared=tuple((e, tuple(missing_members(e, claims.values()))) for e in declared),
    )


def _registrations_of(
    relation: str,
    publishers: Iterable[KnownPublisher],
    claims: Iterable[HostOrigin],
    epochs: Sequence[ClosedEpoch],
) -> Registrations:
    """Of the hosts that claim one number, all but the first one are held back, everywhere alike."""
    origins: dict[str, HostOrigin] = {}
    conflicts = []
    for claim in sorted(claims, key=lambda c: number_order(c.member, c.begins, epochs)):
        holder = origins.setdefault(claim.origin, claim)
        if holder != claim:
            conflicts.append((holder, claim))
    hosts = {claim.host for claim in origins.values()}
    usable = (p for p in publishers if p.role != PRODUCER or p.host in hosts)
    return Registrations(relation, tuple(sorted(usable, key=lambda p: (p.role, p.key))), origins, tuple(conflicts))


def declare_epoch(stream: str, known: Registrations, closed_to: int) -> ClosedEpoch:
    """The epoch whose members are the hosts of producers that are known. Raises E183 or E187 if it makes no sense."""
    if known.conflicts:
        holder, other = known.conflicts[0]
        hint = f"Give {other.host} another number: the setting `origin`."
        message = f"{stream} cannot be closed: {holder.host} and {other.host} are both origin {holder.origin}"
        raise error("E183", message, hint=hint)
    earlier = known.epoch
    if earlier is not None and closed_to <= earlier.closed_to:
        until = "for good" if earlier.is_for_good else f"up to tick {earlier.closed_to}"
        raise error("E187", f"{stream} is closed {until} already, as epoch {earlier.digest}")
    members = {claim.member for claim in known.origins.values() if claim.begins < closed_to}
    members |= set() if earlier is None else {*earlier.members}
    if not members:
        hint = "It can be closed when this broker knows who publishes it: smile registry."
        raise error("E187", f"{stream} has no producers that are known here", hint=hint)
    return ClosedEpoch.create(stream, closed_to, members)
