"""Every test program on Spark: batch by batch, and in the end, row for row what the in-process engine outputs."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smile.log.input_batch import InputBatch
from smile.reference.history import History
from smile.testing.reader import CaseFile
from tests.engine.spark.packed import PackedProgram, run_on_spark
from tests.kernels.harness import input_batch_between
from tests.programs.reader import cases, recorded_lines

PACK_COUNT = 6
"""Of pipelines: a further program costs little, a further pipeline seconds."""


def frames(case: CaseFile) -> list[InputBatch]:
    """About eight batches of lines (one line each if there are few), and one for the end."""
    program = case.rewritten
    lines = recorded_lines(case)
    step = max(1, len(lines) // 8)
    histories = [History.from_lines(program, lines[:stop]) for stop in range(0, len(lines), step)]
    histories += [
        History.from_lines(program, lines),
        History.from_lines(program, lines).with_finished_streams(),
    ]
    every = [input_batch_between(program, before, after) for before, after in pairwise(histories)]
    return [frame for frame in every if frame.events or frame.horizons != dict(histories[0].horizons)]


ORDERED = sorted(cases(), key=lambda case: len(case.events))
PACK_SIZE = math.ceil(len(ORDERED) / PACK_COUNT)
PACKS = [ORDERED[start : start + PACK_SIZE] for start in range(0, len(ORDERED), PACK_SIZE)]
"""Each has programs of about as many events: those with fewer have nothing to do in the last batches."""


@pytest.mark.parametrize("number", range(len(PACKS)))
def test_rows_and_changes(spark: SparkSession, number: int, tmp_path: Path) -> None:
    programs = {
        case.name: PackedProgram.of(f"P{position}", case.rewritten, frames(case))
        for position, case in enumerate(PACKS[number])
    }
    results = run_on_spark(spark, list(programs.values()), tmp_path, partitions=1 + number % 3)
    for name, program in programs.items():
        assert results[program.name] == program.expected, name
