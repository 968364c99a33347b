"""Routes advertisements and subscriptions between brokers. A state machine without input and output.

An advertisement says that a broker, its host, publishes a stream. It is flooded: each broker tells its neighbours of
every host that it can reach, with the path. A broker uses the shortest path that does not contain itself, and prefers
one whose links are all open, so a path that fails is replaced by another one. Subscriptions follow the reverse paths.
What a broker tells a neighbour is a function of its state, so repeating anything changes nothing.

Invariant: if no link and no input changes any more, following the routes of a host leads to it, without a cycle.
"""

from collections.abc import Callable, Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass

from msgspec import Struct, field
from msgspec.structs import replace

from smile import limits
from smile.links.messages import AdvertisementEntry, ReadyEntry, RoutingEntry, SubscriptionEntry
from smile.links.routing.exchange import RoutingTable
from smile.links.routing.names import RoutedStream

Filter = tuple[str, str]
"""A stream and a condition, "" if there is none."""
HostedStreamKey = tuple[str, str]
"""A host and a stream of it."""

LOCAL = ""
"""The source of what this broker advertises or subscribes to itself."""


class RoutingState(Struct):
    """What survives a restart. `own` are the advertisements of this broker, by stream, also those that were withdrawn.
    `tables` has what each neighbour has said last. `withdrawn` has the versions of withdrawals, by host and stream."""

    own: dict[str, AdvertisementEntry] = field(default_factory=dict)
    tables: dict[str, list[RoutingEntry]] = field(default_factory=dict)
    withdrawn: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """The way to a host's stream: over `neighbour`, which has said `entry`."""

    neighbour: str
    entry: AdvertisementEntry
    is_live: bool

    @property
    def preference(self) -> tuple[bool, int, int, str]:
        """The least one is used."""
        return not self.is_live, -self.entry.version, len(self.entry.path), self.neighbour


@dataclass(frozen=True)
class DesiredImport:
    """A routed stream that this broker should import from a neighbour. `is_ready`: the neighbour has it.
    `is_for_neighbours`: not only this broker's own subscribers want it."""

    stream: RoutedStream
    neighbour: str
    description: str
    history: str
    is_ready: bool
    is_for_neighbours: bool


def release_all(entry: AdvertisementEntry) -> AdvertisementEntry | None:
    """Lets a neighbour know of everything."""
    return entry


