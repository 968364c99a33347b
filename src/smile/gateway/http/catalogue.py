"""Lists and describes streams and views, and the graph of the program; checks programs that are being written.

A caller sees the streams and views on which it has some right, and with ADMIN all of them.
"""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from smile import limits
from smile.encoding.finality import finality_json
from smile.encoding.json_events import json_events
from smile.errors import Diagnostic, SmileError, did_you_mean, error
from smile.gateway.access import Right
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http.bodies import NoQuery
from smile.gateway.http.catalogue_bodies import DiagnosticBody, FinalityQuery, ProgramCheckBody, Severity, StreamQuery
from smile.gateway.http.program import read_program_source
from smile.gateway.http.request import parse_count, parse_query
from smile.gateway.http.response import HttpError, JsonResponse, diagnostic_body
from smile.gateway.http.status import status_json
from smile.kernels.row_encoding import decode_rows
from smile.source import Source

Json = dict[str, Any]

_DEFINITION_FIELDS = ("sql", "mmpl", "reads", "remembers", "final_early", "waits_for")
"""What a description says of the program. Only those who may read the program see it."""


async def list_streams(gateway: Gateway, request: Request) -> Response:
    """The streams that the caller may publish to, subscribe to or read, with their columns and figures."""
    parse_query(request, NoQuery)
    caller, catalogue = request.user, gateway.broker.catalogue

    def describe() -> list[Json]:
        names = [name for name in catalogue.streams if _may_see_stream(gateway, caller, name)]
        return [_describe_stream(gateway, caller, name) for name in names]

    return JsonResponse({"streams": status_json(await gateway.run_in_thread(describe))})


async def show_stream(gateway: Gateway, request: Request) -> Response:
    """A stream, with its columns and figures, and its newest events."""
    query = parse_query(request, StreamQuery)
    caller, name = request.user, request.path_params["stream"]
    count = parse_count(query.get("newest", "20"), "newest", limits.newest_events_max)
    if not _may_see_stream(gateway, caller, name):
        raise gateway.denial_error(caller, Right.subscribe, name)
    may_read = any(gateway.is_allowed(caller, right, name) for right in (Right.subscribe, Right.read))

    def describe() -> Json:
        described = status_json(_describe_stream(gateway, caller, name))
        newest = gateway.broker.catalogue.newest_events(name, count) if may_read and count else None
        events = [] if newest is None else json_events(newest.source, newest.rows, newest.ticks, newest.origins)
        return {**described, "newest": list(events) if may_read else None}

    return JsonResponse(await gateway.read_log(describe))


def _may_see_stream(gateway: Gateway, caller: Caller, name: str) -> bool:
    rights = (Right.publish, Right.subscribe, Right.read, Right.admin)
    return any(gateway.is_allowed(caller, right, name) for right in rights)


def _describe_stream(gateway: Gateway, caller: Caller, name: str) -> Json:
    described = gateway.broker.catalogue.describe_stream(name)
    may_publish = gateway.is_allowed(caller, Right.publish, name)
    readers = [view for view in described["readers"] if _may_see_view(gateway, caller, view)]
    return {**described, "publishable": described["publishable"] and may_publish, "readers": readers}


async def list_views(gateway: Gateway, request: Request) -> Response:
    """The views that the caller may subscribe to, with their columns and figures."""
    parse_query(request, NoQuery)
    caller, catalogue = request.user, gateway.broker.catalogue

    def describe() -> list[Json]:
        names = [name for name in catalogue.views if _may_see_view(gateway, caller, name)]
        return [catalogue.summarize_view(name) for name in names]

    return JsonResponse({"views": status_json(await gateway.run_in_thread(describe))})


async def describe_view(gateway: Gateway, request: Request) -> Response:
    """A view: its columns and figures, its definition, what is remembered for it and until when."""
    parse_query(request, NoQuery)
    caller, name = request.user, request.path_params["view"]
    if not _may_see_view(gateway, caller, name):
        raise gateway.denial_error(caller, Right.subscribe, name)
    described = status_json(await gateway.run_in_thread(lambda: gateway.broker.catalogue.describe_view(name)))
    if not gateway.is_allowed(caller, Right.admin, name):
        described |= dict.fromkeys(_DEFINITION_FIELDS)
    return JsonResponse(described)


def _may_see_view(gateway: Gateway, caller: Caller, name: str) -> bool:
    return any(gateway.is_allowed(caller, right, name) for right in (Right.subscribe, Right.admin))


async def show_finality(gateway: Gateway, request: Request) -> Response:
    """Why a row is not final: the horizons that it waits for, and what holds them back."""
    name = request.path_params["view"]
    gateway.require(request.user, Right.subscribe, name)
    query = parse_query(request, FinalityQuery)
    view, key = gateway.broker.view(name), parse_row_key(query.get("key", "{}"))
    column = query.get("column")
    if column is not None and column not in view.source.type.columns:
        hint = did_you_mean(column[:100], view.source.type.columns)
        raise error("E093", f"{name} has no column {column[:100]!r}", hint=hint)

    def explain() -> Json:
        if not key.keys() >= {*view.source.type.heading.key}:
            message = f"the key has the columns {', '.join(view.source.type.heading.key) or '(none)'}"
            raise error("E093", message, hint='Send all of them, as in key={"issue":"IBM"}.')
        frame = view.snapshot(view.condition(key))
        if frame.row_count != 1:
            hint = "Rows that are hidden, or that nobody has heard of, are not shown."
            raise HttpError(404, "E190", f"{name} shows no row with this key", hint)
        row = decode_rows(frame.source.layout, frame.rows)
        context = gateway.broker.catalogue.finality_context(view.name, frame.horizons)
        return finality_json(frame.source, row, context, None if column is None else [column])

    return JsonResponse(await gateway.run_in_thread(explain))


def parse_row_key(text: str) -> Json:
    """The key of a row, as in its messages: a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, str | int | float | bool | None])
    except msgspec.DecodeError:
        raise error("E093", "key is not a JSON object", hint='Write {"issue":"IBM"}, as in messages.') from None


async def show_graph(gateway: Gateway, request: Request) -> Response:
    """The plan of the program: streams, imports, transforms and views, with the stages that they are in."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    return JsonResponse(status_json(await gateway.run_in_thread(gateway.broker.catalogue.graph)))


async def check_program(gateway: Gateway, request: Request) -> Response:
    """Check a program without applying it: all errors and warnings, with their positions."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    source = await read_program_source(request)
    return JsonResponse(await gateway.run_in_thread(lambda: _check(gateway, source)))


def _check(gateway: Gateway, source: Source) -> ProgramCheckBody:
    try:
        warnings = gateway.broker.check(source).warnings
    except SmileError as problem:
        found = problem.diagnostics[: limits.errors_reported_max]
        return ProgramCheckBody(False, [_diagnostic(d, "error", source) for d in found])
    return ProgramCheckBody(True, [_diagnostic(d, "warning", source) for d in warnings])


def _diagnostic(diagnostic: Diagnostic, severity: Severity, source: Source) -> DiagnosticBody:
    body = diagnostic_body(diagnostic, source)
    return DiagnosticBody(severity, body.code, body.message, body.hint, body.line, body.col, body.length)
