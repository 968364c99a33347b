"""A broker that is killed at random moments under load: nothing acknowledged is lost or doubled, nothing false is shown,
and every subscriber reaches the truth.

`make test` kills it a few times, always with the same seed; `make nightly` and `make torture` many times, with other
seeds each time, and with its views on Spark too.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.random_programs import SEED_ID, seeds
from tests.torture.checker import report
from tests.torture.flipped import flip, kinds, start_and_check
from tests.torture.run import Torture

ENGINE = os.environ.get("TORTURED")
"""What `make torture` asks for; without it both are tried."""
KILLS = 10
KILLS_ON_SPARK = KILLS if ENGINE == "spark" else 3
PACES = (None, "writes_checkpoints_all_the_time", "takes_long_to_catch_up")
"""How the broker works: as it does, or so that other moments are hit more often."""

pytestmark = pytest.mark.slow


def tortured(run: Torture, test: str) -> None:
    problems = run.run()
    repeat = f"SMILE_SEEDS={run.seed} .venv/bin/python -m pytest tests/torture/test_kills.py -k {test}"
    assert not problems, report(
        problems, f"{repeat}\nWhat the broker left is in {run.broker.data_path}; {run.witness.counts}"
    )
    assert run.witness.counts["acknowledged"] >= run.work


@pytest.mark.skipif(ENGINE == "spark", reason="only Spark is asked for")
def test_killed_a_few_times(tmp_path: Path) -> None:
    tortured(Torture(tmp_path, 1, 3, "local", "writes_checkpoints_all_the_time"), "a_few_times")


@pytest.mark.nightly
@pytest.mark.skipif(ENGINE == "spark", reason="only Spark is asked for")
@pytest.mark.parametrize("seed", seeds(3), ids=SEED_ID)
def test_killed_with_the_views_in_its_process(tmp_path: Path, seed: int) -> None:
    tortured(Torture(tmp_path, seed, KILLS, "local", PACES[seed % len(PACES)]), "in_its_process")


@pytest.mark.nightly
@pytest.mark.skipif(ENGINE == "spark", reason="only Spark is asked for")
def test_killed_without_flushing(tmp_path: Path) -> None:
    """What the operating system has outlives the process."""
    tortured(Torture(tmp_path, 0, 3, "local", options=("--no-flush",)), "without_flushing")


@pytest.mark.nightly
@pytest.mark.skipif(ENGINE == "local", reason="only the engine in its process is asked for")
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
def test_killed_with_the_views_on_spark(tmp_path: Path, seed: int) -> None:
    """Also what it left, with a bit flipped in each kind of state."""
    run = Torture(tmp_path, seed, KILLS_ON_SPARK, "spark")
    tortured(run, "on_spark")
    left = run.broker.data_path
    for kind, paths in kinds(left).items():
        if kind.startswith("state/"):
            folder = tmp_path / "copy"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(left, folder)
            flip(folder / run.random.choice(paths).relative_to(left), run.random)
            start_and_check(replace(run.broker, data="copy"))
