"""Shows the current program, and changes it: as a whole, or by a view. Changes are applied one after the other."""

from collections.abc import Callable
from typing import Any

from smile import limits
from smile.errors import SmileError, error
from smile.gateway.access import Right
from smile.gateway.http import program_edits
from smile.gateway.http.request import HttpRequest, logger
from smile.gateway.http.response import TEXT, HttpError, HttpResponse, ProgramError, encode
from smile.knowledge.types import MaskDirection, RelationType
from smile.program import CompiledProgram
from smile.source import Source

MMPL = "text/x-mmpl"


async def show_program(request: HttpRequest) -> HttpResponse:
    request.require(Right.admin)
    requested_format = request.query(("format",)).get("format", "text")
    compiled = request.gateway.broker.compiled
    if requested_format == "text":
        is_mmpl = compiled.source.name.lower().endswith(".mmpl")
        content_type = f"{MMPL}; charset=utf-8".encode() if is_mmpl else TEXT
        return HttpResponse(compiled.source.text.encode(errors="replace"), 200, content_type)
    if requested_format != "json":
        raise error("E093", f"there is no format {requested_format[:100]!r}", hint="There are text, json.")
    return HttpResponse(encode(describe_program(compiled, set(request.gateway.broker.views))))


def describe_program(compiled: CompiledProgram, subscribed: set[str]) -> dict[str, Any]:
    """Streams and views, with what publishers and subscribers need to know of them."""
    program, relations = compiled.original, compiled.analysis.relations
    return {
        "program": compiled.source.text,
        "streams": {
            stream.name: {
                "tick": stream.tick,
                "columns": {name: str(data) for name, data in stream.columns},
                "publisher_timed": stream.publisher_timed,
            }
            for stream in program.streams
        },
        "views": {
            view.name: {"subscribed": view.name in subscribed, **_relation_json(relations[view.name])}
            for view in program.views
            if view.name in relations
        },
    }


def _relation_json(type_: RelationType) -> dict[str, Any]:
    is_masked = type_.mask.direction is not MaskDirection.DECIDED
    columns = {
        name: {
            "type": str(column.data),
            "domain": f"masked {column.domain}" if is_masked and column.domain != "key" else column.domain,
            "evolves": column.evolves,
            "nullable": column.nullable,
        }
        for name, column in type_.columns.items()
    }
    return {"key": list(type_.heading.key), "columns": columns}


async def apply_program(request: HttpRequest) -> HttpResponse:
    request.require(Right.admin)
    query = request.query(("dry_run",))
    dry_run = query.get("dry_run", "false")
    if dry_run not in ("true", "false"):
        raise error("E093", f"dry_run: {dry_run[:100]!r} is neither true nor false")
    content_type = (request.header(b"content-type") or "text/plain").partition(";")[0].strip().lower()
    source = Source("program.mmpl" if content_type == MMPL else "program.smile", await _read_program(request))
    if dry_run == "true":
        return HttpResponse(encode(await _run_edit(request, source, lambda: request.gateway.broker.difference(source))))
    return await _apply_edit(request, source, lambda: source)


async def add_view(request: HttpRequest) -> HttpResponse:
    request.require(Right.admin)
    request.query(())
    broker = request.gateway.broker
    source = Source(broker.compiled.source.name, await _read_program(request))
    response = await _apply_edit(request, source, lambda: program_edits.add_views(broker.compiled, source.text))
    return HttpResponse(response.body, 201)


async def drop_view(request: HttpRequest) -> HttpResponse:
    request.require(Right.admin)
    request.query(())
    broker = request.gateway.broker
    return await _apply_edit(
        request, None, lambda: program_edits.remove_view(broker.compiled, broker.view(request.name).name)
    )


async def _apply_edit(request: HttpRequest, source: Source | None, edit: Callable[[], Source]) -> HttpResponse:
    """`edit` returns the new program. It is called when the previous change is complete."""
    broker = request.gateway.broker
    async with request.gateway.program_lock:
        difference = await _run_edit(request, source, lambda: broker.apply(edit()))
    logger.info("the program was changed", extra={"principal": request.caller.principal})
    return HttpResponse(encode(difference))


async def _run_edit(request: HttpRequest, source: Source | None, function: Callable[[], Any]) -> Any:
    try:
        return await request.run_in_thread(function)
    except SmileError as problem:
        raise (ProgramError(problem, source) if source else problem) from None


async def _read_program(request: HttpRequest) -> str:
    try:
        body = await request.read_body(limits.program_bytes_max)
    except HttpError as problem:
        raise HttpError(413, "E003", f"the program has more than {limits.program_bytes_max:,} bytes") from problem
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error("E002", f"the program is not UTF-8 text: offset {problem.start}") from None
