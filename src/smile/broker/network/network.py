"""The links and imports of one broker. It has no sockets, no threads and no clock of its own: a transport or a
simulator creates connections, and drives their links.

For each connection: `link = network.connect(…)`, then pass every packet to `link.receive(packet, now)`, and call
`link.poll(now, is_writable)` when `link.deadline` is reached, when `wake` was called and when the connection can be
written to; afterwards send what `link.take_packets` returns. If `receive` or `poll` raises an error, or the connection
ends, close the connection and call `network.disconnect(link, problem, now)`.

`now` is in seconds of any monotonic clock, the same one in all calls. Each link is used by one thread at a time; the
methods of `Network` may be called from any thread.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import replace
from random import Random
from threading import RLock
from typing import Any

from smile.algebra import mmpl
from smile.broker.imports.stream_cache import StreamCache
from smile.broker.imports.view_cache import ViewCache
from smile.broker.network.connection import Connection, NeighbourRoute
from smile.broker.network.host import LinkAccess, NetworkHost
from smile.broker.network.hosted_stream import HostedStream, open_members_import, open_origins_import
from smile.broker.network.imported_relation import ImportedRelation, open_cache
from smile.broker.network.link_exports import LinkExports
from smile.broker.network.link_imports import LinkImports, LogQueue
from smile.broker.network.neighbours import Neighbours
from smile.broker.network.network_report import report_absence, report_hosted, report_import, report_link
from smile.broker.network.range_relay import RangeRelay
from smile.broker.network.routing import Routing
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.links.imports import Import, StreamImport
from smile.links.link import Link, LinkIdentity
from smile.links.messages import StreamHorizons
from smile.links.routing.exchange import RoutingExchange


class Network:
    def __init__(
        self,
        identity: LinkIdentity,
        host: NetworkHost,
        access: LinkAccess,
        neighbours: Neighbours,
        random: Random,
        routing: Routing,
    ) -> None:
        self.identity, self.access, self.neighbours = identity, access, neighbours
        self.routing = routing
        routing.on_change = self._wake_links
        self.host, self._random = host, random
        self._lock = RLock()
        self._relations: dict[int, ImportedRelation] = {}
        self._caches: dict[tuple[mmpl.ImportDef, str], StreamCache | ViewCache] = {}
        """By import and history, also of imports that were dropped. A stream is the same from whichever broker."""
        self._hosted: dict[str, HostedStream] = {}
        self._hosted_ids: dict[int, HostedStream] = {}
        """Streams whose home is another broker, by the id with which the home is asked for the membership."""
        self._other_origins: dict[int, HostedStream] = {}
        """Hosted streams by the id with which other hosts are asked for the other origins."""
        self._imports_version = self._log_version = self._last_id = 0
        self._connections: dict[Link, Connection] = {}
        self._routes: dict[tuple[str, str], NeighbourRoute] = {}
        """By neighbour and address."""

    # ── imports ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_imports(self, imports: Sequence[mmpl.ImportDef], histories: Mapping[str, str]) -> None:
        """The program has these imports now. The log must have their streams. `histories` has the history of each
        import by its name, as far as it is known."""
        with self._lock:
            present = {(r.import_, r.history): r for r in self._relations.values()}
            relations: dict[int, ImportedRelation] = {}
            for import_ in imports:
                relation = present.get((import_, history := histories.get(import_.name, "")))
                if relation is None:
                    import_id, cache = self._next_id(), self._find_cache(import_, history)
                    relay = self._create_relay(import_id, import_.name)
                    relation = ImportedRelation(import_id, import_, history, cache, relay)
                relations[relation.import_id] = relation
            self._relations = relations
        self.update_links()

    def _create_relay(self, import_id: int, name: str) -> RangeRelay:
        def links() -> set[object]:
            on_links = [(c, c.imports.get(import_id)) for c in list(self._connections.values())]
            return {c.queue for c, i in on_links if i is not None and i.figures.state == "live"}

        return RangeRelay(name, links, self._wake_links)

    def _find_relay(self, stream: str) -> RangeRelay | None:
        """What passes questions about a stream of the log on; None if it is not imported."""
        relations = list(self._relations.values())
        named = (r.relay for r in relations if isinstance(r.cache, StreamCache) and r.log_stream == stream)
        return next(named, None)

    def set_hosted(self, streams: Sequence[HostedStream]) -> None:
        """The program has these streams with many origins, to which this broker publishes. The log must have them."""
        with self._lock:
            present = {hosted: import_id for import_id, hosted in self._hosted_ids.items()}
            self._hosted = {hosted.name: hosted for hosted in streams}
            self._hosted_ids = {
                present.get(hosted) or self._next_id(): hosted for hosted in streams if not hosted.is_home
            }
            imported = {hosted: import_id for import_id, hosted in self._other_origins.items()}
            self._other_origins = {imported.get(hosted) or self._next_id(): hosted for hosted in streams}
        self.update_links()

    def rejoin(self, stream: str) -> None:
        """Asks the home of a stream again whether this broker may join."""
        with self._lock:
            hosted = self._hosted[stream]
            hosted.wants_to_rejoin = True
            others = {i: other for i, other in self._hosted_ids.items() if other is not hosted}
            self._hosted_ids = {**others, self._next_id(): hosted}
        self.update_links()

    def membership_changed(self, stream: str) -> None:
        """The log has another membership of a hosted stream. Perhaps it is only now that this broker has left, and may
        ask to join again."""
        hosted = self._hosted.get(stream)
        if hosted is not None and hosted.wants_to_rejoin and hosted.origin is None:
            self.rejoin(stream)
        else:
            self.update_links()

    @property
    def hosted_streams(self) -> Mapping[str, HostedStream]:
        """The streams with many origins that this broker publishes to, by name."""
        return self._hosted

    def find_stream_cache(self, name: str) -> StreamCache | None:
        """The cache of an imported stream; None if the program imports no such stream."""
        relations = list(self._relations.values())
        caches = (r.cache for r in relations if r.import_.name == name and isinstance(r.cache, StreamCache))
        return next(caches, None)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def update_links(self) -> None:
        """The imports of all links may have changed."""
        with self._lock:
            self._imports_version += 1
        self._wake_links()

    def _wake_links(self) -> None:
        for connection in list(self._connections.values()):
            connection.wake()

    def _find_cache(self, import_: mmpl.ImportDef, history: str) -> StreamCache | ViewCache:
        """A cache that was dropped is used again: something may still be on its way from it to the log."""
        is_stream = import_.stream is not None
        key = replace(import_, broker="", other_brokers=()) if is_stream else import_, history
        if key not in self._caches:
            self._caches[key] = open_cache(import_, self.host.log)
        return self._caches[key]

    def neighbours_wanted(self) -> frozenset[str]:
        """The brokers that the program imports from, and the homes of streams that it publishes to. Links to other
        hosts are welcome, but not needed: what they have may come from the home."""
        imported = {broker for relation in list(self._relations.values()) for broker in relation.import_.brokers}
        return frozenset(imported | {hosted.stream.home or "" for hosted in list(self._hosted_ids.values())})

    def log_advanced(self) -> None:
        """Called after every commit. Fast: it is called in the thread that writes the log."""
        self._log_version += 1
        for connection in list(self._connections.values()):
            if connection.exports.has_streams:
                connection.wake()

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(
        self, neighbour: str | None, principal: str, now: float, wake: Callable[[], None], address: str = ""
    ) -> Link:
        """A link for a new connection. `neighbour` is the broker that was called; None if the other side has called: it
        says its name in its first message. `principal` is who the neighbour is for grants: that of its token if it has
        called, its broker name if it was called. `wake` is called from any thread when `poll` has something to do.
        `address` is the one that was called."""
        exports = LinkExports(
            self.host,
            self.access,
            principal,
            self.neighbours,
            lambda: self._log_version,
            lambda: self._hosted,
            self._find_relay,
            lambda stream: self._received(connection, stream),
            self.update_links,
            self.routing,
        )
        connection = Connection(neighbour, principal, LogQueue(self.host, wake), exports, wake, now, address)
        imports = LinkImports(
            connection.queue,
            lambda name: self._greet(connection, name),
            lambda at: self._find_imports(connection, at),
            self._acknowledged,
        )
        exchange = RoutingExchange(
            lambda: self.routing.table_for(connection.neighbour, principal),
            lambda: self.routing.version,
            lambda: self.routing.known_table(connection.neighbour),
            lambda table: self.routing.receive_table(connection, table, principal),
        )
        connection.link = Link(self.identity, imports, exports, now, wake, exchange)
        with self._lock:
            self._connections[connection.link] = connection
        return connection.link

    def disconnect(self, link: Link, problem: SmileError | None, now: float) -> None:
        """The connection has ended; `problem` says why, None if this broker has closed it."""
        link.close()
        with self._lock:
            connection = self._connections.pop(link, None)
        self.routing.close_link(connection)
        with self._lock:
            neighbour = None if connection is None else connection.neighbour or connection.expected
            if connection is None or neighbour is None:
                return
            if connection.address or neighbour in self.neighbours_wanted():
                self._close_route(neighbour, connection.address, problem, now)
            else:
                self._routes.pop((neighbour, connection.address), None)

    def report_unreachable(self, neighbour: str, problem: SmileError, now: float, address: str = "") -> None:
        """The neighbour could not be called. Imports from it show the problem until there is a link."""
        with self._lock:
            self._close_route(neighbour, address, problem, now)

    def report_uncalled(self, neighbour: str, problem: SmileError, now: float) -> None:
        """The neighbour must call, and has never done so."""
        with self._lock:
            if (neighbour, "") not in self._routes:
                self._close_route(neighbour, "", problem, now)

    def forget_address(self, neighbour: str, address: str) -> None:
        """The neighbour is not called at this address any more."""
        with self._lock:
            self._routes.pop((neighbour, address), None)

    def _close_route(self, neighbour: str, address: str, problem: SmileError | None, now: float) -> None:
        route = self._routes.setdefault((neighbour, address), NeighbourRoute(now))
        if route.is_open:
            route.is_open, route.since = False, now
        route.problem = problem

    def _greet(self, connection: Connection, name: str) -> None:
        if connection.expected is not None and name != connection.expected:
            hint = "Check the address of the neighbour, and the setting `name` there."
            raise error("E126", f"{connection.expected} was called, but {name} has answered", hint=hint)
        if connection.expected is None and not self.access.can_act_as(connection.principal, name):
            hint = f"Give the broker {name} a token of the principal {name}."
            raise error("E090", f"{connection.principal} may not act as the broker {name}", hint=hint)
        with self._lock:
            connection.neighbour = name
            route = self._routes.setdefault((name, connection.address), NeighbourRoute(connection.since))
            route.is_open, route.since, route.problem = True, connection.since, None
            route.links += 1
        self.routing.open_link(connection, name)

    def _find_imports(self, connection: Connection, now: float) -> Mapping[int, Import]:
        """The imports that a link carries: all from its neighbour. If several links go there, each carries them."""
        if connection.imports_version != self._imports_version:
            with self._lock:
                neighbour, version = connection.neighbour, self._imports_version
                relations = [r for r in self._relations.values() if neighbour in r.import_.brokers]
                hosted = {i: h for i, h in self._hosted_ids.items() if h.stream.home == neighbour}
                read = {i: h for i, h in self._other_origins.items() if neighbour in h.other_hosts and h.is_read()}
                connection.imports_version = version
            present = connection.imports
            connection.imports = {
                **{
                    r.import_id: present.get(r.import_id) or r.open(connection.queue, self._random, now)
                    for r in relations
                },
                **{
                    i: present.get(i) or open_members_import(i, h, connection.queue, self._random, now)
                    for i, h in hosted.items()
                },
                **{
                    i: present.get(i) or open_origins_import(i, h, connection.queue, self._random, now)
                    for i, h in read.items()
                },
            }
        return connection.imports

    def _received(self, connection: Connection, stream: str) -> Mapping[str, int]:
        """Up to which ticks the neighbour has sent the origins of a hosted stream over this link."""
        ids = [import_id for import_id, hosted in self._other_origins.items() if hosted.name == stream]
        on_link = (connection.imports.get(import_id) for import_id in ids)
        return next((i.sent_horizons for i in on_link if isinstance(i, StreamImport)), {})

    def readers(self, stream: str) -> AbstractSet[str]:
        """The brokers for which this one receives all origins of a hosted stream, because they import it from here: all
        if this is the home, which passes everything on; otherwise those that do not publish to it themselves, or all
        hosts would read because of each other."""
        hosted, importers = self._hosted.get(stream), self.neighbours.importers(stream)
        return importers if hosted is None or hosted.is_home else importers - hosted.other_hosts

    # ── acknowledgements and retention ──────────────────────────────────────────────────────────────────────────────

    def _acknowledged(self, import_id: int) -> StreamHorizons:
        """A neighbour records one position of this broker in a stream. So if a stream is imported under several names,
        what all of them have is acknowledged."""
        relations = self._relations
        hosted, relation = self._other_origins.get(import_id), relations.get(import_id)
        if hosted is not None:
            importers = self.neighbours.acknowledged(hosted.name, except_for=hosted.other_hosts)
            return hosted.safe_horizons(self.host.checkpoint_horizons(), importers)
        if relation is None:
            return {}
        safe, name, brokers = self._safe_horizons(relation), relation.import_.relation, {*relation.import_.brokers}
        if name not in safe or not isinstance(relation.cache, StreamCache):
            return safe
        same = [r for r in list(relations.values()) if r.import_.relation == name and brokers & {*r.import_.brokers}]
        of_all = [self._safe_horizons(r).get(name, {}) for r in same]
        return {name: {o: min(horizons.get(o, HORIZON_MIN) for horizons in of_all) for o in safe[name]}}

    def _safe_horizons(self, relation: ImportedRelation) -> StreamHorizons:
        downstream = self.neighbours.acknowledged(relation.log_stream)
        return relation.safe_horizons(self.host.checkpoint_horizons(), downstream)

    @property
    def has_imported_streams(self) -> bool:
        """Whether neighbours wait for acknowledgements."""
        are_streams = (isinstance(relation.cache, StreamCache) for relation in list(self._relations.values()))
        return any(are_streams) or any(h.other_hosts and h.is_read() for h in list(self._hosted.values()))

    def needed_horizons(self, away_us_max: int) -> Mapping[str, int]:
        """For each stream of the log that neighbours import, and for each origin, up to which tick none of them needs
        it. A neighbour that has been away for longer than `away_us_max` is forgotten."""
        connected = [
            (connection.neighbour, stream)
            for connection in list(self._connections.values())
            if connection.neighbour is not None
            for stream in list(connection.exports.logged_streams)
        ]
        return self.neighbours.needed_horizons(connected, away_us_max)

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self, now: float) -> dict[str, Any]:
        """`links` and `imports` for `smile status`."""
        with self._lock:
            connections, relations = list(self._connections.values()), list(self._relations.values())
            routes = [(n, a, replace(route)) for (n, a), route in self._routes.items() if not route.is_open]
            names = {r.import_id: r.import_.name for r in relations}
            names |= {i: hosted.name for ids in (self._hosted_ids, self._other_origins) for i, hosted in ids.items()}
            opened = {key: route.links for key, route in self._routes.items()}
            hosted_ids = [
                (hosted, _ids_of(hosted, self._hosted_ids), _ids_of(hosted, self._other_origins))
                for hosted in self._hosted.values()
            ]
        linked = {connection.neighbour for connection in connections}
        links = [
            *(report_link(c, names, opened.get((c.neighbour or "", c.address), 0), now) for c in connections),
            *(report_absence(n, a, route, now) for n, a, route in routes if a or n not in linked),
        ]
        counts: Counter[str] = Counter()
        for link in links:
            neighbour = link["neighbour"] or "?"
            counts[neighbour] += 1
            link["name"] = neighbour if counts[neighbour] == 1 else f"{neighbour} {counts[neighbour]}"
        clock_us, own = self.neighbours.clock(), self.identity.broker
        return {
            "links": links,
            "imports": {
                r.import_.name: report_import(r, connections, self._absence(r.import_.broker, now), clock_us, now)
                for r in relations
            },
            "hosted": {
                hosted.name: report_hosted(
                    hosted, own, connections, member_ids, origin_ids, self.host.log.stream_horizons(hosted.name)
                )
                for hosted, member_ids, origin_ids in hosted_ids
            },
        }

    def _absence(self, neighbour: str, now: float) -> tuple[SmileError | None, float]:
        """Why and since when there is no link to a neighbour."""
        with self._lock:
            routes = [route for (name, _), route in self._routes.items() if name == neighbour and not route.is_open]
        since = max((route.since for route in routes), default=now)
        return next((route.problem for route in routes if route.problem is not None), None), since


def _ids_of(hosted: HostedStream, ids: Mapping[int, HostedStream]) -> list[int]:
    return [import_id for import_id, other in ids.items() if other is hosted]
