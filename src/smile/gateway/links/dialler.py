"""Opens links to neighbours: calls each of their addresses, and calls again when a connection fails or ends."""

import asyncio
import logging
import time
from collections.abc import Callable
from random import Random
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException

from smile import limits
from smile.broker.network.network import Network
from smile.client.address import BrokerAddress
from smile.errors import SmileError
from smile.gateway.http.operations import LINK_PATH
from smile.gateway.links.client_socket import ClientLinkSocket
from smile.gateway.links.link_driver import LinkDriver, LinkSocket
from smile.gateway.links.neighbour_calls import answer_error, connection_error
from smile.links.redial import Redial

logger = logging.getLogger("smile.gateway.links")


class Dialler:
    """Keeps one link to a neighbour open, at one of its addresses. `wrap` may put something in front of its socket."""

    def __init__(
        self,
        network: Network,
        neighbour: str,
        address: BrokerAddress,
        wrap: Callable[[LinkSocket], LinkSocket],
        random: Random,
    ) -> None:
        self._network, self._neighbour, self._address, self._wrap = network, neighbour, address, wrap
        self._redial = Redial(random)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        last_problem = ""
        while True:
            started_at = time.monotonic()
            try:
                problem = await self._run_link()
            except SmileError as failure:
                problem = failure
            except Exception as failure:  # any error: it must call again
                logger.exception("a call to a neighbour has failed")
                problem = connection_error(self._neighbour, self._address, failure)
            now = time.monotonic()
            if problem is not None:
                self._network.report_unreachable(self._neighbour, problem, now, self._address.url)
                if problem.message != last_problem:
                    last_problem = problem.message
                    fields = {"neighbour": self._neighbour, "url": self._address.url, "what": last_problem}
                    logger.warning("there is no link", extra={**fields, "code": problem.diagnostics[0].code})
            await asyncio.sleep(self._redial.wait_s(now - started_at))

    async def _run_link(self) -> SmileError | None:
        """Connects, and returns why the link has ended; None if this broker has closed it. Raises an error if there is
        no connection."""
        connection = await self._connect()
        driver = LinkDriver(self._network, self._neighbour, self._neighbour, self._address.url)
        socket = ClientLinkSocket(driver, self._neighbour, connection)
        driver.start(self._wrap(socket))
        try:
            await socket.run()
        finally:
            driver.end(None)
            await asyncio.to_thread(driver.join, limits.link_stop_s_max)
        return driver.problem

    async def _connect(self) -> Any:
        address = self._address
        context = address.tls_context()
        options: dict[str, Any] = {} if context is None else {"ssl": context}
        options |= {"proxy": None} if address.is_loopback else {}
        try:
            return await connect(
                f"ws{address.url.removeprefix('http')}{LINK_PATH}",
                additional_headers=address.headers,
                compression=None,
                max_size=limits.link_message_bytes_max,
                max_queue=4,
                write_limit=limits.link_queue_bytes_max // 4,
                open_timeout=limits.neighbour_answer_s_max,
                ping_interval=None,  # links have heartbeats
                close_timeout=1,
                **options,
            )
        except InvalidStatus as refusal:
            raise answer_error(
                self._neighbour, address, refusal.response.status_code, bytes(refusal.response.body or b"")
            ) from None
        except (OSError, WebSocketException, EOFError) as failure:
            raise connection_error(self._neighbour, address, failure) from None
