"""Publishers of every kind: they retry, repeat, overlap and disconnect during a batch, and record what they sent and
received.

Each has a name, under which its events are numbered. What was sent and not answered is sent again with its numbers by
those who have the name of a producer, and never by the others.
"""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx
import pyarrow as pa
from pyarrow import flight
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from smile.client import connect_async
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError
from tests.processes import WAIT_S
from tests.torture import floor
from tests.torture.floor import Event
from tests.torture.witness import Witness

LOST = (OSError, ConnectionClosed, InvalidHandshake, EOFError, TimeoutError, httpx.HTTPError)
"""How a connection to a broker that is killed may end."""
RETRY_S = 0.05
ANSWER_S = WAIT_S
TRADED = "Matches"


@dataclass
class World:
    """What publishers share."""

    address: str
    witness: Witness
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    pause_s: float = 0.03
    """Between two batches, about."""
    open_bids: list[int] = field(default_factory=list)
    """Ticks that were acknowledged, to be traded."""
    flight_address: str = ""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def websocket(self) -> str:
        return f"ws://{self.address}/ws"


@dataclass
class Batch:
    stream: str
    events: list[Event]
    above: int | None
    """What had been heard of the stream when it was first sent; None if it has been sent before."""

    @property
    def seq(self) -> int:
        return int(self.events[0]["n"])


class Publisher:
    """Makes events of one stream."""

    def __init__(self, world: World, who: str, stream: str, seed: int) -> None:
        self.world, self.who, self.stream = world, who, stream
        self.random = Random(seed)
        self.number = 0
        self.tick = 0
        self.done: list[Batch] = []
        """The last ones that were acknowledged."""

    @property
    def witness(self) -> Witness:
        return self.world.witness

    async def run(self) -> None:
        """Until the world stops; then what is under way is finished."""
        raise NotImplementedError

    def batch(self, most: int = 8) -> Batch:
        events = [self._event() for _ in range(self.random.randint(1, most))]
        return Batch(self.stream, events, self.witness.heard.get(self.stream))

    def _event(self) -> Event:
        self.number += 1
        if self.stream == "Readings":
            self.tick += self.random.randint(1, 5)
            return floor.reading(self.random, self.who, self.number, self.tick)
        if self.stream == TRADED and self.world.open_bids:
            return floor.match(self.random, self.who, self.number, self.random.choice(self.world.open_bids[-60:]))
        if self.stream == TRADED:
            return floor.match(self.random, self.who, self.number, self.random.randint(0, 1000))
        return floor.bid(self.random, self.who, self.number)

    def sending(self, batch: Batch) -> None:
        self.witness.sending(batch.stream, batch.events)

    def answered(self, batch: Batch, ticks: list[Any], repeated: int) -> None:
        ticks_received = [int(tick) for tick in ticks]
        self.witness.answered(batch.stream, batch.events, ticks_received, repeated, batch.above)
        if batch.stream == "Bids":
            self.world.open_bids += ticks_received
        self.done = [*self.done[-5:], batch]

    def refused(self, batch: Batch, answer: object) -> None:
        self.witness.wrong(f"{self.who}: number {batch.seq} was refused: {answer}")

    def again(self) -> Batch | None:
        """Some of what was acknowledged, to be published once more; sometimes with what comes next behind it."""
        if not self.done:
            return None
        events = self.random.choice(self.done).events
        if events[-1]["n"] == self.number and self.random.random() < 0.5:
            begin = self.random.randrange(len(events))
            return Batch(self.stream, events[begin:] + self.batch(3).events, None)
        return Batch(self.stream, events, None)

    def next(self) -> Batch:
        repeated = self.again() if self.random.random() < 0.15 else None
        return repeated or self.batch()

    async def rest(self) -> None:
        await asyncio.sleep(self.world.pause_s * self.random.uniform(0.2, 2.0))

    @property
    def is_over(self) -> bool:
        return self.world.stopping.is_set()


