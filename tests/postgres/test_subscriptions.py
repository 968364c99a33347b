"""Subscriptions: filters, functions and arguments are checked when they are created."""

import pytest

from tests.postgres.helpers import create_quotes, deliver, delivery, refused, rows, value
from tests.postgres.server import Connection

SEEN = """
    CREATE TABLE seen (what text, n serial);
    CREATE FUNCTION see(what text, price numeric) RETURNS void LANGUAGE sql AS $$ INSERT INTO seen VALUES (what || price) $$;
    CREATE FUNCTION see_json(e json) RETURNS void LANGUAGE sql AS $$ INSERT INTO seen VALUES (e ->> 'symbol') $$;
    CREATE FUNCTION see_jsonb(e jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO seen VALUES (e ->> 'symbol') $$;
    CREATE FUNCTION see_row(e smile.quotes_event) RETURNS void LANGUAGE sql AS $$ INSERT INTO seen VALUES (e.symbol) $$;
    CREATE FUNCTION see_nothing() RETURNS integer LANGUAGE sql AS $$ INSERT INTO seen VALUES ('nothing') RETURNING 1 $$;
"""
CREATE = "SELECT smile.create_subscription(%s, 'quotes', %s, %s, %s, %s, %s)"


@pytest.mark.parametrize(
    ("function", "arguments", "seen"),
    [
        ("see", "symbol, price", "IBM2.50"),
        ("public.see", "upper(symbol) || '(', price * 2", "IBM(5.00"),
        ("see", "event.symbol, event.price", "IBM2.50"),
        ("see_json", "event", "IBM"),
        ("see_jsonb", " event ", "IBM"),
        ("see_row", "event", "IBM"),
        ("see_nothing", "", "nothing"),
        ("see_nothing", None, "nothing"),
        ("see_json", "to_json(event)", "IBM"),
    ],
)
def test_arguments(connection: Connection, function: str, arguments: str | None, seen: str) -> None:
    create_quotes(connection)
    connection.execute(SEEN.encode())
    connection.execute(CREATE, ["s", "global", "price > 2", function, arguments, 7])
    deliver(connection, [delivery(1, 1, symbol="IBM", price=2.5), delivery(1, 2, symbol="IBM", price=2)])
    assert rows(connection, "SELECT what FROM seen") == [(seen,)]
    listed = rows(connection, "SELECT name, event_type, owner, scope, filter, filter_evaluation, function, arguments, priority FROM smile.subscriptions")  # fmt: skip
    assert listed == [("s", "Quotes", "postgres", "global", "price > 2", "database", function, arguments or "", 7)]


@pytest.mark.parametrize(
    ("condition", "function", "arguments", "code", "text"),
    [
        ("prise > 2", "see", "symbol, price", "E022", "prise"),
        ("symbol > 2", "see", "symbol, price", "E030", "operator"),
        ("price", "see", "symbol, price", "E031", "boolean"),
        ("price >", "see", "symbol, price", "E010", "syntax"),
        ("price > 2; DROP TABLE seen", "see", "symbol, price", "E010", ";"),
        ("price > 2) OR (true", "see", "symbol, price", "E010", ")"),
        ("symbol IN (SELECT symbol FROM nothing)", "see", "symbol, price", "E021", "nothing"),
        (None, "see", "symbol", "E026", "see(text)"),
        (None, "see", "symbol, name", "E022", "name"),
        (None, "see_all", "symbol, price", "E026", "see_all"),
        (None, "see_nothing", "event", "E026", "see_nothing"),
        (None, "see(symbol, price); --", "", "E152", "see"),
        (None, None, "symbol", "E152", "function"),
        (None, "see", "symbol, price) , see_nothing(", "E010", ")"),
    ],
)
def test_what_is_wrong_is_refused(
    transaction: Connection, condition: str | None, function: str | None, arguments: str, code: str, text: str
) -> None:
    create_quotes(transaction)
    transaction.execute(SEEN.encode())
    with refused(code, text), transaction.transaction():
        transaction.execute(CREATE, ["s", "local", condition, function, arguments, 0])
    assert rows(transaction, "SELECT * FROM smile.subscription") == []


def test_other_refusals(connection: Connection) -> None:
    create_quotes(connection)
    connection.execute(SEEN.encode())
    with refused("E093", "scope"):
        connection.execute(CREATE, ["s", "everywhere", None, "see", "symbol, price", 0])
    with refused("E154", "Nothing"):
        connection.execute("SELECT smile.create_subscription('s', 'Nothing', 'local', NULL, 'see', 'a', 0)")
    connection.execute(CREATE, ["s", None, None, "see", "symbol, price", None])
    assert rows(connection, "SELECT scope, priority FROM smile.subscriptions") == [("local", 0)]
    with refused("E155", "S"):
        connection.execute(CREATE, ["S", "local", None, "see", "symbol, price", 0])
    with refused("E155", "the subscription s"):
        connection.execute("SELECT smile.drop_event_type('Quotes')")
    connection.execute("SELECT smile.drop_subscription('S')")
    with refused("E154"):
        connection.execute("SELECT smile.drop_subscription('s')")
    with refused("E155", "see_row"):
        connection.execute("SELECT smile.drop_event_type('Quotes')")
    connection.execute("DROP FUNCTION see_row")
    connection.execute("SELECT smile.drop_event_type('Quotes')")


def test_a_filter_consults_tables_and_the_search_path_is_kept(connection: Connection) -> None:
    create_quotes(connection)
    connection.execute('CREATE SCHEMA "Other ""Schema"""; SET search_path = "Other ""Schema""", public')
    connection.execute(SEEN.encode())
    connection.execute("CREATE TABLE portfolio (owner int, symbol text); INSERT INTO portfolio VALUES (7, 'IBM')")
    condition = "symbol IN (SELECT p.symbol FROM portfolio AS p WHERE owner = 7)"
    connection.execute(CREATE, ["s", "local", condition, "see", "symbol, price", 0])
    connection.execute("RESET search_path")
    deliver(connection, [delivery(1, 1, symbol="IBM", price=1), delivery(1, 2, symbol="X", price=1)])
    assert rows(connection, 'SELECT what FROM "Other ""Schema""".seen') == [("IBM1.00",)]
    # The service says that it has evaluated the filter.
    connection.execute("UPDATE smile.subscription SET filter_evaluation = 'broker'")
    deliver(connection, [delivery(1, 3, symbol="X", price=1)])
    assert value(connection, 'SELECT count(*) FROM "Other ""Schema""".seen') == 2


def test_a_subscription_rolls_back(connection: Connection) -> None:
    create_quotes(connection)
    connection.execute(SEEN.encode())
    with connection.transaction(force_rollback=True):
        connection.execute(CREATE, ["s", "local", None, "see", "symbol, price", 0])
    assert rows(connection, "SELECT * FROM smile.subscription") == []
    assert value(connection, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'call\\_%%'") == 0
