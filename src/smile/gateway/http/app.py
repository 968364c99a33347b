"""The ASGI application: Starlette with a route for each operation, and the checks that every request passes.

The host and the origin of a request are checked before it is routed; then its caller is authenticated. Every error is
answered with a code of the catalogue.
"""

import logging
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
from smile.gateway.origins import OriginPolicy, cors_headers, preflight_response, single_header
from smile.gateway.websocket.session import serve_websocket

logger = logging.getLogger("smile.gateway")

RawHeaders = list[tuple[bytes, bytes]]


class OriginMiddleware:
    """Checks the host and the origin of every request, and adds the headers that every response has."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway
        self._policy = OriginPolicy(gateway.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start_s, status, cors = time.perf_counter(), 0, RawHeaders()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_COMMON_HEADERS, *cors]
            await send(message)

        app = self._app
        try:
            origin = self._check_origin(scope)
        except SmileError as problem:
            self._gateway.refusals[problem.diagnostics[0].code] += 1
            app = error_response(problem)
        else:
            if scope["type"] == "http":
                self._gateway.counts["requests"] += 1
                if origin is not None:
                    cors = [(name.encode(), value.encode("latin-1")) for name, value in cors_headers(origin).items()]
                    if scope["method"] == "OPTIONS":
                        app, cors = preflight_response(origin), []
        await app(scope, receive, send_with_headers)
        if status:
            log_request(scope, status, start_s)

    def _check_origin(self, scope: Scope) -> str | None:
        """The origin of a page on another site that may call the broker; None for other callers."""
        host = single_header(scope["headers"], b"host")
        if host is None:
            raise error("E093", "the header Host is missing")
        self._policy.check_host(host)
        origin = single_header(scope["headers"], b"origin")
        if origin is None:
            return None
        scheme = "https" if scope["scheme"] in ("https", "wss") else "http"
        return origin if self._policy.check_origin(origin, scheme, host) else None


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
        response = await answer_error(request, HttpError(405, "E093", message, f"Use {allowed}."))
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
