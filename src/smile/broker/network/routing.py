"""Advertisements and global subscriptions of one broker: which streams neighbours may know of and receive, and which
ones are to be imported from them.

The routes are found by `smile.links.routing.router`. A neighbour is told of a stream only if its principal may
subscribe to the stream, or to a view that selects from it: then it receives what the view selects.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.parser import parse_expression
from smile.analysis.export_description import definition_digest
from smile.broker.network.host import ExportedRelation, LinkAccess
from smile.broker.network.producer_registry import EPOCH, PRODUCER, REPUBLISHER, LocalStream, ProducerRegistry
from smile.broker.network.routed_stream import (
    RELEASE_ALL,
    StreamRelease,
    describe_routed,
    find_release,
    parse_advertised_condition,
    routed_definition,
)
from smile.broker.network.routing_file import AdvertisementChoice, StoredRouting
from smile.errors import SmileError, did_you_mean, error
from smile.links.messages import AdvertisementEntry, SubscriptionEntry
from smile.links.routing.exchange import RoutingTable
from smile.links.routing.names import RoutedStream
from smile.links.routing.router import LOCAL, DesiredImport, Filter, Router
from smile.log.membership import StreamMembership
from smile.registry.epochs import ClosedEpoch


class Routing:
    """Thread-safe. `clock` returns microseconds since 1970. `find_access` returns what neighbours may do now."""

    def __init__(
        self,
        broker: str,
        path: Path | None,
        clock: Callable[[], int],
        advertises: bool,
        find_access: Callable[[], LinkAccess],
    ) -> None:
        self.broker, self._clock, self._advertises = broker, clock, advertises
        self._find_access = find_access
        self._lock = RLock()
        self._stored = StoredRouting(path)
        self._file = self._stored.content
        self.router = Router(broker, self._file.state)
        self.registry = ProducerRegistry(broker, self._stored, clock)
        self._streams: Mapping[str, LocalStream] = {}
        self._releases: Mapping[str, list[tuple[str, StreamRelease]]] = {}
        """The views that select from a stream, in the program's order."""
        self._woken_version = 0
        self._followed_version = -1
        self._publishers: tuple[int, Sequence[tuple[AdvertisementEntry, bool]]] = -1, ()
        self.problems: Mapping[str, SmileError] = {}
        """Why routed streams cannot be imported, by relation."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when neighbours are to be told something."""

    # ── the program and commands ────────────────────────────────────────────────────────────────────────────────────

    def set_program(self, program: mmpl.Program, streams: Mapping[str, LocalStream]) -> None:
        """The broker has this program, and publishes these streams."""
        releases: dict[str, list[tuple[str, StreamRelease]]] = {}
        for view in program.views:
            found = find_release(program, view.name)
            if found is not None:
                releases.setdefault(found[0], []).append((view.name, found[1]))
        with self._lock:
            self._streams, self._releases = streams, releases
            self.registry.set_program(program, streams)
            self._update_advertisements()
        self._notify()

    def check_program(self, program: mmpl.Program) -> None:
        """Raises an error if the broker cannot have this program, because of what other brokers have registered."""
        with self._lock:
            self.registry.check_program(program)

    def _update_advertisements(self) -> None:
        self.registry.update()
        entries = [*map(self._advertisement_of, sorted(self._advertised_streams())), *self.registry.entries()]
        for name in sorted(self.router.state.own.keys() - {entry.stream for entry in entries}):
            self.router.withdraw(name, self._clock())
        for entry in entries:
            self.router.advertise(entry)

    def producer_membership(self, relation: str) -> StreamMembership | None:
        """This broker as the only origin of its events of a global stream."""
        with self._lock:
            return self.registry.membership(relation)

    def _advertisement_of(self, stream: str) -> AdvertisementEntry:
        release, local = self._release_of(stream), self._streams[stream]
        definition = routed_definition(local.definition, RoutedStream(stream, self.broker), release)
        history, published = _released_history(local.history, release), local.republishes
        registered = self.registry.registered(stream)
        return AdvertisementEntry(
            self.broker,
            stream,
            self._clock(),
            condition=self._choice(stream).condition if published is None else published.condition,
            description=describe_routed(definition, history),
            history=history,
            role="" if published is None else REPUBLISHER,
            relation=published.relation if published is not None else stream if local.definition.is_global else "",
            origin=local.origin or "",
            registered=registered.version,
            withdrawn_to=registered.withdrawn_to,
            producers=len(registered.producers),
            begins=registered.begins,
            epoch=self.registry.confirmed(stream),
            load=0 if published is None else self._load_of(stream),
        )

    def _load_of(self, stream: str) -> int:
        """That of a republisher. Neighbours are told again when it has doubled, or halved."""
        known = self.router.state.own.get(stream)
        return coarse_load(self.router.subscription_count(stream), 0 if known is None else known.load)

    def add_producer(self, name: str, relation: str, where: str = "") -> None:
        """Advertises a producer of a global stream. Returns when that is stored."""
        with self._lock:
            self.registry.add(name, self._find_stream(relation), where)
            self._update_advertisements()
        self.save()
        self._notify()

    def remove_producer(self, name: str) -> None:
        """Withdraws a producer that a command has added. Returns when that is stored."""
        with self._lock:
            self.registry.remove(name)
            self._update_advertisements()
        self.save()
        self._notify()

    def declare_epoch(self, epoch: ClosedEpoch) -> None:
        """Says that nobody but its members publishes a global stream. Returns when that is stored."""
        with self._lock:
            self.registry.declare(epoch)
            self._stored.save(None)
            self._update_advertisements()
        self._notify()

    def follow_registrations(self) -> None:
        """Confirms the closed epochs that are known, holds producers back that share channels with earlier ones, and
        registers those that had to wait."""
        with self._lock:
            is_changed = self._followed_version != self.router.version
            if is_changed:
                others = [route.entry for route in self.router.routes.values()]
                self.registry.set_others(others)
                if self.registry.follow(declared_epochs((*self.router.own.values(), *others))):
                    # Before neighbours are told: what was confirmed must survive a crash.
                    self._stored.save(None)
            if is_changed or self.registry.needs_update:
                self._update_advertisements()
            self._followed_version = self.router.version
        self._notify()

    def set_sources(self, sources: AbstractSet[RoutedStream]) -> None:
        """What the plans of this broker want of other brokers."""
        with self._lock:
            self.router.set_sources(sources)
        self._notify()

    def publishers(self) -> Sequence[tuple[AdvertisementEntry, bool]]:
        """The producers and republishers of global streams that are known, and the hosts of these streams; each with
        whether it can be reached now. The same object as long as nothing changes."""
        with self._lock:
            if self._publishers[0] != self.router.version:
                own = [(entry, True) for entry in self.router.own.values() if entry.relation]
                others = [(r.entry, r.is_live) for r in self.router.routes.values() if r.entry.relation]
                self._publishers = self.router.version, (*own, *others)
            return self._publishers[1]

    def _choice(self, stream: str) -> AdvertisementChoice:
        """Never of a global stream or a republisher: others rely on having all events."""
        if self.is_global(stream):
            return AdvertisementChoice(True)
        return self._file.choices.get(stream, AdvertisementChoice(self._advertises))

    def _advertised_streams(self) -> frozenset[str]:
        return frozenset(
            stream
            for stream in self._streams
            if self._is_chosen(stream)
            and len(RoutedStream(stream, self.broker, "x").relation) <= limits.link_name_chars_max
        )

    def _is_chosen(self, stream: str) -> bool:
        """A global stream is advertised where it has, or has had, producers, and a republisher always."""
        local = self._streams[stream]
        if local.definition.is_global:
            return local.is_republisher or self.registry.is_host_of(stream)
        return self._choice(stream).is_advertised

    def is_advertised(self, stream: str) -> bool:
        with self._lock:
            return stream in self._advertised_streams()

    def is_global(self, stream: str) -> bool:
        """Whether the stream is advertised by those who publish it: a global stream, or a republisher."""
        with self._lock:
            return stream in self._streams and self._streams[stream].definition.is_global

    def advertise(self, stream: str, where: str = "") -> None:
        """Advertises a stream of this broker, with a condition that all events satisfy that neighbours receive. Returns
        when that is stored."""
        with self._lock:
            local = self._find_stream(stream)
            _refuse_global(stream, local)
            condition = parse_advertised_condition(local.definition, where) if where else ""
            choice = AdvertisementChoice(True, condition)
            if self._file.choices.get(stream) == choice:
                return
            self._choose(stream, choice)
        self.save()
        self._notify()

    def unadvertise(self, stream: str) -> None:
        """Takes the advertisement of a stream back. Returns when that is stored."""
        with self._lock:
            _refuse_global(stream, self._find_stream(stream))
            self._choose(stream, AdvertisementChoice(False))
        self.save()
        self._notify()

    def _choose(self, stream: str, choice: AdvertisementChoice) -> None:
        self._file.choices[stream] = choice
        self._stored.changed()
        self._update_advertisements()

    def _find_stream(self, stream: str) -> LocalStream:
        if stream not in self._streams:
            hint = did_you_mean(stream[:100], self._streams) or "The broker where it is published can advertise it."
            raise error("E021", f"this broker does not publish {stream[:100]}", hint=hint)
        return self._streams[stream]

    def set_subscriptions(self, filters: AbstractSet[Filter]) -> None:
        """The streams and conditions of all global subscriptions of this broker."""
        with self._lock:
            self.router.set_subscriptions(filters)
        self._notify()

    # ── links ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int:
        return self.router.version

    def open_link(self, link: object, neighbour: str) -> None:
        with self._lock:
            self.router.open_link(link, neighbour)
            self._file.absent_us.pop(neighbour, None)
        self._notify()

    def close_link(self, link: object) -> None:
        with self._lock:
            self.router.close_link(link)
            for neighbour in self.router.neighbours - self.router.linked:
                self._file.absent_us.setdefault(neighbour, self._clock())
        self._notify()

    def receive_table(self, link: object, table: RoutingTable, principal: str) -> None:
        """What a neighbour wants without a grant is ignored: nothing is imported for it."""
        access = self._find_access()
        streams = {(e.host, e.stream) for e in table.values() if isinstance(e, SubscriptionEntry)}
        allowed = {key for key in streams if self._find_release(principal, *key, access) is not None}
        wanted = {
            key: e for key, e in table.items() if not isinstance(e, SubscriptionEntry) or (e.host, e.stream) in allowed
        }
        with self._lock:
            self.router.receive_table(link, wanted)
        self._notify()

    def known_table(self, neighbour: str | None) -> RoutingTable:
        with self._lock:
            return {} if neighbour is None else self.router.known_table(neighbour)

    def table_for(self, neighbour: str | None, principal: str) -> RoutingTable:
        if neighbour is None:
            return {}
        access = self._find_access()
        with self._lock:
            return self.router.table_for(neighbour, lambda entry: self._released_entry(principal, entry, access))

    def forget_absent(self, away_us_max: int) -> None:
        """Forgets what neighbours have said that have been away for too long."""
        with self._lock:
            for neighbour, since_us in list(self._file.absent_us.items()):
                if self._clock() - since_us > away_us_max:
                    self.router.forget(neighbour)
                    del self._file.absent_us[neighbour]
        self._notify()

    def _notify(self) -> None:
        if self.router.version != self._woken_version:
            self._woken_version = self.router.version
            self.on_change()

    # ── what is released ────────────────────────────────────────────────────────────────────────────────────────────

    def _release_of(self, stream: str, release: StreamRelease = RELEASE_ALL) -> StreamRelease:
        """With the condition of the advertisement."""
        condition = self._choice(stream).condition
        if not condition:
            return release
        parsed = parse_expression(condition)
        both = parsed if release.condition is None else trees.conjunction((release.condition, parsed))
        return replace(release, condition=both)

    def _find_release(self, principal: str, host: str, stream: str, access: LinkAccess) -> StreamRelease | None:
        """What a neighbour may have of a host's stream; None if nothing. Views select from streams of this broker."""
        is_own = host == self.broker
        if access.can_import(principal, stream):
            return self._release_of(stream) if is_own else RELEASE_ALL
        if not is_own or self.is_global(stream):
            return None
        for view, release in self._releases.get(stream, ()):
            if access.can_import(principal, view):
                return self._release_of(stream, release)
        return None

    def _released_entry(
        self, principal: str, entry: AdvertisementEntry, access: LinkAccess
    ) -> AdvertisementEntry | None:
        if access.can_import(principal, entry.relation if entry.role in (PRODUCER, EPOCH) else entry.stream):
            return entry
        if entry.host != self.broker or entry.stream not in self._streams:
            return None
        release = self._find_release(principal, entry.host, entry.stream, access)
        if release is None or entry.is_withdrawn:
            return None if release is None else entry
        local = self._streams[entry.stream]
        history = _released_history(local.history, release)
        definition = routed_definition(local.definition, RoutedStream(entry.stream, self.broker), release)
        return msgspec.structs.replace(entry, description=describe_routed(definition, history), history=history)

    def find_routed(self, relation: str) -> RoutedStream | None:
        """The routed stream that neighbours import under this name; None if it is something else."""
        with self._lock:
            for stream in sorted(self._advertised_streams()):
                for where in ("", *self.router.wanted_of(stream)):
                    if (name := RoutedStream(stream, self.broker, where)).relation == relation:
                        return name
            for name in self.router.demands:
                if name.relation == relation:
                    return name
        return None

    def find_export(self, principal: str, relation: str) -> ExportedRelation | None:
        """An advertised stream of this broker under its routed name, as far as the principal may have it. None if the
        name is another one."""
        access = self._find_access()
        with self._lock:
            name = self.find_routed(relation)
            if name is None or name.host != self.broker:
                return None
            local, release = self._streams[name.stream], self._find_release(principal, name.host, name.stream, access)
            if release is None:
                raise _denial_error(principal, name.stream)
        definition = routed_definition(local.definition, name, release)
        conditions = [] if release.condition is None else [release.condition]
        conditions += [parse_expression(name.where)] if name.where else []
        return ExportedRelation(
            relation,
            definition,
            definition_digest(definition),
            _released_history(local.history, release),
            logged_stream=local.logged,
            home_origin=local.origin,
            condition=trees.conjunction(conditions) if conditions else None,
            columns=release.columns,
            begins_with_kept=True,
            find_membership=partial(self.producer_membership, name.stream) if local.is_producers_log else None,
        )

    def check_release(self, principal: str, name: RoutedStream, history: str) -> None:
        """Raises an error if a neighbour may not receive a routed stream any more, or not as it was when it opened the
        import, with this history."""
        release = self._find_release(principal, name.host, name.stream, self._find_access())
        if release is None:
            raise _denial_error(principal, name.stream)
        if name.host == self.broker:
            local = self._streams.get(name.stream)
            if local is None or history != _released_history(local.history, release):
                raise error("E124", f"what {principal} may have of {name.stream} was changed")

    # ── imports ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def desired_imports(self) -> dict[str, DesiredImport]:
        with self._lock:
            return self.router.desired_imports()

    def set_imported(self, relations: AbstractSet[str]) -> None:
        """The program has these routed relations now."""
        with self._lock:
            self.router.set_ready(relations)
        self._notify()

    def advertised_by(self, stream: str) -> list[AdvertisementEntry]:
        """The advertisements of a stream by other brokers that are known, in the order of their hosts."""
        with self._lock:
            routes = sorted(self.router.routes.items())
            return [route.entry for (_, name), route in routes if name == stream]

    # ── storage and status ──────────────────────────────────────────────────────────────────────────────────────────

    def save(self) -> None:
        """Writes what has changed. What neighbours have said is sent again when a link opens, so it may be late."""
        with self._lock:
            self._stored.save(self.router.version)

    def status(self) -> dict[str, Any]:
        """`advertisements` and `routes` of `smile status`: with where they came from."""
        with self._lock:
            filters, subscribed = self.router.advertised_filters(), self.router.subscribed_filters()
            live = {key for key, route in self.router.routes.items() if route.is_live}
            epochs = {entry.stream for entry, _ in self.publishers() if entry.role == EPOCH}
            withheld = {s: sorted(self._releases.get(s, ())) for s in self._advertised_streams()}
        return {
            "advertisements": [
                {
                    "stream": stream,
                    "where": condition,
                    "from": path or None,
                    "hosts": sorted(hosts),
                    "reachable": path == LOCAL or any((host, stream) in live for host in hosts),
                    "releases": [view for view, _ in withheld.get(stream, ())] if path == LOCAL else [],
                }
                for (stream, condition), paths in sorted(filters.items())
                if stream not in epochs
                for path, hosts in sorted(paths.items())
            ],
            "routed_subscriptions": [
                {"stream": stream, "where": where, "from": sorted(s or "" for s in sources)}
                for (stream, where), sources in sorted(subscribed.items())
            ],
            "routing_problems": {
                relation: {"code": p.diagnostics[0].code, "message": p.diagnostics[0].message}
                for relation, p in {**self.problems, **self.registry.problems, **self.registry.held_back}.items()
            },
        }


