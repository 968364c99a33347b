"""Ad-hoc queries: a SELECT becomes a temporary view, which its caller subscribes to or reads like any other."""

import logging
import secrets

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from smile import lang, limits
from smile.algebra.dependencies import subprogram
from smile.algebra.row_order import RowOrder, row_order
from smile.broker.queries import AdHocQuery, relations_read
from smile.errors import SmileError, error
from smile.gateway.access import Right
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http import program_edits
from smile.gateway.http.bodies import NoQuery, OpenQueryQuery, QueryExplanationBody
from smile.gateway.http.catalogue_bodies import OpenedQueryBody, OrderBody
from smile.gateway.http.program import describe_columns, read_program_text
from smile.gateway.http.request import parse_query, parse_tick
from smile.gateway.http.response import JsonResponse, ProgramError
from smile.horizons import select_streams, shown_horizons
from smile.knowledge.values.json import tick_json
from smile.program import CompiledProgram
from smile.source import Source

logger = logging.getLogger("smile.gateway")


async def open_query(gateway: Gateway, request: Request) -> Response:
    """Open an ad-hoc query: the SELECT in the body becomes a temporary view. It ends when nobody subscribes to it. With
    `as_of`, it has the rows as they were at that tick, all of them when this is answered, and does not change."""
    caller: Caller = request.user
    gateway.require(caller, Right.query)
    parameters = parse_query(request, OpenQueryQuery)
    as_of = parse_tick(parameters["as_of"], "as_of") if "as_of" in parameters else None
    source = await _read_query(request)
    query, order = await gateway.run_in_thread(lambda: _open(gateway, caller, source, as_of))
    logger.info("a query is opened", extra={"query": query.name, "principal": caller.principal})
    type_ = query.view.source.type
    horizons = query.view.log_horizons()
    streams = [stream for stream in horizons if stream in query.view.base_streams]
    progress = shown_horizons(select_streams(horizons, streams))
    return JsonResponse(
        OpenedQueryBody(
            query.name,
            list(type_.heading.key),
            [OrderBody(column, descending) for column, descending in order],
            describe_columns(type_),
            {stream: tick_json(tick) for stream, tick in progress.items()},
        ),
        201,
    )


async def close_query(gateway: Gateway, request: Request) -> Response:
    """End an ad-hoc query."""
    parse_query(request, NoQuery)
    caller, name = request.user, request.path_params["query"]
    query = gateway.broker.queries.find(name)
    if query is None or query.principal != caller.principal:
        gateway.require(caller, Right.query)
        raise error("E193", f"there is no query {name[:100]}", hint="It has ended, or belongs to somebody else.")
    await gateway.run_in_thread(lambda: gateway.broker.queries.close(name))
    return Response(status_code=204)


async def explain_query(gateway: Gateway, request: Request) -> Response:
    """Explain a query over global streams, without running it: the SELECT is in the body. Says from which publishers it
    is answered, and why each publisher that is known is in its plan or not."""
    caller: Caller = request.user
    gateway.require(caller, Right.admin)
    parse_query(request, NoQuery)
    source = await _read_query(request)
    explanations = await gateway.run_in_thread(lambda: _explain(gateway, caller, source))
    return JsonResponse(msgspec.convert({"plans": explanations}, QueryExplanationBody))


def _explain(gateway: Gateway, caller: Caller, source: Source) -> list[dict[str, object]]:
    name = _new_name()
    compiled = _compile(gateway, caller, source, name)
    explanations = gateway.broker.global_imports.explain_query(subprogram(compiled.rewritten, name))
    if not explanations:
        raise error("E178", "the query reads no global stream", hint="Only these are answered by a plan.")
    return explanations


async def _read_query(request: Request) -> Source:
    return Source("query.smile", (await read_program_text(request)).strip().removesuffix(";"))


def _new_name() -> str:
    return f"query_{secrets.token_hex(8)}"


def _open(gateway: Gateway, caller: Caller, source: Source, as_of: int | None) -> tuple[AdHocQuery, RowOrder]:
    gateway.broker.queries.refuse_too_many(caller.principal)
    name = _new_name()
    compiled = _compile(gateway, caller, source, name)
    order = next(row_order(view.body) for view in compiled.original.views if view.name == name)
    return gateway.broker.queries.open(name, caller.principal, source.text, compiled, as_of), order


def _compile(gateway: Gateway, caller: Caller, source: Source, name: str) -> CompiledProgram:
    """The program of the broker with the query as a view of this name."""
    broker = gateway.broker
    if len(source.text) > limits.query_chars_max:
        raise error("E191", f"the query has more than {limits.query_chars_max:,} characters")
    if broker.compiled.source.name.lower().endswith(".mmpl"):
        hint = "Apply a program in SmileSQL, or add a view to this one."
        raise error("E191", "queries are in SmileSQL, and the program is in MMPL", hint=hint)
    begin = f"CREATE VIEW {name} AS "
    _check_statement(gateway, caller, source, begin)
    try:
        compiled = broker.check(program_edits.add_views(broker.compiled, begin + source.text))
    except SmileError as problem:
        shifted = [program_edits.shift_span(d, len(begin)) for d in problem.diagnostics]
        raise ProgramError(SmileError(shifted), source) from None
    for relation in sorted(relations_read(compiled, name)):
        gateway.require(caller, Right.subscribe, relation)
    return compiled


def _check_statement(gateway: Gateway, caller: Caller, source: Source, begin: str) -> None:
    """It must be one SELECT. Errors of a query say what relations have: so the caller must have the right on those that
    it names before it is compiled."""
    statements, problems = lang.parse(Source(source.name, begin + source.text))
    if problems:
        shifted = [program_edits.shift_span(d, len(begin)) for d in problems]
        raise ProgramError(SmileError(shifted), source)
    if len(statements) != 1 or not isinstance(statements[0], lang.CreateView):
        raise error("E191", "this is not one query", hint="Send one SELECT, such as SELECT * FROM v WHERE x > 1.")
    known = {name.casefold(): name for name in (*gateway.broker.catalogue.streams, *gateway.broker.catalogue.views)}
    is_administrator = gateway.is_allowed(caller, Right.admin, "")
    for named in lang.relations_named(statements[0]):
        relation = known.get(named.casefold())
        if relation is not None or not is_administrator:
            gateway.require(caller, Right.subscribe, relation or named)
