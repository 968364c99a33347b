"""Publishes quotes as quickly as acknowledgements allow. `python -m bench.messaging.publishers LOAD`; it ends when its
input does."""

import asyncio
import itertools
import json
import sys

import psycopg

from bench.messaging.amqp import AmqpConnection
from bench.messaging.nats import NatsConnection
from bench.messaging.websocket import BrokerConnection
from bench.messaging.workload import BACKLOG_MAX, PUBLISHERS, WINDOW, Load, SharedCounters, quote


class Publisher:
    """Publications of all publishers: their numbers, and when they pause."""

    def __init__(self, load: Load) -> None:
        self.load, self.counters, self.numbers = load, SharedCounters(load.counters), itertools.count(1)

    async def next_body(self) -> bytes:
        while self.counters.published - self.counters.received / self.load.subscribers > BACKLOG_MAX:
            await asyncio.sleep(0.002)
        number = next(self.numbers)
        self.counters.published = number
        return json.dumps({"id": number, **quote(number)}).encode()


async def publish_amqp(publisher: Publisher) -> None:
    slots = asyncio.Semaphore(WINDOW)
    confirmed = 0

    def release(number: int) -> None:
        nonlocal confirmed
        for _ in range(number - confirmed):
            slots.release()
        confirmed = max(confirmed, number)

    connection = await AmqpConnection.connect(publisher.load.port, on_confirm=release)
    await connection.select_confirms()
    is_filtered = publisher.load.consumption == "filtered"
    exchange, routing_key = ("", "ingest") if is_filtered else ("quotes", "")
    while True:
        await slots.acquire()
        connection.publish(exchange, routing_key, await publisher.next_body(), is_persistent=not is_filtered)


async def publish_nats(publisher: Publisher) -> None:
    connection = await NatsConnection.connect(publisher.load.port)
    if publisher.load.consumption == "filtered":
        while True:
            connection.publish(b"ingest", await publisher.next_body())
            await asyncio.sleep(0)
    slots = asyncio.Semaphore(WINDOW)
    while True:
        await slots.acquire()
        answer = connection.request("quotes", await publisher.next_body())
        answer.add_done_callback(lambda _: slots.release())


async def publish_smile(publisher: Publisher) -> None:
    slots = asyncio.Semaphore(WINDOW)

    def receive(message: bytes) -> None:
        if b'"error"' in message:
            raise ConnectionError(message.decode())
        slots.release()

    connection = await BrokerConnection.connect(publisher.load.port, receive)
    while True:
        await slots.acquire()
        event = json.loads(await publisher.next_body())
        del event["id"]
        connection.send({"publish": "StockQuote", "events": [event], "id": 1})


async def publish_in_transactions(publisher: Publisher) -> None:
    """Each publication is a transaction of the database, with a connection for each publisher."""
    call = "SELECT smile.publish_stockquote(%s, %s::bigint, %s::bigint)"
    connection = await psycopg.AsyncConnection.connect(publisher.load.database, autocommit=True)
    while True:
        event = json.loads(await publisher.next_body())
        await connection.execute(call, (event["symbol"], event["price"], event["volume"]), prepare=True)


async def main() -> None:
    publisher = Publisher(Load.from_json(sys.argv[1]))
    publish = {"rabbitmq": publish_amqp, "nats": publish_nats, "smile": publish_smile}[publisher.load.system]
    if publisher.load.is_transactional:
        publish = publish_in_transactions
    tasks = [asyncio.create_task(publish(publisher)) for _ in range(PUBLISHERS)]
    end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    done, _ = await asyncio.wait([*tasks, end], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
