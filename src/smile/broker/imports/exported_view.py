"""Exports a view: the frames that another broker needs to import it. It is a subscription whose rows are encoded with
their whole knowledge.

A broker that reads slowly gets fewer frames, each with the newest knowledge of the rows that have changed.
"""

from collections.abc import Callable, Sequence

from smile.algebra import mmpl
from smile.algebra.trees import columns_in
from smile.broker.imports.import_frame import FramePart, Horizons
from smile.broker.views.view import View
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import ValueColumn, true_indices
from smile.errors import SmileError
from smile.horizons import select_streams
from smile.kernels.delta import ColumnOverlay
from smile.kernels.expressions import compile_expression
from smile.kernels.layout import Layout
from smile.kernels.row_blocks import encode_block
from smile.kernels.row_encoding import decode_rows
from smile.state.row_lookup import RowLookup


class ExportedView:
    """`streams` are those that the view is computed from: `ImportDef.base_streams` at the importing broker. `condition`
    is that of the import. `known` are the horizons that the importing broker has reached, empty if it has nothing.
    `waker` is called from any thread when `next_part` may return something after it has returned None."""

    def __init__(
        self,
        view: View,
        streams: Sequence[str],
        condition: mmpl.Expr | None,
        known: Horizons,
        waker: Callable[[], None],
    ) -> None:
        self._streams, self._layout = tuple(streams), view.source.layout
        self._predicate = None
        if condition is not None:
            # Its columns never evolve, but the layout may have them among those that do.
            types = self._layout.types
            self._condition_columns = [c for c in dict.fromkeys(columns_in(condition)) if c in types]
            exact = Layout((), {c: types[c] for c in self._condition_columns})
            self._predicate = compile_expression(condition, exact)
        known_streams = [s for s in self._streams if s in known]
        self._subscription, start = view.subscribe_after(select_streams(known, known_streams), waker)
        self._start = None if start is None else self._restrict(start)

    def next_part(self, rows_max: int) -> FramePart | None:
        """The next part of a frame; None if there is nothing new."""
        frame = self._subscription.next_frame(rows_max)
        if frame is None:
            return None
        rows = self._matching_rows(frame.rows)
        block = encode_block(self._layout, rows, rows.row_count) if rows.row_count else None
        end = None if frame.progress is None else self._restrict(frame.progress)
        part = FramePart(self._start, block, frame.reset, end, rows.row_count)
        if end is not None:
            self._start = end
        return part

    @property
    def change(self) -> int:
        """The change number after which the next part begins; -1 if it has all rows."""
        return -1 if self._subscription.last_change is None else self._subscription.last_change

    def seek(self, change: int) -> None:
        """Continues after this change; -1 means with all rows."""
        self._subscription.seek(None if change < 0 else change)

    @property
    def problem(self) -> SmileError | None:
        """Why nothing follows: the view was changed or dropped."""
        return self._subscription.ended

    def close(self) -> None:
        self._subscription.close()

    def _restrict(self, horizons: Horizons) -> Horizons:
        return select_streams(horizons, self._streams)

    def _matching_rows(self, rows: RowLookup) -> RowLookup:
        if self._predicate is None or not rows.row_count:
            return rows
        stored = decode_rows(self._layout, rows)
        columns = ColumnOverlay[KnowledgeColumn](stored.new.columns, stored.fixed)
        values = {c: k.current_values(columns[c]) for c in self._condition_columns}
        truths = self._predicate(values, {}, rows.row_count)
        assert isinstance(truths, ValueColumn), "a condition uses columns that never evolve"
        holds = truths.data if truths.valid is None else truths.data & truths.valid
        if not self._layout.fixed.keys() >= values.keys():
            # A row that has become absent may have lost its values.
            holds = holds | (stored.new.mask == masks.ABSENT)
        return rows if holds.all() else rows.take(true_indices(holds))
