"""Semi, anti and match joins: one output row for each left row.

Whether the left row has a match decides if the output row is shown, or is the value of a Boolean column. If the join
depends only on fixed join key columns, matches are counted per join key. Else, with other conditions, null-aware
equality or columns that evolve, they are counted per left row: see `match_counter` and `pair_match_counter`.
"""

from collections.abc import Sequence

import numpy as np

from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.columns import masks
from smile.columns.knowledge import KnowledgeColumn, MaskColumn
from smile.columns.values import Array
from smile.kernels.delta import Delta, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.joins.join_sides import JoinSides
from smile.kernels.joins.match_tracker import MatchDelta, MatchTest, MatchTracker
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.seals import HorizonAdvance
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform


class SemiJoin(Transform):
    """Semi, anti or match join. Default rows are no matches: of a total relation only present rows count."""

    def __init__(self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        assert rel.kind in ("semi", "anti", "match")
        sides = JoinSides(rel, left, right, output)
        test: MatchTest = rel.kind
        self.match_column = rel.match_column
        self.match_tracker = MatchTracker(sides, sides.left, test, total=False)
        self.table_schemas, self.table_sources = self.match_tracker.table_schemas, self.match_tracker.table_sources
        left_layout = left.layout
        evolving = {
            **left_layout.evolving,
            **({} if rel.match_column is None else {rel.match_column: EvolvingColumnLayout("mask", BOOL)}),
        }
        self.layout = Layout(
            left_layout.key,
            left_layout.fixed,
            evolving,
            left_layout.certain and rel.kind == "match",
            output.includes_permanently_hidden,
        )

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return self.match_tracker.can_seal_rows(advance)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        left, right = inputs
        state, parts = self.match_tracker.step(state, left, right, advance)
        if not parts:
            return state, None
        output = drop_unchanged_rows(
            concat_deltas(self.layout, [self._output_delta(p) for p in parts]), self.layout.includes_permanently_hidden
        )
        return state, output if len(output) else None

    def _output_delta(self, match_delta: MatchDelta) -> Delta:
        delta = match_delta.delta
        old = (
            None
            if delta.old is None
            else self._row_knowledge(delta.old, match_delta.had_match, match_delta.steps_before)
        )
        return Delta(delta.fixed, old, self._row_knowledge(delta.new, match_delta.has_match, match_delta.steps))

    def _row_knowledge(self, knowledge: RowKnowledge, has_match: MaskColumn, steps: Array) -> RowKnowledge:
        columns: dict[str, KnowledgeColumn] = {
            c: knowledge.columns[c] for c in self.layout.evolving if c != self.match_column
        }
        mask = knowledge.mask
        if self.match_column is not None:
            columns[self.match_column] = has_match
        else:
            shown = masks.all_of(mask, self.match_tracker.shown_codes(has_match))
            mask = np.where(masks.is_present(mask), shown, np.uint8(masks.ABSENT))
        return RowKnowledge(columns, mask, knowledge.steps + steps)
