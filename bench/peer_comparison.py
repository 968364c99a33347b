"""Trade-Floor on Spark compared with other systems, on the same events in the same run."""

import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
from rich.progress import track

from bench.peers import run as peers
from bench.report import Report, verdict
from bench.spark import ADAPTIVE_LIMIT, COMMIT_EVENTS, EVENTS, run_to_end
from bench.workload import input_batches, load_blocks
from smile.engine.spark.session import spark_session

SPEEDUP_MIN = {"Pathway": 4, "Flink SQL": 10, "PostgreSQL": 80}


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blocks = load_blocks(folder / "tradefloor.arrow", EVENTS)
        _compare_peers(report, blocks, _measure_smile(folder, blocks))


def _measure_smile(folder: Path, blocks: Sequence[pa.RecordBatch]) -> float:
    """Events a second of the pipeline on the same events in the same run."""
    spark = spark_session("local[2]", "smile bench", folder / "spark.log")
    try:
        run_to_end(spark, folder, islice(input_batches(blocks, COMMIT_EVENTS), 10), 2, ADAPTIVE_LIMIT)  # warm-up
        return run_to_end(spark, folder, input_batches(blocks, COMMIT_EVENTS), 2, ADAPTIVE_LIMIT).rate
    finally:
        spark.stop()


def _compare_peers(report: Report, blocks: Sequence[pa.RecordBatch], smile_rate: float) -> None:
    rows = [("SMILE on Spark", "2 partitions, adaptive batches", f"{EVENTS:,}", f"{smile_rate:,.0f}", "", "", "")]
    fastest: dict[str, float] = {}
    for result in track(peers.run(blocks), "peers", total=len(peers.SETTINGS)):
        if result.problem:
            rows.append((result.peer, result.setting, "", result.problem, "", "", ""))
            continue
        name = next((prefix for prefix in SPEEDUP_MIN if result.peer.startswith(prefix)), result.peer)
        fastest[name] = max(fastest.get(name, 0.0), result.rate)
        speedup = f"{smile_rate / result.rate:.1f}"
        rows.append(
            (
                result.peer,
                result.setting,
                f"{result.events:,}",
                f"{result.rate:,.0f}",
                speedup,
                f"{result.startup_seconds:.1f}",
                "",
            )
        )
    for peer, speedup_min in SPEEDUP_MIN.items():
        if peer in fastest:
            target = f"≥ {speedup_min} times: {verdict(smile_rate / fastest[peer] >= speedup_min)}"
            rows.append(
                (peer, "its fastest", "", f"{fastest[peer]:,.0f}", f"{smile_rate / fastest[peer]:.1f}", "", target)
            )
    report.table(
        "Trade-Floor beside others",
        "The same events in the same run, on 2 cores. All three views are kept up to date, and their changes are "
        "discarded. The final Matchable of each system is checked; a wrong one has no figure. Start-up is not counted. "
        "Slow settings get only the first events.",
        ("system", "setting", "events", "events/s", "speed-up of SMILE", "start-up, s", "target"),
        rows,
    )
