"""Routes quotes to the portfolios that contain their symbol, as the database says at that moment: what a message broker
needs beside a database in order to filter by stored data. `python -m bench.messaging.router LOAD`.

One prepared query for each event, several under way at once; one message for each event where the broker can route it
to many queues.
"""

import asyncio
import json
import os
import sys

import psycopg

from bench.messaging.amqp import AmqpConnection
from bench.messaging.nats import NatsConnection
from bench.messaging.workload import Load

CONNECTIONS = 4
QUERY = "SELECT portfolio_id FROM portfolios WHERE symbol = %s"


async def main() -> None:
    load = Load.from_json(sys.argv[1])
    messages: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
    if load.system == "rabbitmq":
        amqp = await AmqpConnection.connect(load.port, lambda tag, body: messages.put_nowait((tag, body)))
        await amqp.consume("ingest", has_acknowledgements=True, prefetch=1_000)
    else:
        nats = await NatsConnection.connect(load.port, lambda _, body: messages.put_nowait((0, body)))
        nats.subscribe("ingest")
    print("ready", flush=True)

    async def route() -> None:
        async with await psycopg.AsyncConnection.connect(load.database, autocommit=True) as connection:
            while True:
                tag, body = await messages.get()
                cursor = await connection.execute(QUERY, (json.loads(body)["symbol"],), prepare=True)
                keys = [str(row[0]) for row in await cursor.fetchall()]
                if load.system == "rabbitmq":
                    if keys:
                        amqp.publish("portfolios", keys[0], body, is_persistent=False, further_keys=keys[1:])
                    amqp.acknowledge(tag, is_multiple=False)
                else:
                    for key in keys:
                        nats.publish(b"portfolio." + key.encode(), body)

    tasks = [asyncio.create_task(route()) for _ in range(CONNECTIONS)]
    end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    done, _ = await asyncio.wait([end, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    os._exit(0)  # in the middle of whatever it does


if __name__ == "__main__":
    asyncio.run(main())
