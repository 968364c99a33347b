"""The queries of Nexmark give the rows of PostgreSQL, with both engines."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from bench.nexmark_events import Event, nexmark_events
from smile.lang import parse
from smile.lang.statements import CreateTable, CreateView, Statement
from smile.program import CompiledProgram, compile_program
from smile.reference.wire import final_rows
from smile.source import Source
from tests.engine.spark.packed import PackedProgram, run_on_spark
from tests.postgres.private_server import private_server
from tests.sql.comparison import Rows, comparable, random_batches, shown_rows

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ROOT / "programs" / "nexmark" / "nexmark.smile"
QUERIES = Path(__file__).parent / "queries.sql"
EVENTS = 3_000
GAP_US = 20_000
SMALL = 300
"""Events for the reference, which is slow."""

pytestmark = pytest.mark.slow

_TABLES = """
CREATE TABLE Person (dateTime bigint, id bigint, name text, emailAddress text, creditCard text, city text, state text,
  extra text);
CREATE TABLE Auction (dateTime bigint, id bigint, itemName text, description text, initialBid bigint, reserve bigint,
  expires bigint, seller bigint, category bigint, extra text);
CREATE TABLE Bid (dateTime bigint, auction bigint, bidder bigint, price bigint, channel text, url text, extra text);
CREATE TABLE SideInput (key bigint PRIMARY KEY, value text);
CREATE FUNCTION as_time(tick bigint) RETURNS timestamp AS
  $$ SELECT timestamp '1970-01-01' + (tick / 1024) * interval '1 microsecond' $$ LANGUAGE SQL;
CREATE FUNCTION hour(tick bigint) RETURNS numeric AS $$ SELECT EXTRACT(HOUR FROM as_time(tick)) $$ LANGUAGE SQL;
CREATE FUNCTION tick_text(tick bigint, format text) RETURNS text AS
  $$ SELECT to_char(as_time(tick), format) $$ LANGUAGE SQL;
"""


def statements(kind: type[Statement]) -> dict[str, str]:
    """The text of the statements of one kind, by the name of what they define."""
    text = PROGRAM.read_text()
    parsed, problems = parse(Source(PROGRAM.name, text))
    assert not problems
    return {s.name.text: text[s.span.start : s.span.end] for s in parsed if isinstance(s, kind)}  # type: ignore[union-attr]


def postgres_queries() -> dict[str, str]:
    """The queries as PostgreSQL has them: those of the program, and those that are written differently."""
    own = {view: text.partition(" AS")[2] for view, text in statements(CreateView).items()}
    parts = re.split(r"^-- (Q\d+)$", QUERIES.read_text(), flags=re.MULTILINE)
    different = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert different.keys() <= own.keys()
    return {view: text.replace("TO_CHAR(dateTime", "tick_text(dateTime") for view, text in (own | different).items()}


def compile_views(views: Iterable[str]) -> CompiledProgram:
    return compile_program(Source(PROGRAM.name, f"{PROGRAM.read_text()}\nSUBSCRIBE {', '.join(views)};"))


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection[Any]]:
    side_input = statements(CreateTable)["SideInput"].partition(" AS ")[2]
    with private_server() as server, server.connect() as opened:
        opened.execute(_TABLES)
        opened.execute(f"INSERT INTO SideInput {side_input}")
        yield opened


def expected_rows(connection: psycopg.Connection[Any], events: Iterable[Event]) -> dict[str, Rows]:
    for line in events:
        row = {"dateTime": line["at"], **line["event"]}
        marks = ", ".join(["%s"] * len(row))
        connection.execute(f"INSERT INTO {line['stream']} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    return {
        view: Counter(tuple(map(comparable, row)) for row in connection.execute(query).fetchall())
        for view, query in postgres_queries().items()
    }


def test_the_local_engine_gives_the_rows_of_postgresql(connection: psycopg.Connection[Any]) -> None:
    events = list(nexmark_events(EVENTS, gap_us=GAP_US))
    expected = expected_rows(connection, events)
    assert not [view for view, rows in expected.items() if not rows], "these queries have no rows to compare"
    shown = shown_rows(compile_views(expected), events, Random(1))
    for view, rows in expected.items():
        assert shown[view] == rows, view


@pytest.mark.nightly
def test_the_reference_gives_the_rows_of_the_local_engine() -> None:
    """The local engine is compared with PostgreSQL above."""
    compiled, events = compile_views(statements(CreateView)), list(nexmark_events(SMALL, gap_us=GAP_US))
    final = final_rows(compiled.original, events)
    shown = shown_rows(compiled, events, Random(2))
    for view, rows in shown.items():
        assert Counter(tuple(map(comparable, row.values())) for row in final[view].values()) == rows, view


@pytest.mark.parametrize("partitions", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_spark_gives_the_rows_of_the_local_engine(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    compiled, events = compile_views(statements(CreateView)), list(nexmark_events(SMALL, gap_us=GAP_US))
    frames = list(random_batches(compiled.rewritten, events, Random(partitions)))
    packed = PackedProgram.of("P", compiled.rewritten, frames)
    assert run_on_spark(spark, [packed], tmp_path, partitions=partitions)["P"] == packed.expected
