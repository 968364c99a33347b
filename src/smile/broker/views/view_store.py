"""The current rows of a view, in a state table. Every change of a row has a number, and replaces the row's earlier one.

Hidden rows are retained as long as subscribers may have to be told that they are hidden.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from smile import limits
from smile.broker.views.condition import ViewCondition
from smile.columns import masks
from smile.columns.hashing import hashes
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.engine.background_merges import BackgroundMerges
from smile.kernels.delta import (
    Delta,
    RowKnowledge,
    concat_deltas,
    drop_unchanged_rows,
    have_same_columns,
    is_row_final,
)
from smile.kernels.layout import Layout
from smile.kernels.row_encoding import MASK, decode_knowledge, decode_rows, encode_rows, stored_column, table_columns
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

CHANGE = "change"
"""The column with the number of a row's last change."""

_ENCODED_ROWS_SPARE = 8192
"""The number of outdated encoded rows that are stored in any case."""


class ViewStore:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.last_change = 0
        """The number of the last change."""
        self.expired_up_to = 0
        """Hidden rows may have been removed if their last change is not after this one."""
        self.row_count = 0
        """The number of shown rows."""
        self.encoded_rows: dict[int, bytes] = {}
        """Rows as they are sent, by change number. Those who encode rows add them, in any thread."""
        key = tuple(map(stored_column, layout.key))
        self._table = StateTable(TableSchema(key, {**table_columns(layout), CHANGE: pa.int64()}, (), (CHANGE,)))
        self._merges = BackgroundMerges()
        self._hidden_count = 0
        self._hidden_changes: deque[int] = deque()
        """The changes after which a row is hidden, oldest first. Some of them are outdated."""

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, delta: Delta) -> tuple[Delta, Array]:
        """Stores a delta. Returns its relevant rows and their change numbers. Hidden rows that were never shown are not
        relevant, nor are rows that were final already: of these only the steps grow. If the memory is not sufficient
        for the delta, nothing of it is stored."""
        self._table = self._merges.apply_finished({"view": {"rows": self._table}})["view"]["rows"]
        is_stored, old_rows = self._find(delta)
        is_relevant = masks.is_shown(delta.new.mask) | is_stored
        is_relevant[self._rows_final_before(delta, is_stored, old_rows)] = False
        if not is_relevant.all():
            relevant = true_indices(is_relevant)
            delta, old_rows, is_stored = delta.take(relevant), old_rows.take(relevant), is_stored[relevant]
        numbers = np.arange(self.last_change + 1, self.last_change + 1 + len(delta))
        if len(delta):
            rows = encode_rows(self.layout, delta.fixed, delta.new)
            table = self._table.with_rows({**rows, CHANGE: ValueColumn(numbers)}, None, old_rows)
            self._count_rows(masks.is_shown(delta.new.mask), is_stored, old_rows, numbers)
            self._table = table
            self.last_change += len(delta)
            self._expire_hidden_rows()
            self._drop_encoded_rows(old_rows[CHANGE].data[is_stored])
            self._merges.start_due({"view": {"rows": self._table}})
        return delta, numbers

    def _rows_final_before(self, delta: Delta, is_stored: Bools, old_rows: RowLookup) -> Indices:
        permanent = true_indices(is_stored & (old_rows[MASK].data == masks.T))
        candidates = permanent[is_row_final(self.layout, delta.take(permanent))]
        old = decode_knowledge(self.layout, old_rows.take(candidates))
        return candidates[have_same_columns(old, delta.new.take(candidates))]

    def _find(self, delta: Delta) -> tuple[Bools, RowLookup]:
        """Which rows of the delta are stored, and as what."""
        if self.layout.key:
            return self._table.find([delta.fixed[name] for name in self.layout.key])
        is_stored, row = self._table.find([])  # the only row of a relation without key
        same_row = np.zeros(len(delta), np.int64)
        return is_stored[same_row], row.take(same_row)

    def _count_rows(self, is_shown: Bools, is_stored: Bools, old_rows: RowLookup, numbers: Array) -> None:
        was_shown = is_stored & masks.is_shown(old_rows[MASK].data)
        newly_shown, were_hidden = int(is_shown.sum()) - int(was_shown.sum()), int((is_stored & ~was_shown).sum())
        # A row that changes while it is hidden is retained longer.
        hidden_numbers = numbers[~is_shown].tolist()
        self._hidden_changes.extend(hidden_numbers)
        self.row_count += newly_shown
        self._hidden_count += len(hidden_numbers) - were_hidden

    def _expire_hidden_rows(self) -> None:
        """Removes the oldest hidden rows if there are too many."""
        while (excess := self._hidden_count - limits.deleted_rows_max - self.row_count) > 0:
            oldest = np.array([self._hidden_changes.popleft() for _ in range(excess)])
            is_last, rows = self.find_changes(oldest)
            if is_last.any():
                expired = rows.take(true_indices(is_last))
                self._table = self._table.without_rows(expired)
                self._hidden_count -= expired.row_count
                self.expired_up_to = max(self.expired_up_to, int(oldest[is_last].max()))
        if len(self._hidden_changes) > 2 * (self._hidden_count + limits.deleted_rows_max):
            changes = np.array(self._hidden_changes)
            self._hidden_changes = deque(changes[self.find_changes(changes)[0]].tolist())

    def _drop_encoded_rows(self, outdated: Array) -> None:
        for number in outdated.tolist():
            self.encoded_rows.pop(number, None)
        if len(self.encoded_rows) > self.row_count + self._hidden_count + _ENCODED_ROWS_SPARE:
            # Some became outdated while another thread encoded them, and are not dropped otherwise.
            self.encoded_rows.clear()

    def replacement_delta(self, rows: Delta) -> Delta:
        """The delta to apply so that exactly these rows are shown."""
        is_stored, old_rows = self._find(rows)
        old = decode_knowledge(self.layout, old_rows)
        changed = drop_unchanged_rows(Delta(rows.fixed, old, rows.new), includes_permanently_hidden=True)
        stored = self._table.scan()
        is_removed = masks.is_shown(stored[MASK].data)
        is_removed &= ~np.isin(stored[CHANGE].data, old_rows[CHANGE].data[is_stored])
        removed = decode_rows(self.layout, stored.take(true_indices(is_removed)))
        hidden = RowKnowledge(removed.new.columns, masks.full(masks.HIDDEN, len(removed)), removed.new.steps)
        parts = [Delta(changed.fixed, None, changed.new), Delta(removed.fixed, None, hidden)]
        return concat_deltas(self.layout, [part for part in parts if len(part)] or parts[:1])

    # ── lookups ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def find_changes(self, numbers: Array) -> tuple[Bools, RowLookup]:
        """For each change, whether it is the last one of its row, and the row."""
        return self._table.find_ticks(CHANGE, numbers)

    def set_indexes(self, indexes: Sequence[Sequence[str]]) -> None:
        """Sets the columns by which `matching_changes` finds rows without reading all others."""
        self._table = self._table.with_indexes(tuple(tuple(map(stored_column, on)) for on in indexes))

    def matching_changes(self, condition: ViewCondition) -> Array:
        """The last changes of all rows that match the condition, in order."""
        columns = condition.value_columns
        on, values = tuple(map(stored_column, columns)), list(columns.values())
        if on in self._table.schema.indexes and all(value.valid is None for value in values):
            _, rows = self._table.match(on, values)
        else:
            rows = self._table.scan()
            if on:
                rows = rows.take(true_indices(hashes([rows[name] for name in on], rows.row_count) == hashes(values, 1)))
                same_value = np.zeros(rows.row_count, np.int64)
                is_equal = [rows[name].same(value.take(same_value)) for name, value in zip(on, values, strict=True)]
                rows = rows.take(true_indices(np.logical_and.reduce(is_equal)))
        if condition.only_final:
            rows = rows.take(true_indices(rows[MASK].data == masks.T))
            rows = rows.take(true_indices(is_row_final(self.layout, decode_rows(self.layout, rows))))
        return np.sort(rows[CHANGE].data)
