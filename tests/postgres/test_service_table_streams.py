"""The stream of a table's changes: the rows at its creation, and all changes since, are the table, whoever writes."""

from collections import Counter
from pathlib import Path
from random import Random
from threading import Event, Thread

import psycopg

from smile.broker.broker import Broker
from tests.postgres.services import (
    Connection,
    connect,
    create_type,
    logged,
    publish,
    serving,
    wait_for_value,
)
from tests.processes import wait_until

Rows = Counter[tuple[int, str]]


def table_rows(connection: Connection) -> Rows:
    return Counter(connection.execute("SELECT id, name FROM public.things").fetchall())


def replayed_rows(broker: Broker) -> Rows:
    rows: Rows = Counter()
    for event in logged(broker, "Things"):
        rows[event["id"], event["name"]] += 1 if event["change"] == "insert" else -1
    return Counter({row: count for row, count in rows.items() if count})


def write(url: str, seed: int, stopping: Event) -> None:
    random = Random(seed)
    with connect(url) as connection:
        while not stopping.is_set():
            try:
                with connection.transaction(force_rollback=random.random() < 0.2):
                    for _ in range(random.randint(1, 3)):
                        write_once(connection, random)
            except psycopg.errors.DeadlockDetected:
                pass


def write_once(connection: Connection, random: Random) -> None:
    id_, name = random.randint(1, 20), random.choice("abc")
    kind = random.choice(["insert", "update", "delete"])
    if kind == "insert":
        connection.execute("INSERT INTO public.things VALUES (%s, %s)", (id_, name))
    elif kind == "update":
        connection.execute("UPDATE public.things SET name = %s WHERE id = %s", (name, id_))
    else:
        connection.execute("DELETE FROM public.things WHERE id = %s", (id_,))


def test_snapshot_and_changes_are_the_table(database: str, tmp_path: Path) -> None:
    """The stream is created while others write, and the service runs before, meanwhile and afterwards."""
    with serving(database, tmp_path) as broker, connect(database) as connection:
        connection.execute("CREATE TABLE public.things (id bigint, name text)")
        stopping = Event()
        writers = [Thread(target=write, args=(database, seed, stopping)) for seed in range(4)]
        for writer in writers:
            writer.start()
        try:
            wait_until(lambda: sum(table_rows(connection).values()) > 5, "nothing is written")
            connection.execute("SELECT smile.create_table_stream('Things', 'public.things')")
            wait_until(lambda: len(logged(broker, "Things")) > 100, "no changes are captured")
        finally:
            stopping.set()
            for writer in writers:
                writer.join()
        wait_until(lambda: replayed_rows(broker) == table_rows(connection), "the stream is not the table")
        connection.execute("TRUNCATE public.things")
        wait_until(lambda: not replayed_rows(broker), "the stream is not empty after TRUNCATE")
        assert broker.program.streams[-1].is_table


FUNCTION = """
CREATE TABLE public.received (subscription text, n bigint);
CREATE FUNCTION public.receive(text, bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO public.received VALUES ($1, $2)';
"""


def subscribe(connection: Connection, name: str) -> None:
    """To the events whose number the table has."""
    connection.execute(
        "SELECT smile.create_subscription(%s, 'E', 'local', %s, 'public.receive', %s)",
        (name, "n IN (SELECT t.n FROM things AS t)", f"'{name}', n"),
    )
    connection.execute(
        "SELECT smile.create_subscription(%s, 'E', 'local', NULL, 'public.receive', %s)",
        (f"{name}_all", f"'{name}_all', n"),
    )


def publish_and_receive(connection: Connection, numbers: list[int]) -> dict[str, list[int]]:
    """What each subscription received of these events, when all of them are delivered."""
    connection.execute("DELETE FROM public.received")
    for n in numbers:
        publish(connection, "E", {"n": n})
    return wait_for_received(connection, len(numbers))


def wait_for_received(connection: Connection, count: int) -> dict[str, list[int]]:
    def received() -> dict[str, list[int]] | None:
        found: dict[str, list[int]] = {}
        for name, n in connection.execute("SELECT subscription, n FROM public.received ORDER BY ctid"):
            found.setdefault(name, []).append(n)
        counts = [len(found.pop(name)) for name in list(found) if name.endswith("_all")]
        return found if counts and min(counts) == count else None

    return wait_for_value(received, "events are not delivered")


def contents(broker: Broker) -> list[int]:
    rows: Counter[int] = Counter()
    for event in logged(broker, "things"):
        rows[event["n"]] += 1 if event["change"] == "insert" else -1
    assert min(rows.values(), default=0) >= 0
    return sorted(rows.elements())


