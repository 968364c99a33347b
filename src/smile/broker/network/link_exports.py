"""The exports of one link: what this broker sends to the neighbour at its other end."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from smile.algebra import mmpl, trees
from smile.algebra.parser import parse_expression
from smile.analysis.imports import check_import
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.imports.exported_stream import ExportedStream
from smile.broker.imports.exported_view import ExportedView
from smile.broker.network.host import ExportedRelation, LinkAccess, NetworkHost
from smile.broker.network.hosted_stream import HostedStream, MembershipChange
from smile.broker.network.neighbours import Neighbours
from smile.broker.network.range_relay import RangeRelay
from smile.broker.network.routing import Routing
from smile.broker.network.stream_source import HostedMembersSource, LoggedStreamSource
from smile.broker.network.view_cursor import ExportCursor, from_link_horizons
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN
from smile.links.exports import Export, MembersExport, StreamExport, ViewExport
from smile.links.messages import OpenImport, StreamHorizons
from smile.links.routing.names import is_routed_name


class LinkExports:
    """`principal` is who the neighbour is for grants. `log_version` changes with every commit. `hosted_streams` returns
    the streams with many origins that are published here, and `find_relay` what passes questions about a stream of the
    log on. `received` returns up to which ticks the neighbour has sent the origins of a hosted stream. `on_readers` is
    called when brokers begin or cease to import a stream."""

    def __init__(
        self,
        host: NetworkHost,
        access: LinkAccess,
        principal: str,
        neighbours: Neighbours,
        log_version: Callable[[], int],
        hosted_streams: Callable[[], Mapping[str, HostedStream]],
        find_relay: Callable[[str], RangeRelay | None],
        received: Callable[[str], Mapping[str, int]],
        on_readers: Callable[[], None],
        routing: Routing,
    ) -> None:
        self._routing = routing
        self._host, self._access, self._principal = host, access, principal
        self._neighbours, self._log_version = neighbours, log_version
        self._hosted_streams, self._find_relay = hosted_streams, find_relay
        self._received, self._on_readers = received, on_readers
        self.logged_streams: list[str] = []
        """The streams of the log that the neighbour imports over this link, one for each import."""
        self._hosted_there: list[str] = []
        """Those of which it needs the membership, because it publishes to them."""

    @property
    def has_streams(self) -> bool:
        return bool(self.logged_streams or self._hosted_there)

    def open(self, neighbour: str, request: OpenImport, wake: Callable[[], None]) -> tuple[Export, int]:
        if request.hosts:
            return self._open_members(neighbour, request), -1

        routed = self._routing.find_routed(request.relation)

        def check_access() -> None:
            if routed is not None:
                self._routing.check_release(self._principal, routed, request.history)
            elif not self._access.can_import(self._principal, request.relation):
                hint = f"At the exporting broker: smile grant SUBSCRIBE ON {request.relation} TO {self._principal}."
                raise error("E090", f"{self._principal} may not import {request.relation}", hint=hint)

        check_access()
        exported = self._find_export(request.relation)
        _check_definition(exported, request)
        import_ = exported.import_with(parse_expression(request.where) if request.where else None)
        check_import(import_)
        if exported.view is None:
            return self._open_stream(neighbour, exported, import_, request, check_access), -1
        known = from_link_horizons(request.horizons, import_.many_origins)
        view = ExportedView(exported.view, import_.base_streams, import_.condition, known, wake)
        cursor = ExportCursor(view, check_access)
        return ViewExport(request.id, cursor), cursor.change

    def _open_stream(
        self,
        neighbour: str,
        exported: ExportedRelation,
        import_: mmpl.ImportDef,
        request: OpenImport,
        check_access: Callable[[], None],
    ) -> StreamExport:
        log, known = self._host.log, request.horizons.get(request.relation, {})
        definition = log.schemas[exported.logged_stream].stream
        conditions = [c for c in (exported.condition, import_.condition) if c is not None]
        stream = ExportedStream(
            log,
            definition,
            trees.conjunction(conditions) if conditions else None,
            exported.columns,
            exported.begins_with_kept,
            exported.find_membership,
        )
        close = partial(self.logged_streams.remove, exported.logged_stream)
        relay = self._find_relay(exported.logged_stream)
        is_host = bool(request.log) and import_.condition is None and exported.relation in self._hosted_streams()
        received = partial(self._received, exported.relation) if is_host else dict
        log_id = request.log if is_host else None
        source = LoggedStreamSource(stream, self._log_version, check_access, close, relay, log_id, received)
        home_origin, horizons = exported.home_origin, source.horizons()
        # A neighbour may know that the origin was fenced, and this broker not yet.
        if (
            home_origin is not None
            and horizons.get(home_origin, HORIZON_MIN) < known.get(home_origin, HORIZON_MIN) < END
        ):
            message = f"{neighbour} has {request.relation} up to tick {known[home_origin]}, but the log ends before it"
            raise error("E089", message, hint="The log has lost its end: restore a backup of it.")
        self.logged_streams.append(exported.logged_stream)
        if self._neighbours.register(neighbour, exported.logged_stream):
            self._on_readers()
        return StreamExport(request.id, source, known, HORIZON_MIN, request.members)

    def _open_members(self, neighbour: str, request: OpenImport) -> MembersExport:
        """The neighbour asks to be an origin of a stream that has its home here."""

        def check_access() -> None:
            if not self._access.can_publish(self._principal, request.relation):
                hint = f"At the home of the stream: smile grant PUBLISH ON {request.relation} TO {self._principal}."
                raise error("E090", f"{self._principal} may not publish to {request.relation}", hint=hint)

        check_access()
        exported = self._host.find_export(request.relation)
        hosted = self._hosted_streams().get(request.relation)
        if hosted is None or not hosted.is_home:
            home = "" if hosted is None else f": that is {hosted.stream.home}"
            hint = f"Create {request.relation} here WITH (ORIGINS = MANY), or name its home there."
            raise error("E135", f"this broker is not the home of {request.relation}{home}", hint=hint)
        _check_definition(exported, request)
        if hosted.membership is not None:
            hosted.membership.check_claim(neighbour, request.log)
        if request.joins:
            self._change(hosted, hosted.join(neighbour, request.log))

        def report_end(end: int) -> None:
            origin = None if hosted.membership is None else hosted.membership.find(neighbour, request.log)
            if origin is not None:
                self._change(hosted, lambda membership: membership.ended(origin, end, is_fenced=False))

        stream = ExportedStream(self._host.log, hosted.stream, None)
        close = partial(self._hosted_there.remove, hosted.name)
        source = HostedMembersSource(stream, self._log_version, check_access, close)
        self._hosted_there.append(hosted.name)
        return MembersExport(request.id, source, request.members, report_end)

    def _change(self, hosted: HostedStream, change: MembershipChange) -> None:
        self._host.append_imported(CacheAppend(hosted.name, hosted, change, 0, 0))

    def acknowledge(self, neighbour: str, relation: str, horizons: StreamHorizons) -> None:
        stream = self._logged_stream(relation)
        if stream is not None and relation in horizons:
            self._neighbours.acknowledge(neighbour, stream, horizons[relation])

    def release(self, neighbour: str, relation: str) -> None:
        """The neighbour may have another import of the stream."""
        stream = self._logged_stream(relation)
        if stream is not None and stream not in self.logged_streams:
            self._neighbours.release(neighbour, stream)
            self._on_readers()

    def _find_export(self, relation: str) -> ExportedRelation:
        """Raises E021 if there is no such relation."""
        exported = self._routing.find_export(self._principal, relation)
        if exported is not None:
            return exported
        is_routed = self._routing.find_routed(relation) is not None
        try:
            found = self._host.find_export(relation)
        except SmileError:
            if is_routed_name(relation):
                # The routing table of the neighbour, which says so, may have been lost on its way.
                raise error("E123", f"it is not known here yet who wants {relation}") from None
            raise
        return replace(found, begins_with_kept=True) if is_routed else found

    def _logged_stream(self, relation: str) -> str | None:
        """None if it is a view, or no longer in the program."""
        try:
            return self._find_export(relation).logged_stream or None
        except SmileError:
            return None


def _check_definition(exported: ExportedRelation, request: OpenImport) -> None:
    if request.definition != exported.digest:
        message = f"{exported.relation} is defined otherwise than when its type was recorded"
    elif request.history and not exported.history and not request.hosts:
        # It has not joined yet. The neighbour asks again soon.
        raise error("E123", f"it is not known here yet which stream {exported.relation} is")
    elif request.history and request.history != exported.history:
        message = f"{exported.relation} has another history than when it was imported first: a log was replaced"
    else:
        return
    raise error("E124", message, hint="Apply the importing program again: the import then begins anew.")
