"""The commands about the origins of a stream: list them, join again, leave, and fence."""

from typing import Any

from smile import limits
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.network.hosted_stream import HostedStream
from smile.broker.network.network import Network
from smile.broker.network.origin_report import describe_origins
from smile.errors import error
from smile.horizons import HORIZON_MIN
from smile.log.membership import HOME_ORIGIN


class OriginCommands:
    """Those of one broker. Thread-safe."""

    def __init__(self, network: Network) -> None:
        self._network, self._host = network, network.host

    def report(self, stream: str) -> dict[str, Any]:
        """Who the origins of a stream are, what is known of each here, and which of them hold back what is final."""
        hosted = self._network.hosted_streams.get(stream)
        cache = self._network.find_stream_cache(stream)
        if hosted is not None:
            membership, log_stream, own = hosted.membership, hosted.name, hosted.origin
            home: str | None = hosted.stream.home or self._network.identity.broker
            is_global = False
        elif cache is not None and cache.has_many_origins:
            membership, log_stream, own = cache.membership, cache.log_stream, None
            is_global = cache.is_global
            at_home = None if membership is None else membership.members.get(HOME_ORIGIN)
            home = None if at_home is None else at_home.broker
        else:
            hint = "Declare it WITH (ORIGINS = MANY)." if cache is None else None
            raise error("E076", f"there is no stream {stream[:100]} with many origins", hint=hint)
        horizons = self._host.log.stream_horizons(log_stream)
        return {
            "stream": stream,
            "home": home,
            "origin": own,
            "version": 0 if membership is None else membership.version,
            "origins": describe_origins(membership, horizons, is_global),
        }

    def leave(self, stream: str, origin: str) -> None:
        """This broker publishes nothing more to the stream, and holds nothing back any more. The number is that of
        this broker: whoever gives another one is at the wrong broker."""
        hosted = self._find_hosted(stream)
        if hosted.origin != origin:
            own = "no origin" if hosted.origin is None else f"origin {hosted.origin}"
            members = {} if hosted.membership is None else hosted.membership.members
            broker = members[origin].broker if origin in members else None
            hint = None if broker is None else f"Run it at {broker}. If that has failed, fence it at the home."
            raise error("E135", f"this broker is {own} of {stream}, not origin {origin}", hint=hint)
        self._host.end_origin(stream).result(limits.commit_s_max)
        if hosted.is_home:
            end = self._host.log.last_tick(stream, origin)
            self._change(hosted, lambda membership: membership.ended(origin, end, is_fenced=False))
        self._network.update_links()

    def fence(self, stream: str, origin: str, at: int | None) -> None:
        """The home declares that an origin has no events above a tick. Only for an origin that has failed for good."""
        hosted = self._find_hosted(stream)
        if not hosted.is_home or hosted.membership is None:
            raise error("E135", f"only the home of {stream} can fence", hint=f"Run it at {hosted.stream.home}.")
        if origin == HOME_ORIGIN:
            raise error("E137", f"origin {origin} is the home of {stream}: it can only leave")
        if at is None:
            acknowledged = self._network.neighbours.greatest_acknowledged(stream, origin)
            known = max(acknowledged, self._host.log.stream_horizons(stream).get(origin, HORIZON_MIN))
            known_here = "" if known == HORIZON_MIN else f" As far as this broker knows, that is {known}."
            hint = (
                f"`smile origins {stream}` at each broker that has the stream says up to which tick it has origin "
                f"{origin}. Give the greatest with --at.{known_here}"
            )
            raise error("E137", f"it is not known here which events of origin {origin} others have", hint=hint)
        self._change(hosted, lambda membership: membership.ended(origin, at, is_fenced=True))

    def join(self, stream: str) -> None:
        """A broker that has left, or was fenced, asks to join again, as another origin."""
        hosted = self._find_hosted(stream)
        if hosted.is_home:
            raise error("E135", f"this broker is the home of {stream}, and cannot join it again")
        if hosted.origin is not None and hosted.end() is None:
            raise error("E135", f"this broker is origin {hosted.origin} of {stream} already")
        self._network.rejoin(stream)

    def _find_hosted(self, stream: str) -> HostedStream:
        hosted = self._network.hosted_streams.get(stream)
        if hosted is None:
            hint = "It needs CREATE STREAM … WITH (ORIGINS = MANY)."
            raise error("E076", f"this broker publishes to no stream {stream[:100]} with many origins", hint=hint)
        return hosted

    def _change(self, hosted: HostedStream, change: Any) -> None:
        append = CacheAppend(hosted.name, hosted, change, 0, 0)
        self._host.append_imported(append).result(limits.commit_s_max)
