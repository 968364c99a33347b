"""Shows the current program, and changes it: as a whole, or by a view. Changes are applied one after the other."""

import logging
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from smile import limits
from smile.broker.program_difference import ProgramDifference
from smile.errors import SmileError, error
from smile.gateway.access import Right
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http import program_edits
from smile.gateway.http.bodies import (
    ApplyQuery,
    ColumnBody,
    NoQuery,
    ProgramBody,
    ProgramQuery,
    ResumedBody,
    StreamBody,
    ViewBody,
)
from smile.gateway.http.request import parse_query, read_body, read_content_type
from smile.gateway.http.response import HttpError, JsonResponse, ProgramError, pause_body
from smile.knowledge.types import MaskDirection, RelationType
from smile.program import CompiledProgram
from smile.source import Source

MMPL = "text/x-mmpl"

logger = logging.getLogger("smile.gateway")


async def show_program(gateway: Gateway, request: Request) -> Response:
    """The current program."""
    gateway.require(request.user, Right.admin)
    requested_format = parse_query(request, ProgramQuery).get("format", "text")
    compiled = gateway.broker.compiled
    if requested_format == "text":
        is_mmpl = compiled.source.name.lower().endswith(".mmpl")
        text = compiled.source.text.encode(errors="replace")
        return Response(text, media_type=MMPL if is_mmpl else "text/plain")
    if requested_format != "json":
        raise error("E093", f"there is no format {requested_format[:100]!r}", hint="There are text, json.")
    return JsonResponse(describe_program(compiled, set(gateway.broker.views)))


def describe_program(compiled: CompiledProgram, subscribed: set[str]) -> ProgramBody:
    """Streams and views, with what publishers and subscribers need to know of them."""
    program, relations = compiled.original, compiled.analysis.relations
    streams = {
        stream.name: StreamBody(stream.tick, {name: str(data) for name, data in stream.columns}, stream.publisher_timed)
        for stream in program.streams
    }
    views = {
        view.name: ViewBody(
            view.name in subscribed,
            list(relations[view.name].heading.key),
            describe_columns(relations[view.name]),
        )
        for view in program.views
        if view.name in relations
    }
    return ProgramBody(compiled.source.text, streams, views)


def describe_columns(type_: RelationType) -> dict[str, ColumnBody]:
    is_masked = type_.mask.direction is not MaskDirection.DECIDED
    return {
        name: ColumnBody(
            str(column.data),
            f"masked {column.domain}" if is_masked and column.domain != "key" else column.domain,
            column.evolves,
            column.nullable,
        )
        for name, column in type_.columns.items()
    }


async def apply_program(gateway: Gateway, request: Request) -> Response:
    """Replace the current program. Answered when new and changed views have caught up."""
    gateway.require(request.user, Right.admin)
    dry_run = parse_query(request, ApplyQuery).get("dry_run", "false")
    if dry_run not in ("true", "false"):
        raise error("E093", f"dry_run: {dry_run[:100]!r} is neither true nor false")
    source = await read_program_source(request)
    if dry_run == "true":
        return JsonResponse(await _run_edit(gateway, source, lambda: gateway.broker.difference(source)))
    return JsonResponse(await _apply_edit(gateway, request.user, source, lambda: source))


async def add_view(gateway: Gateway, request: Request) -> Response:
    """Add views to the program, and subscribe to them."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    broker = gateway.broker
    source = Source(broker.compiled.source.name, await read_program_text(request))
    difference = await _apply_edit(
        gateway, request.user, source, lambda: program_edits.add_views(broker.compiled, source.text)
    )
    return JsonResponse(difference, 201)


async def drop_view(gateway: Gateway, request: Request) -> Response:
    """Drop the view from the program."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    broker, name = gateway.broker, request.path_params["view"]
    difference = await _apply_edit(
        gateway, request.user, None, lambda: program_edits.remove_view(broker.compiled, broker.view(name).name)
    )
    return JsonResponse(difference)


async def resume_view(gateway: Gateway, request: Request) -> Response:
    """Resume a paused view, and those that were paused with it. Has no effect on other views."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    view = gateway.broker.view(request.path_params["view"])
    await gateway.run_in_thread(lambda: gateway.broker.resume(view.name))
    logger.info("a view is being resumed", extra={"view": view.name, "principal": request.user.principal})
    return JsonResponse(ResumedBody(view.name, pause_body(view.pause)), 202)


async def _apply_edit(
    gateway: Gateway, caller: Caller, source: Source | None, edit: Callable[[], Source]
) -> ProgramDifference:
    """`edit` returns the new program. It is called when the previous change is complete."""
    async with gateway.program_lock:
        difference = await _run_edit(gateway, source, lambda: gateway.broker.apply(edit()))
    logger.info("the program was changed", extra={"principal": caller.principal})
    return difference


async def _run_edit(
    gateway: Gateway, source: Source | None, function: Callable[[], ProgramDifference]
) -> ProgramDifference:
    try:
        return await gateway.run_in_thread(function)
    except SmileError as problem:
        raise (ProgramError(problem, source) if source else problem) from None


async def read_program_source(request: Request) -> Source:
    """A whole program: SmileSQL, or MMPL if the content type says so."""
    file_name = "program.mmpl" if read_content_type(request, "text/plain") == MMPL else "program.smile"
    return Source(file_name, await read_program_text(request))


async def read_program_text(request: Request) -> str:
    try:
        body = await read_body(request, limits.program_bytes_max)
    except HttpError as problem:
        raise HttpError(413, "E003", f"the program has more than {limits.program_bytes_max:,} bytes") from problem
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error("E002", f"the program is not UTF-8 text: offset {problem.start}") from None