class OverWebSocket(Publisher):
    """Has several batches under way, and after a loss sends all of them again, in order."""

    UNDER_WAY_MAX = 4

    async def run(self) -> None:
        pending: dict[int, Batch] = {}
        ids = 0
        while not self.is_over or pending:
            try:
                async with connect(
                    self.world.websocket, compression=None, ping_interval=None, close_timeout=1
                ) as socket:
                    for id_, batch in pending.items():
                        await socket.send(self._text(id_, batch))
                    while not self.is_over or pending:
                        if not self.is_over and len(pending) < self.UNDER_WAY_MAX:
                            ids += 1
                            # What overlaps with something under way would have to wait for it.
                            batch = self.batch() if pending else self.next()
                            pending[ids] = batch
                            self.sending(batch)
                            await socket.send(self._text(ids, batch))
                            await self.rest()
                        if len(pending) >= self.UNDER_WAY_MAX or self.random.random() < 0.5 or self.is_over:
                            self._take(pending, json.loads(await asyncio.wait_for(socket.recv(), ANSWER_S)))
            except LOST:
                for batch in pending.values():
                    batch.above = None
                await asyncio.sleep(RETRY_S)

    def _take(self, pending: dict[int, Batch], answer: dict[str, Any]) -> None:
        batch = pending.pop(answer["id"])
        if "published" in answer:
            self.answered(batch, answer["published"], answer["repeated"])
        elif answer["error"]["code"] == "E098":
            raise ConnectionError("the broker is stopping")
        else:
            self.refused(batch, answer)

    def _text(self, id_: int, batch: Batch) -> str:
        head = {"publish": batch.stream, "id": id_, "producer": self.who, "seq": batch.seq}
        return json.dumps({**head, "events": batch.events})


class OverHttp(Publisher):
    """One batch after the other, as JSON, as lines or as Arrow."""

    numbered = True

    def __init__(self, world: World, who: str, stream: str, seed: int) -> None:
        super().__init__(world, who, stream, seed)
        self._shape = StreamSchema(next(s for s in floor.compiled().rewritten.streams if s.name == stream))

    async def run(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_S) as client:
            while not self.is_over:
                batch = self.next() if self.numbered else self.batch()
                kind, body = self._body(batch)
                self.sending(batch)
                while not await self._sent(client, batch, kind, body) and self.numbered:
                    batch.above = None
                    await asyncio.sleep(RETRY_S)
                await self.rest()
            if self.stream == "Readings":
                await self._silence(client)

    async def _sent(self, client: httpx.AsyncClient, batch: Batch, kind: str, body: bytes) -> bool:
        headers = {"content-type": kind}
        if self.numbered:
            headers |= {"smile-producer": self.who, "smile-sequence": str(batch.seq)}
        try:
            answer = await client.post(f"{self.world.url}/streams/{batch.stream}/events", content=body, headers=headers)
        except LOST:
            return False
        if answer.status_code == 200:
            self.answered(batch, answer.json()["ticks"], answer.json()["repeated"])
            return True
        if answer.status_code != 503:
            self.refused(batch, answer.text)
            return True
        return False

    async def _silence(self, client: httpx.AsyncClient) -> None:
        to = self.tick + 10
        for _ in range(int(ANSWER_S / RETRY_S)):
            try:
                answer = await client.post(f"{self.world.url}/streams/{self.stream}/silence", json={"to": to})
                assert answer.status_code == 200, answer.text
                self.witness.silences[self.stream] = to
                return
            except LOST:
                await asyncio.sleep(RETRY_S)

    def _body(self, batch: Batch) -> tuple[str, bytes]:
        kind = self.random.choice(("json", "lines", "arrow"))
        if kind == "json":
            return "application/json", json.dumps(batch.events).encode()
        if kind == "lines":
            return "application/x-ndjson", b"".join(json.dumps(event).encode() + b"\n" for event in batch.events)
        schema = self._shape.published_schema
        out = io.BytesIO()
        with pa.ipc.new_stream(out, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_pylist(batch.events, schema))
        return "application/vnd.apache.arrow.stream", out.getvalue()


class Once(OverHttp):
    """Without numbers: what is not answered is not sent again, and may be in the log or not."""

    numbered = False


