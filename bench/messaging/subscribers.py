"""All subscribers of a load, in one process. They count what they receive; those with transactions count what is
committed. `python -m bench.messaging.subscribers LOAD` prints `ready`."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg

from bench.messaging.amqp import AmqpConnection
from bench.messaging.nats import NatsConnection
from bench.messaging.websocket import BrokerConnection
from bench.messaging.workload import Load, SharedCounters

PREFETCH = 200
ACKNOWLEDGE_EVERY = 50
_Tag = TypeVar("_Tag")
_FRAME_NUMBER = re.compile(rb'"n":(\d+)')


class ReceivedCount:
    """The events that all subscribers have received. It is written to the shared counter when the loop is idle."""

    def __init__(self, counters: SharedCounters) -> None:
        self._counters, self.count = counters, 0

    async def share(self) -> None:
        while True:
            self._counters.received = self.count
            await asyncio.sleep(0.002)


# ── events that are only received ───────────────────────────────────────────────────────────────────────────────────


async def receive_amqp(load: Load, number: int, received: ReceivedCount) -> None:
    is_filtered = load.consumption == "filtered"

    def count(tag: int, _: bytes) -> None:
        received.count += 1
        if not is_filtered and tag % ACKNOWLEDGE_EVERY == 0:
            connection.acknowledge(tag)

    connection = await AmqpConnection.connect(load.port, count)
    queue = f"subscriber{number}"
    await connection.declare_queue(queue, is_durable=not is_filtered)
    if is_filtered:
        await connection.bind_queue(queue, "portfolios", str(load.portfolios[number]))
    else:
        await connection.bind_queue(queue, "quotes", "")
    await connection.consume(queue, has_acknowledgements=not is_filtered, prefetch=PREFETCH)


async def receive_nats(load: Load, number: int, received: ReceivedCount) -> None:
    is_filtered = load.consumption == "filtered"

    own = 0

    def count(reply: bytes, _: bytes) -> None:
        nonlocal own
        own += 1
        received.count += 1
        if not is_filtered and own % ACKNOWLEDGE_EVERY == 0:
            connection.publish(reply, b"+ACK")

    connection = await NatsConnection.connect(load.port, count)
    if is_filtered:
        connection.subscribe(f"portfolio.{load.portfolios[number]}")
    else:
        await _create_consumer(connection, number, "all")


async def receive_smile(load: Load, number: int, received: ReceivedCount) -> None:
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def receive(message: bytes) -> None:
        events = message.count(b'"stream":')
        if events:
            received.count += events
            frame = _FRAME_NUMBER.search(message)
            assert frame is not None
            connection.send({"ack": 1, "n": int(frame[1])})
        elif b'"subscribed"' in message:
            opened.set_result(None)
        elif b'"acked"' not in message:
            raise ConnectionError(message.decode())

    connection = await BrokerConnection.connect(load.port, receive)
    subscription = {"subscribe": "StockQuote", "id": 1, "name": f"subscriber{number}", "start": "new"}
    if load.consumption == "filtered":
        portfolio = load.portfolios[number]
        filter_ = f"symbol IN (SELECT symbol FROM portfolios WHERE portfolio_id = {portfolio})"
        subscription = {**subscription, "filter": filter_}
    connection.send(subscription)
    await opened


# ── events that are consumed in transactions ────────────────────────────────────────────────────────────────────────


async def consume_amqp(load: Load, number: int, received: ReceivedCount) -> None:
    messages: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
    connection = await AmqpConnection.connect(load.port, lambda tag, body: messages.put_nowait((tag, body)))
    queue = f"subscriber{number}"
    await connection.declare_queue(queue, is_durable=True)
    await connection.bind_queue(queue, "quotes", "")
    is_two_phase = load.consumption == "two_phase"
    if is_two_phase:
        await connection.select_transactions()
    await connection.consume(queue, has_acknowledgements=True, prefetch=PREFETCH)

    async def acknowledge(tag: int) -> None:
        connection.acknowledge(tag, is_multiple=False)
        if is_two_phase:
            await connection.commit()

    consumer = _consume(load, number, received, messages, acknowledge)
    _TASKS.append(asyncio.create_task(consumer))


async def consume_nats(load: Load, number: int, received: ReceivedCount) -> None:
    messages: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
    connection = await NatsConnection.connect(load.port, lambda reply, body: messages.put_nowait((reply, body)))
    await _create_consumer(connection, number, "explicit")

    async def acknowledge(reply: bytes) -> None:
        connection.publish(reply, b"+ACK")

    _TASKS.append(asyncio.create_task(_consume(load, number, received, messages, acknowledge)))


async def _consume(
    load: Load,
    number: int,
    received: ReceivedCount,
    messages: "asyncio.Queue[tuple[_Tag, bytes]]",
    acknowledge: Callable[[_Tag], Awaitable[None]],
) -> None:
    async with await psycopg.AsyncConnection.connect(load.database, autocommit=True) as database:
        while True:
            tag, body = await messages.get()
            event = json.loads(body)
            arguments = (number, event["id"], event["symbol"], event["price"], event["volume"])
            if load.consumption == "inbox":
                # One call in one transaction: the inbox table refuses what was consumed before.
                await database.execute("SELECT consume_once(%s, %s, %s, %s, %s)", arguments, prepare=True)
                await acknowledge(tag)
            else:
                name = f"{number}-{event['id']}"
                await database.execute("BEGIN")
                await database.execute("SELECT store_quote(%s, %s, %s, %s)", (number, *arguments[2:]), prepare=True)
                await database.execute(f"PREPARE TRANSACTION '{name}'")
                await acknowledge(tag)
                await database.execute(f"COMMIT PREPARED '{name}'")
            received.count += 1


async def _create_consumer(connection: NatsConnection, number: int, acknowledgement: str) -> None:
    subject = f"deliver.{number}"
    connection.subscribe(subject)
    configuration = {
        "durable_name": f"subscriber{number}",
        "deliver_subject": subject,
        "deliver_policy": "new",
        "ack_policy": acknowledgement,
        "max_ack_pending": PREFETCH,
    }
    arguments = {"stream_name": "QUOTES", "config": configuration}
    await connection.call_api(f"CONSUMER.DURABLE.CREATE.QUOTES.subscriber{number}", arguments)


_TASKS: list["asyncio.Task[None]"] = []


async def main() -> None:
    load = Load.from_json(sys.argv[1])
    received = ReceivedCount(SharedCounters(load.counters))
    is_transactional = load.consumption in ("inbox", "two_phase")
    subscribe = {
        ("rabbitmq", False): receive_amqp,
        ("rabbitmq", True): consume_amqp,
        ("nats", False): receive_nats,
        ("nats", True): consume_nats,
        ("smile", False): receive_smile,
    }[load.system, is_transactional]
    for number in range(load.subscribers):
        await subscribe(load, number, received)
    print("ready", flush=True)
    end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    share = asyncio.create_task(received.share())
    done, _ = await asyncio.wait([end, share, *_TASKS], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    os._exit(0)  # in the middle of whatever they do


if __name__ == "__main__":
    asyncio.run(main())
