"""What a message broker still has after it was killed: all that it has confirmed, if it is as durable as it says."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

from bench.messaging.amqp import AmqpConnection
from bench.messaging.nats import NatsConnection
from bench.messaging.servers import START_S_MAX, MessageServer, running_server
from bench.messaging.workload import WINDOW, quote

CONFIRMED_MIN = 2_000
IDLE_S = 2.0


async def publish_amqp(port: int, confirm: Callable[[int], bool]) -> None:
    """Publishes to a durable queue until `confirm`, which gets the number of confirmed messages, returns False."""
    slots, confirmed, goes_on = asyncio.Semaphore(WINDOW), 0, True

    def release(number: int) -> None:
        nonlocal confirmed, goes_on
        for _ in range(number - confirmed):
            slots.release()
        confirmed = max(confirmed, number)
        goes_on = goes_on and confirm(confirmed)

    connection = await AmqpConnection.connect(port, on_confirm=release)
    await connection.declare_queue("kept", is_durable=True)
    await connection.select_confirms()
    while goes_on:
        await slots.acquire()
        connection.publish("", "kept", json.dumps(quote(confirmed)).encode(), is_persistent=True)


async def count_amqp(port: int) -> int:
    count, last_s = 0, time.monotonic()

    def receive(_tag: int, _body: bytes) -> None:
        nonlocal count, last_s
        count, last_s = count + 1, time.monotonic()

    connection = await _connect_when_recovered(port, receive)
    last_s = time.monotonic()
    await connection.consume("kept", has_acknowledgements=False)
    while time.monotonic() - last_s < IDLE_S:
        await asyncio.sleep(0.1)
    connection.transport.close()
    return count


async def _connect_when_recovered(port: int, receive: Callable[[int, bytes], None]) -> AmqpConnection:
    """A server that was killed listens before its queues are there, and then closes connections."""
    deadline_s = time.monotonic() + START_S_MAX
    while True:
        try:
            return await AmqpConnection.connect(port, receive)
        except ConnectionError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.5)


async def publish_nats(port: int, confirm: Callable[[int], bool]) -> None:
    connection = await NatsConnection.connect(port)
    await connection.call_api("STREAM.CREATE.KEPT", {"name": "KEPT", "subjects": ["kept"], "storage": "file"})
    number = 0
    while True:
        await connection.request("kept", json.dumps(quote(number)).encode())
        number += 1
        if not confirm(number):
            return


async def count_nats(port: int) -> int:
    connection = await NatsConnection.connect(port)
    answer = await connection.request("$JS.API.STREAM.INFO.KEPT", b"")
    connection.transport.close()
    return int(answer["state"]["messages"])


Publish = Callable[[int, Callable[[int], bool]], Awaitable[None]]
Count = Callable[[int], Awaitable[int]]
CLIENTS: dict[str, tuple[Publish, Count]] = {
    "rabbitmq": (publish_amqp, count_amqp),
    "nats": (publish_nats, count_nats),
}


def kill_and_count(system: str) -> tuple[int, int]:
    """The messages that were confirmed before the kill, and those that are there after a start."""
    with running_server(system) as server:
        return asyncio.run(_kill_and_count(server, *CLIENTS[system]))


async def _kill_and_count(server: MessageServer, publish: Publish, count: Count) -> tuple[int, int]:
    confirmed = 0

    def confirm(number: int) -> bool:
        nonlocal confirmed
        confirmed = number
        if number >= CONFIRMED_MIN:
            server.kill()
        return number < CONFIRMED_MIN

    await publish(server.port, confirm)
    server.start()
    return confirmed, await count(server.port)
