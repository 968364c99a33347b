"""Advertisements and links that were made in the database become those of the broker.

A type that is advertised in the database is advertised to neighbours, and one that is not is not. A link of the
database is a link of the broker; those of the settings and those that were added by commands are left alone.
"""

import logging
from collections.abc import Mapping
from ipaddress import ip_address

from smile.broker.network.link_catalogue import LinkCatalogue
from smile.broker.network.routing import Routing
from smile.errors import SmileError
from smile.postgres.catalogue import Catalogue, DatabaseLink, EventType

_log = logging.getLogger("smile.postgres")


class DatabaseNetwork:
    """Not thread-safe. `problems` are those of links and advertisements, by name."""

    def __init__(self, routing: Routing, links: LinkCatalogue) -> None:
        self._routing, self._links = routing, links
        self.problems: Mapping[str, SmileError] = {}

    def set_catalogue(self, catalogue: Catalogue, streams: Mapping[int, str | SmileError]) -> None:
        problems: dict[str, SmileError] = {}
        for stream, event_type in _types_by_stream(catalogue, streams).items():
            # The contents of a table are received only by those who import its stream by name.
            is_advertised = event_type.id in catalogue.advertised and not event_type.is_table
            try:
                self._set_advertisement(stream, is_advertised, catalogue.advertised.get(event_type.id))
            except SmileError as problem:
                problems[f"advertisement of {stream}"] = problem
        for link in catalogue.links:
            try:
                self._add_link(link)
            except SmileError as problem:
                problems[f"link {link.name}"] = problem
        for name in catalogue.dropped_links & set(self._links.added):
            try:
                self._links.drop(name)
            except SmileError as problem:
                problems[f"link {name}"] = problem
        for name, reason in problems.items():
            if str(self.problems.get(name)) != str(reason):
                _log.error("what the database asks for cannot be done", extra={"subject": name, "what": reason.message})
        self.problems = problems

    def _set_advertisement(self, stream: str, is_advertised: bool, condition: str | None) -> None:
        if not is_advertised:
            if self._routing.is_advertised(stream) and not self._routing.is_global(stream):
                self._routing.unadvertise(stream)
            return
        try:
            self._routing.advertise(stream, condition or "")
        except SmileError:
            if not condition:
                raise
            # The database enforces the condition, in its own words. Neighbours need not know it.
            self._routing.advertise(stream)

    def _add_link(self, link: DatabaseLink) -> None:
        self._links.add(link.name, link_url(link.address, link.port), link.password)


def _types_by_stream(catalogue: Catalogue, streams: Mapping[int, str | SmileError]) -> dict[str, EventType]:
    """The type of each stream. One that was dropped counts if no other has its name: nobody advertises it any more."""
    types = sorted(catalogue.types.values(), key=lambda t: not t.is_dropped)
    return {stream: t for t in types if isinstance(stream := streams.get(t.id), str)}


def link_url(address: str, port: int) -> str:
    """The URL of a link to an address, with TLS unless it is on this machine. An address may say so itself."""
    if "://" in address:
        return f"{address}:{port}"
    host = f"[{address}]" if ":" in address else address
    return f"{'http' if _is_loopback(address) else 'https'}://{host}:{port}"


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
