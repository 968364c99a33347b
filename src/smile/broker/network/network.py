"""The links and imports of one broker. It has no sockets, no threads and no clock of its own: a transport or a
simulator creates connections, and drives their links.

For each connection: `link = network.connect(…)`, then pass every packet to `link.receive(packet, now)`, and call
`link.poll(now, is_writable)` when `link.deadline` is reached, when `wake` was called and when the connection can be
written to; afterwards send and clear `link.outgoing`. If `receive` or `poll` raises an error, or the connection ends,
close the connection and call `network.disconnect(link, problem, now)`.

`now` is in seconds of any monotonic clock, the same one in all calls. Each link is used by one thread at a time; the
methods of `Network` may be called from any thread.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from threading import RLock
from typing import Any

from smile.algebra import mmpl
from smile.broker.imports.stream_cache import StreamCache
from smile.broker.imports.view_cache import ViewCache
from smile.broker.network.host import LinkAccess, NetworkHost
from smile.broker.network.hosted_stream import HostedStream, open_members_import
from smile.broker.network.imported_relation import ImportedRelation, open_cache
from smile.broker.network.link_exports import LinkExports
from smile.broker.network.link_imports import LinkImports, LogQueue
from smile.broker.network.neighbours import Neighbours
from smile.broker.network.origin_report import describe_origins
from smile.broker.network.range_relay import RangeRelay
from smile.errors import SmileError, error
from smile.links.imports import Import
from smile.links.link import Link, LinkIdentity
from smile.links.messages import StreamHorizons

_STATES = ("live", "opening", "refused", "gone")
"""States of an import on a link, the best first."""


@dataclass(eq=False)
class Connection:
    """A link with what this broker knows of it. `expected` is the broker that was called; None if the other side has
    called."""

    expected: str | None
    principal: str
    queue: LogQueue
    exports: LinkExports
    wake: Callable[[], None]
    since: float
    address: str
    link: Link = field(init=False)
    neighbour: str | None = None
    imports: dict[int, Import] = field(default_factory=dict)
    imports_version: int = -1


@dataclass
class NeighbourRoute:
    """A way to a neighbour: an address that this broker calls, or none if the neighbour calls. `links` counts the links
    that were opened; without one now, `problem` says why, and `since` since when."""

    since: float
    problem: SmileError | None = None
    links: int = 0
    is_open: bool = False


class Network:
    def __init__(
        self, identity: LinkIdentity, host: NetworkHost, access: LinkAccess, neighbours: Neighbours, random: Random
    ) -> None:
        self.identity, self.access, self.neighbours = identity, access, neighbours
        self.host, self._random = host, random
        self._lock = RLock()
        self._relations: dict[int, ImportedRelation] = {}
        self._caches: dict[tuple[mmpl.ImportDef, str], StreamCache | ViewCache] = {}
        """By import and history, also of imports that were dropped."""
        self._hosted: dict[str, HostedStream] = {}
        self._hosted_ids: dict[int, HostedStream] = {}
        """Streams whose home is another broker, by the id with which the home is asked for the membership."""
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

        def wake() -> None:
            for connection in list(self._connections.values()):
                connection.wake()

        return RangeRelay(name, links, wake)

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
        self.update_links()

    def rejoin(self, stream: str) -> None:
        """Asks the home of a stream again whether this broker may join."""
        with self._lock:
            hosted = self._hosted[stream]
            hosted.wants_to_rejoin = True
            others = {i: other for i, other in self._hosted_ids.items() if other is not hosted}
            self._hosted_ids = {**others, self._next_id(): hosted}
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
            connections = list(self._connections.values())
        for connection in connections:
            connection.wake()

    def _find_cache(self, import_: mmpl.ImportDef, history: str) -> StreamCache | ViewCache:
        """A cache that was dropped is used again: something may still be on its way from it to the log."""
        key = import_, history
        if key not in self._caches:
            self._caches[key] = open_cache(import_, self.host.log)
        return self._caches[key]

    def neighbours_wanted(self) -> frozenset[str]:
        """The brokers that the program imports from, and the homes of streams that it publishes to."""
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
        )
        connection = Connection(neighbour, principal, LogQueue(self.host, wake), exports, wake, now, address)
        imports = LinkImports(
            connection.queue,
            lambda name: self._greet(connection, name),
            lambda at: self._find_imports(connection, at),
            self._acknowledged,
        )
        connection.link = Link(self.identity, imports, exports, now, wake)
        with self._lock:
            self._connections[connection.link] = connection
        return connection.link

    def disconnect(self, link: Link, problem: SmileError | None, now: float) -> None:
        """The connection has ended; `problem` says why, None if this broker has closed it."""
        link.close()
        with self._lock:
            connection = self._connections.pop(link, None)
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

    def _find_imports(self, connection: Connection, now: float) -> Mapping[int, Import]:
        """The imports that a link carries: all from its neighbour. If several links go there, each carries them."""
        if connection.imports_version != self._imports_version:
            with self._lock:
                neighbour, version = connection.neighbour, self._imports_version
                relations = [r for r in self._relations.values() if neighbour in r.import_.brokers]
                hosted = {i: h for i, h in self._hosted_ids.items() if h.stream.home == neighbour}
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
            }
        return connection.imports

    # ── acknowledgements and retention ──────────────────────────────────────────────────────────────────────────────

    def _acknowledged(self, import_id: int) -> StreamHorizons:
        relation = self._relations.get(import_id)
        if relation is None:
            return {}
        downstream = self.neighbours.acknowledged(relation.log_stream)
        return relation.safe_horizons(self.host.checkpoint_horizons(), downstream)

    @property
    def has_imported_streams(self) -> bool:
        """Whether neighbours wait for acknowledgements."""
        return any(isinstance(relation.cache, StreamCache) for relation in self._relations.values())

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
        linked = {connection.neighbour for connection in connections}
        links = [
            *(self._link_status(connection, now) for connection in connections),
            *(_absence_status(n, a, route, now) for n, a, route in routes if a or n not in linked),
        ]
        counts: Counter[str] = Counter()
        for link in links:
            neighbour = link["neighbour"] or "?"
            counts[neighbour] += 1
            link["name"] = neighbour if counts[neighbour] == 1 else f"{neighbour} {counts[neighbour]}"
        return {
            "links": links,
            "imports": {r.import_.name: self._import_status(r, connections, now) for r in relations},
            "hosted": {name: self._hosted_status(hosted, connections, now) for name, hosted in self._hosted.items()},
        }

    def _hosted_status(self, hosted: HostedStream, connections: Sequence[Connection], now: float) -> dict[str, Any]:
        """A stream with many origins that this broker publishes to."""
        ids = [import_id for import_id, other in list(self._hosted_ids.items()) if other is hosted]
        on_links = [i for c in connections for import_id in ids if (i := c.imports.get(import_id)) is not None]
        best = min(on_links, key=lambda i: _STATES.index(i.figures.state), default=None)
        problem = None if best is None else best.figures.problem
        return {
            "home": hosted.stream.home or self.identity.broker,
            "origin": hosted.origin,
            "state": "home" if hosted.is_home else "waiting" if best is None else best.figures.state,
            "problem": None if problem is None else problem_json(problem),
            "origins": describe_origins(hosted.membership, self.host.log.stream_horizons(hosted.name)),
        }

    def _link_status(self, connection: Connection, now: float) -> dict[str, Any]:
        link, figures = connection.link, connection.link.figures
        names = {r.import_id: r.import_.name for r in list(self._relations.values())}
        names |= {import_id: hosted.name for import_id, hosted in list(self._hosted_ids.items())}
        route = self._routes.get((connection.neighbour or "", connection.address))
        return {
            "neighbour": connection.neighbour or connection.expected,
            "address": connection.address or None,
            "state": "greeting" if link.neighbour is None else "open",
            "problem": None,
            "opened": 0 if route is None else route.links,
            "called": connection.expected is not None,
            "principal": connection.principal,
            "for_s": round(now - connection.since, 3),
            "delay_ms": None if link.delay_s is None else round(1000 * link.delay_s, 3),
            "imports": [names[i] for i in list(connection.imports) if i in names],
            "exports": link.exported_relations,
            "sent": {
                "bytes": figures.sent_bytes.total,
                "bytes_per_s": round(figures.sent_bytes.per_second(now), 1),
                "rows_per_s": round(figures.sent_rows.per_second(now), 1),
            },
            "received": {
                "bytes": figures.received_bytes.total,
                "bytes_per_s": round(figures.received_bytes.per_second(now), 1),
                "rows_per_s": round(figures.received_rows.per_second(now), 1),
            },
            "questions_asked": figures.questions_asked,
            "questions_answered": figures.questions_answered,
        }

    def _absence(self, neighbour: str, now: float) -> tuple[SmileError | None, float]:
        """Why and since when there is no link to a neighbour."""
        with self._lock:
            routes = [route for (name, _), route in self._routes.items() if name == neighbour and not route.is_open]
        since = max((route.since for route in routes), default=now)
        return next((route.problem for route in routes if route.problem is not None), None), since

    def _import_status(
        self, relation: ImportedRelation, connections: Sequence[Connection], now: float
    ) -> dict[str, Any]:
        on_links = [i for c in connections if (i := c.imports.get(relation.import_id)) is not None]
        best = min(on_links, key=lambda i: _STATES.index(i.figures.state), default=None)
        if best is not None:
            state, problem, since = best.figures.state, best.figures.problem, best.figures.since
        else:
            state, (problem, since) = "waiting", self._absence(relation.import_.broker, now)
        behind_s = relation.behind_s(self.neighbours.clock())
        return {
            "broker": relation.import_.broker,
            "brokers": list(relation.import_.brokers),
            "relation": relation.import_.relation,
            "kind": "stream" if isinstance(relation.cache, StreamCache) else "view",
            "edition": relation.import_.edition,
            "state": state,
            "for_s": round(now - since, 3),
            "problem": None if problem is None else problem_json(problem),
            "links": len(on_links),
            "horizons": dict(relation.cache.horizons),
            "origins": describe_origins(relation.membership, relation.cache.horizons),
            "behind_s": None if behind_s is None else round(behind_s, 3),
            "gaps": max((i.gap_count for i in on_links), default=0),
            "questions": sum(i.figures.asked for i in on_links),
            "redundant": sum(i.figures.redundant for i in on_links),
        }


def _absence_status(neighbour: str, address: str, route: NeighbourRoute, now: float) -> dict[str, Any]:
    return {
        "neighbour": neighbour,
        "address": address or None,
        "state": "absent",
        "problem": None if route.problem is None else problem_json(route.problem),
        "opened": route.links,
        "called": bool(address),
        "for_s": round(now - route.since, 3),
    }


def problem_json(problem: SmileError) -> dict[str, Any]:
    first = problem.diagnostics[0]
    return {"code": first.code, "message": first.message, "hint": first.hint}
