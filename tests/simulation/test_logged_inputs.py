"""What the brokers of a simulated network have logged, imports included, gives the same on Spark as in this process."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from smile.algebra import mmpl
from smile.log.storage.durable import DurableLog
from smile.log.storage.reading import read_batches
from tests.engine.spark.comparison import COMMIT_PER_BATCH, run, run_locally
from tests.simulation.scenario import FaultKind, draw_scenario
from tests.simulation.simulation import run_scenario

NETWORKS = 2


def logged_networks(folder: Path) -> Iterator[tuple[mmpl.Program, Path]]:
    """Brokers that have imported rows, and where their directories are. Their programs did not change."""
    for seed in count():
        scenario = draw_scenario(seed)
        if scenario.truncates or any(f.kind is FaultKind.PROGRAM_CHANGED for f in scenario.faults):
            continue
        directory = folder / str(seed)
        directory.mkdir()
        outcome = run_scenario(scenario, directory)
        assert not outcome.problems
        number = len(scenario.programs) - 1
        if not outcome.is_skipped and any(i.stream is None for i in scenario.programs[number].imports):
            runs = sorted((directory / f"b{number}").iterdir(), key=lambda path: int(path.name))
            yield scenario.programs[number], runs[-1]


def test_logged_inputs_of_a_simulated_network_give_the_same_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    compared = 0
    for program, directory in logged_networks(tmp_path):
        log = DurableLog(str(directory / "log"), program.log_streams)
        batches = list(read_batches(log, COMMIT_PER_BATCH))
        if any(name.endswith("//changes") for batch in batches for name in batch.events):
            expected_outputs, expected_rows = run_locally(program, batches)
            outputs, rows = run(spark, program, log, directory / "spark", 2, COMMIT_PER_BATCH)
            assert rows == expected_rows
            assert [output for output in outputs if output] == [output for output in expected_outputs if output]
            compared += 1
        log.close()
        if compared == NETWORKS:
            return
