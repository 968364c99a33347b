"""What is published in the database becomes events of streams: each once, if and when its transaction commits."""

import re
from collections import defaultdict
from pathlib import Path
from random import Random
from threading import Barrier, Thread

import pytest

from smile.log.position import BatchLimit
from tests.postgres.services import (
    Connection,
    connect,
    create_type,
    logged,
    publish,
    serving,
    wait_for_events,
    wait_for_value,
)
from tests.processes import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent


def test_a_published_event_is_an_event_of_a_stream(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path) as broker, connect(database) as connection:
        create_type(connection, "Quotes", "symbol text, price numeric(10, 2)")
        publish(connection, "Quotes", {"symbol": "IBM", "price": 10.25})
        (event,) = wait_for_events(broker, "Quotes", 1)
        assert (event["symbol"], str(event["price"])) == ("IBM", "10.25")


def test_values_of_all_types_arrive_as_they_are(database: str, tmp_path: Path) -> None:
    columns = (
        "b boolean, i integer, l bigint, f double precision, d numeric(20, 5), s text, ts timestamp, tz timestamptz, "
        "day date, iv interval, raw bytea, u uuid"
    )
    values = (
        "true, -7, 9223372036854775807, 0.1, 123456789012345.12345, E'a\"b\\n\\u00fc', '2026-01-02 03:04:05.678901', "
        "'2026-01-02 03:04:05+02', '2026-01-02', '1 day 2 seconds', '\\x00ff', '6ba7b810-9dad-11d1-80b4-00c04fd430c8'"
    )
    with serving(database, tmp_path) as broker, connect(database) as connection:
        create_type(connection, "All_Types", columns)
        connection.execute(f"SELECT smile.publish_all_types({values})")
        connection.execute(f"SELECT smile.publish_all_types({', '.join(['NULL'] * 12)})")
        first, second = wait_for_events(broker, "All_Types", 2)
        assert first.pop("tick") < second.pop("tick")
        assert set(second.values()) == {None}
        shown = {name: str(value) for name, value in first.items()}
        assert shown["l"] == "9223372036854775807"
        assert shown["d"].replace(".", "").startswith("12345678901234512345")
        assert (first["f"], first["i"], first["b"], first["s"]) == (0.1, -7, True, 'a"b\nü')
        assert shown["ts"].startswith("2026-01-02 03:04:05.678901") or first["ts"] == 1767323045678901
        assert first["raw"] == b"\0\xff"
        assert first["u"] == "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
        assert first["iv"] == 86_402 * 1_000_000 * 1024


@pytest.mark.parametrize("reliability", ["guaranteed", "non-guaranteed"])
def test_a_deferred_event_shares_the_fate_of_its_transaction(database: str, tmp_path: Path, reliability: str) -> None:
    with serving(database, tmp_path) as broker, connect(database) as connection:
        create_type(connection, "E")
        modes = ("deferred", reliability)
        with connection.transaction():
            publish(connection, "E", {"n": 1}, *modes)
        with connection.transaction(force_rollback=True):
            publish(connection, "E", {"n": 2}, *modes)
        with connection.transaction():
            publish(connection, "E", {"n": 3}, *modes)
            with connection.transaction(force_rollback=True):
                publish(connection, "E", {"n": 4}, *modes)
            with connection.transaction():
                publish(connection, "E", {"n": 5}, *modes)
            assert [e["n"] for e in logged(broker, "E") if e["n"] > 1] == []
        publish(connection, "E", {"n": 6}, *modes)
        assert [e["n"] for e in wait_for_events(broker, "E", 4)] == [1, 3, 5, 6]


def test_a_transaction_is_one_commit_with_rising_ticks(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path) as broker, connect(database) as connection:
        create_type(connection, "A")
        create_type(connection, "B")
        with connection.transaction():
            for n in range(30):
                publish(connection, "A" if n % 3 else "B", {"n": n})
        a, b = wait_for_events(broker, "A", 20), wait_for_events(broker, "B", 10)
        assert [e["n"] for e in sorted([*a, *b], key=lambda e: e["tick"])] == list(range(30))
        start, ends = broker.log.start(), []
        while (end := broker.log.after(start, BatchLimit(rows=1))) != start:
            counts = [broker.log.read(stream, start, end).num_rows for stream in ("A", "B")]
            ends += [counts] if any(counts) else []
            start = end
        assert ends == [[20, 10]], "no batch divides it"


