"""The statements have one meaning as functions, in `smile sql`, and through the proxy: the same rows in the catalogue."""

from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from smile.cli.shell.routing import last_statement
from smile.postgres.capture.logical_messages import MessageSlot
from smile.postgres.immediate_way import ImmediateWay
from smile.postgres.schema.install import install
from smile.postgres.statements.nodes import PubSubStatement
from smile.postgres.statements.parser import parse_statement
from tests.postgres.proxy.running_proxy import RunningProxy
from tests.postgres.server import TEMPLATE, Connection, Server
from tests.processes import invoke_smile

pytestmark = pytest.mark.slow

STATEMENTS = [
    ("CREATE EVENT TYPE Quotes AS (symbol text, price integer)",
     "SELECT smile.create_event_type('Quotes', 'symbol text, price integer')"),
    ("CREATE EVENT TYPE Other AS (a integer)", "SELECT smile.create_event_type('Other', 'a integer')"),
    ("DROP EVENT TYPE Other", "SELECT smile.drop_event_type('Other')"),
    ("ADVERTISE Quotes", "SELECT smile.advertise('Quotes')"),
    ("ALTER QUEUE Quotes_in SET AUDITABLE", "SELECT smile.alter_queue('Quotes_in', true)"),
    ("ALTER QUEUE Quotes_out SET AUDITABLE", "SELECT smile.alter_queue('Quotes_out', true)"),
    ("ALTER QUEUE Quotes_out SET NON-AUDITABLE", "SELECT smile.alter_queue('Quotes_out', false)"),
    ("PUBLISH Quotes('IBM', 120)", "SELECT smile.publish('Quotes', '{\"symbol\": \"IBM\", \"price\": 120}')"),
    ("PUBLISH DEFERRED NON-GUARANTEED Quotes('HP', 1 + 1)",
     "SELECT smile.publish_quotes('HP', 2, reliability => 'non-guaranteed')"),
    ("PUBLISH DEFERRED GUARANTEED Quotes('DEC', 3)", "SELECT smile.publish_quotes('DEC', 3, 'deferred', 'guaranteed')"),
    ("PUBLISH IMMEDIATE Quotes('A', 1)", "SELECT smile.publish_quotes('A', 1, 'immediate')"),
    ("PUBLISH IMMEDIATE GUARANTEED Quotes('B', 2)", "SELECT smile.publish_quotes('B', 2, 'immediate', 'guaranteed')"),
    ("PUBLISH IMMEDIATE NON-GUARANTEED Quotes('C', 3)",
     "SELECT smile.publish_quotes('C', 3, 'immediate', 'non-guaranteed')"),
    ("CREATE TABLE Trades (symbol text, price integer)", "CREATE TABLE Trades (symbol text, price integer)"),
    ("CREATE RULE Traded AS ON INSERT TO Trades WHERE NEW.price > 10 PUBLISH Quotes(NEW.symbol, NEW.price)",
     "SELECT smile.create_rule('Traded', 'insert', 'Trades', 'NEW.price > 10', 'Quotes', 'NEW.symbol, NEW.price')"),
    ("CREATE RULE Raised AS ON UPDATE TO Trades WHERE NEW.price > OLD.price PUBLISH NON-GUARANTEED Quotes(OLD.symbol, NEW.price)",
     "SELECT smile.create_rule('Raised', 'update', 'Trades', 'NEW.price > OLD.price', 'Quotes', 'OLD.symbol, NEW.price', "
     "'deferred', 'non-guaranteed')"),
    ("INSERT INTO Trades VALUES ('SUN', 11), ('DEC', 9)", "INSERT INTO Trades VALUES ('SUN', 11), ('DEC', 9)"),
    ("UPDATE Trades SET price = price * 2 - 10", "UPDATE Trades SET price = price * 2 - 10"),
    ("CREATE RULE Gone AS ON DELETE TO Trades PUBLISH Quotes(OLD.symbol, OLD.price)",
     "SELECT smile.create_rule('Gone', 'delete', 'Trades', NULL, 'Quotes', 'OLD.symbol, OLD.price')"),
    ("DROP RULE Gone ON Trades PUBLISH", "SELECT smile.drop_rule('Gone', 'Trades')"),
    ("CREATE FUNCTION react(text) RETURNS void LANGUAGE sql AS $$ SELECT 1; SELECT 2 $$",
     "CREATE FUNCTION react(text) RETURNS void LANGUAGE sql AS $$ SELECT 1; SELECT 2 $$"),
    ("CREATE GLOBAL SUBSCRIPTION Watch ON Quotes WHERE price > 100 EXECUTE react(symbol) WITH 3",
     "SELECT smile.create_subscription('Watch', 'Quotes', 'global', 'price > 100', 'react', 'symbol', 3)"),
    ("CREATE SUBSCRIPTION Brief ON Quotes EXECUTE react(symbol)",
     "SELECT smile.create_subscription('Brief', 'Quotes', 'local', NULL, 'react', 'symbol', 0)"),
    ("DROP SUBSCRIPTION Brief ON Quotes", "SELECT smile.drop_subscription('Brief')"),
    ("CREATE LINK Branch TO db2.example.org 7400 USING alice 'secret'",
     "SELECT smile.create_link('Branch', 'db2.example.org', 7400, 'alice', 'secret')"),
    ("GRANT PUBLISH ON EVENT TYPE Quotes TO pg_monitor", "SELECT smile.\"grant\"('publish', 'Quotes', 'pg_monitor')"),
    ("GRANT SUBSCRIBE ON EVENT TYPE Quotes TO PUBLIC", "SELECT smile.\"grant\"('subscribe', 'Quotes', 'public')"),
    ("REVOKE SUBSCRIBE ON EVENT TYPE Quotes FROM PUBLIC", "SELECT smile.\"revoke\"('subscribe', 'Quotes', 'public')"),
    ("CREATE LINK Other TO db3.example.org 7400 USING bob 'secret'",
     "SELECT smile.create_link('Other', 'db3.example.org', 7400, 'bob', 'secret')"),
    ("DROP LINK Other", "SELECT smile.drop_link('Other')"),
    ("CREATE EVENT TYPE Retired AS (a integer)", "SELECT smile.create_event_type('Retired', 'a integer')"),
    ("ADVERTISE Retired", "SELECT smile.advertise('Retired')"),
    ("DROP ADVERTISEMENT Retired", "SELECT smile.unadvertise('Retired')"),
    ("CREATE TABLE Kept FROM VIEW Highest WITH KNOWLEDGE", "SELECT smile.create_view_table('Kept', 'Highest', true)"),
    ("CREATE TABLE Dropped FROM VIEW Highest", "SELECT smile.create_view_table('Dropped', 'Highest')"),
    ("DROP TABLE Dropped FROM VIEW", "SELECT smile.drop_view_table('Dropped')"),
    ("CREATE STREAM Dropped_changes FROM TABLE Trades", "SELECT smile.create_table_stream('Dropped_changes', 'Trades')"),
    ("DROP STREAM Dropped_changes", "SELECT smile.drop_table_stream('Dropped_changes')"),
    ("CREATE STREAM Trade_changes FROM TABLE Trades", "SELECT smile.create_table_stream('Trade_changes', 'Trades')"),
]  # fmt: skip
CATALOGUE = ["event_types", "advertisements", "subscriptions", "rules", "links", "queues", "privileges", "view_tables"]
VARIABLE = ("id", "seq", "xid", "at", "created", "published_at", "enqueued_at")


