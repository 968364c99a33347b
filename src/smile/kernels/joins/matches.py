"""Matches of rows, each with its mask, and the columns of the one match that each row turns out to have."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn, MaskColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Bools, Indices, true_indices
from smile.kernels.joins import kleene
from smile.kernels.joins.column_hulls import Alternatives, hull_column, null_column
from smile.kernels.joins.join_sides import JoinRows
from smile.kernels.layout import EvolvingColumnLayout


@dataclass(frozen=True)
class Pairs:
    """Numbers of rows of two sets, and for each pair the mask that says whether they match."""

    first: Indices
    second: Indices
    codes: MaskCodes


@dataclass(frozen=True)
class Matches:
    """The candidates that rows match or may match; `pairs` are of a row and a candidate, with the mask that the
    candidate is shown and matches. `can_gain`: an absent candidate may still come and match."""

    pairs: Pairs
    candidates: JoinRows
    can_gain: Bools

    def has_match(self) -> MaskColumn:
        counts = np.zeros((len(self.can_gain), kleene.COUNTERS_PLAIN), np.int64)
        np.add.at(counts, self.pairs.first, kleene.counter_increments(self.pairs.codes))
        return kleene.has_match(counts, self.can_gain)


@dataclass(frozen=True)
class MatchChoice:
    """What the one match of each row may turn out to be. `certain` is the candidate that it is for good, -1 for none;
    the other rows, `open_rows`, have several alternatives: candidates, none at all, and one that may still come."""

    certain: Indices
    open_rows: Indices
    shown: Indices
    pair_rows: Indices
    pair_candidates: Indices
    rows_without: Indices
    rows_to_come: Indices

    @staticmethod
    def among(matches: Matches, preserved: bool, count: int) -> "MatchChoice":
        pairs = matches.pairs
        certain = first_candidates(pairs, masks.is_permanently_shown(pairs.codes), count)
        is_live = masks.can_be_shown(pairs.codes)
        has_live = np.zeros(count, bool)
        has_live[pairs.first[is_live]] = True
        if not preserved:
            # The columns of a hidden row still have the knowledge of its former matches.
            is_live |= ~has_live[pairs.first]
            has_live[pairs.first] = True
        is_open = certain < 0
        live_pairs = true_indices(is_live & is_open[pairs.first])
        return MatchChoice(
            certain,
            true_indices(is_open),
            first_candidates(pairs, masks.is_shown(pairs.codes), count),
            pairs.first[live_pairs],
            pairs.second[live_pairs],
            true_indices(is_open & preserved),
            # A hidden row that has had no match, and gets none, has the knowledge of one that may come.
            true_indices(is_open & (matches.can_gain | (~has_live & (not preserved)))),
        )

    def column(
        self,
        candidates: KnowledgeColumn,
        to_come: KnowledgeColumn,
        is_per_row: bool,
        evolving: EvolvingColumnLayout,
    ) -> KnowledgeColumn:
        """The column of the match. `candidates` is the column of the candidates, and `to_come` that of a match that may
        still come: one for each row if `is_per_row`, else the same for all."""
        count = len(candidates)
        if not len(self.open_rows):
            return candidates.take(self.certain)
        rows = np.concatenate([self.pair_rows, self.rows_without, self.rows_to_come])
        positions = count + 1 + (self.rows_to_come if is_per_row else np.zeros_like(self.rows_to_come))
        alternatives = Alternatives(
            self.open_rows.searchsorted(rows),
            np.concatenate([self.pair_candidates, np.full(len(self.rows_without), count), positions]),
            self.shown[self.open_rows],
            len(self.open_rows),
        )
        all_cells = k.concat([candidates, null_column(evolving, 1), to_come])  # type: ignore[type-var]
        hulls = hull_column(all_cells, alternatives, evolving.data)
        positions = self.certain.copy()
        positions[self.open_rows] = count + np.arange(len(self.open_rows))
        return k.concat([candidates, hulls]).take(positions)  # type: ignore[type-var]


def first_candidates(pairs: Pairs, is_wanted: Bools, count: int) -> Indices:
    """For each row the first of its candidates that is wanted, -1 if none is."""
    candidates = np.full(count, -1)
    # NumPy keeps the last of several assignments to one index.
    wanted = true_indices(is_wanted)[::-1]
    candidates[pairs.first[wanted]] = pairs.second[wanted]
    return candidates


def concat_pairs(parts: Sequence[Pairs]) -> Pairs:
    no_rows = np.zeros(0, np.int64)
    return Pairs(
        np.concatenate([no_rows, *(p.first for p in parts)]),
        np.concatenate([no_rows, *(p.second for p in parts)]),
        np.concatenate([masks.full(masks.F, 0), *(p.codes for p in parts)]),
    )
