"""The routes. Every request passes the same checks: its host and origin are allowed, its caller is authenticated, and
every error is answered with a code of the catalogue.
"""

import time
from collections.abc import Mapping

from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from smile.errors import SmileError, error
from smile.gateway import websocket
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http import openapi, program, publish, server_sent_events, snapshots, status
from smile.gateway.http.request import ClientDisconnected, Handler, HttpRequest, log_request, send_response
from smile.gateway.http.response import Headers, HttpError, HttpResponse, error_response
from smile.gateway.origins import OriginPolicy, cors_headers, preflight_response, single_header

ANONYMOUS = Caller("", None)


class Resource:
    """The handlers of a path, by method. A `public` resource requires no token."""

    def __init__(self, gateway: Gateway, handlers: Mapping[str, Handler], public: bool = False) -> None:
        self._gateway = gateway
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]
        self._is_public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, start_s = self._gateway, time.perf_counter()
        headers: Headers = scope["state"].get("shared", ())
        request = HttpRequest(gateway, ANONYMOUS, scope, receive, send, headers)
        response: HttpResponse | None
        try:
            handler = self._handlers.get(scope["method"])
            if handler is None:
                raise HttpError(
                    405, "E093", f"there is no {scope['method'][:20]} on this path", f"Use {self._allowed_methods}."
                )
            if not self._is_public:
                request.caller = gateway.authenticate(scope["headers"])
                gateway.request_limiter.spend(request.caller.principal, 1)
            response = await handler(request)
        except SmileError as problem:
            gateway.refusals[problem.diagnostics[0].code] += 1
            response = error_response(problem)
            if response.status == 405:
                headers = [*headers, (b"allow", self._allowed_methods.encode())]
        except ClientDisconnected:
            return
        if response is not None:
            await send_response(send, response, headers)
        log_request(scope, response.status if response else 200, start_s, request.caller.principal)

    @property
    def _allowed_methods(self) -> str:
        return ", ".join(self._handlers)


class WebSocketEndpoint:
    """The ASGI application of the WebSocket route."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await websocket.serve_websocket(self._gateway, scope, receive, send)


class OriginMiddleware:
    """Checks the host and the origin of every request before it is routed."""

    def __init__(self, gateway: Gateway, router: ASGIApp) -> None:
        self._policy = OriginPolicy(gateway.settings)
        self._gateway = gateway
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            origin = self._check_origin(scope)
        except SmileError as problem:
            self._gateway.refusals[problem.diagnostics[0].code] += 1
            if scope["type"] == "websocket":
                await receive()
                await websocket.refuse_handshake(send, problem)
            else:
                await send_response(send, error_response(problem))
            return
        if scope["type"] == "http":
            self._gateway.counts["requests"] += 1
            if origin is not None:
                if scope["method"] == "OPTIONS":
                    await send_response(send, preflight_response(origin))
                    return
                scope["state"]["shared"] = cors_headers(origin)
        await self._router(scope, receive, send)

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


def create_app(gateway: Gateway) -> ASGIApp:
    def route(path: str, public: bool = False, **handlers: Handler) -> Route:
        return Route(path, Resource(gateway, handlers, public))

    async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
        problem = HttpError(404, "E093", "there is no such path", "See /openapi.json for all paths.")
        if scope["type"] == "websocket":
            await receive()
            await websocket.refuse_handshake(send, problem)
        else:
            await send_response(send, error_response(problem), scope["state"].get("shared", ()))

    routes = [
        route("/streams/{name}/events", POST=publish.publish),
        route("/streams/{name}/silence", POST=publish.silence),
        route("/views", POST=program.add_view),
        route("/views/{name}", GET=snapshots.snapshot, DELETE=program.drop_view),
        route("/views/{name}/changes", GET=server_sent_events.stream_changes),
        route("/program", GET=program.show_program, PUT=program.apply_program),
        route("/status", GET=status.status),
        route("/metrics", GET=status.metrics),
        route("/health", True, GET=status.health),
        route("/openapi.json", True, GET=openapi.show_document),
        route("/ws", True, GET=_upgrade),
        WebSocketRoute("/ws", WebSocketEndpoint(gateway)),
    ]
    return OriginMiddleware(gateway, Router(routes, redirect_slashes=False, default=not_found))


async def _upgrade(_: HttpRequest) -> HttpResponse:
    raise HttpError(426, "E093", "this path serves WebSockets only", "Request an upgrade to websocket.")
