"""Subscriptions of the database: the function of each is called once for each event, with its effect."""

from pathlib import Path

import psycopg
import pytest

from smile.broker.publishing.publication import Publication
from smile.errors import SmileError
from smile.postgres.schema.install import install, uninstall
from tests.postgres.server import Server
from tests.postgres.services import (
    Connection,
    connect,
    count_rows,
    create_type,
    publish,
    serving,
    wait_for_events,
    wait_for_value,
)
from tests.processes import wait_until

FUNCTIONS = """
CREATE TABLE public.received (id bigint GENERATED ALWAYS AS IDENTITY, subscription text, n bigint);
CREATE FUNCTION public.receive(subscription text, n bigint) RETURNS void LANGUAGE sql AS
    'INSERT INTO public.received (subscription, n) VALUES ($1, $2)';
CREATE FUNCTION public.fail_sometimes(subscription text, n bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.received (subscription, n) VALUES ($1, $2);
    IF n % 3 = 0 THEN RAISE EXCEPTION 'no multiples of three' USING DETAIL = 'n is ' || n; END IF;
END $$;
"""


def subscribe(
    connection: Connection,
    name: str,
    event_type: str = "E",
    where: str | None = None,
    function: str = "public.receive",
    priority: int = 0,
) -> None:
    connection.execute(
        "SELECT smile.create_subscription(%s, %s, 'local', %s, %s, %s, %s)",
        (name, event_type, where, function, f"'{name}', (event).n", priority),
    )


def prepare(connection: Connection, *types: str) -> None:
    connection.execute(FUNCTIONS)
    for name in types or ("E",):
        create_type(connection, name)


def received(connection: Connection, name: str | None = None) -> list[int]:
    rows = connection.execute(
        "SELECT n FROM public.received WHERE %s::text IS NULL OR subscription = %s ORDER BY id", (name, name)
    )
    return [n for (n,) in rows]


def wait_for_received(connection: Connection, name: str, count: int) -> list[int]:
    return wait_for_value(
        lambda: found if len(found := received(connection, name)) >= count else None,
        f"{name} does not receive {count} events",
        60,
    )


def test_a_function_is_called_once_for_each_event(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path), connect(database) as connection:
        prepare(connection)
        publish(connection, "E", {"n": 0})
        subscribe(connection, "s")
        for n in range(1, 21):
            publish(connection, "E", {"n": n})
        assert wait_for_received(connection, "s", 20) == list(range(1, 21))
        connection.execute("SELECT smile.drop_subscription('s')")
        publish(connection, "E", {"n": 21})
        subscribe(connection, "later")
        publish(connection, "E", {"n": 22})
        assert wait_for_received(connection, "later", 1) == [22]
        assert received(connection, "s") == list(range(1, 21))


def test_a_subscription_begins_at_its_place_in_the_order_of_transactions(database: str, tmp_path: Path) -> None:
    """Wherever the service is when it sees the transactions: here it sees all of them at once."""
    with connect(database) as connection:
        prepare(connection)
        publish(connection, "E", {"n": 1})
        with connection.transaction():
            publish(connection, "E", {"n": 2})
            subscribe(connection, "first")
            publish(connection, "E", {"n": 3})
        with connection.transaction(force_rollback=True):
            subscribe(connection, "never")
        publish(connection, "E", {"n": 4})
        subscribe(connection, "second")
        publish(connection, "E", {"n": 5})
        with serving(database, tmp_path) as broker:
            assert wait_for_received(connection, "first", 2) == [4, 5]
            assert wait_for_received(connection, "second", 1) == [5]
            publish(connection, "E", {"n": 6})
            assert wait_for_received(connection, "first", 3) == [4, 5, 6]
            assert wait_for_received(connection, "second", 2) == [5, 6]
            status = broker.status()["postgres"]["database_subscriptions"]
            assert set(status) == {"first", "second"}
            assert status["first"]["position"]


def test_functions_are_called_in_the_order_of_priority(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path), connect(database) as connection:
        prepare(connection)
        with connection.transaction():
            subscribe(connection, "third", priority=3)
            subscribe(connection, "first", priority=-1)
            subscribe(connection, "second")
        for n in (1, 2):
            publish(connection, "E", {"n": n})
        wait_for_received(connection, "third", 2)
        rows = connection.execute("SELECT subscription, n FROM public.received ORDER BY id").fetchall()
        assert rows == [(name, n) for n in (1, 2) for name in ("first", "second", "third")]


