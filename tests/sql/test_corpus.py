"""Random queries of PostgreSQL's SQL, over streams that have ended, give the rows of PostgreSQL over tables.

`python -m tests.sql SEED COUNT` prints how many are accepted, and what is different.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.engine.spark.packed import PackedProgram, run_on_spark
from tests.postgres.private_server import private_server
from tests.random_programs import SEED_ID, seeds
from tests.sql.comparison import (
    compile_query_program,
    differences,
    events_of,
    random_batches,
    random_tables,
    refusal,
)
from tests.sql.queries import Query, random_queries

pytestmark = pytest.mark.slow

ACCEPTED_SHARE_MIN = 0.95
"""One in forty of the queries uses what SmileSQL may not have."""


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection[Any]]:
    with private_server() as server, server.connect() as opened:
        yield opened


def accepted_queries(seed: int, count: int) -> list[Query]:
    queries = random_queries(seed, count)
    accepted = [query for query in queries if refusal(query) is None]
    assert len(accepted) >= ACCEPTED_SHARE_MIN * count, [q.text for q in queries if q not in accepted]
    return accepted


def assert_same(connection: psycopg.Connection[Any], seed: int, count: int) -> None:
    found = differences(connection, accepted_queries(seed, count), seed)
    again = f"repeat with: .venv/bin/python -m tests.sql {seed} {count}"
    assert not found, "\n\n".join([*(f"{query.text}\n{difference}" for query, difference in found), again])


def test_a_sample_gives_the_rows_of_postgresql(connection: psycopg.Connection[Any]) -> None:
    assert_same(connection, 0, 110)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", seeds(3), ids=SEED_ID)
def test_the_corpus_gives_the_rows_of_postgresql(connection: psycopg.Connection[Any], seed: int) -> None:
    assert_same(connection, seed, 1200)


@pytest.mark.nightly
@pytest.mark.parametrize("partitions", [1, 3])
def test_the_corpus_on_spark_gives_the_rows_of_the_local_engine(
    spark: SparkSession, tmp_path: Any, partitions: int
) -> None:
    """The local engine is compared with PostgreSQL above."""
    random = Random(partitions)
    compiled = compile_query_program(accepted_queries(partitions, 60))
    frames = list(random_batches(compiled.rewritten, events_of(random_tables(random)), random))
    packed = PackedProgram.of("P", compiled.rewritten, frames)
    assert run_on_spark(spark, [packed], tmp_path, partitions=partitions)["P"] == packed.expected


def test_a_difference_is_found(connection: psycopg.Connection[Any]) -> None:
    """A sum of no values is 0, and NULL in PostgreSQL."""
    query = Query("total", "SELECT SUM(a.n) AS v FROM a WHERE a.n > 10")
    ((found, difference),) = differences(connection, [query], 0)
    assert found == query
    assert difference == "halfway: {(0.0,): 1}, PostgreSQL: {(None,): 1}"
