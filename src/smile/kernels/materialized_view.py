"""Materialized views: the state has the shown rows of a view, for snapshots."""

from collections.abc import Sequence

import numpy as np

from smile.columns import masks
from smile.kernels.delta import Delta
from smile.kernels.row_encoding import decode_rows, encode_rows, stored_column, table_columns
from smile.kernels.seals import HorizonAdvance
from smile.kernels.transform import InputRelation, State, Transform
from smile.state.run import TableSchema

ROWS = "rows"


class MaterializedView(Transform):
    """Has no output deltas; `read_rows` returns its rows."""

    def __init__(self, source: InputRelation) -> None:
        self.layout = source.layout
        self.table_schemas = {
            ROWS: TableSchema(tuple(map(stored_column, source.layout.key)), table_columns(source.layout))
        }

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        (delta,) = inputs
        if delta is None:
            return state, None
        was_or_is_shown = np.flatnonzero(masks.is_shown(delta.new.mask) | masks.is_shown(delta.old_mask()))
        if not len(was_or_is_shown):
            return state, None
        delta = delta.take(was_or_is_shown)
        rows = encode_rows(self.layout, delta.fixed, delta.new)
        return {ROWS: state[ROWS].with_rows(rows, ~masks.is_shown(delta.new.mask))}, None

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return False

    def read_rows(self, state: State) -> Delta:
        """All rows, as a delta of new rows."""
        return decode_rows(self.layout, state[ROWS].scan())
