"""The ASGI application: Starlette with a route for each operation, and the checks that every request passes.

The host and the origin of a request are checked before it is routed; then its caller is authenticated. Every error is
answered with a code of the catalogue.
"""

import logging
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from smile.errors import SmileError, error, memory_error
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http.operations import LINK_PATH, OPERATIONS
from smile.gateway.http.response import HttpError, error_response
from smile.gateway.links.close_reason import close_reason
from smile.gateway.origins import OriginPolicy, cors_headers, preflight_response, single_header
from smile.gateway.websocket.session import accepted_protocol, serve_websocket

logger = logging.getLogger("smile.gateway")

RawHeaders = list[tuple[bytes, bytes]]

_LOGGED_REFUSALS_MAX = 100
"""After so many hosts and origins, further ones are only counted: a page can make up as many as it likes."""


class OriginMiddleware:
    """Checks the host and the origin of every request, and adds the headers that every response has."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway
        self._policy = OriginPolicy(gateway.settings)
        self._logged_refusals = set[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start_s, status, cors = time.perf_counter(), 0, RawHeaders()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own_names = {name for name, _ in message["headers"]}
                common = [header for header in _COMMON_HEADERS if header[0] not in own_names]
                message["headers"] = [*message["headers"], *common, *cors]
            await send(message)

        app = self._app
        try:
            origin, refusal = self._check_origin(scope)
        except SmileError as problem:
            self._count_refusal(problem)
            app = error_response(problem)
        else:
            if scope["type"] == "http":
                self._gateway.counts["requests"] += 1
                if origin is not None:
                    cors = [(name.encode(), value.encode("latin-1")) for name, value in cors_headers(origin).items()]
                    if scope["method"] == "OPTIONS":
                        # Also where the call itself is refused: the page's author can read only an answer to the call.
                        app, cors, refusal = preflight_response(origin), [], None
            if refusal is not None:
                self._count_refusal(refusal)
                app = error_response(refusal) if scope["type"] == "http" else partial(_refuse_websocket, refusal)
        await app(scope, receive, send_with_headers)
        if status:
            log_request(scope, status, start_s)

    def _count_refusal(self, problem: SmileError) -> None:
        """Counts it, and logs a host or an origin that is refused for the first time: its page may not show why."""
        self._gateway.refusals[problem.code] += 1
        if problem.code != "E104" or problem.message in self._logged_refusals:
            return
        if len(self._logged_refusals) < _LOGGED_REFUSALS_MAX:
            self._logged_refusals.add(problem.message)
            logger.warning("refused: %s. %s", problem.message, problem.hint or "", extra={"code": problem.code})

    def _check_origin(self, scope: Scope) -> tuple[str | None, SmileError | None]:
        """The origin of a page on another site, None for other callers; and why it may not call."""
        host = single_header(scope["headers"], b"host")
        if host is None:
            raise error("E093", "the header Host is missing")
        self._policy.check_host(host)
        origin = single_header(scope["headers"], b"origin")
        if origin is None:
            return None, None
        scheme = "https" if scope["scheme"] in ("https", "wss") else "http"
        try:
            return (origin if self._policy.check_origin(origin, scheme, host) else None), None
        except SmileError as problem:
            return origin, problem


async def _refuse_websocket(problem: SmileError, scope: Scope, receive: Receive, send: Send) -> None:
    """Opens the connection and closes it with the reason: of one that was not opened, a page learns nothing."""
    websocket = WebSocket(scope, receive, send)
    await websocket.accept(accepted_protocol(websocket))
    await websocket.close(*close_reason(problem))


_COMMON_HEADERS: RawHeaders = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


def log_request(scope: Scope, status: int, start_s: float) -> None:
    """Logs neither the query nor headers: they may contain secrets."""
    level = logging.WARNING if status >= 500 else logging.DEBUG
    if logger.isEnabledFor(level):
        elapsed_ms = round((time.perf_counter() - start_s) * 1000, 3)
        principal = scope["user"].principal if "user" in scope else ""
        fields = {"method": scope["method"], "path": scope["path"], "status": status, "ms": elapsed_ms}
        logger.log(level, "answered", extra=fields | {"principal": principal})


class TokenAuthentication(AuthenticationBackend):
    """Finds the caller of a request by its token, and limits the rate of its requests."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, Caller]:
        caller = self._gateway.authenticate(conn.scope["headers"], conn.scope.get("subprotocols", ()))
        if conn.scope["type"] == "http":
            self._gateway.request_limiter.spend(caller.principal, 1)
        return AuthCredentials(), caller


def create_app(gateway: Gateway, accept_link: Callable[[WebSocket], Awaitable[None]]) -> Starlette:
    """`accept_link` serves the WebSocket of a neighbour."""
    authenticated = [Middleware(AuthenticationMiddleware, backend=TokenAuthentication(gateway))]
    routes = [
        Route(
            operation.path,
            partial(operation.handler, gateway),
            methods=[operation.method],
            middleware=[] if operation.is_public else authenticated,
        )
        for operation in OPERATIONS
    ]

    async def answer_error(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, SmileError)
        gateway.refusals[problem.diagnostics[0].code] += 1
        return error_response(problem)

    async def answer_lack_of_memory(request: Request, _: Exception) -> Response:
        return await answer_error(request, memory_error())

    async def answer_wrong_method(request: Request, _: Exception) -> Response:
        matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        allowed = ", ".join(method for route in matching for method in sorted(route.methods or ()))
        message = f"there is no {request.method[:20]} on this path"
        hint = f"Use {allowed}."
        path = request.url.path
        if request.method == "POST" and re.fullmatch(r"/streams/[^/]+", path):
            hint = f"Publish events with POST {path}/events."
        response = await answer_error(request, HttpError(405, "E093", message, hint))
        response.headers["allow"] = allowed
        return response

    async def ignore_disconnect(_request: Request, _problem: Exception) -> Response:
        return Response(status_code=400)  # nobody receives it

    async def refuse_path(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise HttpError(404, "E093", "there is no such path", "See /openapi.json for all paths.")

    app = Starlette(
        routes=[
            *routes,
            WebSocketRoute("/ws", partial(serve_websocket, gateway), middleware=authenticated),
            WebSocketRoute(LINK_PATH, accept_link, middleware=authenticated),
        ],
        middleware=[Middleware(OriginMiddleware, gateway=gateway)],
        exception_handlers={
            SmileError: answer_error,
            MemoryError: answer_lack_of_memory,
            405: answer_wrong_method,
            ClientDisconnect: ignore_disconnect,
        },
    )
    app.router.redirect_slashes = False
    app.router.default = refuse_path
    return app