def declared_epochs(entries: Iterable[AdvertisementEntry]) -> list[ClosedEpoch]:
    """The closed epochs that are advertised. What is none is ignored."""
    found = ((e.relation, ClosedEpoch.decode(e.description)) for e in entries if e.role == EPOCH)
    return [epoch for relation, epoch in found if epoch is not None and epoch.relation == relation]


def coarse_load(count: int, before: int) -> int:
    """The load of so many subscriptions: a power of two that is not greater. What it was `before` stays while the count
    is between half and twice of that."""
    if before // 2 < count < 2 * before:
        return before
    return 1 << (count.bit_length() - 1) if count else 0


def _refuse_global(name: str, local: LocalStream) -> None:
    """E180 for a global stream or a republisher. With a condition, neighbours would take what they receive for all of
    its events."""
    if local.is_republisher:
        hint = "It has what its SELECT lets through. For less, create another republisher."
        raise error("E180", f"the republisher {name} is always advertised, with all of its events", hint=hint)
    if local.definition.is_global:
        hint = f"Name a producer: smile advertise {name} --as NAME --where CONDITION."
        raise error("E180", f"{name} is a global stream: its producers are advertised, not the stream", hint=hint)


def _released_history(history: str, release: StreamRelease) -> str:
    """Other columns or other events are another history: what was received of one is not continued with the other."""
    if not release.text:
        return history
    return hashlib.sha256(f"{history} {release.text}".encode()).hexdigest()[:16]


def _denial_error(principal: str, stream: str) -> SmileError:
    hint = f"smile grant SUBSCRIBE ON {stream} TO {principal}"
    return error("E090", f"{principal} may not import {stream}", hint=hint)
