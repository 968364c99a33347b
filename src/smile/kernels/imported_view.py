"""The rows of a view of another broker, from the row changes that arrive. The last change of a row counts.

The input are row blocks. A frame of changes and the horizons that it was computed at are in one commit of the log. So
at the end of every batch, the rows are exactly those that the view shows at these horizons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import INT
from smile.columns import masks
from smile.columns.values import Array, ValueColumn, true_indices
from smile.horizons import HORIZON_MIN
from smile.kernels.delta import (
    ColumnOverlay,
    Delta,
    RowGroups,
    RowKnowledge,
    absent_knowledge,
    concat_deltas,
    drop_unchanged_rows,
)
from smile.kernels.row_blocks import decode_blocks
from smile.kernels.row_encoding import (
    decode_fixed,
    decode_knowledge,
    encode_rows,
    stored_column,
    table_columns,
)
from smile.kernels.seals import HorizonAdvance, Horizons, SealIndex
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

ROWS: Final = "rows"
BLOCK: Final = ":block"
"""The column with the number of the block that has the last change of a row. Blocks are numbered from 1; the rows that
exist before any event have 0."""


class ImportedView(Transform):
    """`exported` is the view as the exporting broker compiles it. Nothing of it runs here, except for default rows.

    Rows that are hidden at the exporting broker are absent here. A row that has just been hidden permanently is emitted
    as such once, unless the relation is total: then the default row takes its place.
    """

    def __init__(self, rel: mmpl.Imported, output: OutputRelation, exported: InputRelation) -> None:
        self.import_, self.type, self.exported = rel.source, output.type, exported
        self.layout = replace(exported.layout, includes_permanently_hidden=False)
        self.changes_layout = replace(self.layout, fixed={**self.layout.fixed, BLOCK: INT}, certain=False)
        """The layout of its input."""
        fixed = set(self.layout.fixed)
        seals = {s: seal if seal.columns <= fixed else Seal.NEVER for s, seal in output.type.seals.items()}
        self.seal_index = SealIndex(seals, output.type.heading.columns, "seal ")
        ticks = self.seal_index.column_types
        columns = {**table_columns(self.layout), BLOCK: pa.int64(), **ticks}
        key = tuple(map(stored_column, self.layout.key))
        self.table_schemas = {ROWS: TableSchema(key, columns, (), (BLOCK, *ticks))}

    # ── the input ───────────────────────────────────────────────────────────────────────────────────────────────────

    def decode_changes(self, events: pa.RecordBatch, horizon: int) -> Delta:
        """The changes of rows in the blocks above a horizon, with the number of their block."""
        first = int(np.searchsorted(events.column(0).to_numpy(), horizon, side="right"))
        events = events.slice(first)
        rows, counts = decode_blocks(self.layout, events.column(1).to_pylist())
        blocks = np.repeat(events.column(0).to_numpy(), counts)
        return _with_blocks(decode_fixed(self.layout, rows), decode_knowledge(self.layout, rows), blocks)

    def initial_changes(self, rows: Delta) -> Delta:
        """The changes that give the rows which exist before any event."""
        return _with_blocks(rows.fixed, rows.new, np.zeros(len(rows), np.int64))

    # ── processing a batch ──────────────────────────────────────────────────────────────────────────────────────────

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return self._is_reset(advance) or self.seal_index.can_seal_rows(advance)

    def _is_reset(self, advance: HorizonAdvance) -> bool:
        return advance.after[self.import_.resets_name] > advance.before[self.import_.resets_name]

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        table, parts = state[ROWS], []
        gone = table.no_rows()
        if self._is_reset(advance):
            gone = table.rows_between(BLOCK, HORIZON_MIN, advance.after[self.import_.resets_name])
        delta = self._newest_changes(inputs[0], advance)
        if delta is not None:
            is_stored, stored = self._find(table, delta)
            gone = gone.without(stored.take(true_indices(is_stored)))
            parts.append(Delta(delta.fixed, decode_knowledge(self.layout, stored), self._as_imported(delta.new)))
        if gone.row_count:
            knowledge = decode_knowledge(self.layout, gone)
            parts.append(Delta(decode_fixed(self.layout, gone), knowledge, absent_knowledge(knowledge)))
        table = table.without_rows(gone)
        if delta is not None:
            table = self._store(table, delta, parts[0].new, advance)
        table = table.without_rows(self.seal_index.find_sealed_rows(table, advance))
        output = None
        if parts:
            output = drop_unchanged_rows(concat_deltas(self.layout, parts), includes_permanently_hidden=False)
        return {ROWS: table}, output

    def _newest_changes(self, delta: Delta | None, advance: HorizonAdvance) -> Delta | None:
        """The last change of each row since the last reset. A row that was sealed before the batch is known already: a
        reset repeats it."""
        if delta is None:
            return None
        blocks = delta.fixed[BLOCK].data
        is_new = blocks > advance.after[self.import_.resets_name]
        is_new &= (blocks == 0) | ~self.seal_index.is_sealed(advance.before, delta.fixed, len(delta))
        if not is_new.all():
            delta = delta.take(true_indices(is_new))
        if not len(delta):
            return None
        newest = RowGroups([delta.fixed[c] for c in self.layout.key], len(delta)).last
        return delta if len(newest) == len(delta) else delta.take(np.sort(newest))

    def _find(self, table: StateTable, delta: Delta) -> tuple[Array, RowLookup]:
        return table.find([delta.fixed[c] for c in self.layout.key])

    def _as_imported(self, knowledge: RowKnowledge) -> RowKnowledge:
        """Rows that are hidden, but not permanently, are absent."""
        mask = knowledge.mask
        is_absent = ~masks.is_shown(mask)
        if not self.type.heading.total:
            is_absent &= ~masks.is_permanently_hidden(mask)
        if not is_absent.any():
            return knowledge
        return RowKnowledge(knowledge.columns, np.where(is_absent, np.uint8(masks.ABSENT), mask), knowledge.steps)

    def _store(self, table: StateTable, delta: Delta, new: RowKnowledge, advance: HorizonAdvance) -> StateTable:
        """Stores the shown rows, except for those that are sealed."""
        rows = {
            **encode_rows(self.layout, delta.fixed, new),
            BLOCK: delta.fixed[BLOCK],
            **self.seal_index.tick_values(delta.fixed, len(delta)),
        }
        keep = masks.is_shown(new.mask) & ~self.seal_index.is_sealed(advance.after, delta.fixed, len(delta))
        return table.with_rows(rows, None if keep.all() else ~keep)

    # ── default rows ────────────────────────────────────────────────────────────────────────────────────────────────

    def default_rows(self, key: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Delta:
        """Those of the exporting broker, at the horizons of the import."""
        transform = self.exported.transform
        assert transform is not None, "a stream is never total"
        names = {s: self.import_.horizon_name(s) for s in self.import_.base_streams}
        return transform.default_rows(key, count, {s: horizons[name] for s, name in names.items()})

    def default_seals(self, seals: Mapping[str, Seal]) -> Sequence[Mapping[str, Seal]]:
        transform = self.exported.transform
        assert transform is not None, "a stream is never total"
        names = {s: self.import_.horizon_name(s) for s in self.import_.base_streams}
        exported_seals = transform.default_seals({s: seals[name] for s, name in names.items() if name in seals})
        return [{names[s]: seal for s, seal in by_stream.items()} for by_stream in exported_seals]


def _with_blocks(fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge, blocks: Array) -> Delta:
    """Changes of rows, with the numbers of their blocks."""
    return Delta(ColumnOverlay(fixed, {BLOCK: ValueColumn(blocks)}), None, knowledge)
