"""Trade-Floor in Flink SQL: a local cluster with two slots, which reads a CSV file and writes to blackhole sinks.

The remainder of a bid is one sum: its shares minus those traded. That takes about half the processor time of the
formulation in the paper, which joins bids with an aggregate of matches. One-phase aggregation is faster than two-phase,
because ids seldom repeat within a batch. Reading the file twice, for buys and for sells, is faster than sharing one
reader.
"""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version

# Installed only in the peer's own environment.
from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from bench.peers.protocol import (
    BUY,
    CORES,
    MATCH,
    SELL,
    PeerArguments,
    print_result,
    read_arguments,
    seconds_since_start,
)

SETTINGS = {"mini-batch": "true", "single": "false"}
"""Whether Flink collects mini-batches for 200 ms."""

_EVENTS = """
CREATE TABLE Events (kind TINYINT, issue STRING, price BIGINT, buyid BIGINT, sellid BIGINT, shares BIGINT)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""

_REMAINING = """
CREATE VIEW Remaining{side} AS
SELECT {side}id, MAX(issue) AS issue, MAX(price) AS price, SUM(delta) AS {side}remaining
FROM (
    SELECT {side}id, issue, price, CASE WHEN kind = {match} THEN -shares ELSE shares END AS delta
    FROM Events WHERE kind IN ({kind}, {match})
)
GROUP BY {side}id HAVING SUM(delta) > 0 AND MAX(issue) <> ''
"""

_MATCHABLE = """
CREATE VIEW Matchable AS
SELECT b.issue, b.price, buyid, buyremaining, sellid, sellremaining
FROM Remainingbuy b JOIN Remainingsell s ON b.issue = s.issue AND b.price = s.price
"""

_SINKS = {
    "Remainingbuy": "buyid BIGINT, issue STRING, price BIGINT, buyremaining BIGINT",
    "Remainingsell": "sellid BIGINT, issue STRING, price BIGINT, sellremaining BIGINT",
    "Matchable": "issue STRING, price BIGINT, buyid BIGINT, buyremaining BIGINT, sellid BIGINT, sellremaining BIGINT",
}


def main() -> None:
    arguments = read_arguments(SETTINGS)
    rows = _final_rows(arguments) if arguments.matchable else None
    seconds = 0.0 if arguments.matchable else _run_job(arguments, "blackhole")
    print_result(f"Flink SQL {version('apache-flink')}", arguments, seconds_since_start() - seconds, seconds, rows)


def _run_job(arguments: PeerArguments, sink: str) -> float:
    """The seconds that the job ran. Planning is not included, though it takes seconds too."""
    tables = _create_tables(arguments)
    statements = tables.create_statement_set()
    for view, columns in _SINKS.items():
        connector = sink if view == "Matchable" else "blackhole"
        tables.execute_sql(f"CREATE TABLE {view}Sink ({columns}) WITH ('connector' = '{connector}')")
        statements.add_insert_sql(f"INSERT INTO {view}Sink SELECT * FROM {view}")
    result = statements.execute().get_job_client().get_job_execution_result().result()
    return float(result.get_net_runtime()) / 1000


def _create_tables(arguments: PeerArguments) -> TableEnvironment:
    configuration = Configuration()
    for name, value in {
        "parallelism.default": str(CORES),
        "taskmanager.numberOfTaskSlots": str(CORES),
        "pipeline.object-reuse": "true",
        "table.exec.mini-batch.enabled": SETTINGS[arguments.setting],
        "table.exec.mini-batch.allow-latency": "200 ms",
        "table.exec.mini-batch.size": "20000",
        "table.optimizer.agg-phase-strategy": "ONE_PHASE",
        "rest.port": "0",
    }.items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    tables.execute_sql(_EVENTS.format(path=(arguments.events / "plain").absolute().as_uri()))
    for side, kind in (("buy", BUY), ("sell", SELL)):
        tables.execute_sql(_REMAINING.format(side=side, kind=kind, match=MATCH))
    tables.execute_sql(_MATCHABLE)
    return tables


def _final_rows(arguments: PeerArguments) -> Iterator[list[str]]:
    """The final rows of Matchable, from all its changes. Java prints them to the process's standard output."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryFile("w+") as printed:
        saved_stdout = os.dup(1)
        os.dup2(printed.fileno(), 1)
        _run_job(arguments, "print")
        os.dup2(saved_stdout, 1)
        printed.seek(0)
        for line in printed:
            if change := re.search(r"([+-])[IUD]\[(.*)\]$", line):
                counts[change[2]] += 1 if change[1] == "+" else -1
    assert all(count in (0, 1) for count in counts.values())
    return (row.split(", ") for row, count in counts.items() if count)


if __name__ == "__main__":
    main()