def test_a_transaction_that_is_open_for_long_holds_up_nobody(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path) as broker, connect(database) as connection, connect(database) as other:
        create_type(connection, "E")
        with other.transaction():
            publish(other, "E", {"n": 0, "who": "long"})
            for n in range(1, 6):
                publish(connection, "E", {"n": n, "who": "short"})
                wait_for_events(broker, "E", n)
            status = wait_for_value(
                lambda: s if (s := broker.status()["postgres"]["capture"])["oldest_transaction_s"] > 0.5 else None,
                "the open transaction is not in the status",
            )
            assert status["waiting_events"] == 0
        assert [e["n"] for e in wait_for_events(broker, "E", 6)] == [1, 2, 3, 4, 5, 0]


def publish_many(url: str, who: int, count: int, barrier: Barrier) -> None:
    random = Random(who)
    with connect(url) as connection:
        barrier.wait()
        n = 0
        while n < count:
            size = min(random.randint(1, 4), count - n)
            with connection.transaction(force_rollback=random.random() < 0.2) as transaction:
                for i in range(size):
                    publish(connection, "E", {"n": n + i, "who": str(who)})
            if not transaction.force_rollback:
                n += size


def test_concurrent_publishers_lose_nothing_and_keep_their_order(database: str, tmp_path: Path) -> None:
    publishers, count = 20, 25
    with connect(database) as connection:
        create_type(connection, "E")
    with serving(database, tmp_path) as broker:
        barrier = Barrier(publishers)
        threads = [Thread(target=publish_many, args=(database, who, count, barrier)) for who in range(publishers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events = wait_for_events(broker, "E", publishers * count)
        by_publisher = defaultdict[str, list[int]](list)
        for event in events:
            by_publisher[event["who"]].append(event["n"])
        assert by_publisher == {str(who): list(range(count)) for who in range(publishers)}


def exceptions(connection: Connection) -> list[tuple[str, str, object]]:
    rows = connection.execute(
        "SELECT sqlstate, message, event FROM smile.exception_queue WHERE resolution IS NULL ORDER BY id"
    )
    return [(state, message, event) for state, message, event in rows]


CHECKED = "CREATE STREAM E (tick TIME KEY, n int CHECK (n < 100), who string);\n"


def test_an_event_that_the_broker_refuses_does_not_hold_up_others(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path, CHECKED) as broker, connect(database) as connection:
        create_type(connection, "E")
        create_type(connection, "F")
        with connection.transaction():
            for n in (1, 200, 2, 300):
                publish(connection, "E", {"n": n})
            publish(connection, "F", {"n": 400})
        publish(connection, "E", {"n": 3})
        assert [e["n"] for e in wait_for_events(broker, "E", 3)] == [1, 2, 3]
        assert [e["n"] for e in wait_for_events(broker, "F", 1)] == [400]
        found = exceptions(connection)
        assert [(state, event["n"]) for state, _, event in found] == [("SM080", 200), ("SM080", 300)]  # type: ignore[index]
        status = wait_for_value(
            lambda: s if (s := broker.status()["postgres"]["capture"])["exceptions"] else None, "no exceptions"
        )
        assert (status["exceptions"], status["refused"]) == (2, 2)
        (id_,) = connection.execute("SELECT min(id) FROM smile.exception_queue").fetchone() or (0,)
        connection.execute("SELECT smile.retry_exception(%s)", (id_,))
        wait_until(lambda: [e["n"] for _, _, e in exceptions(connection)] == [300, 200], "it is not tried again")  # type: ignore[index]


def test_a_type_that_conflicts_with_the_program_is_reported_and_others_go_on(database: str, tmp_path: Path) -> None:
    with connect(database) as connection:
        create_type(connection, "Own", "other text")
        create_type(connection, "E")
        publish(connection, "Own", {"other": "x"})
        publish(connection, "E", {"n": 1})
        with serving(database, tmp_path) as broker:
            wait_for_events(broker, "E", 1)
            assert list(broker.status()["postgres"]["type_problems"]) == ["Own"]
            (trouble,) = broker.attached[0].troubles()
            assert (trouble.subject, trouble.code) == ("Own", "E163")
            ((state, _, event),) = exceptions(connection)
            assert (state, event) == ("SM163", {"other": "x"})


def test_a_type_that_is_created_again_with_other_columns(database: str, tmp_path: Path) -> None:
    """Its events wait in the exception queue, which says what to do. If columns were added, nothing is lost."""
    with serving(database, tmp_path) as broker, connect(database) as connection:
        create_type(connection, "Changing", "a integer")
        create_type(connection, "Other", "a integer")
        connection.execute("CREATE TABLE public.things (n integer); INSERT INTO public.things VALUES (1), (2)")
        connection.execute("SELECT smile.create_table_stream('Things', 'public.things')")
        wait_for_events(broker, "Things", 2)
        for name in ("Changing", "Other"):
            connection.execute("SELECT smile.drop_event_type(%s)", (name,))
        connection.execute("SELECT smile.drop_table_stream('Things')")
        create_type(connection, "Changing", "a integer, b text")
        create_type(connection, "Other", "a text")
        publish(connection, "Changing", {"a": 2, "b": "x"})
        publish(connection, "Other", {"a": "x"})
        connection.execute("ALTER TABLE public.things ADD b text")
        connection.execute("SELECT smile.create_table_stream('Things', 'public.things')")
        connection.execute("INSERT INTO public.things VALUES (3, 'x')")
        wait_until(lambda: len(exceptions(connection)) == 5, "the events are not in the exception queue")
        hints = "SELECT DISTINCT event ->> 'a', detail FROM smile.exception_queue ORDER BY 1"
        found = [("smile apply" in hint, "another name" in hint) for _, hint in connection.execute(hints)]
        assert found == [(True, True), (False, True), (False, True)]
        source = broker.compiled.source
        broker.apply(type(source)(source.name, source.text.replace('"a" int);', '"a" int, "b" string);', 1)))
        connection.execute("SELECT smile.drop_table_stream('Things')")
        connection.execute("SELECT smile.create_table_stream('NewThings', 'public.things')")
        wait_until(lambda: list(broker.status()["postgres"]["type_problems"]) == ["Other"], "there are problems")
        retry = "SELECT smile.retry_exception(id) FROM smile.exception_queue WHERE detail LIKE '%smile apply%'"
        connection.execute(retry)
        assert [(e["a"], e["b"]) for e in wait_for_events(broker, "Changing", 1)] == [(2, "x")]
        rows = [(e["n"], e["b"]) for e in wait_for_events(broker, "NewThings", 3)]
        assert rows == [(1, None), (2, None), (3, "x")]


def test_streams_that_a_changed_program_lacks_are_added_again(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path) as broker, connect(database) as connection:
        create_type(connection, "E")
        publish(connection, "E", {"n": 1})
        wait_for_events(broker, "E", 1)
        source = broker.compiled.source
        broker.apply(type(source)(source.name, "CREATE STREAM Other (t: time -> a: int);\n"))
        publish(connection, "E", {"n": 2})
        assert [e["n"] for e in wait_for_events(broker, "E", 2)] == [1, 2]
        assert {s.name for s in broker.program.streams} == {"Other", "E"}


def test_what_was_published_while_the_broker_was_away_is_captured(database: str, tmp_path: Path) -> None:
    with connect(database) as connection:
        create_type(connection, "E")
        with serving(database, tmp_path) as broker:
            publish(connection, "E", {"n": 0})
            wait_for_events(broker, "E", 1)
        with connection.transaction():
            for n in range(1, 5):
                publish(connection, "E", {"n": n})
            connection.execute(
                "INSERT INTO smile.in_queue (type_id, event, publisher) SELECT t.id, json_build_object('n', n), 'smile' "
                "FROM generate_series(5, 11999) AS n, smile.event_type AS t"
            )
        with serving(database, tmp_path) as broker:
            assert [e["n"] for e in wait_for_events(broker, "E", 12_000)] == list(range(12_000))


def test_a_database_that_was_replaced_by_an_older_copy_is_noticed(database: str, tmp_path: Path) -> None:
    """Its numbers stand for other events: nothing is taken for a repetition. Afterwards they are counted anew."""
    with connect(database) as connection:
        create_type(connection, "E")
        with serving(database, tmp_path) as broker:
            for n in range(3):
                publish(connection, "E", {"n": n})
            wait_for_events(broker, "E", 3)
        connection.execute("UPDATE smile.capture_batch SET first_number = 1, events = 0")
        publish(connection, "E", {"n": 3})
        with serving(database, tmp_path) as broker:
            problem = wait_for_value(
                lambda: broker.status()["postgres"]["connections"]["capture"]["problem"], "it is not noticed"
            )
            assert problem["code"] == "E164"
            assert len(logged(broker, "E")) == 3
            text = (ROOT / "docs" / "postgres.md").read_text()
            (statement,) = re.findall(r"^```sql\n(UPDATE .*?)\n```$", text, re.MULTILINE | re.DOTALL)
            connection.execute(statement)
            assert [e["n"] for e in wait_for_events(broker, "E", 4)] == [0, 1, 2, 3]


def test_another_service_is_refused(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path / "a") as first, serving(database, tmp_path / "b") as second:

        def problem(broker: object) -> str | None:
            found = broker.status()["postgres"]["connections"]["capture"]["problem"]  # type: ignore[attr-defined]
            return None if found is None else found["message"]

        message = wait_until(lambda: problem(second) or problem(first), "both capture the database")
        assert message == "another service captures this database"