def test_filters_choose_events(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path), connect(database) as connection:
        prepare(connection)
        connection.execute("CREATE TABLE public.chosen (n bigint)")
        connection.execute("INSERT INTO public.chosen VALUES (2), (5)")
        subscribe(connection, "large", where="n > 3")
        subscribe(connection, "stored", where="n IN (SELECT c.n FROM public.chosen AS c)")
        subscribe(connection, "all")
        for n in range(1, 7):
            publish(connection, "E", {"n": n})
        assert wait_for_received(connection, "all", 6) == [1, 2, 3, 4, 5, 6]
        assert wait_for_received(connection, "large", 3) == [4, 5, 6]
        assert wait_for_received(connection, "stored", 2) == [2, 5]


def evaluation(connection: Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, filter_evaluation FROM smile.subscriptions").fetchall())


def test_filters_are_evaluated_in_the_broker_where_it_can(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path) as broker, connect(database) as connection:
        prepare(connection)
        create_type(connection, "Coloured", "n bigint, colour char(10)")
        subscribe(connection, "large", where="n > 3")
        subscribe(connection, "random", where="n > 3 AND random() < 2")
        subscribe(connection, "red", "Coloured", where="colour = 'red'")
        for n in range(1, 7):
            publish(connection, "E", {"n": n})
            publish(connection, "Coloured", {"n": n, "colour": "red" if n % 2 else "blue"})
        for name, wanted in (("large", [4, 5, 6]), ("random", [4, 5, 6]), ("red", [1, 3, 5])):
            assert wait_for_received(connection, name, 3) == wanted
        assert evaluation(connection) == {"large": "broker", "random": "database", "red": "database"}
        status = broker.status()["postgres"]["database_subscriptions"]
        assert {name: s["evaluated_in"] for name, s in status.items()} == evaluation(connection)


def test_a_filter_over_a_stored_table_is_as_of_the_event(database: str, tmp_path: Path) -> None:
    """A change of the table concerns what comes after it, and only that, wherever the service is."""
    with connect(database) as connection:
        prepare(connection)
        connection.execute("CREATE TABLE public.portfolios (id bigint, n bigint)")
        connection.execute("INSERT INTO public.portfolios VALUES (7, 1), (7, 2), (8, 3)")
        connection.execute("SELECT smile.create_table_stream('PortfolioChanges', 'public.portfolios')")
        for id_ in (7, 8):
            where = f"n IN (SELECT n FROM Portfolios WHERE id = {id_})"
            connection.execute("SET search_path = public")
            subscribe(connection, f"portfolio_{id_}", where=where)
        for n in range(1, 5):
            publish(connection, "E", {"n": n})
        with connection.transaction():
            connection.execute("UPDATE public.portfolios SET id = 8 WHERE n = 2")
            connection.execute("DELETE FROM public.portfolios WHERE n = 3")
            connection.execute("INSERT INTO public.portfolios VALUES (7, 4)")
        for n in range(1, 5):
            publish(connection, "E", {"n": n})
        connection.execute("TRUNCATE public.portfolios")
        publish(connection, "E", {"n": 1})
        with serving(database, tmp_path):
            assert wait_for_received(connection, "portfolio_7", 4) == [1, 2, 1, 4]
            assert wait_for_received(connection, "portfolio_8", 2) == [3, 2]
            assert set(evaluation(connection).values()) == {"broker"}


def test_a_failure_concerns_one_event_of_one_subscription(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path), connect(database) as connection:
        prepare(connection)
        subscribe(connection, "failing", function="public.fail_sometimes", priority=1)
        subscribe(connection, "other")
        for n in range(1, 8):
            publish(connection, "E", {"n": n})
        assert wait_for_received(connection, "other", 7) == list(range(1, 8))
        assert wait_for_received(connection, "failing", 5) == [1, 2, 4, 5, 7]
        rows = connection.execute("SELECT n, queue_message, queue_detail FROM smile.e_exception ORDER BY n").fetchall()
        assert rows == [(n, "no multiples of three", f"n is {n}") for n in (3, 6)]


def test_events_of_many_types_are_delivered(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path), connect(database) as connection:
        types = [f"T{i}" for i in range(8)]
        prepare(connection, *types)
        for name in types:
            subscribe(connection, f"of_{name}", name)
        for n in range(5):
            for name in types:
                publish(connection, name, {"n": n})
        for name in types:
            assert wait_for_received(connection, f"of_{name}", 5) == list(range(5))


def test_delivery_goes_on_after_a_restart_of_the_broker(database: str, tmp_path: Path) -> None:
    with connect(database) as connection:
        prepare(connection)
        subscribe(connection, "s")
        for n in range(0, 40, 10):
            for i in range(5):
                publish(connection, "E", {"n": n + i})
            with serving(database, tmp_path) as broker:
                for i in range(5, 10):
                    publish(connection, "E", {"n": n + i})
                wait_for_events(broker, "E", n + 10)
        with serving(database, tmp_path):
            assert wait_for_received(connection, "s", 40) == list(range(40))


def test_the_broker_serves_while_the_database_is_away(server: Server, database: str, tmp_path: Path) -> None:
    """The service comes back by itself, and says meanwhile what is wrong."""
    with serving(database, tmp_path) as broker:
        with connect(database) as connection:
            prepare(connection)
            subscribe(connection, "s")
            publish(connection, "E", {"n": 1})
            wait_for_received(connection, "s", 1)
        server.kill()
        try:
            connections = wait_for_value(
                lambda: c if (c := broker.status()["postgres"]["connections"])["capture"]["problem"] else None,
                "the loss of the connection is not in the status",
            )
            assert connections["capture"]["state"] == "waiting"
            assert connections["capture"]["problem"]["code"] == "E166"
            assert broker.health in ("ok", "degraded")
        finally:
            server.start()
        with connect(database) as connection:
            publish(connection, "E", {"n": 2})
            assert wait_for_received(connection, "s", 2) == [1, 2]
        wait_until(lambda: not broker.status()["postgres"]["connections"]["capture"]["problem"], "the problem stays")


def test_events_of_other_publishers_are_delivered(database: str, tmp_path: Path) -> None:
    """One with a character that PostgreSQL's text cannot have goes to the exception queue, and holds up no other."""
    with serving(database, tmp_path) as broker, connect(database) as connection:
        prepare(connection)
        subscribe(connection, "s")
        publish(connection, "E", {"n": 1})
        wait_for_received(connection, "s", 1)
        for n, who in ((2, "a"), (3, "a\0b"), (4, "ü\U0001f600")):
            broker.publish(Publication("E", [(n, who)])).result(60)
        assert wait_for_received(connection, "s", 3) == [1, 2, 4]
        wait_until(
            lambda: connection.execute("SELECT who FROM smile.e_exception").fetchall() == [("a\ufffdb",)],
            "the event is not in the exception queue",
            30,
        )


def test_a_serialization_failure_is_tried_again(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path), connect(database) as connection:
        prepare(connection)
        connection.execute("CREATE SEQUENCE public.attempts")
        connection.execute(
            "CREATE FUNCTION public.conflict(subscription text, n bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN "
            "INSERT INTO public.received (subscription, n) VALUES ($1, $2); "
            "IF nextval('public.attempts') % 3 <> 0 THEN RAISE serialization_failure; END IF; END $$"
        )
        subscribe(connection, "s", function="public.conflict")
        for n in range(5):
            publish(connection, "E", {"n": n})
        assert wait_for_received(connection, "s", 5) == list(range(5))
        assert connection.execute("SELECT last_value FROM public.attempts").fetchone() == (15,)
        assert connection.execute("SELECT count(*) FROM smile.e_exception").fetchone() == (0,)


def test_a_delivery_that_lacks_resources_again_and_again_can_be_given_up(database: str, tmp_path: Path) -> None:
    """Its function says so itself. Everything waits for it, and the broker's health says for which."""
    with serving(database, tmp_path) as broker, connect(database) as connection:
        prepare(connection)
        connection.execute(
            "CREATE FUNCTION public.lack(subscription text, n bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN "
            "IF n = 2 THEN RAISE SQLSTATE '53100' USING MESSAGE = 'no room'; END IF; "
            "INSERT INTO public.received (subscription, n) VALUES ($1, $2); END $$"
        )
        subscribe(connection, "lacking", function="public.lack")
        subscribe(connection, "other", priority=1)
        for n in range(1, 5):
            publish(connection, "E", {"n": n})

        def held() -> str | None:
            troubles = [t for service in broker.attached for t in service.troubles() if t.code == "E148"]
            return troubles[0].message if troubles else None

        message = wait_for_value(held, "the health does not say what is held up")
        assert "53100 no room" in message
        assert (received(connection, "lacking"), received(connection, "other")) == ([1], [1])
        (tick,) = connection.execute("SELECT queue_tick FROM smile.e_out ORDER BY queue_tick LIMIT 1").fetchone() or ()
        for wrong in (("lacking", tick + 1), ("none", tick)):
            with pytest.raises(psycopg.Error) as refused:
                connection.execute("SELECT smile.skip_delivery(%s, %s)", wrong)
            assert refused.value.sqlstate == "SM154"
        statement = f"SELECT smile.skip_delivery('lacking', {tick})"
        assert statement in message
        connection.execute(statement.encode())
        assert wait_for_received(connection, "other", 4) == [1, 2, 3, 4]
        assert wait_for_received(connection, "lacking", 3) == [1, 3, 4]
        rows = connection.execute("SELECT n, queue_sqlstate FROM smile.e_exception").fetchall()
        assert rows == [(2, "SM148")]
        wait_until(lambda: held() is None, "the trouble stays")


def test_an_exception_is_retried_or_dropped_with_one_call(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path), connect(database) as connection:
        prepare(connection)
        subscribe(connection, "failing", function="public.fail_sometimes")
        for n in (3, 6, 7):
            publish(connection, "E", {"n": n})
        wait_for_received(connection, "failing", 1)
        connection.execute(
            "CREATE OR REPLACE FUNCTION public.fail_sometimes(subscription text, n bigint) RETURNS void "
            "LANGUAGE sql AS 'INSERT INTO public.received (subscription, n) VALUES ($1, $2)'"
        )
        first, second = (
            id_ for (id_,) in connection.execute("SELECT queue_id FROM smile.e_exception ORDER BY n").fetchall()
        )
        assert connection.execute("SELECT smile.retry_exception(%s)", (first,)).fetchone() == (True,)
        connection.execute("SELECT smile.drop_exception(%s)", (second,))
        assert received(connection, "failing") == [7, 3]
        assert connection.execute("SELECT count(*) FROM smile.e_exception").fetchone() == (0,)


@pytest.mark.parametrize("kind", ["subscription", "type"])
def test_what_was_dropped_is_forgotten(database: str, tmp_path: Path, kind: str) -> None:
    with serving(database, tmp_path) as broker, connect(database) as connection:
        prepare(connection)
        subscribe(connection, "s")
        publish(connection, "E", {"n": 1})
        wait_for_received(connection, "s", 1)
        assert "postgres/stream.E" in broker.status()["subscriptions"]
        connection.execute("SELECT smile.drop_subscription('s')")
        if kind == "type":
            connection.execute("SELECT smile.drop_event_type('E')")
        wait_until(lambda: "postgres/stream.E" not in broker.status()["subscriptions"], "the reader is not dropped")


def test_a_subscription_of_another_role_while_the_service_of_a_plain_role_runs(
    empty_database: str, roles: None, tmp_path: Path
) -> None:
    """The role that has installed the schema is no superuser, as where only SQL is allowed."""
    with connect(empty_database) as connection:
        name = connection.info.dbname
        connection.execute(f"GRANT alice TO bob; GRANT CREATE ON DATABASE {name} TO bob".encode())
        connection.execute("GRANT CREATE ON SCHEMA public TO bob")
    own = empty_database.replace("postgres@", "bob@")
    with psycopg.connect(own) as connection:
        install(connection)
    with serving(own, tmp_path), connect(own) as connection:
        prepare(connection)
        connection.execute("SELECT smile.grant('subscribe', 'E', 'alice')")
        connection.execute("GRANT INSERT ON public.received TO alice")
        publish(connection, "E", {"n": 1})
        wait_until(lambda: not count_rows(connection, "smile.in_queue"), "the service does not run")
        with connect(empty_database.replace("postgres@", "alice@")) as alice:
            alice.execute("SET statement_timeout = '20s'")
            subscribe(alice, "of_alice")
        publish(connection, "E", {"n": 2})
        assert wait_for_received(connection, "of_alice", 1) == [2]
        with psycopg.connect(own) as another, pytest.raises(SmileError, match="a service captures"):
            uninstall(another)
    with connect(empty_database) as connection:
        connection.execute("DROP SCHEMA smile CASCADE; DROP OWNED BY alice; DROP OWNED BY bob")
