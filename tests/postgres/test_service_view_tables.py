"""Tables of the database that are kept equal to views of the broker."""

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from smile.broker.broker import Broker
from smile.source import Source
from tests.postgres.services import Connection, connect, create_type, publish, serving, wait_for_events, wait_for_value
from tests.processes import wait_until

PROGRAM = """
CREATE STREAM Trades (tick TIME KEY, symbol string, amount int);
CREATE VIEW Totals AS SELECT symbol, SUM(amount) AS total, COUNT(*) AS trades FROM Trades GROUP BY symbol
  HAVING SUM(amount) < 1000;
CREATE VIEW Overall AS SELECT SUM(amount) AS total FROM Trades;
CREATE VIEW Large AS SELECT tick, symbol, amount FROM Trades WHERE amount >= 100;
"""


def rows(connection: Connection, table: str) -> list[tuple[Any, ...]] | None:
    if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
        return None
    return sorted(connection.execute(f"SELECT * FROM {table}", prepare=False).fetchall(), key=repr)


def wait_for_rows(connection: Connection, table: str, wanted: list[tuple[Any, ...]], seconds: float = 30) -> None:
    wait_until(lambda: rows(connection, table) == wanted, f"{table} does not have {wanted}", seconds)


def has_rows(connection: Connection, table: str, count: int) -> bool:
    return len(rows(connection, table) or ()) == count


def create(connection: Connection, table: str, view: str, with_knowledge: bool = False) -> None:
    connection.execute("SELECT smile.create_view_table(%s, %s, %s)", (table, view, with_knowledge))


def trade(connection: Connection, symbol: str | None, amount: int) -> None:
    publish(connection, "Trades", {"symbol": symbol, "amount": amount})


def test_a_table_follows_its_view(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path, PROGRAM), connect(database) as connection:
        create_type(connection, "Trades", "symbol text, amount bigint")
        create(connection, "public.totals", "Totals")
        create(connection, "public.overall", "oVERALL")  # the case does not matter
        trade(connection, "IBM", 10)
        trade(connection, "IBM", 5)
        trade(connection, None, 7)
        wait_for_rows(connection, "public.totals", [("IBM", Decimal(15), 2), (None, Decimal(7), 1)])
        trade(connection, "IBM", 2000)
        trade(connection, None, 1)
        wait_for_rows(connection, "public.totals", [(None, Decimal(8), 2)])
        wait_for_rows(connection, "public.overall", [(Decimal(2023),)])
        row = connection.execute(
            "SELECT horizons, refresh_time IS NOT NULL FROM smile.view_tables WHERE table_name = 'public.totals'"
        ).fetchone()
        assert row is not None and int(row[0]["Trades"]) > 0 and row[1]


def test_a_table_has_bounds_and_finality_if_asked(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path, PROGRAM), connect(database) as connection:
        create_type(connection, "Trades", "symbol text, amount bigint")
        create(connection, "public.known", "Totals", with_knowledge=True)
        trade(connection, "IBM", 10)
        columns = ["symbol", "total", "total_lower", "total_upper", "total_final", "trades", "trades_lower"]
        columns += ["trades_upper", "trades_final", "row_final"]

        def found() -> dict[str, Any] | None:
            if not rows(connection, "public.known"):
                return None
            cursor = connection.execute("SELECT * FROM public.known")
            assert cursor.description is not None
            assert [c.name for c in cursor.description] == columns
            return dict(zip(columns, cursor.fetchone() or (), strict=True))

        row = wait_for_value(found, "the table has no rows", 30)
        assert (row["symbol"], row["total"], row["trades"]) == ("IBM", 10, 1)
        assert (row["trades_lower"], row["trades_upper"], row["trades_final"], row["row_final"]) == (
            1,
            None,
            False,
            False,
        )


