"""What the brokers of a simulated network have logged, imports included, gives the same on Spark as in this process."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from smile.algebra import mmpl
from tests.engine.spark.comparison import compare_logged_imports
from tests.simulation.scenario import FaultKind, draw_scenario
from tests.simulation.simulation import run_scenario

NETWORKS = 2


def logged_networks(folder: Path) -> Iterator[tuple[mmpl.Program, Path]]:
    """Brokers that have imported rows, and where their directories are. Their programs did not change."""
    for seed in count():
        scenario = draw_scenario(seed)
        if scenario.truncation != "none" or any(f.kind is FaultKind.PROGRAM_CHANGED for f in scenario.faults):
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
        compared += compare_logged_imports(spark, program, directory / "log", directory / "spark", 2)
        if compared == NETWORKS:
            return
