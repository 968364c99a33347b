"""The random test of promises can fail: each planted bug is found, and nothing is found without one.

Each is found within SEEDS seeds, at one where the same code without it keeps the promise. `make nightly` says of each
at which.
"""

import sys
from collections.abc import Callable
from functools import cache

import pytest

from tests.engine.invariants import PROMISES, broken, draw, problems, report, shrunk
from tests.engine.planted import CANARIES, Canary, window_has_its_end_and_not_its_start

SEEDS = 500
CONTROL = 220
"""The first so many seeds, among which most bugs are found, are also run without any."""
CHUNK = 10

drawn = cache(draw)


def is_broken(promise: str, seed: int) -> bool:
    try:
        return bool(broken(promise, drawn(seed), seed))
    except NotImplementedError:
        return False


def finding(planted: Canary) -> int | None:
    """The first seed at which the promise is broken because of the bug."""
    for seed in range(SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            planted.plant(patch)
            problems_found = is_broken(planted.promise, seed)
        if problems_found and not is_broken(planted.promise, seed):
            return seed
    return None


@pytest.mark.parametrize("planted", CANARIES, ids=[c.name for c in CANARIES])
def test_bug_is_found(
    planted: Canary, record_property: Callable[[str, object], None], capfd: pytest.CaptureFixture[str]
) -> None:
    seed = finding(planted)
    assert seed is not None, f"{planted.name} breaks {planted.promise} at none of {SEEDS} seeds"
    record_property("seed", seed)
    record_property("promise", planted.promise)
    with capfd.disabled():
        sys.stderr.write(f"\nseed {seed:3}: {planted.name} breaks {planted.promise}")


def test_every_promise_can_be_broken() -> None:
    assert {c.promise for c in CANARIES} == set(PROMISES)


@pytest.mark.parametrize("first", range(0, CONTROL, CHUNK))
def test_without_bugs_all_promises_hold(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            problems_found = problems(drawn(seed), seed)
        except NotImplementedError:
            continue
        assert not problems_found, report(drawn(seed), problems_found, seed)


def test_report_says_what_failed_and_how_to_repeat_it() -> None:
    """Seed, promise, a program and events as small as they can be made by leaving out."""
    planted = next(c for c in CANARIES if c.plant is window_has_its_end_and_not_its_start)
    seed = finding(planted)
    assert seed is not None
    with pytest.MonkeyPatch.context() as patch:
        planted.plant(patch)
        small = shrunk(drawn(seed), lambda run: bool(problems(run, seed)))
        text = report(small, problems(small, seed), seed)
    assert f"SMILE_SEEDS={seed} " in text
    assert text.strip().startswith(f"{planted.promise}:")
    assert len(small.lines) == 1 and str(small.lines[0]) in text
    assert "TUMBLE" in text.upper() or "HOP" in text.upper()
