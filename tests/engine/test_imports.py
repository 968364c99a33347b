"""Random programs on several brokers: whatever is imported, and whenever, each broker knows exactly what the reference
knows of the history that has come to it. In the end all is final. Each planted bug is found."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from smile.broker.imports.import_frame import ImportFrame
from smile.broker.imports.receipt import Receipt
from smile.broker.imports.view_cache import ViewCache
from smile.columns import masks
from smile.horizons import END
from smile.kernels.imported_view import ImportedView
from tests.engine.network import draw_network
from tests.random_programs import SEED_ID, seeds

CANARY_SEEDS = 300

Patch = pytest.MonkeyPatch


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(120), ids=SEED_ID)
def test_every_broker_knows_what_has_come_to_it(seed: int) -> None:
    run = draw_network(seed)
    if run is None:
        return
    try:
        problems = run.problems()
    except NotImplementedError:
        return  # an outer join whose rows would share a key: refused, and said so
    if problems:
        pytest.fail(run.report(problems))


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────────────


def horizons_of_two_imports_are_mixed(patch: Patch) -> None:
    """All imports of a stream have one horizon: that of the import that has come furthest."""
    step = ImportedView.step

    def mix(self: ImportedView, state: Any, inputs: Any, advance: Any) -> Any:
        mixed = []
        for horizons in (advance.before, advance.after):
            furthest: dict[str, int] = {}
            for name, tick in horizons.items():
                stream = name.rpartition("/")[2]
                furthest[stream] = max(tick, furthest.get(stream, tick))
            mixed.append({name: furthest[name.rpartition("/")[2]] for name in horizons})
        return step(self, state, inputs, type(advance)(*mixed))

    patch.setattr(ImportedView, "step", mix)


def reset_keeps_rows_that_are_gone(patch: Patch) -> None:
    patch.setattr(ImportedView, "_is_reset", lambda _self, _advance: False)


def default_row_is_final_too_early(patch: Patch) -> None:
    default_rows = ImportedView.default_rows

    def finish(self: ImportedView, key: Any, count: int, horizons: Any) -> Any:
        return default_rows(self, key, count, dict.fromkeys(horizons, END))

    patch.setattr(ImportedView, "default_rows", finish)


def hidden_row_is_shown_again(patch: Patch) -> None:
    """What an old frame says replaces what a newer one has said."""
    patch.setattr(ViewCache, "compare", lambda _self, _frame: Receipt.APPENDED)


def hidden_row_is_forgotten_without_a_word(patch: Patch) -> None:
    def keep(_self: ImportedView, knowledge: Any) -> Any:
        shown = masks.is_shown(knowledge.mask)
        return type(knowledge)(knowledge.columns, np.where(shown, knowledge.mask, masks.SHOWN), knowledge.steps)

    patch.setattr(ImportedView, "_as_imported", keep)


def frame_before_a_gap_is_not_missed(patch: Patch) -> None:
    compare = ViewCache.compare

    def ignore_start(self: ViewCache, frame: ImportFrame) -> Receipt:
        receipt = compare(self, frame)
        return Receipt.APPENDED if receipt is Receipt.GAP else receipt

    patch.setattr(ViewCache, "compare", ignore_start)


def initial_rows_are_missing(patch: Patch) -> None:
    patch.setattr("smile.kernels.compile._initial_rows", lambda _import: None)


BUGS: list[Callable[[Patch], None]] = [
    horizons_of_two_imports_are_mixed,
    reset_keeps_rows_that_are_gone,
    default_row_is_final_too_early,
    hidden_row_is_shown_again,
    hidden_row_is_forgotten_without_a_word,
    frame_before_a_gap_is_not_missed,
    initial_rows_are_missing,
]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("plant", BUGS, ids=[bug.__name__ for bug in BUGS])
def test_planted_bug_is_found(plant: Callable[[Patch], None]) -> None:
    for seed in range(CANARY_SEEDS):
        run = draw_network(seed)
        if run is None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            try:
                is_found = bool(run.problems())
            except NotImplementedError:
                continue
            except Exception:  # noqa: BLE001  # a run that does not come to its end has found it too
                is_found = True
        if is_found:
            assert not run.problems()
            return
    pytest.fail(f"{plant.__name__} is found at none of {CANARY_SEEDS} seeds")
