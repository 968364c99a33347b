"""The checker can fail: it detects each bug that is planted in a broker, by its symptom. `make nightly` tries all."""

from pathlib import Path

import pytest

from tests.torture.planted import PLANTED
from tests.torture.run import Torture

SEEDS = 4


def is_found(name: str, folder: Path, seed: int) -> bool:
    planted = PLANTED[name]
    (folder / str(seed)).mkdir()
    run = Torture(folder / str(seed), seed, planted.kills, planted=name, end_s_max=10.0)
    return any(planted.symptom in problem for problem in run.run())


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    assert any(is_found(name, tmp_path, seed) for seed in range(1, 1 + SEEDS))
