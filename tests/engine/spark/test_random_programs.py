"""Random programs on Spark: every batch tells what the in-process engine tells of the same frame."""

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from smile.log.input_batch import InputBatch
from smile.reference.history import History
from tests.engine.invariants import Run, draw
from tests.engine.spark.beside import locally, on_spark
from tests.kernels.harness import cuts, frame_of
from tests.random_programs import SEED_ID, seeds


def frames(run: Run, random: Random) -> list[InputBatch]:
    ends = [0, *cuts(random, len(run.lines))]
    histories = [History.from_lines(run.program, run.lines[:stop]) for stop in ends]
    histories.append(histories[-1].with_finished_streams())
    return [frame_of(run.program, a, b) for a, b in pairwise(histories) if a.horizons != b.horizons]


@pytest.mark.parametrize("seed", seeds(30), ids=SEED_ID)
def test_told(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    run, random = draw(seed), Random(seed)
    told = frames(run, random)
    try:
        expected = locally(run.program, told)
    except NotImplementedError:
        return  # an outer join whose rows would share a key: refused, and said so
    assert on_spark(spark, run.program, told, tmp_path, random.choice((1, 2, 3))) == expected
