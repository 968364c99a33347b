"""Trade-Floor on Spark beside other systems, on the same events in the same run."""

import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
from rich.progress import track

from bench.peers import run as peers
from bench.report import Report, met
from bench.spark import ADAPTIVE, COMMIT, EVENTS, to_the_end
from bench.workload import frames_of, recorded
from smile.engine.spark.session import session

TIMES_AT_LEAST = {"Pathway": 4, "Flink SQL": 10, "PostgreSQL": 80}


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blocks = recorded(folder / "tradefloor.arrow", EVENTS)
        _beside(report, blocks, _own(folder, blocks))


def _own(folder: Path, blocks: Sequence[pa.RecordBatch]) -> float:
    """What the pipeline does with the same events in the same run."""
    spark = session("local[2]", "smile bench", folder / "spark.log")
    try:
        to_the_end(spark, folder, islice(frames_of(blocks, COMMIT), 10), 2, ADAPTIVE)  # Java warms up
        return to_the_end(spark, folder, frames_of(blocks, COMMIT), 2, ADAPTIVE).rate
    finally:
        spark.stop()


def _beside(report: Report, blocks: Sequence[pa.RecordBatch], best: float) -> None:
    rows = [("SMILE on Spark", "2 partitions, adaptive batches", f"{EVENTS:,}", f"{best:,.0f}", "", "", "")]
    fastest: dict[str, float] = {}
    for found in track(peers.run(blocks), "peers", total=len(peers.SETTINGS)):
        if found.problem:
            rows.append((found.peer, found.setting, "", found.problem, "", "", ""))
            continue
        name = next((of for of in TIMES_AT_LEAST if found.peer.startswith(of)), found.peer)
        fastest[name] = max(fastest.get(name, 0.0), found.rate)
        times = f"{best / found.rate:.1f}"
        rows.append(
            (
                found.peer,
                found.setting,
                f"{found.events:,}",
                f"{found.rate:,.0f}",
                times,
                f"{found.startup_seconds:.1f}",
                "",
            )
        )
    for peer, least in TIMES_AT_LEAST.items():
        if peer in fastest:
            told = f"≥ {least} times: {met(best / fastest[peer] >= least)}"
            rows.append((peer, "its fastest", "", f"{fastest[peer]:,.0f}", f"{best / fastest[peer]:.1f}", "", told))
    report.table(
        "Trade-Floor beside others",
        "The same events in the same run, all three views kept up to date and their changes thrown away, on 2 cores. "
        "The final Matchable of each is compared with the truth; one that is wrong has no figure. Start-up is not "
        "counted. Those that are slow were given the first events only.",
        ("system", "setting", "events", "events/s", "SMILE is so many times as fast", "start-up, s", "target"),
        rows,
    )
