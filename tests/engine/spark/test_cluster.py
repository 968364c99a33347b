"""A cluster of two workers: a pipeline sends the same messages there as the local engine, batch by batch, even if a
worker is lost."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.spark import workload
from tests.engine.spark.cluster import cluster, environment
from tests.engine.spark.cluster_driver import LOST, WHOLE
from tests.engine.spark.comparison import run_locally

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
DRIVER = Path(__file__).parent / "cluster_driver.py"
DRIVER_S_MAX = 900


def test_a_cluster_tells_what_one_process_tells(tmp_path: Path) -> None:
    """One driver runs twice there, since it takes longest to start. In the second run a worker is lost, with its executor
    and what other tasks of the batch were to read there: the other one does that again."""
    with cluster(tmp_path, 2) as running_cluster:
        lost = running_cluster.machines[0]
        done = subprocess.run(
            [sys.executable, DRIVER, running_cluster.master, str(tmp_path), str(lost.pid)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=DRIVER_S_MAX,
        )
        assert done.returncode == 0, done.stderr[-3000:] + (tmp_path / "spark.log").read_text()[-3000:]
        assert [machine.poll() for machine in running_cluster.machines] == [-signal.SIGKILL, None]
    expected, rows = run_locally(workload.program(), workload.frames())
    for run in (WHOLE, LOST):
        out = json.loads((tmp_path / run / "out.json").read_text())
        assert out["messages"] == [[number, of] for number, of in enumerate(expected)], run
        assert out["rows"] == rows, run
        # Spark runs again what was lost: the pipeline itself need not go back.
        assert out["trouble"] == [], run
