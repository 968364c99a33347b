"""Privileges: what roles may do without and with PUBLISH and SUBSCRIBE, and that nothing runs with rights of others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.postgres.helpers import create_quotes, deliver, delivery, refused, rows, value
from tests.postgres.server import Connection

PREPARE = """
    CREATE TABLE stock (symbol text, price numeric);
    CREATE TABLE secret (text text); INSERT INTO secret VALUES ('secret');
    CREATE FUNCTION see(text) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION fails(text) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
"""


@pytest.fixture
def shop(connection: Connection, roles: None) -> Iterator[Connection]:
    """The type Quotes, a table, a rule, a subscription with an exception, a stream and a link, all of the superuser."""
    create_quotes(connection)
    connection.execute(PREPARE.encode())
    connection.execute("SELECT smile.create_rule('r', 'insert', 'stock', NULL, 'Quotes', 'NEW.symbol, NEW.price')")
    connection.execute("SELECT smile.create_subscription('s', 'Quotes', 'local', NULL, 'fails', 'symbol')")
    connection.execute("SELECT smile.create_table_stream('Secrets', 'secret')")
    connection.execute("SELECT smile.create_link('l', 'host', 1, 'u', 'password')")
    connection.execute("SELECT smile.create_view_table('t', 'v')")
    deliver(connection, [delivery(1, 1, symbol="a")])
    yield connection
    connection.execute("RESET ROLE")
    connection.execute("DROP OWNED BY alice, bob CASCADE")


STATEMENTS = [
    ("smile.create_event_type('T', 'a int')", "E090"),
    ("smile.drop_event_type('Quotes')", "E090"),
    ("smile.alter_queue('quotes_in', true)", "E090"),
    ("smile.advertise('Quotes')", "E090"),
    ("smile.unadvertise('Quotes')", "E090"),
    ("smile.publish('Quotes', '{\"symbol\": \"a\"}')", "E090"),
    ("smile.publish_quotes('a', 1)", "42501"),
    ("smile.create_rule('q', 'insert', 'stock', NULL, 'Quotes', 'NEW.symbol, NEW.price')", "E090"),
    ("smile.drop_rule('r', 'stock')", "E090"),
    ("smile.create_subscription('q', 'Quotes', 'local', NULL, 'see', 'symbol')", "E090"),
    ("smile.create_subscription('q', 'Secrets', 'local', NULL, 'see', 'text')", "E090"),
    ("smile.drop_subscription('s')", "E090"),
    ("smile.create_link('m', 'host', 1, 'u', 'p')", "E090"),
    ("smile.drop_link('l')", "E090"),
    ("smile.grant('publish', 'Quotes', 'alice')", "E090"),
    ("smile.revoke('subscribe', 'Quotes', 'bob')", "E090"),
    ("smile.create_table_stream('T', 'stock')", "42501"),
    ("smile.drop_table_stream('Secrets')", "E090"),
    ("smile.create_view_table('u', 'v')", "E090"),
    ("smile.drop_view_table('public.t')", "E090"),
    ("smile.retry_exception(1)", "E090"),
    ("smile.drop_exception(1)", "E090"),
    ("smile.skip_delivery('s', 1)", "E090"),
    ("smile.restart_capture()", "42501"),
    ("smile.call_1('{}', false)", "42501"),
    ("smile.enqueue(1, '{}', 'deferred', 'guaranteed')", "42501"),
    ("smile.define_publish(1)", "42501"),
    ("smile.command_drop_link('postgres', '{}')", "42501"),
    ("* FROM smile.quotes_in", "42501"),
    ("* FROM smile.quotes_out", "42501"),
    ("* FROM smile.quotes_exception", "42501"),
    ("* FROM smile.secrets_in", "42501"),
    ("* FROM smile.link", "42501"),
    ("* FROM smile.delivery_positions", "42501"),
]


def counts(connection: Connection) -> dict[str, int]:
    """The rows of each table of the schema and of the shop, the privileges, and the objects that statements create."""
    tables = rows(connection, "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace IN ('smile'::regnamespace, 'public'::regnamespace)")  # fmt: skip
    others = ["smile.privileges", "pg_trigger", "pg_proc", "pg_type"]
    names = [name for (name,) in tables] + others
    return {name: value(connection, f"SELECT count(*) FROM {name}") for name in names}


def test_every_statement_without_the_privilege(shop: Connection) -> None:
    before = counts(shop)
    shop.execute("SET ROLE alice")
    for statement, code in STATEMENTS:
        with refused(code):
            shop.execute(f"SELECT {statement}".encode())
    # A command that is inserted by hand has the same caller.
    for name, arguments in (("drop_link", '{"name": "l"}'), ("grant", '{"privilege": "publish", "event_type": "Quotes", "role": "alice"}')):  # fmt: skip
        with refused("E090", "alice"):
            shop.execute(
                "INSERT INTO smile.command (name, arguments, caller) VALUES (%s, %s, 'postgres')", [name, arguments]
            )
    with refused("E154"):
        shop.execute("INSERT INTO smile.command (name) VALUES ('none')")
    shop.execute("RESET ROLE")
    assert counts(shop) == before


def test_publish_and_subscribe_are_granted(shop: Connection) -> None:
    shop.execute("SELECT smile.grant('PUBLISH', 'quotes', 'alice'), smile.grant('subscribe', 'Quotes', 'bob')")
    shop.execute("SET ROLE alice")
    shop.execute("SELECT smile.publish_quotes('a', 1), smile.advertise('Quotes')")
    shop.execute("SELECT smile.publish('Quotes', '{\"symbol\": \"b\"}')")
    with refused("42501"):
        rows(shop, "SELECT * FROM smile.quotes_in")
    shop.execute("SET ROLE bob")
    assert rows(shop, "SELECT symbol, queue_publisher FROM smile.quotes_in") == [("a", "alice"), ("b", "alice")]
    with refused("E090"):
        shop.execute("SELECT smile.publish('Quotes', '{}')")
    shop.execute("RESET ROLE")
    assert rows(shop, "SELECT privilege, role FROM smile.privileges WHERE event_type = 'Quotes' ORDER BY 1, 2") == [
        ("PUBLISH", "alice"), ("PUBLISH", "postgres"), ("SUBSCRIBE", "bob"), ("SUBSCRIBE", "postgres")
    ]  # fmt: skip
    shop.execute("SELECT smile.revoke('publish', 'Quotes', 'alice'), smile.grant('subscribe', 'Quotes', 'public')")
    shop.execute("SET ROLE alice")
    assert len(rows(shop, "SELECT * FROM smile.quotes_in")) == 2
    with refused("42501"):
        shop.execute("SELECT smile.publish_quotes('a', 1)")
    shop.execute("RESET ROLE")
    with refused("E154", "carol"):
        shop.execute("SELECT smile.grant('publish', 'Quotes', 'carol')")
    with refused("E093"):
        shop.execute("SELECT smile.grant('read', 'Quotes', 'alice')")


def test_privileges_that_are_rolled_back(shop: Connection) -> None:
    shop.execute("SELECT smile.grant('publish', 'Quotes', 'bob')")
    before = rows(shop, "SELECT * FROM smile.privileges ORDER BY 1, 2, 3")
    with shop.transaction(force_rollback=True):
        shop.execute("SELECT smile.grant('publish', 'Quotes', 'alice'), smile.grant('subscribe', 'Quotes', 'alice')")
        shop.execute("SELECT smile.revoke('publish', 'Quotes', 'bob')")
        assert rows(shop, "SELECT * FROM smile.privileges ORDER BY 1, 2, 3") != before
    assert rows(shop, "SELECT * FROM smile.privileges ORDER BY 1, 2, 3") == before
    with refused("42501"), shop.transaction():
        shop.execute("SET LOCAL ROLE alice")
        shop.execute("SELECT smile.publish_quotes('a', 1)")
    with shop.transaction():
        shop.execute("SET LOCAL ROLE bob")
        shop.execute("SELECT smile.publish_quotes('a', 1)")


def test_grants_at_the_same_time(shop: Connection, database: str) -> None:
    def grant(n: int) -> None:
        with psycopg.connect(database, autocommit=True) as own:
            own.execute(
                "SELECT smile.grant(%s, 'Quotes', %s)", [("publish", "subscribe")[n % 2], ("alice", "bob")[n // 2 % 2]]
            )

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(grant, range(16)))
    assert value(shop, "SELECT count(*) FROM smile.privileges WHERE role IN ('alice', 'bob')") == 4


def test_roles_inherit(shop: Connection) -> None:
    shop.execute("SELECT smile.grant('publish', 'Quotes', 'bob')")
    shop.execute("GRANT bob TO alice")
    shop.execute("SET ROLE alice")
    shop.execute("SELECT smile.publish('Quotes', '{\"symbol\": \"b\"}')")


def test_the_owner_of_a_type_grants(shop: Connection) -> None:
    database = value(shop, "SELECT current_database()")
    shop.execute(f"GRANT CREATE ON DATABASE {database} TO alice".encode())
    shop.execute("SET ROLE alice")
    shop.execute("SELECT smile.create_event_type('Own', 'a int')")
    shop.execute(
        "SELECT smile.advertise('Own'), smile.grant('publish', 'Own', 'bob'), smile.alter_queue('own_in', true)"
    )
    shop.execute("SELECT smile.publish_own(1)")
    shop.execute("SET ROLE bob")
    shop.execute("SELECT smile.publish_own(2)")
    with refused("E090"):
        shop.execute("SELECT smile.drop_event_type('Own')")
    shop.execute("SET ROLE alice")
    assert rows(shop, "SELECT a, queue_publisher FROM smile.own_in") == [(1, "alice"), (2, "bob")]
    shop.execute("SELECT smile.drop_event_type('Own')")


def test_a_function_runs_as_the_owner_of_its_subscription(shop: Connection) -> None:
    shop.execute(
        "CREATE TABLE seen (who text, symbol text); GRANT INSERT ON seen TO alice; GRANT CREATE ON SCHEMA public TO alice"
    )
    shop.execute("SELECT smile.grant('subscribe', 'Quotes', 'alice')")
    shop.execute("SET ROLE alice")
    shop.execute(
        "CREATE FUNCTION own(symbol text) RETURNS void LANGUAGE sql AS 'INSERT INTO seen VALUES (current_user, symbol)'"
    )
    shop.execute(
        "CREATE FUNCTION read_secret(symbol text) RETURNS void LANGUAGE sql AS 'INSERT INTO seen SELECT text FROM secret'"
    )
    shop.execute(
        "CREATE FUNCTION escape(symbol text) RETURNS void LANGUAGE plpgsql AS "
        "'BEGIN RESET ROLE; INSERT INTO seen SELECT current_user, text FROM secret; END'"
    )
    for name in ("own", "read_secret", "escape"):
        shop.execute("SELECT smile.create_subscription(%s, 'Quotes', 'local', NULL, %s, 'symbol')", [name, name])
    shop.execute("RESET ROLE")
    ids: dict[str, int] = dict(rows(shop, "SELECT name, id FROM smile.subscriptions"))
    deliver(shop, [delivery(ids[name], 5, symbol="x") for name in ("own", "read_secret", "escape")])
    assert rows(shop, "SELECT * FROM seen") == [("alice", "x")]
    failures = rows(shop, "SELECT queue_subscription, queue_sqlstate FROM smile.quotes_exception WHERE queue_tick = 5 ORDER BY 1")  # fmt: skip
    assert failures == [("escape", "42501"), ("read_secret", "42501")]
    # The owner can alter how the function that calls hers runs; then it refuses to run.
    shop.execute("SET ROLE alice")
    shop.execute(f"ALTER FUNCTION smile.call_{ids['escape']} SECURITY INVOKER".encode())
    with refused("42501"):
        shop.execute(f"CREATE OR REPLACE FUNCTION smile.call_{ids['escape']}(json, boolean) RETURNS boolean LANGUAGE sql AS 'SELECT true'".encode())  # fmt: skip
    shop.execute("RESET ROLE")
    deliver(shop, [delivery(ids["escape"], 6, symbol="x")])
    assert rows(shop, "SELECT queue_message FROM smile.quotes_exception WHERE queue_tick = 6") == [
        (f"smile.call_{ids['escape']} was altered",)
    ]
    assert rows(shop, "SELECT * FROM seen") == [("alice", "x")]
    # She retries and drops her own exceptions.
    shop.execute("GRANT SELECT ON secret TO alice; SET ROLE alice")
    own: dict[str, int] = dict(
        rows(shop, "SELECT queue_subscription, queue_id FROM smile.quotes_exception WHERE queue_tick = 5")
    )
    assert value(shop, "SELECT smile.retry_exception(%s)", own["read_secret"]) is True
    shop.execute("SELECT smile.drop_exception(%s)", [own["escape"]])
    shop.execute("RESET ROLE")
    assert value(shop, "SELECT count(*) FROM seen") == 2


def test_a_filter_is_evaluated_with_the_rights_of_the_owner(shop: Connection) -> None:
    shop.execute("SELECT smile.grant('subscribe', 'Quotes', 'alice')")
    shop.execute("SET ROLE alice")
    with refused("E090", "secret"):
        shop.execute("SELECT smile.create_subscription('q', 'Quotes', 'local', 'symbol IN (SELECT text FROM secret)', 'see', 'symbol')")  # fmt: skip


def test_a_rule_publishes_as_the_role_that_changes_the_table(shop: Connection) -> None:
    shop.execute("GRANT INSERT ON stock TO alice")
    shop.execute("SET ROLE alice")
    with refused("42501", "publish_quotes"):
        shop.execute("INSERT INTO stock VALUES ('a', 1)")
    shop.execute("RESET ROLE")
    shop.execute("SELECT smile.grant('publish', 'Quotes', 'alice')")
    shop.execute("SET ROLE alice")
    shop.execute("INSERT INTO stock VALUES ('a', 1)")
    shop.execute("RESET ROLE")
    assert rows(shop, "SELECT queue_publisher FROM smile.quotes_in") == [("alice",)]


def test_a_stream_needs_no_privilege_of_those_who_write(shop: Connection) -> None:
    shop.execute("GRANT INSERT ON secret TO alice")
    shop.execute("SET ROLE alice")
    shop.execute("INSERT INTO secret VALUES ('new')")
    shop.execute("RESET ROLE")
    assert rows(shop, "SELECT text, queue_publisher FROM smile.secrets_in") == [
        ("secret", "postgres"),
        ("new", "alice"),
    ]


def test_a_stream_function_is_of_no_use_elsewhere(shop: Connection) -> None:
    function = value(
        shop, "SELECT tgname FROM pg_trigger WHERE tgrelid = 'secret'::regclass AND tgname NOT LIKE '%%truncate'"
    )
    shop.execute("GRANT CREATE ON SCHEMA public TO alice")
    shop.execute("SET ROLE alice")
    shop.execute("CREATE TABLE forged (text text)")
    shop.execute(f"CREATE TRIGGER t AFTER INSERT ON forged FOR EACH ROW EXECUTE FUNCTION smile.{function}()".encode())
    with refused("E090", "another table"):
        shop.execute("INSERT INTO forged VALUES ('forged')")


def test_publishing_in_a_function_of_another_role(shop: Connection, database: str) -> None:
    """EXECUTE is checked for the role whose rights the calling function has."""
    shop.execute("SELECT smile.grant('publish', 'Quotes', 'bob'); GRANT CREATE ON SCHEMA public TO bob; SET ROLE bob")
    shop.execute("CREATE FUNCTION publish_for_all(symbol text) RETURNS void SECURITY DEFINER LANGUAGE sql AS 'SELECT smile.publish_quotes(symbol, 1)'")  # fmt: skip
    shop.execute("RESET ROLE")
    with psycopg.connect(database, user="alice", autocommit=True) as alice:
        alice.execute("SELECT publish_for_all('a')")
        with refused("42501"):
            alice.execute("SELECT smile.publish_quotes('a', 1)")
    assert rows(shop, "SELECT queue_publisher FROM smile.quotes_in") == [("alice",)]


def test_an_installer_who_is_no_superuser(empty_database: str, roles: None) -> None:
    from smile.postgres.schema.install import install, uninstall  # noqa: PLC0415

    with psycopg.connect(empty_database, autocommit=True) as connection:
        database = value(connection, "SELECT current_database()")
        connection.execute(f"ALTER DATABASE {database} OWNER TO alice; GRANT CREATE ON SCHEMA public TO bob".encode())
        with psycopg.connect(empty_database, user="alice", autocommit=True) as alice, psycopg.connect(empty_database, user="bob", autocommit=True) as bob:  # fmt: skip
            assert install(alice)
            create_quotes(alice)
            alice.execute("CREATE TABLE stock (symbol text)")
            alice.execute("SELECT smile.create_rule('r', 'insert', 'stock', NULL, 'Quotes', 'NEW.symbol, 1')")
            alice.execute("SELECT smile.create_table_stream('Stocks', 'stock')")
            alice.execute("INSERT INTO stock VALUES ('a')")
            alice.execute("SELECT smile.grant('subscribe', 'Quotes', 'bob')")
            bob.execute("CREATE TABLE seen (who text); CREATE FUNCTION see() RETURNS void LANGUAGE sql AS 'INSERT INTO seen VALUES (current_user)'")  # fmt: skip
            with refused("E090", "may not act as bob"):
                bob.execute("SELECT smile.create_subscription('s', 'Quotes', 'local', NULL, 'see', '')")
            connection.execute("GRANT bob TO alice")
            bob.execute("SELECT smile.create_subscription('s', 'Quotes', 'local', NULL, 'see', '')")
            with refused("42501"):
                bob.execute("CREATE TABLE smile.own (a int)")

            def subscribe(name: str) -> None:
                with psycopg.connect(empty_database, user="bob", autocommit=True) as own:
                    own.execute("SELECT smile.create_subscription(%s, 'Quotes', 'local', NULL, 'see', '')", [name])
                    own.execute("SELECT smile.drop_subscription(%s)", [name])

            with ThreadPoolExecutor(6) as threads:
                list(threads.map(subscribe, [f"s{n}" for n in range(12)]))
            assert value(alice, "SELECT has_schema_privilege('bob', 'smile', 'CREATE')") is False
            deliver(alice, [delivery(value(alice, "SELECT id FROM smile.subscriptions"), 1, symbol="a")])
            assert rows(bob, "SELECT * FROM seen") == [("bob",)]
            batch = value(alice, "SELECT batch FROM smile.begin_capture_batch()")
            assert len(rows(alice, "SELECT * FROM smile.captured_events(%s)", batch)) == 2
            alice.execute("UPDATE smile.setting SET value = 'old' WHERE name = 'digest'")
            assert install(connection)  # by a superuser: the owner is the same
            owners = "SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'smile'::regnamespace ORDER BY 1"
            assert rows(connection, owners) == [("alice",), ("bob",)]
            bob.execute("SELECT smile.drop_subscription('s')")
            uninstall(alice, force=True)
        connection.execute(f"DROP OWNED BY alice, bob CASCADE; ALTER DATABASE {database} OWNER TO postgres".encode())


# ── rights of the installer ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_cast_of_an_enumeration_is_not_called(connection: Connection) -> None:
    """A value is written by its type, not by a function of the type's owner, which would have the installer's rights."""
    connection.execute("CREATE TYPE public.mood AS ENUM ('sad', 'glad')")
    connection.execute("CREATE FUNCTION public.evil(public.mood) RETURNS text LANGUAGE sql AS $$ SELECT 'evil' $$")
    connection.execute("CREATE CAST (public.mood AS text) WITH FUNCTION public.evil(public.mood)")
    connection.execute("SELECT smile.create_event_type('Moods', 'mood public.mood')")
    connection.execute("SELECT smile.advertise('Moods')")
    connection.execute("SELECT smile.publish_moods('glad')")
    connection.execute("SELECT smile.publish_moods(NULL)")
    events = connection.execute("SELECT event ->> 'mood' FROM smile.in_queue ORDER BY seq").fetchall()
    assert events == [("glad",), (None,)]


def test_truncate_reads_the_table_by_its_present_name(connection: Connection) -> None:
    connection.execute("CREATE TABLE public.stock (n bigint)")
    connection.execute("INSERT INTO public.stock VALUES (1)")
    connection.execute("SELECT smile.create_table_stream('Stock', 'public.stock')")
    connection.execute("ALTER TABLE public.stock RENAME TO old_stock")
    connection.execute("CREATE TABLE public.stock AS SELECT 7::bigint AS n")
    connection.execute("TRUNCATE public.old_stock")
    changes = connection.execute("SELECT event ->> 'change', event ->> 'n' FROM smile.in_queue ORDER BY seq").fetchall()
    assert changes == [("insert", "1"), ("delete", "1")]


def test_what_a_function_sets_for_its_session_does_not_last(connection: Connection) -> None:
    """Otherwise functions of the subscriber would be found before those of PostgreSQL, with the installer's rights."""
    connection.execute("SELECT smile.create_event_type('Ticks', 'n bigint')")
    connection.execute("SELECT smile.advertise('Ticks')")
    connection.execute(
        "CREATE FUNCTION public.take_over(n bigint) RETURNS void LANGUAGE sql AS "
        "$$ SELECT pg_catalog.set_config('search_path', 'evil, pg_catalog', false) $$"
    )
    connection.execute("SELECT smile.create_subscription('s', 'Ticks', 'local', NULL, 'public.take_over', 'n', 0)")
    row = connection.execute("SELECT id FROM smile.subscriptions").fetchone()
    assert row is not None
    event = '[{"origin": "0", "tick": "5", "sequence": null, "event": {"n": 1}}]'
    connection.execute("CREATE SCHEMA evil")
    connection.execute(
        "CREATE FUNCTION evil.pg_backend_pid() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'it was called'; END $$"
    )
    before = connection.execute("SHOW search_path").fetchone()
    connection.execute("CALL smile.deliver(%s::json, '{1}', %s::integer[])", (event, [row[0]]))
    assert connection.execute("SELECT tick FROM smile.delivery_positions").fetchone() == (5,)
    assert connection.execute("SHOW search_path").fetchone() == before


def test_a_condition_is_not_evaluated_before_it_is_checked(connection: Connection) -> None:
    connection.execute("SELECT smile.create_event_type('Ticks', 'n bigint')")
    connection.execute(
        "CREATE FUNCTION public.loud(n int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'it was evaluated'; END $$"
    )
    with refused("E152", "not part of PostgreSQL"):
        connection.execute("SELECT smile.advertise('Ticks', 'public.loud(1)')")