def test_a_table_goes_on_after_restarts_and_is_never_empty(database: str, tmp_path: Path) -> None:
    with connect(database) as connection, connect(database) as reader:
        create_type(connection, "Trades", "symbol text, amount bigint")
        total = 0
        for n in range(3):
            with serving(database, tmp_path, PROGRAM) as broker:
                if not n:
                    create(connection, "public.overall", "Overall")
                    create(connection, "public.big", "Large")
                for amount in (100 + n, 1, 200 + n):
                    trade(connection, "A", amount)
                    total += amount
                wait_for_events(broker, "Trades", 3 * (n + 1))
                wait_for_rows(connection, "public.overall", [(Decimal(total),)])
                wait_until(partial(has_rows, reader, "public.big", 2 * (n + 1)), "rows are missing")
            assert rows(reader, "public.overall") == [(Decimal(total),)]


def test_a_changed_view_has_a_new_table(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path, PROGRAM) as broker, connect(database) as connection:
        create_type(connection, "Trades", "symbol text, amount bigint")
        create(connection, "public.overall", "Overall")
        trade(connection, "A", 4)
        wait_for_rows(connection, "public.overall", [(Decimal(4),)])
        changed = PROGRAM.replace("SELECT SUM(amount) AS total FROM", "SELECT MAX(amount) AS most, COUNT(*) AS n FROM")
        broker.apply(Source("p.smile", changed))
        wait_for_rows(connection, "public.overall", [(4, 1)])


def problem(broker: Broker, table: str) -> str | None:
    status = broker.status()["postgres"]["view_tables"].get(table)
    return None if status is None else status["problem"]


def test_a_table_that_cannot_be_maintained_is_reported_and_others_go_on(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path, PROGRAM) as broker, connect(database) as connection:
        create_type(connection, "Trades", "symbol text, amount bigint")
        create(connection, "public.nothing", "Nothing")
        create(connection, "public.overall", "Overall")
        connection.execute("CREATE TABLE public.taken (a int)")
        connection.execute(
            "INSERT INTO smile.view_table (table_name, view, with_knowledge, owner) "
            "VALUES ('public.taken', 'Overall', false, current_user)"
        )
        trade(connection, "A", 4)
        wait_for_rows(connection, "public.overall", [(Decimal(4),)])
        assert "there is no view Nothing" in wait_for_value(lambda: problem(broker, "public.nothing"), "no problem", 30)
        assert "SMILE has not created" in wait_for_value(lambda: problem(broker, "public.taken"), "no problem", 30)
        subjects = {trouble.subject for trouble in broker.attached[0].troubles()}
        assert {"table public.nothing", "table public.taken"} <= subjects


def test_a_dropped_table_is_gone(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path, PROGRAM) as broker, connect(database) as connection:
        create_type(connection, "Trades", "symbol text, amount bigint")
        create(connection, "public.overall", "Overall")
        trade(connection, "A", 4)
        wait_for_rows(connection, "public.overall", [(Decimal(4),)])
        connection.execute("SELECT smile.drop_view_table('public.overall')")
        wait_until(lambda: not broker.status()["postgres"]["view_tables"], "the table is still maintained")
        trade(connection, "A", 5)
        wait_for_events(broker, "Trades", 2)
        assert rows(connection, "public.overall") is None


@pytest.mark.usefixtures("spark")
def test_a_table_follows_a_view_on_spark(database: str, tmp_path: Path) -> None:
    settings = {"engine": "spark", "master": "local[1]", "partitions": 2, "flight": ""}
    with serving(database, tmp_path, PROGRAM, **settings), connect(database) as connection:
        create_type(connection, "Trades", "symbol text, amount bigint")
        create(connection, "public.totals", "Totals")
        with connection.transaction():
            for amount in (10, 5):
                trade(connection, "IBM", amount)
            trade(connection, None, 7)
        wait_for_rows(connection, "public.totals", [("IBM", Decimal(15), 2), (None, Decimal(7), 1)], 120)
        trade(connection, "IBM", 2000)
        trade(connection, None, 1)
        wait_for_rows(connection, "public.totals", [(None, Decimal(8), 2)], 120)