class Router:
    """Not thread-safe."""

    def __init__(self, broker: str, state: RoutingState | None = None) -> None:
        self.broker, self.state = broker, state or RoutingState()
        self.version = 0
        """Changes with the state."""
        self._links: dict[object, str] = {}
        self._tables: dict[object, RoutingTable] = {}
        """Complete tables of links that are open."""
        self._subscriptions: frozenset[Filter] = frozenset()
        self._sources: frozenset[RoutedStream] = frozenset()
        self._ready: frozenset[str] = frozenset()
        self._routes: tuple[int, Mapping[HostedStreamKey, Route]] = -1, {}
        self._demands: tuple[int, Mapping[RoutedStream, frozenset[str]]] = -1, {}

    def _changed(self) -> None:
        self.version += 1

    # ── what this broker advertises and subscribes to ───────────────────────────────────────────────────────────────

    def advertise(self, entry: AdvertisementEntry) -> None:
        """Its version is used if the advertisement is new or changed; it must be greater than all before."""
        known, entry = self.state.own.get(entry.stream), replace(entry, host=self.broker, path=(self.broker,))
        if known is None or replace(entry, version=known.version) != known:
            version = max(entry.version, 0 if known is None else known.version + 1)
            self.state.own[entry.stream] = replace(entry, version=version)
            self._changed()

    def withdraw(self, stream: str, version: int) -> None:
        """Takes an advertisement back."""
        known = self.state.own.get(stream)
        if known is not None and not known.is_withdrawn:
            self.state.own[stream] = AdvertisementEntry(
                self.broker, stream, max(version, known.version + 1), True, path=(self.broker,)
            )
            self._changed()

    @property
    def own(self) -> Mapping[str, AdvertisementEntry]:
        """The advertisements of this broker, by stream."""
        return {stream: entry for stream, entry in self.state.own.items() if not entry.is_withdrawn}

    def set_subscriptions(self, filters: AbstractSet[Filter]) -> None:
        """What this broker's own subscribers want of all hosts."""
        if filters != self._subscriptions:
            self._subscriptions = frozenset(filters)
            self._changed()

    def set_sources(self, sources: AbstractSet[RoutedStream]) -> None:
        """What this broker's plans want of single hosts."""
        if sources != self._sources:
            self._sources = frozenset(sources)
            self._changed()

    def set_ready(self, relations: AbstractSet[str]) -> None:
        """The routed relations that this broker imports now."""
        if relations != self._ready:
            self._ready = frozenset(relations)
            self._changed()

    # ── neighbours ──────────────────────────────────────────────────────────────────────────────────────────────────

    def open_link(self, link: object, neighbour: str) -> None:
        self._links[link] = neighbour
        self._changed()

    def close_link(self, link: object) -> None:
        neighbour = self._links.pop(link, None)
        if neighbour is not None:
            self._tables.pop(link, None)
            self._use_table(neighbour)
            self._changed()

    def receive_table(self, link: object, table: RoutingTable) -> None:
        """A neighbour has sent its table for this broker."""
        neighbour = self._links.get(link)
        if neighbour is None:
            return
        self._tables[link] = table
        self._use_table(neighbour)

    def _use_table(self, neighbour: str) -> None:
        """What a neighbour has said last on the first of its links counts. That link may be one that has broken
        already: when it is closed, another one is the first."""
        tables = (self._tables[link] for link in self._links if self._links[link] == neighbour and link in self._tables)
        table = next(tables, None)
        if table is not None and list(table.values()) != self.state.tables.get(neighbour):
            self.state.tables[neighbour] = list(table.values())
            self._note_withdrawals(table)
            self._changed()

    def _note_withdrawals(self, table: RoutingTable) -> None:
        for entry in table.values():
            if isinstance(entry, AdvertisementEntry) and entry.is_withdrawn and entry.host != self.broker:
                versions = self.state.withdrawn.setdefault(entry.host, {})
                versions[entry.stream] = max(entry.version, versions.get(entry.stream, 0))

    def known_table(self, neighbour: str) -> RoutingTable:
        """What a neighbour has said last, on any link."""
        return {entry.key: entry for entry in self.state.tables.get(neighbour, ())}

    def forget(self, neighbour: str) -> None:
        """The neighbour does not come back: what it has advertised and subscribed to is void."""
        if neighbour not in self._links.values() and self.state.tables.pop(neighbour, None) is not None:
            self._changed()

    @property
    def linked(self) -> frozenset[str]:
        """The neighbours with an open link."""
        return frozenset(self._links.values())

    @property
    def neighbours(self) -> frozenset[str]:
        """The neighbours that have said something."""
        return frozenset(self.state.tables)

    # ── routes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def routes(self) -> Mapping[HostedStreamKey, Route]:
        """The best route to each stream of another broker."""
        version, routes = self._routes
        if version != self.version:
            routes = {}
            linked = self.linked
            for neighbour, entries in self.state.tables.items():
                for entry in entries:
                    if isinstance(entry, AdvertisementEntry) and self._is_usable(neighbour, entry):
                        route = Route(neighbour, entry, entry.is_live and neighbour in linked)
                        key = entry.host, entry.stream
                        if key not in routes or route.preference < routes[key].preference:
                            routes[key] = route
            self._routes = self.version, routes
        return routes

    def _is_usable(self, neighbour: str, entry: AdvertisementEntry) -> bool:
        withdrawn = self.state.withdrawn.get(entry.host, {}).get(entry.stream, -1)
        return (
            not entry.is_withdrawn
            and entry.version > withdrawn
            and bool(entry.path)
            and entry.path[-1] == neighbour
            and entry.path[0] == entry.host
            and self.broker not in entry.path
            and len(entry.path) < limits.routing_path_max
        )

    # ── what neighbours are told ────────────────────────────────────────────────────────────────────────────────────

    def table_for(
        self, neighbour: str, release: Callable[[AdvertisementEntry], AdvertisementEntry | None] = release_all
    ) -> RoutingTable:
        """`release` returns what the neighbour may know of an advertisement: None if nothing."""
        demanded = {entry_stream(e).relation for e in self._subscriptions_of(neighbour)}
        entries: list[RoutingEntry] = list(self._advertisements_for(neighbour, release))
        entries += self._subscriptions_for(neighbour)
        entries += (ReadyEntry(relation) for relation in sorted(demanded & self._ready))
        return {entry.key: entry for entry in entries}

    def _advertisements_for(
        self, neighbour: str, release: Callable[[AdvertisementEntry], AdvertisementEntry | None]
    ) -> Iterator[AdvertisementEntry]:
        for entry in (*self.state.own.values(), *self._passed_on(neighbour), *self._withdrawals(neighbour)):
            released = release(entry)
            if released is not None:
                yield released

    def _passed_on(self, neighbour: str) -> Iterator[AdvertisementEntry]:
        for route in self.routes.values():
            if neighbour not in route.entry.path:
                yield replace(route.entry, path=(*route.entry.path, self.broker), is_live=route.is_live)

    def _withdrawals(self, neighbour: str) -> Iterator[AdvertisementEntry]:
        """They are passed on, so that no late repeat of an advertisement revives it."""
        for host, versions in self.state.withdrawn.items():
            for stream, version in versions.items():
                if host != neighbour and (host, stream) not in self.routes:
                    yield AdvertisementEntry(host, stream, version, True)

    def _subscriptions_for(self, neighbour: str) -> Iterator[SubscriptionEntry]:
        for stream, sources in self.demands.items():
            route = self.routes.get((stream.host, stream.stream))
            if route is not None and route.neighbour == neighbour and sources - {neighbour}:
                yield SubscriptionEntry(stream.stream, stream.host, stream.where)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    def _subscriptions_of(self, neighbour: str) -> Iterator[SubscriptionEntry]:
        return (e for e in self.state.tables.get(neighbour, ()) if isinstance(e, SubscriptionEntry))

    @property
    def demands(self) -> Mapping[RoutedStream, frozenset[str]]:
        """The streams of other brokers that somebody wants, with who: neighbours, and `LOCAL`."""
        if self._demands[0] != self.version:
            self._demands = self.version, self._find_demands()
        return self._demands[1]

    def _find_demands(self) -> Mapping[RoutedStream, frozenset[str]]:
        demands: dict[RoutedStream, set[str]] = {}
        hosts: dict[str, list[str]] = {}
        for host, stream in self.routes:
            hosts.setdefault(stream, []).append(host)
        for stream, where in self._subscriptions:
            for host in hosts.get(stream, ()):
                demands.setdefault(RoutedStream(stream, host, where), set()).add(LOCAL)
        for source in self._sources:
            if (source.host, source.stream) in self.routes:
                demands.setdefault(source, set()).add(LOCAL)
        for neighbour in self.state.tables:
            for entry in self._subscriptions_of(neighbour):
                if entry.host != self.broker and (entry.host, entry.stream) in self.routes:
                    demands.setdefault(entry_stream(entry), set()).add(neighbour)
        return {stream: frozenset(sources) for stream, sources in demands.items()}

    def desired_imports(self) -> dict[str, DesiredImport]:
        """What this broker should import, by the name of the relation."""
        desired = {}
        ready = {(n, e.relation) for n, es in self.state.tables.items() for e in es if isinstance(e, ReadyEntry)}
        for stream, sources in self.demands.items():
            route = self.routes[stream.host, stream.stream]
            if sources - {route.neighbour}:
                relation, entry = stream.relation, route.entry
                is_ready = route.neighbour == stream.host or (route.neighbour, relation) in ready
                is_for_neighbours = bool(sources - {route.neighbour, LOCAL})
                desired[relation] = DesiredImport(
                    stream, route.neighbour, entry.description, entry.history, is_ready, is_for_neighbours
                )
        return desired

    def wanted_of(self, stream: str) -> frozenset[str]:
        """The conditions with which neighbours want a stream of this broker."""
        entries = (e for neighbour in self.state.tables for e in self._subscriptions_of(neighbour))
        return frozenset(e.where for e in entries if e.host == self.broker and e.stream == stream)

    def subscription_count(self, stream: str) -> int:
        """How many subscriptions neighbours have to a stream of this broker."""
        entries = (e for neighbour in self.state.tables for e in self._subscriptions_of(neighbour))
        return sum(e.host == self.broker and e.stream == stream for e in entries)

    # ── filters, as Figure 5 of the PostgreSQL-PS paper has them ────────────────────────────────────────────────────

    def advertised_filters(self) -> dict[Filter, dict[str, frozenset[str]]]:
        """Each advertised stream and condition once for each path, with the hosts behind it. A path is a neighbour, or
        `LOCAL`. What this broker advertises itself covers the same filter of its neighbours."""
        found: dict[Filter, dict[str, set[str]]] = {}
        for entry in self.own.values():
            found[entry.stream, entry.condition] = {LOCAL: {self.broker}}
        for (host, stream), route in self.routes.items():
            paths = found.setdefault((stream, route.entry.condition), {})
            if LOCAL not in paths:
                paths.setdefault(route.neighbour, set()).add(host)
        return {f: {path: frozenset(hosts) for path, hosts in paths.items()} for f, paths in found.items()}

    def subscribed_filters(self) -> dict[Filter, frozenset[str]]:
        """Each subscribed stream and condition, with where it came from: neighbours, and `LOCAL`."""
        found: dict[Filter, set[str]] = {f: {LOCAL} for f in self._subscriptions}
        for neighbour in self.state.tables:
            for entry in self._subscriptions_of(neighbour):
                found.setdefault((entry.stream, entry.where), set()).add(neighbour)
        return {f: frozenset(sources) for f, sources in found.items()}


def entry_stream(entry: SubscriptionEntry) -> RoutedStream:
    return RoutedStream(entry.stream, entry.host, entry.where)