class Vanishing(Publisher):
    """Sends half a batch and hangs up, or a whole one and does not wait; now and then it asks what became of that."""

    async def run(self) -> None:
        while not self.is_over:
            batch = self.batch()
            body = json.dumps(batch.events).encode()
            whole = self.random.random() < 0.5
            if whole:
                self.sending(batch)
            sent = body if whole else body[: self.random.randrange(len(body))]
            is_message = self.random.random() < 0.5
            try:
                await (self._message(batch, whole) if is_message else self._request(batch, len(body), sent))
            except LOST:
                await asyncio.sleep(RETRY_S)
            if whole:
                # Its number is used or not. Whoever comes again with it is told which.
                await self._settle(batch, body)
            else:
                self.number -= len(batch.events)
            await self.rest()

    async def _request(self, batch: Batch, length: int, sent: bytes) -> None:
        host, port = self.world.address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /streams/{batch.stream}/events HTTP/1.1\r\nhost: {self.world.address}\r\n"
        head += f"smile-producer: {self.who}\r\nsmile-sequence: {batch.seq}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        try:
            writer.write(head.encode() + sent)
            await writer.drain()
        finally:
            writer.transport.abort() if self.random.random() < 0.5 else writer.close()

    async def _message(self, batch: Batch, whole: bool) -> None:
        head = {"publish": batch.stream, "id": 1, "producer": self.who, "seq": batch.seq}
        text = json.dumps({**head, "events": batch.events})
        async with connect(self.world.websocket, compression=None, ping_interval=None, close_timeout=1) as socket:
            if whole:
                await socket.send(text)
            else:
                # A fragment, and no end of it.
                part = text[: self.random.randrange(1, len(text))]
                with suppress(TimeoutError):
                    await asyncio.wait_for(socket.send(_unfinished(part)), RETRY_S)
            socket.transport.abort()

    async def _settle(self, batch: Batch, body: bytes) -> None:
        headers = {"smile-producer": self.who, "smile-sequence": str(batch.seq), "content-type": "application/json"}
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_S) as client:
            while True:
                try:
                    url = f"{self.world.url}/streams/{batch.stream}/events"
                    answer = await client.post(url, content=body, headers=headers)
                except LOST:
                    await asyncio.sleep(RETRY_S)
                    continue
                if answer.status_code == 200:
                    batch.above = None
                    self.answered(batch, answer.json()["ticks"], answer.json()["repeated"])
                    return
                if answer.status_code != 503:
                    self.refused(batch, answer.text)
                    return
                await asyncio.sleep(RETRY_S)


async def _unfinished(part: str) -> AsyncIterator[str]:
    """A message whose end never comes."""
    yield part
    await asyncio.Event().wait()


class ByClient(Publisher):
    """Leaves everything to SMILE's own client, which numbers and repeats by itself."""

    async def run(self) -> None:
        client = await _connected(self.world)
        try:
            under_way: set[asyncio.Task[None]] = set()
            while not self.is_over:
                batch = self.batch()
                self.sending(batch)
                task = asyncio.create_task(self._publish(client, batch))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await self.rest()
                while len(under_way) > 8:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*under_way)
        finally:
            await client.close()

    async def _publish(self, client: Any, batch: Batch) -> None:
        try:
            published = await client.publish(batch.stream, batch.events)
        except SmileError as problem:
            self.refused(batch, problem)
            return
        # It does not say whether it sent them once.
        batch.above = None
        self.answered(batch, list(published), published.repeated)


async def _connected(world: World) -> Any:
    while True:
        try:
            return await connect_async(world.url, timeout=ANSWER_S)
        except SmileError:
            await asyncio.sleep(RETRY_S)


class OverFlight(OverHttp):
    """One batch after the other over Arrow Flight, each with its producer and number."""

    async def run(self) -> None:
        while not self.is_over:
            batch = self.next()
            self.sending(batch)
            while (answer := await asyncio.to_thread(self._put, batch)) is None:
                batch.above = None
                await asyncio.sleep(RETRY_S)
            self.answered(batch, answer["ticks"], answer["repeated"])
            await self.rest()

    def _put(self, batch: Batch) -> dict[str, Any] | None:
        """The answer; None if there is none, because the broker was killed."""
        schema = self._shape.published_schema
        about = json.dumps({"producer": self.who, "seq": batch.seq}).encode()
        descriptor = flight.FlightDescriptor.for_path("streams", batch.stream)
        try:
            with flight.FlightClient(f"grpc://{self.world.flight_address}") as client:
                writer, reader = client.do_put(descriptor, schema, flight.FlightCallOptions(timeout=ANSWER_S))
                with writer:
                    writer.write_with_metadata(pa.RecordBatch.from_pylist(batch.events, schema), about)
                    answer: dict[str, Any] = json.loads(reader.read().to_pybytes())
                    writer.done_writing()
            return answer
        except (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError):
            return None
        except pa.ArrowException as problem:
            # A connection that is cut has many names; a refusal has its code.
            if re.search(r"\bE\d{3}\b", str(problem)) and "E098" not in str(problem):
                self.refused(batch, problem)
                return {"ticks": [], "repeated": 0}
            return None
        except AttributeError:
            return None  # the stream has ended without an answer


Maker = Callable[[World, str, str, int], Publisher]


def crowd(world: World, random: Random) -> list[Publisher]:
    """One of each kind at least."""
    made: list[tuple[Maker, str]] = [
        (OverWebSocket, "Bids"),
        (OverWebSocket, TRADED),
        (OverHttp, "Bids"),
        (OverHttp, "Readings"),
        (OverFlight, "Bids"),
        (Once, "Bids"),
        (Vanishing, "Bids"),
        (Vanishing, TRADED),
        (ByClient, random.choice(("Bids", TRADED))),
    ]
    return [make(world, f"p{i}", stream, random.randrange(2**32)) for i, (make, stream) in enumerate(made)]
