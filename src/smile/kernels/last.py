"""LAST windows: the rows of the last `size` ticks before the horizon. A row leaves permanently when the horizon is
`size` ticks after it.

The horizon is the least one of the source's streams. A row can therefore arrive too late to be shown at all.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.values import Array, ValueColumn
from smile.kernels.delta import Delta, RowKnowledge, concat_deltas, drop_unchanged_rows, restrict_masks
from smile.kernels.layout import Layout
from smile.kernels.row_encoding import decode_fixed, decode_knowledge, encode_rows, stored_column, table_columns
from smile.kernels.seals import LEAST, HorizonAdvance, SealIndex
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.state.run import TableSchema

ROWS = "rows"


class LastTransform(Transform):
    """Stores the rows that can be shown, with the tick at which each leaves."""

    def __init__(self, rel: mmpl.Window, source: InputRelation, output: OutputRelation) -> None:
        source_layout = source.layout
        self.streams = tuple(source.type.seals)
        leave_seals = {LEAST: Seal.from_column(rel.on, rel.size)}
        self.leave_index = SealIndex(leave_seals, source.type.heading.columns, "until")
        self.layout = Layout(
            source_layout.key, source_layout.fixed, source_layout.evolving, False, output.includes_permanently_hidden
        )
        columns = {**table_columns(self.layout), **self.leave_index.column_types}
        key = tuple(map(stored_column, source_layout.key))
        self.table_schemas = {ROWS: TableSchema(key, columns, tick_indexes=tuple(self.leave_index.column_types))}

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return self.leave_index.can_seal_rows(advance.least(self.streams))

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        least = advance.least(self.streams)
        table, parts = state[ROWS], []
        (delta,) = inputs
        if delta is not None:
            leave_ticks = self._leave_ticks(delta.fixed, len(delta))
            mask_before, mask_after = (_window_masks(leave_ticks, h[LEAST]) for h in (least.before, least.after))
            old = None if delta.old is None else restrict_masks(delta.old, mask_before)
            window_delta = Delta(delta.fixed, old, restrict_masks(delta.new, mask_after))
            is_live = masks.can_be_shown(window_delta.new.mask)
            to_store = np.flatnonzero(is_live | masks.can_be_shown(window_delta.old_mask()))
            rows = {
                **encode_rows(self.layout, window_delta.fixed, window_delta.new),
                self.leave_index.tick_columns[LEAST]: ValueColumn(leave_ticks),
            }
            table = table.with_rows({name: column.take(to_store) for name, column in rows.items()}, ~is_live[to_store])
            parts.append(window_delta)
        # A row of this delta is stored only if it leaves after the new horizon, so these are older rows.
        leaving = self.leave_index.find_sealed_rows(table, least)
        if leaving.row_count:
            table = table.without_rows(leaving)
            knowledge = decode_knowledge(self.layout, leaving)
            hidden = RowKnowledge(knowledge.columns, masks.full(masks.F, leaving.row_count), knowledge.steps)
            parts.append(Delta(decode_fixed(self.layout, leaving), knowledge, hidden))
        if not parts:
            return {ROWS: table}, None
        return {ROWS: table}, drop_unchanged_rows(
            concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden
        )

    def _leave_ticks(self, fixed: Mapping[str, ValueColumn], count: int) -> Array:
        return self.leave_index.ticks(LEAST, fixed, count)


def _window_masks(leave_ticks: Array, horizon: int) -> Array:
    return np.where(leave_ticks <= horizon, np.uint8(masks.F), np.uint8(masks.SHOWN))
