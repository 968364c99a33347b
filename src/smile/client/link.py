"""The connection of a session: kept as long as it lasts, and made anew, with growing pauses, when it is lost.

Only a broker that refuses us for good ends it.
"""

import asyncio
import json
import os
import random
import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from smile import limits
from smile.client.place import Place
from smile.client.session import Session, error_of
from smile.errors import SmileError, error

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

TOO_LARGE = 1009
REFUSED = (400, 401, 403, 404)
"""Answers that trying again will not change."""


def pauses() -> Iterator[float]:
    """Seconds between attempts; scattered, so that clients lost together do not come back together."""
    pause = limits.client_pause_s_min
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, limits.client_pause_s_max)


class Link:
    """Lives in one event loop; its session may be used from any thread."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.session = Session(self._wake, self._drop)
        self._loop = asyncio.get_running_loop()
        self._something = asyncio.Event()
        self._dropped = asyncio.Event()
        self._tls = place.tls()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        self.session.closed(error("E103", "the client was closed"), for_good=True)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _wake(self) -> None:
        self._soon(self._something)

    def _drop(self) -> None:
        self._soon(self._dropped)

    def _soon(self, event: asyncio.Event) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)

    async def _run(self) -> None:
        from websockets.exceptions import InvalidHandshake, InvalidStatus  # noqa: PLC0415  # it takes a while to load

        pause = pauses()
        while True:
            problem = error("E103", f"{self.place.url}: the connection was lost")
            try:
                if await self._talk():
                    pause = pauses()
            except InvalidStatus as answer:
                code = answer.response.status_code
                problem = answered(self.place, code, bytes(answer.response.body or b""))
                if code in REFUSED:
                    self.session.closed(problem, for_good=True)
                    return
            except ssl.SSLCertVerificationError as untrusted:
                # A certificate does not become right while we wait.
                reason = untrusted.verify_message
                hint = "Name the file of certificates to trust: --ca FILE, or SMILE_CA."
                self.session.closed(error("E103", f"{self.place.url}: {reason}", hint=hint), for_good=True)
                return
            except (OSError, InvalidHandshake) as trouble:
                problem = unreachable(self.place, trouble)
            self.session.closed(problem)
            await asyncio.sleep(next(pause))

    async def _talk(self) -> bool:
        """One connection, until it is lost; whether anything was heard on it."""
        from websockets.asyncio.client import connect  # noqa: PLC0415
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        more: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls}
        more |= {"proxy": None} if self.place.is_loopback else {}
        async with connect(
            self.place.websocket,
            additional_headers=self.place.headers,
            compression=None,
            max_size=limits.client_received_bytes_max,
            open_timeout=limits.client_timeout_s,
            ping_interval=limits.client_ping_s,
            ping_timeout=limits.client_ping_s,
            close_timeout=1,
            **more,
        ) as socket:
            self._dropped.clear()
            self.session.opened()
            heard = [False]
            tasks = [
                asyncio.create_task(self._read(socket, heard)),
                asyncio.create_task(self._write(socket)),
                asyncio.create_task(self._dropped.wait()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, ConnectionClosed):
                    if outcome.sent and outcome.sent.code == TOO_LARGE and not outcome.rcvd_then_sent:
                        self.session.refuse_too_large()
                        break
                    if outcome.rcvd and outcome.rcvd.code == TOO_LARGE:
                        self.session.refused_as_too_large()
                        break
                if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionClosed):
                    raise outcome
        return heard[0]

    async def _read(self, socket: "ClientConnection", heard: list[bool]) -> None:
        while True:
            text = await socket.recv()
            heard[0] = True
            try:
                self.session.receive(text)
            except (ValueError, TypeError, KeyError, AttributeError) as problem:
                # Not as brokers talk: whatever it was, the next connection begins anew.
                raise ConnectionError(f"a message cannot be understood: {problem!r}") from problem

    async def _write(self, socket: "ClientConnection") -> None:
        while True:
            self._something.clear()
            for text in self.session.outgoing():
                await socket.send(text)
            await self._something.wait()


def unreachable(place: Place, trouble: Exception) -> SmileError:
    # Libraries' own texts for a connection that failed do not say why; what lies beneath does.
    beneath: BaseException | None = trouble
    while beneath is not None and not (isinstance(beneath, OSError) and (beneath.errno or 0) > 0):
        beneath = beneath.__cause__ or beneath.__context__
    if isinstance(beneath, OSError) and beneath.errno:
        reason = os.strerror(beneath.errno)
    else:
        reason = str(trouble) or type(trouble).__name__
    hint = "Is it running? `smile serve PROGRAM` starts one; SMILE_URL or --url says where it is."
    return error("E103", f"{place.url}: {reason}", hint=hint)


def answered(place: Place, status: int, body: bytes) -> SmileError:
    """What a broker's refusal says; or that it is none."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if isinstance(told, dict) and isinstance(told.get("error"), dict):
        return error_of(told["error"] | ({"errors": told["errors"]} if "errors" in told else {}))
    if status == 401:
        return error("E091", "the broker asks for a token", hint="Give it as SMILE_TOKEN.")
    if status == 403:
        return error("E090", "the broker does not let us in")
    return error("E103", f"{place.url}: it answered with status {status}", hint="Is that the URL of a SMILE broker?")


async def get(place: Place, path: str, params: Mapping[str, str] | None = None) -> bytes:
    """The answer to a question over HTTP."""
    import httpx  # noqa: PLC0415  # it takes a while to load, and few need it

    client = httpx.AsyncClient(
        verify=place.tls() or True, trust_env=not place.is_loopback, timeout=limits.client_timeout_s
    )
    async with client:
        try:
            answer = await client.get(f"{place.url}{path}", params=params, headers=place.headers)
        except (httpx.HTTPError, httpx.InvalidURL) as trouble:
            raise unreachable(place, trouble) from None
    if answer.status_code != 200:
        raise answered(place, answer.status_code, answer.content)
    return answer.content
