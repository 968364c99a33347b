"""Every test program on Spark: batch by batch, and in the end, row for row what the in-process engine tells."""

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smile.algebra import mmpl
from smile.log.input_batch import InputBatch
from smile.program import compile_program
from smile.reference.history import History
from smile.source import Source
from tests.engine.spark.beside import locally, on_spark
from tests.kernels.harness import frame_of
from tests.reference.cases import Case, cases

CASES = {case.name: case for case in cases()}


def rewritten(case: Case) -> mmpl.Program:
    return compile_program(Source(f"{case.name}.{case.language}", case.program)).rewritten


def frames(program: mmpl.Program, case: Case) -> list[InputBatch]:
    """A line a frame where there are few, and the end."""
    step = max(1, len(case.events) // 8)
    histories = [History.from_lines(program, case.events[:stop]) for stop in range(0, len(case.events), step)]
    histories += [
        History.from_lines(program, case.events),
        History.from_lines(program, case.events).with_finished_streams(),
    ]
    found = [frame_of(program, before, after) for before, after in pairwise(histories)]
    return [frame for frame in found if frame.events or frame.horizons != dict(histories[0].horizons)]


@pytest.mark.parametrize("name", CASES)
def test_rows_and_changes(spark: SparkSession, name: str, tmp_path: Path) -> None:
    program = rewritten(CASES[name])
    told = frames(program, CASES[name])
    partitions = 1 + list(CASES).index(name) % 3
    assert on_spark(spark, program, told, tmp_path, partitions) == locally(program, told)
