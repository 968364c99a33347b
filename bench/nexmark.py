"""Throughput of the queries of Nexmark in the local engine, one query at a time, on one core."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

import pyarrow as pa
from rich.progress import track

from bench.engine import run_batches
from bench.nexmark_events import Event, nexmark_events
from bench.report import Report
from bench.workload import stream_schemas
from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_program
from smile.log.input_batch import InputBatch
from smile.program import CompiledProgram, compile_program, read_source
from smile.source import Source

PROGRAM = Path(__file__).parent.parent / "programs" / "nexmark" / "nexmark.smile"
EVENTS = 200_000
BATCH = 10_000


def run(report: Report) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        _measure(report)
    finally:
        os.sched_setaffinity(0, cores)


def _measure(report: Report) -> None:
    batches = list(nexmark_batches(EVENTS, BATCH))
    program = compile_program(read_source(str(PROGRAM))).original
    views = [view.name for view in program.views]
    run_batches(compile_query(program, views[0]), islice(batches, 3))  # so that one-time imports are not measured
    rows = []
    for view in track(views, "Nexmark"):
        result, engine = run_batches(compile_query(program, view), batches)
        rows.append(
            (
                view,
                f"{result.rate:,.0f}",
                f"{result.batch_ms(0.5):.1f}",
                f"{result.batch_ms(0.99):.1f}",
                f"{result.changed_rows:,}",
                f"{sum(table.row_count for table in engine.tables.values()):,}",
            )
        )
    report.table(
        "Nexmark",
        f"{EVENTS:,} events of all three streams in batches of {BATCH:,}, one query at a time, on one core. In every "
        "batch the changes of the view are built as Arrow, and a state file is written.",
        ("query", "events/s", "ms a batch, median", "99th", "changed rows", "rows of state"),
        rows,
    )


def compile_query(program: mmpl.Program, view: str) -> CompiledProgram:
    """The program with the views that one query needs."""
    text = print_program(replace(subprogram(program, view), streams=program.streams))
    return compile_program(Source(f"{view}.mmpl", text))


def nexmark_batches(events: int, batch: int) -> Iterator[InputBatch]:
    """The events in batches. Each has a silence of all streams up to its last tick."""
    schemas = stream_schemas(read_source(str(PROGRAM)))
    remaining = nexmark_events(events)
    while lines := list(islice(remaining, batch)):
        by_stream = {name: _record_batch(name, lines, schema) for name, schema in schemas.items()}
        present = {name: rows for name, rows in by_stream.items() if rows.num_rows}
        yield InputBatch(present, dict.fromkeys(schemas, cast(int, lines[-1]["at"])))


def _record_batch(stream: str, lines: Sequence[Event], schema: pa.Schema) -> pa.RecordBatch:
    rows = [{schema.names[0]: line["at"], **line["event"]} for line in lines if line["stream"] == stream]
    return pa.RecordBatch.from_pylist(rows, schema=schema)
