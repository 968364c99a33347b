"""Some of the planted bugs are detected in every run of the tests, and more every night; `make nightly` tries all."""

from pathlib import Path

import pytest

from tests.torture.canaries import SEEDS, is_found

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name",
    [
        "logs_some_events_twice",
        pytest.param("keeps_a_stale_row", marks=pytest.mark.nightly),
        pytest.param("goes_on_from_tokens_as_if_nothing_had_changed", marks=pytest.mark.nightly),
    ],
)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    assert any(is_found(name, tmp_path, seed) for seed in range(1, 1 + SEEDS))
