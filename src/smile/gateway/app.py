"""The routes. Every call comes through one gate: its host and origin are checked, its caller is known, and whatever
goes wrong is answered with a code of the catalogue."""

import time
from collections.abc import Mapping

from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from smile.errors import SmileError, error
from smile.gateway import changes, openapi, program, publish, status, views, websocket
from smile.gateway.answers import Answer, Headers, Refused, error_answer
from smile.gateway.calls import Call, Gone, Handler, log_call, respond
from smile.gateway.gateway import Gateway, Visitor
from smile.gateway.origins import Origins, one_header, preflight, shared_headers

NOBODY = Visitor("", None)


class Resource:
    """What there is at a path, by method. `public`: whoever comes may have it."""

    def __init__(self, gateway: Gateway, handlers: Mapping[str, Handler], public: bool = False) -> None:
        self._gateway = gateway
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, begun = self._gateway, time.perf_counter()
        shared: Headers = scope["state"].get("shared", ())
        call = Call(gateway, NOBODY, scope, receive, send, shared)
        answer: Answer | None
        try:
            handler = self._handlers.get(scope["method"])
            if handler is None:
                raise Refused(405, "E093", f"there is no {scope['method'][:20]} here", f"There is {self._allowed}.")
            if not self._public:
                call.visitor = gateway.visitor(scope["headers"])
                gateway.requests.spend(call.visitor.principal, 1)
            answer = await handler(call)
        except SmileError as problem:
            gateway.refusals[problem.diagnostics[0].code] += 1
            answer = error_answer(problem)
            if answer.status == 405:
                shared = [*shared, (b"allow", self._allowed.encode())]
        except Gone:
            return
        if answer is not None:
            await respond(send, answer, shared)
        log_call(scope, answer.status if answer else 200, begun, call.visitor.principal)

    @property
    def _allowed(self) -> str:
        return ", ".join(self._handlers)


class Talk:
    """The WebSocket."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await websocket.websocket(self._gateway, scope, receive, send)


class Gate:
    """Before all routes."""

    def __init__(self, gateway: Gateway, routes: ASGIApp) -> None:
        self._origins = Origins(gateway.settings)
        self._gateway = gateway
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            origin = self._checked(scope)
        except SmileError as problem:
            self._gateway.refusals[problem.diagnostics[0].code] += 1
            if scope["type"] == "websocket":
                await receive()
                await websocket.refuse(send, problem)
            else:
                await respond(send, error_answer(problem))
            return
        if scope["type"] == "http":
            self._gateway.counts["requests"] += 1
            if origin is not None:
                if scope["method"] == "OPTIONS":
                    await respond(send, preflight(origin))
                    return
                scope["state"]["shared"] = shared_headers(origin)
        await self._routes(scope, receive, send)

    def _checked(self, scope: Scope) -> str | None:
        """The origin of a page that is not the broker's own, and may call it."""
        host = one_header(scope["headers"], b"host")
        if host is None:
            raise error("E093", "there is no header Host")
        self._origins.check_host(host)
        origin = one_header(scope["headers"], b"origin")
        if origin is None:
            return None
        scheme = "https" if scope["scheme"] in ("https", "wss") else "http"
        return origin if self._origins.check_origin(origin, scheme, host) else None


def application(gateway: Gateway) -> ASGIApp:
    def at(path: str, public: bool = False, **handlers: Handler) -> Route:
        return Route(path, Resource(gateway, handlers, public))

    async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
        problem = Refused(404, "E093", "there is nothing here", "The file /openapi.json says what there is.")
        if scope["type"] == "websocket":
            await receive()
            await websocket.refuse(send, problem)
        else:
            await respond(send, error_answer(problem), scope["state"].get("shared", ()))

    routes = [
        at("/streams/{name}/events", POST=publish.publish),
        at("/streams/{name}/silence", POST=publish.silence),
        at("/views", POST=program.add_view),
        at("/views/{name}", GET=views.snapshot, DELETE=program.drop_view),
        at("/views/{name}/changes", GET=changes.changes),
        at("/program", GET=program.show, PUT=program.apply),
        at("/status", GET=status.status),
        at("/metrics", GET=status.metrics),
        at("/health", True, GET=status.health),
        at("/openapi.json", True, GET=openapi.described),
        at("/ws", True, GET=_upgrade),
        WebSocketRoute("/ws", Talk(gateway)),
    ]
    return Gate(gateway, Router(routes, redirect_slashes=False, default=nowhere))


async def _upgrade(_: Call) -> Answer:
    raise Refused(426, "E093", "here is a WebSocket", "Ask for an upgrade to websocket.")
