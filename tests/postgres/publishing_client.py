"""A client that publishes transactions until it is killed: `python -m tests.postgres.publishing_client URL WHO SEED FILE`.

Each transaction has rows in the tables `published` and `committed`, events of two types, events of each of the other
modes, and savepoints that are rolled back. Some transactions are rolled back, and some stay open for a while. The file
notes which IMMEDIATE events were tried, and for which GUARANTEED ones the statement has returned.
"""

import contextlib
import sys
import time
from itertools import count
from pathlib import Path
from random import Random
from typing import TextIO

import psycopg

Connection = psycopg.Connection[tuple[int]]


class PublishingClient:
    def __init__(self, who: str, seed: str, notes: TextIO) -> None:
        self._who, self._random, self._notes = who, Random(f"{who} {seed}"), notes
        self._ids = (f"{who} {seed} {number}" for number in count(1))

    def publish_transaction(self, connection: Connection) -> None:
        random, who, id_ = self._random, self._who, next(self._ids)
        with connection.transaction(force_rollback=random.random() < 0.2):
            row = connection.execute(
                "SELECT coalesce(max(n), 0) + 1 FROM public.published WHERE who = %s", (who,)
            ).fetchone()
            n = 0 if row is None else row[0]
            connection.execute("INSERT INTO public.published (who, n) VALUES (%s, %s)", (who, n))
            connection.execute("INSERT INTO public.committed (id) VALUES (%s)", (id_,))
            connection.execute("SELECT smile.publish_a(%s, %s)", (n, who))
            self._publish(connection, id_)
            with connection.transaction(force_rollback=True):
                connection.execute("SELECT smile.publish_a(%s, %s)", (-1, who))
                self._publish(connection, f"{id_} undone")
            if random.random() < 0.1:
                time.sleep(random.random() / 5)
            connection.execute("SELECT smile.publish_b(%s, %s)", (n, who))

    def _publish(self, connection: Connection, id_: str) -> None:
        """One event of each mode but DEFERRED GUARANTEED."""
        self._note("tried", id_)
        connection.execute("SELECT smile.publish_lossy(%s, 'deferred', 'non-guaranteed')", (id_,))
        connection.execute("SELECT smile.publish_now(%s, 'immediate', 'guaranteed')", (id_,))
        self._note("returned", id_)
        connection.execute("SELECT smile.publish_lossynow(%s, 'immediate', 'non-guaranteed')", (id_,))

    def _note(self, what: str, id_: str) -> None:
        print(f"{what}\t{id_}", file=self._notes, flush=True)


def main(url: str, who: str, seed: str, notes: str) -> None:
    with Path(notes).open("a") as file:
        client = PublishingClient(who, seed, file)
        while True:
            with (
                contextlib.suppress(psycopg.Error),
                psycopg.connect(url, autocommit=True, connect_timeout=5) as connection,
            ):
                while True:
                    client.publish_transaction(connection)
                    time.sleep(0.01)
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
