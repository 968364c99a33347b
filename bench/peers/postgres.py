"""Trade-Floor in PostgreSQL: stored procedures over indexed tables. It runs in the environment of the project.

RemainingBuy and RemainingSell are tables; Matchable is a view that joins them. Procedures update the tables and compute
the changes of all three, which are discarded. Tuning: unlogged tables with space for in-place updates, no fsync,
asynchronous commits, cached plans. There is one connection, because events must be processed in order.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from bench.peers.protocol import BUY, MATCH, MATCHABLE_COLUMNS, SELL, print_result, read_arguments, seconds_since_start
from tests.reference.postgres import Connection, running

Columns = list[list[object]]
"""The columns of the events, in the order of `prepare.SCHEMA`."""

_EVENTS_PER_CALL = 1_000
"""Events in one call of a procedure that commits each of them."""

_TABLES = """
CREATE UNLOGGED TABLE Remaining{side} (
    {side}id bigint PRIMARY KEY, issue text NOT NULL, price bigint NOT NULL, {side}remaining bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX ON Remaining{side} (issue, price);
"""

_BID = """
CREATE FUNCTION {side}(_id bigint, _issue text, _price bigint, _shares bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO Remaining{side} VALUES (_id, _issue, _price, _shares);
    PERFORM o.{other}id, o.{other}remaining FROM Remaining{other} o WHERE o.issue = _issue AND o.price = _price;
END $$;

CREATE FUNCTION {side}_traded(_id bigint, _shares bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE bid Remaining{side};
BEGIN
    UPDATE Remaining{side} SET {side}remaining = {side}remaining - _shares WHERE {side}id = _id RETURNING * INTO bid;
    PERFORM bid.{side}remaining, o.{other}id, o.{other}remaining
    FROM Remaining{other} o WHERE o.issue = bid.issue AND o.price = bid.price;
    IF bid.{side}remaining <= 0 THEN
        DELETE FROM Remaining{side} WHERE {side}id = _id;
    END IF;
END $$;
"""

_PROCEDURES = """
CREATE VIEW Matchable AS SELECT * FROM Remainingbuy JOIN Remainingsell USING (issue, price);

CREATE FUNCTION traded(_buyid bigint, _sellid bigint, _shares bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM buy_traded(_buyid, _shares);
    PERFORM sell_traded(_sellid, _shares);
END $$;

CREATE PROCEDURE take_each({columns}) LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1 .. cardinality(_kind) LOOP
        CASE _kind[n]
            WHEN 0 THEN PERFORM buy(_buyid[n], _issue[n], _price[n], _shares[n]);
            WHEN 1 THEN PERFORM sell(_sellid[n], _issue[n], _price[n], _shares[n]);
            ELSE PERFORM traded(_buyid[n], _sellid[n], _shares[n]);
        END CASE;
        COMMIT;
    END LOOP;
END $$;

CREATE PROCEDURE take_together({columns}) LANGUAGE plpgsql AS $$
DECLARE changed record;
BEGIN
    {buys}
    {sells}
END $$;
"""

# Applies the net effect of many events to one side, and joins the changed bids with the other side: first the new buys
# with the old sells, then the new sells with the new buys.
_TOGETHER = """
    FOR changed IN
        WITH net AS (
            SELECT id, max(issue) AS issue, max(price) AS price,
                sum(CASE kind WHEN {match} THEN -shares ELSE shares END)::bigint AS shares
            FROM unnest(_kind, _issue, _price, _{side}id, _shares) AS event (kind, issue, price, id, shares)
            WHERE kind IN ({kind}, {match}) GROUP BY id
        ), merged AS (
            MERGE INTO Remaining{side} bid USING net ON bid.{side}id = net.id
            WHEN MATCHED AND bid.{side}remaining + net.shares <= 0 THEN DELETE
            WHEN MATCHED THEN UPDATE SET {side}remaining = bid.{side}remaining + net.shares
            WHEN NOT MATCHED AND net.shares > 0 THEN INSERT VALUES (net.id, net.issue, net.price, net.shares)
            RETURNING merge_action() AS action, bid.*
        )
        SELECT * FROM merged LEFT JOIN Remaining{other} USING (issue, price)
    LOOP
        NULL;
    END LOOP;
"""

_TYPES = {
    "kind": "smallint", "issue": "text", "price": "bigint", "buyid": "bigint", "sellid": "bigint", "shares": "bigint"
}  # fmt: skip


def main() -> None:
    arguments = read_arguments(SETTINGS)
    take = SETTINGS[arguments.setting]
    columns = read_columns(arguments.events, arguments.count)
    with open_database() as connection:
        startup_s = seconds_since_start()
        begin = time.perf_counter()
        take(connection, columns)
        seconds = time.perf_counter() - begin
        version = connection.info.server_version // 10_000
        print_result(f"PostgreSQL {version}", arguments, startup_s, seconds, matchable_rows(connection))


def read_columns(events: Path, count: int) -> Columns:
    columns: Columns = [c.to_pylist() for c in pq.read_table(events / "parquet").columns]
    assert len(columns[0]) == count
    return columns


def matchable_rows(connection: Connection) -> list[tuple[object, ...]]:
    return connection.execute(f"SELECT {', '.join(MATCHABLE_COLUMNS)} FROM Matchable").fetchall()


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def call_per_event(connection: Connection, columns: Columns) -> None:
    calls = {
        BUY: "SELECT buy(%s::bigint, %s::text, %s::bigint, %s::bigint)",
        SELL: "SELECT sell(%s::bigint, %s::text, %s::bigint, %s::bigint)",
        MATCH: "SELECT traded(%s::bigint, %s::bigint, %s::bigint)",
    }
    with connection.cursor() as cursor:
        for kind, issue, price, buy, sell, shares in zip(*columns, strict=True):
            if kind == MATCH:
                cursor.execute(calls[MATCH], (buy, sell, shares), prepare=True)
            elif kind == BUY:
                cursor.execute(calls[BUY], (buy, issue, price, shares), prepare=True)
            else:
                cursor.execute(calls[SELL], (sell, issue, price, shares), prepare=True)


def call_per_block(procedure: str, events: int) -> Callable[[Connection, Columns], None]:
    parameters = ", ".join(f"%s::{name}[]" for name in _TYPES.values())

    def take(connection: Connection, columns: Columns) -> None:
        for start in range(0, len(columns[0]), events):
            part = [column[start : start + events] for column in columns]
            connection.execute(f"CALL {procedure}({parameters})", part, prepare=True)

    return take


SETTINGS = {
    "call": call_per_event,
    "commit": call_per_block("take_each", _EVENTS_PER_CALL),
    "1000": call_per_block("take_together", 1_000),
    "10000": call_per_block("take_together", 10_000),
}


# ── the database ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def open_database() -> Iterator[Connection]:
    """Starts a server, and yields a connection to its empty tables."""
    with running() as connection:
        connection.execute("ALTER SYSTEM SET autovacuum = on")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SET search_path = public")  # PostgreSQL's own operators, not the replacements of the tests
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        for statement in schema_statements():
            connection.execute(statement)
        yield connection


def schema_statements() -> Iterator[str]:
    sides = (("buy", "sell", BUY), ("sell", "buy", SELL))
    for text in (_TABLES, _BID):
        for side, other, _ in sides:
            yield text.format(side=side, other=other)
    buys, sells = (_TOGETHER.format(side=side, other=other, kind=kind, match=MATCH) for side, other, kind in sides)
    columns = ", ".join(f"_{name} {kind}[]" for name, kind in _TYPES.items())
    yield _PROCEDURES.format(columns=columns, buys=buys, sells=sells)


if __name__ == "__main__":
    main()
