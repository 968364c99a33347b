"""What a network of brokers has logged, imports included, gives the same on Spark as in this process."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.engine.network import Network, NetworkRun, draw_network
from tests.engine.spark.comparison import compare_logged_imports

NETWORKS = 3


def logged_networks(folder: Path) -> Iterator[tuple[NetworkRun, Path]]:
    """Networks in which rows were imported, and where their logs are."""
    for seed in count():
        network, logs = draw_network(seed), folder / str(seed)
        logs.mkdir()
        if network is None:
            continue
        try:
            assert Network(network.programs, network.lines, Random(seed), str(logs)).run() == []
        except NotImplementedError:
            continue  # an outer join whose rows would share a key
        yield network, logs


@pytest.mark.parametrize("partitions", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 3))])
def test_logged_imports_give_the_same_on_spark(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    compared = 0
    for network, logs in logged_networks(tmp_path):
        number = len(network.programs) - 1
        program = network.programs[number].program
        compared += compare_logged_imports(spark, program, logs / f"log{number}", logs / "state", partitions)
        if compared == NETWORKS:
            return