def evaluation(connection: Connection) -> dict[str, str]:
    query = "SELECT name, filter_evaluation FROM smile.subscriptions WHERE filter IS NOT NULL"
    return dict(connection.execute(query).fetchall())


def test_filters_never_see_rows_of_an_earlier_life_of_a_table(database: str, tmp_path: Path) -> None:
    """A stream, or its table, is dropped, and another one gets its name."""
    with serving(database, tmp_path) as broker, connect(database) as connection:
        connection.execute(FUNCTION)
        create_type(connection, "E", "n bigint")
        connection.execute(
            "CREATE TABLE public.things (n bigint, price numeric(10, 2) DEFAULT 1.25, at timestamp, b bytea)"
        )
        connection.execute("INSERT INTO public.things VALUES (1, NULL, '2024-02-29 10:11:12.5', '\\x00ff')")
        connection.execute("INSERT INTO public.things VALUES (2), (2)")
        subscribe(connection, "first")
        assert publish_and_receive(connection, [1, 2, 3]) == {"first": [1, 2]}
        assert evaluation(connection) == {"first": "broker"}

        # The stream is dropped, and created again later.
        connection.execute("SELECT smile.drop_table_stream('things')")
        connection.execute("UPDATE public.things SET n = 3 WHERE n = 1")
        assert publish_and_receive(connection, [1, 2, 3]) == {"first": [2, 3]}
        assert evaluation(connection) == {"first": "database"}
        connection.execute("SELECT smile.create_table_stream('Things', 'public.things')")
        subscribe(connection, "second")
        assert publish_and_receive(connection, [1, 2, 3]) == {"first": [2, 3], "second": [2, 3]}
        assert set(evaluation(connection).values()) == {"broker"}
        assert contents(broker) == [2, 2, 3]

        # The table is dropped, and another one is created. A filter makes a stream of it.
        connection.execute("DROP TABLE public.things")
        connection.execute("CREATE TABLE public.things (n bigint, price numeric(10, 2), at timestamp, b bytea)")
        connection.execute("INSERT INTO public.things VALUES (1)")
        assert publish_and_receive(connection, [1, 2, 3]) == {"first": [1], "second": [1]}
        assert set(evaluation(connection).values()) == {"database"}
        subscribe(connection, "third")
        assert publish_and_receive(connection, [1, 2, 3]) == {"first": [1], "second": [1], "third": [1]}
        assert set(evaluation(connection).values()) == {"broker"}
        assert contents(broker) == [1]

        # Another table gets the name: a filter reads the one that PostgreSQL would.
        connection.execute("ALTER TABLE public.things RENAME TO earlier_things")
        connection.execute("CREATE TABLE public.things (n bigint)")
        connection.execute("INSERT INTO public.things VALUES (3)")
        assert publish_and_receive(connection, [1, 2, 3]) == {"first": [3], "second": [3], "third": [3]}


def test_a_life_begins_in_its_place_wherever_the_service_is(database: str, tmp_path: Path) -> None:
    """The service sees all of it at once. Events before the stream was created again are filtered with what the table
    has when they are delivered."""
    with serving(database, tmp_path), connect(database) as connection:
        connection.execute(FUNCTION)
        create_type(connection, "E", "n bigint")
        connection.execute("CREATE TABLE public.things (n bigint)")
        connection.execute("INSERT INTO public.things VALUES (1), (2)")
        subscribe(connection, "s")
        assert publish_and_receive(connection, [1, 2, 3]) == {"s": [1, 2]}
    with connect(database) as connection:
        connection.execute("DELETE FROM public.received")
        connection.execute("INSERT INTO public.things VALUES (3)")
        publish(connection, "E", {"n": 3})
        connection.execute("SELECT smile.drop_table_stream('things')")
        publish(connection, "E", {"n": 2})
        connection.execute("DELETE FROM public.things WHERE n <> 2")
        with connection.transaction():
            # Twice in one transaction, with changes in between.
            connection.execute("SELECT smile.create_table_stream('Things', 'public.things')")
            connection.execute("INSERT INTO public.things VALUES (4)")
            connection.execute("SELECT smile.drop_table_stream('Things')")
            connection.execute("SELECT smile.create_table_stream('Things', 'public.things')")
        publish(connection, "E", {"n": 4})
        with serving(database, tmp_path) as broker:
            assert wait_for_received(connection, 3) == {"s": [2, 4]}
            connection.execute("INSERT INTO public.things VALUES (5)")
            assert publish_and_receive(connection, [3, 4, 5]) == {"s": [4, 5]}
            assert evaluation(connection) == {"s": "broker"}
            assert contents(broker) == [2, 4, 5]
