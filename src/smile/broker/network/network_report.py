"""The links, imports and hosted streams of a broker as JSON, as `smile status` and `/status` show them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from smile.broker.imports.stream_cache import StreamCache
from smile.broker.network.connection import Connection, NeighbourRoute
from smile.broker.network.hosted_stream import HostedStream
from smile.broker.network.imported_relation import ImportedRelation
from smile.broker.network.origin_report import describe_origins, event_horizons
from smile.errors import SmileError
from smile.links.imports import Import

_STATES: Final = ("live", "opening", "refused", "gone")
"""States of an import on a link, the best first."""


def report_link(connection: Connection, names: Mapping[int, str], opened: int, now: float) -> dict[str, Any]:
    """`names` has those of the imports by their ids. `opened` counts the links over this route."""
    link, figures = connection.link, connection.link.figures
    return {
        "neighbour": connection.neighbour or connection.expected,
        "address": connection.address or None,
        "state": "greeting" if link.neighbour is None else "open",
        "problem": None,
        "opened": opened,
        "called": connection.expected is not None,
        "principal": connection.principal,
        "for_s": round(now - connection.since, 3),
        "delay_ms": None if link.delay_s is None else round(1000 * link.delay_s, 3),
        "imports": list(dict.fromkeys(names[i] for i in list(connection.imports) if i in names)),
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
        "curious": {
            names[i]: {"missing": missing.what, "for_s": round(now - missing.since, 3)}
            for i, imported in list(connection.imports.items())
            if i in names and (missing := imported.missing) is not None
        },
        "questions_asked": figures.questions_asked,
        "questions_answered": figures.questions_answered,
    }


def report_absence(neighbour: str, address: str, route: NeighbourRoute, now: float) -> dict[str, Any]:
    """A neighbour to which there is no link."""
    return {
        "neighbour": neighbour,
        "address": address or None,
        "state": "absent",
        "problem": _report_problem(route.problem),
        "opened": route.links,
        "called": bool(address),
        "for_s": round(now - route.since, 3),
    }


def report_import(
    relation: ImportedRelation,
    connections: Iterable[Connection],
    absence: tuple[SmileError | None, float],
    clock_us: int,
    now: float,
) -> dict[str, Any]:
    """`absence` says why and since when there is no link, if there is none. `clock_us` is the time since 1970."""
    on_links = [i for c in connections if (i := c.imports.get(relation.import_id)) is not None]
    best = _find_best(on_links)
    if best is not None:
        state, problem, since = best.figures.state, best.figures.problem, best.figures.since
    else:
        state, (problem, since) = "waiting", absence
    behind_s = relation.behind_s(clock_us)
    return {
        "broker": relation.import_.broker,
        "brokers": list(relation.import_.brokers),
        "relation": relation.import_.relation,
        "kind": "stream" if isinstance(relation.cache, StreamCache) else "view",
        "edition": relation.import_.edition,
        "state": state,
        "for_s": round(now - since, 3),
        "problem": _report_problem(problem),
        "links": len(on_links),
        "horizons": event_horizons(relation.cache.horizons, relation.is_global),
        "origins": describe_origins(relation.membership, relation.cache.horizons, relation.is_global),
        "behind_s": None if behind_s is None else round(behind_s, 3),
        "gaps": max((i.gap_count for i in on_links), default=0),
        "questions": sum(i.figures.asked for i in on_links),
        "redundant": sum(i.figures.redundant for i in on_links),
    }


def report_hosted(
    hosted: HostedStream,
    broker: str,
    connections: Sequence[Connection],
    member_ids: Iterable[int],
    origin_ids: Iterable[int],
    horizons: Mapping[str, int],
) -> dict[str, Any]:
    """A stream with many origins that this broker publishes to. `member_ids` are the ids under which its home is asked
    for the membership, `origin_ids` those under which other hosts are asked for the other origins."""
    best = _find_best([i for c in connections for n in member_ids if (i := c.imports.get(n)) is not None])
    sources = {
        c.neighbour: {"state": i.figures.state, "problem": _report_problem(i.figures.problem)}
        for c in connections
        for n in origin_ids
        if c.neighbour is not None and (i := c.imports.get(n)) is not None
    }
    return {
        "home": hosted.stream.home or broker,
        "origin": hosted.origin,
        "state": "home" if hosted.is_home else "waiting" if best is None else best.figures.state,
        "problem": None if best is None else _report_problem(best.figures.problem),
        "is_read": hosted.is_read(),
        "sources": sources,
        "origins": describe_origins(hosted.membership, horizons, is_global=False),
    }


def _find_best(on_links: Iterable[Import]) -> Import | None:
    return min(on_links, key=lambda i: _STATES.index(i.figures.state), default=None)


def _report_problem(problem: SmileError | None) -> dict[str, Any] | None:
    if problem is None:
        return None
    first = problem.diagnostics[0]
    return {"code": first.code, "message": first.message, "hint": first.hint}
