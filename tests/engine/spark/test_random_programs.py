"""Random programs on Spark: every batch gives the same messages as in the local engine."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from pyspark.sql import SparkSession

from smile.log.input_batch import InputBatch
from smile.reference.history import History
from tests.engine.invariants import Run, draw
from tests.engine.spark.packed import PackedProgram, Result, run_on_spark
from tests.kernels.harness import cuts, input_batch_between
from tests.random_programs import SEED_ID, seeds

SEEDS = seeds(30)
PACK_SIZE = 10


def frames(run: Run, random: Random) -> list[InputBatch]:
    ends = [0, *cuts(random, len(run.lines))]
    histories = [History.from_lines(run.program, run.lines[:stop]) for stop in ends]
    histories.append(histories[-1].with_finished_streams())
    return [input_batch_between(run.program, a, b) for a, b in pairwise(histories) if a.horizons != b.horizons]


def packed(seed: int) -> PackedProgram | None:
    """None if the program is refused: an outer join whose rows would share a key is not implemented."""
    run = draw(seed)
    one = PackedProgram.of(f"p{seed}", run.program, frames(run, Random(seed)))
    try:
        assert one.expected
    except NotImplementedError:
        return None
    return one


Outcome = tuple[PackedProgram, Result | Exception] | None


@pytest.fixture(scope="module")
def outcomes(
    shared_session: Callable[[], SparkSession], tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Outcome]:
    """The result of every program that is not refused, by its seed. Programs of about as many frames share a pipeline,
    and so does a failure of the pipeline; SMILE_SEEDS runs one of them alone."""
    drawn = {seed: packed(seed) for seed in SEEDS}
    programs = sorted((one for one in drawn.values() if one is not None), key=lambda one: len(one.frames))
    results: dict[str, Result | Exception] = {}
    for number, start in enumerate(range(0, len(programs), PACK_SIZE)):
        pack = programs[start : start + PACK_SIZE]
        try:
            results |= run_on_spark(shared_session(), pack, tmp_path_factory.mktemp("pack"), 1 + number % 3)
        except Exception as problem:  # noqa: BLE001  # raised by the tests of its programs
            results |= dict.fromkeys([one.name for one in pack], problem)
    return {seed: None if one is None else (one, results[one.name]) for seed, one in drawn.items()}


@pytest.mark.parametrize("seed", SEEDS, ids=SEED_ID)
def test_told(outcomes: dict[int, Outcome], seed: int) -> None:
    outcome = outcomes[seed]
    if outcome is None:
        return  # refused
    one, result = outcome
    if isinstance(result, Exception):
        raise result
    assert result == one.expected
