"""All links of a broker: accepts neighbours that call, and calls those that have an address in the settings."""

import asyncio
import time
from random import Random

from starlette.websockets import WebSocket

from smile import limits
from smile.errors import error
from smile.gateway.delivery_scheduler import call_on_loop
from smile.gateway.gateway import Gateway
from smile.gateway.http.response import HttpError
from smile.gateway.links.close_reason import closed_error
from smile.gateway.links.dialler import Dialler
from smile.gateway.links.faulty_socket import FaultySocket, read_link_faults
from smile.gateway.links.granted_access import GrantedLinkAccess
from smile.gateway.links.link_driver import LinkSocket
from smile.gateway.links.neighbour_calls import neighbour_addresses
from smile.gateway.links.server_socket import ServerLinkSocket
from smile.gateway.uvicorn_internals import WebSocketConnection
from smile.settings import NeighbourSettings


class LinkService:
    """Runs on the event loop of the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._network = gateway, gateway.broker.network
        self._sockets: set[ServerLinkSocket] = set()
        self._tasks: dict[tuple[str, NeighbourSettings, str], asyncio.Task[None]] = {}
        """What calls each neighbour at each of its addresses."""
        self._faults = read_link_faults()
        if gateway.access.requires_tokens:
            self._network.access = GrantedLinkAccess(gateway.access)

    def start(self) -> None:
        """Calls the neighbours, also those that are added later."""
        self._gateway.broker.links.on_change = lambda: call_on_loop(self._gateway.loop, self._update)
        self._update()

    def _update(self) -> None:
        if self._gateway.stopping:
            return
        wanted = {
            (name, neighbour, address.url): address
            for name, neighbour in self._gateway.broker.links.neighbours.items()
            for address in neighbour_addresses(neighbour)
        }
        for key in self._tasks.keys() - wanted.keys():
            task = self._tasks.pop(key)
            task.add_done_callback(lambda _, key=key: self._network.forget_address(key[0], key[2]))  # type: ignore[misc]
            task.cancel()
        for key, address in wanted.items():
            if key not in self._tasks:
                dialler = Dialler(self._network, key[0], address, self._with_faults, Random())
                self._tasks[key] = asyncio.ensure_future(dialler.run())

    def every_second(self) -> None:
        """A neighbour that the program imports from, and that has no address here, must call."""
        for name in self._network.neighbours_wanted():
            neighbour = self._gateway.broker.links.neighbours.get(name)
            if neighbour is None or not neighbour.url:
                hint = f'Or add to the settings: [brokers.{name}] url = "https://…".'
                problem = error("E103", f"{name} has not called, and has no address in the settings", hint=hint)
                self._network.report_uncalled(name, problem, time.monotonic())

    def _with_faults(self, socket: LinkSocket) -> LinkSocket:
        return socket if self._faults is None else FaultySocket(socket, self._faults, self._faults.random)

    async def accept(self, websocket: WebSocket) -> None:
        """Serves a neighbour that has called, until it disconnects or the broker stops."""
        self._gateway.require_running()
        if len(self._sockets) >= limits.links_max:
            raise HttpError(503, "E092", f"there are {limits.links_max} links already", "Close some of them.")
        connection: WebSocketConnection = websocket.scope["extensions"][WebSocketConnection.EXTENSION]
        socket = ServerLinkSocket(self._network, websocket.user, connection, self._gateway.loop)
        self._sockets.add(socket)
        self._gateway.sessions.add(socket)
        try:
            try:
                await websocket.accept()
            finally:
                socket.driver.start(self._with_faults(socket))
            ending = await websocket.receive()
            socket.driver.end(closed_error("the neighbour", ending.get("code"), ending.get("reason") or ""))
        finally:
            socket.driver.end(None)
            self._gateway.sessions.discard(socket)
            self._sockets.discard(socket)

    async def stop(self) -> None:
        """Ends all links. What has arrived is in the log, or will be asked for again."""
        sockets = list(self._sockets)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for socket in sockets:
            socket.driver.end(None)
        await asyncio.gather(*tasks, return_exceptions=True)
        for socket in sockets:
            await asyncio.to_thread(socket.driver.join, limits.link_stop_s_max)
