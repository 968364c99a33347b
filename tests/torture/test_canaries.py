"""Some of the planted bugs are found in every run of the tests."""

from pathlib import Path

import pytest

from tests.torture.canaries import SEEDS, is_found

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["logs_some_events_twice", "keeps_a_stale_row", "goes_on_from_tokens_as_if_nothing_had_changed"]
)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    assert any(is_found(name, tmp_path, seed) for seed in range(1, 1 + SEEDS))