def contents(url: str) -> dict[str, Any]:
    """The catalogue, the queues and the logical messages, without numbers and times."""
    with psycopg.connect(url, autocommit=True) as connection:
        result = dict[str, list[Any]]()
        for relation in [*CATALOGUE, "quotes_in", "trade_changes_in"]:
            cursor = connection.execute(sql.SQL("SELECT * FROM smile.{}").format(sql.Identifier(relation)))
            names = [column.name for column in cursor.description or []]
            rows = [{n: str(v) for n, v in zip(names, row, strict=True) if not is_variable(n)} for row in cursor]
            result[relation] = sorted(rows, key=str)
        messages = MessageSlot(connection).read(0)
        result["messages"] = [(message.type_id, message.event) for message in messages]
        return result


def is_variable(column: str) -> bool:
    return column in VARIABLE or column.endswith(("_at", "xid", "_time", "time"))


def prepare(url: str) -> str:
    """IMMEDIATE has a way: messages where they can be guaranteed, or else a connection."""
    with psycopg.connect(url, autocommit=True) as connection:
        has_flush = connection.info.server_version >= 170_000
        install(connection, ImmediateWay.logical if has_flush else ImmediateWay.dblink)
    return url


def through_functions(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for _, call in STATEMENTS:
            connection.execute(sql.SQL(call))


def through_the_shell(url: str) -> None:
    text = ";\n".join(statement for statement, _ in STATEMENTS)
    done = invoke_smile("sql", "--database", url, "--url", "http://127.0.0.1:1", stdin=text)
    assert (done.exit_code, done.stderr) == (0, "")


def through_the_proxy(url: str, is_extended: bool) -> None:
    options = conninfo_to_dict(url)
    with RunningProxy(f"postgresql://?host={options['host']}") as proxy:
        replaced: dict[str, Any] = {**options, "host": "127.0.0.1", "port": proxy.port}
        with psycopg.connect(**replaced, autocommit=True) as connection:
            for statement, _ in STATEMENTS:
                connection.execute(sql.SQL(statement), prepare=is_extended)


def test_every_kind_of_statement_is_tried() -> None:
    tried = {type(parse_statement(typed.statement)) for text, _ in STATEMENTS if (typed := last_statement(text, 0))}
    assert set(PubSubStatement.__subclasses__()) <= tried


def test_the_three_ways(server: Server, database: str) -> None:
    through_functions(prepare(database))
    expected = contents(database)
    names = ("event_types", "advertisements", "rules", "subscriptions", "links", "view_tables", "trade_changes_in")
    assert [len(expected[name]) for name in names] == [3, 1, 2, 1, 1, 1, 2]
    assert len(expected["quotes_in"]) + len(expected["messages"]) == 8
    others = [prepare(server.create_database(TEMPLATE)) for _ in range(3)]
    through_the_shell(others[0])
    through_the_proxy(others[1], is_extended=False)
    through_the_proxy(others[2], is_extended=True)
    for other in others:
        assert contents(other) == expected
        server.drop_database(other)


def test_errors_of_the_schema_through_the_proxy(connection: Connection, database: str) -> None:
    connection.execute("SELECT smile.create_event_type('Quotes', 'symbol text')")
    options = conninfo_to_dict(database)
    with RunningProxy(f"postgresql://?host={options['host']}") as proxy:
        replaced: dict[str, Any] = {**options, "host": "127.0.0.1", "port": proxy.port}
        with psycopg.connect(**replaced) as through:
            with pytest.raises(psycopg.Error, match="Quotes is not advertised") as caught:
                through.execute("PUBLISH Quotes('IBM')")
            assert caught.value.sqlstate == "SM151"
            through.rollback()
            through.execute("ADVERTISE Quotes")
            through.execute("PUBLISH Quotes(%s)", ["IBM"])
            assert through.execute("SELECT symbol FROM smile.quotes_in").fetchall() == [("IBM",)]
            through.rollback()
            assert through.execute("SELECT symbol FROM smile.quotes_in").fetchall() == []
