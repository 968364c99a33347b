"""Rules: changes of tables publish events."""

import pytest

from tests.postgres.helpers import capture, create_quotes, refused, rows, value
from tests.postgres.server import Connection

CREATE = "SELECT smile.create_rule(%s, %s, %s, %s, %s, %s, %s, %s)"


def create(connection: Connection, name: str, operation: str, condition: str | None, arguments: str) -> None:
    connection.execute(CREATE, [name, operation, "stock", condition, "Quotes", arguments, "deferred", "guaranteed"])


@pytest.fixture
def stock(connection: Connection) -> Connection:
    create_quotes(connection)
    connection.execute("CREATE TABLE stock (symbol text, price numeric)")
    return connection


def published(connection: Connection) -> list[tuple[str, float]]:
    return [(event["symbol"], event["price"]) for _, event in capture(connection)]


def test_each_operation(stock: Connection) -> None:
    create(stock, "added", "INSERT", "CASE WHEN NEW.price > 1 THEN true END", "NEW.symbol, NEW.price")
    create(
        stock, "changed", "update", "NEW.price IS DISTINCT FROM OLD.price", "OLD.symbol || '!', NEW.price - OLD.price"
    )
    create(stock, "removed", "Delete", None, "upper(OLD.symbol), 0")
    stock.execute("INSERT INTO stock VALUES ('a', 1), ('b', 2), ('c', 3)")
    stock.execute("UPDATE stock SET price = 3 WHERE symbol <> 'a'")
    stock.execute("DELETE FROM stock WHERE symbol = 'c'")
    assert published(stock) == [("b", 2), ("c", 3), ("b!", 1), ("C", 0)]
    with stock.transaction(force_rollback=True):
        stock.execute("INSERT INTO stock VALUES ('d', 4)")
    assert published(stock) == []


def test_a_condition_reads_tables(stock: Connection) -> None:
    stock.execute("CREATE TABLE watched (symbol text); INSERT INTO watched VALUES ('a')")
    create(stock, "r", "insert", "EXISTS (SELECT FROM watched w WHERE w.symbol = NEW.symbol)", "NEW.symbol, NEW.price")
    stock.execute("SET search_path = pg_catalog")
    stock.execute("INSERT INTO public.stock VALUES ('a', 1), ('b', 2)")
    assert published(stock) == [("a", 1)]


def test_an_event_that_does_not_fit_refuses_the_change(stock: Connection) -> None:
    create(stock, "r", "insert", None, "NEW.symbol, NEW.price")
    with refused("E080", "symbol"):
        stock.execute("INSERT INTO stock VALUES (NULL, 1)")
    assert value(stock, "SELECT count(*) FROM stock") == 0


@pytest.mark.parametrize(
    ("operation", "condition", "arguments", "code", "text"),
    [
        ("insert", None, "NEW.symbol, OLD.price", "E021", "old"),
        ("delete", "NEW.price > 1", "OLD.symbol, 1", "E021", "new"),
        ("update", None, "NEW.symbol, NEW.prise", "E022", "prise"),
        ("update", "NEW.symbol > 1", "NEW.symbol, NEW.price", "E030", "operator"),
        ("insert", None, "NEW.symbol", "E026", "publish_quotes"),
        ("insert", None, "NEW.symbol, NEW.price, 3", "E026", "publish_quotes"),
        ("insert", None, "NEW.symbol, NEW.price); DELETE FROM stock; SELECT (1", "E010", ")"),
        ("select", None, "1", "E093", "select"),
    ],
)
def test_wrong_rules_are_refused(transaction: Connection, operation: str, condition: str | None, arguments: str, code: str, text: str) -> None:  # fmt: skip
    create_quotes(transaction)
    transaction.execute("CREATE TABLE stock (symbol text, price numeric)")
    with refused(code, text), transaction.transaction():
        create(transaction, "r", operation, condition, arguments)
    assert rows(transaction, "SELECT * FROM smile.rule") == []


def test_names_and_drops(stock: Connection) -> None:
    create(stock, "r", "insert", None, "NEW.symbol, NEW.price")
    with refused("E155", "r"):
        create(stock, "R", "insert", None, "NEW.symbol, NEW.price")
    with refused("E155", "the rule r"):
        stock.execute("SELECT smile.drop_event_type('Quotes')")
    with refused("E021"):
        stock.execute("SELECT smile.drop_rule('r', 'nothing')")
    with refused("E154"):
        stock.execute("SELECT smile.drop_rule('q', 'stock')")
    listed = rows(stock, "SELECT name, operation, source_table, event_type, arguments FROM smile.rules")
    assert listed == [("r", "insert", "stock", "Quotes", "NEW.symbol, NEW.price")]
    stock.execute("SELECT smile.drop_rule('R', 'public.stock')")
    stock.execute("INSERT INTO stock VALUES ('a', 1)")
    assert (published(stock), rows(stock, "SELECT * FROM smile.rules")) == ([], [])


def test_a_table_can_be_dropped_with_its_rules(stock: Connection) -> None:
    create(stock, "r", "insert", None, "NEW.symbol, NEW.price")
    stock.execute("DROP TABLE stock")
    assert rows(stock, "SELECT * FROM smile.rules") == []
    stock.execute("SELECT smile.drop_event_type('Quotes')")


def test_a_view_has_no_rules(stock: Connection) -> None:
    stock.execute("CREATE VIEW cheap AS SELECT * FROM stock WHERE price < 1")
    with refused("E156", "cheap"):
        stock.execute(
            CREATE, ["r", "insert", "cheap", None, "Quotes", "NEW.symbol, NEW.price", "deferred", "guaranteed"]
        )


def test_non_guaranteed(stock: Connection) -> None:
    stock.execute(
        CREATE, ["r", "insert", "stock", None, "Quotes", "NEW.symbol, NEW.price", "DEFERRED", "NON-GUARANTEED"]
    )
    stock.execute("INSERT INTO stock VALUES ('a', 1)")
    assert published(stock) == []
    assert len(rows(stock, "SELECT * FROM smile.take_unlogged_events(10)")) == 1
