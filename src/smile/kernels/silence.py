"""SILENCE: whether a row is followed by silence, which means that no row of its group follows within a time span. It is
permanently false when a permanently shown row breaks it, and permanently true when the horizon has passed its end.

A row is open until its silence is decided. A permanently shown row above the horizon can still break the silence of a
row that arrives later. The horizon is the least one of the source's streams: no row arrives at or below it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import BOOL, TIME
from smile.columns import masks, values as v
from smile.columns.knowledge import KnowledgeColumn, MaskColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.group_index import GROUP_HASH, compute_group_hashes, find_group_rows, unchanging_values
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.row_encoding import MASK, decode_fixed, decode_knowledge, encode_rows, stored_column, table_columns
from smile.kernels.seals import LEAST, HorizonAdvance, SealIndex, shift_ticks
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.state.run import TableSchema
from smile.state.table import StateTable

OPEN, DECIDED = "open", "decided"

_QUIET: Final = 1
_BROKEN: Final = 2
_UNDECIDED: Final = 3
"""The possible values of a silence, as in `MaskColumn.possible`: only true, only false, both. An undecided silence is
false at present."""


class SilenceTransform(Transform):
    """The table `open` has the rows whose silence is undecided, and the rows that can break silences of later rows. The
    table `decided` has the decided silences of rows that can still change in other columns."""

    def __init__(self, rel: mmpl.Silence, source: InputRelation, output: OutputRelation) -> None:
        source_layout = source.layout
        self.column_name, self.tick, self.per, self.span = rel.name, rel.tick, rel.per, rel.longer_than
        self.streams = tuple(source.type.seals)
        self.source_layout = source_layout
        evolving = {**source_layout.evolving, rel.name: EvolvingColumnLayout("mask", BOOL)}
        self.layout = Layout(
            source_layout.key, source_layout.fixed, evolving, source_layout.certain, output.includes_permanently_hidden
        )
        key = (stored_column(rel.tick),)
        self.end_index = SealIndex({LEAST: Seal.from_column(rel.tick, rel.longer_than)}, {rel.tick: TIME}, "until")
        """When the time spans of open rows end."""
        columns = {**table_columns(self.layout), GROUP_HASH: pa.int64(), **self.end_index.column_types}
        columns |= {_per_column(n): arrow_type(source.type.heading.columns[c]) for n, c in enumerate(rel.per)}
        tick_columns = tuple(self.end_index.column_types)
        self.table_schemas = {OPEN: TableSchema(key, columns, indexes=((GROUP_HASH,),), tick_indexes=tick_columns)}
        self.seal_index = SealIndex(source.type.seals, source.type.heading.columns, "until ")
        self.fixed_per = tuple(c for c in rel.per if c in source_layout.fixed)
        if not source_layout.is_history:
            # Rows are partitioned by the fixed columns of their group, so this table needs these columns too.
            routing_columns = {stored_column(c): arrow_type(source_layout.fixed[c]) for c in self.fixed_per}
            decided_columns = {
                **routing_columns,
                key[0]: arrow_type(TIME),
                self.column_name: pa.uint8(),
                **self.seal_index.column_types,
            }
            seal_ticks = tuple(self.seal_index.column_types)
            self.table_schemas[DECIDED] = TableSchema(key, decided_columns, tick_indexes=seal_ticks)

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return self.end_index.can_seal_rows(self._least_advance(advance)) or (
            DECIDED in self.table_schemas and self.seal_index.can_seal_rows(advance)
        )

    def _least_advance(self, advance: HorizonAdvance) -> HorizonAdvance:
        return advance.least(self.streams)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        tables = dict(state)
        least = self._least_advance(advance)
        parts = []
        if inputs[0] is not None:
            parts += self._apply_delta(tables, inputs[0], advance, least.after[LEAST])
        parts += self._complete_silences(tables, least, advance)
        if DECIDED in self.table_schemas:
            tables[DECIDED] = tables[DECIDED].without_rows(self.seal_index.find_sealed_rows(tables[DECIDED], advance))
        return tables, drop_unchanged_rows(
            concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden
        ) if parts else None

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply_delta(
        self, tables: dict[str, StateTable], delta: Delta, advance: HorizonAdvance, horizon: int
    ) -> list[Delta]:
        """Decides the silences of changed rows and of the open rows of their groups."""
        count = len(delta)
        per = [unchanging_values(c, delta.fixed, delta.new.columns) for c in self.per]
        delta_hashes = compute_group_hashes(per, count)
        open_rows = find_group_rows(tables[OPEN], delta_hashes.data)
        ticks = delta.fixed[self.tick].data
        silences_before = masks.full(_UNDECIDED, count)
        if delta.old is not None:
            silences_before = self._previous_silences(tables, delta.fixed[self.tick], delta.old.mask)
            open_rows = open_rows.take(np.flatnonzero(~np.isin(open_rows[stored_column(self.tick)].data, ticks)))
        open_count = open_rows.row_count
        group_rows = _GroupRows(
            [v.concat([open_rows[_per_column(n)], column]) for n, column in enumerate(per)],
            np.concatenate([open_rows[GROUP_HASH].data, delta_hashes.data]).view(np.uint64),
            np.concatenate([open_rows[stored_column(self.tick)].data, ticks]),
            np.concatenate([open_rows[MASK].data, delta.new.mask]) == masks.T,
            np.concatenate([open_rows[self._possible_column].data, silences_before]),
        )
        silences = group_rows.decide(self.span, horizon)
        altered = np.flatnonzero(silences[:open_count] != group_rows.silences[:open_count])
        parts = []
        if len(altered):
            open_rows = open_rows.take(altered)
            old_knowledge = decode_knowledge(self.layout, open_rows)
            parts.append(
                Delta(
                    decode_fixed(self.layout, open_rows),
                    old_knowledge,
                    self._with_silences(old_knowledge, silences[altered]),
                )
            )
            extra_columns = {
                name: open_rows[name]
                for name in (GROUP_HASH, *self.end_index.column_types, *map(_per_column, range(len(per))))
            }
            self._store_open(tables, parts[0], extra_columns, advance, horizon)
        old = None if delta.old is None else self._with_silences(delta.old, silences_before)
        parts.append(Delta(delta.fixed, old, self._with_silences(delta.new, silences[open_count:])))
        extra_columns = {
            GROUP_HASH: delta_hashes,
            **self.end_index.tick_values(delta.fixed, count),
            **{_per_column(n): c for n, c in enumerate(per)},
        }
        self._store_open(tables, parts[-1], extra_columns, advance, horizon)
        return parts

    def _previous_silences(self, tables: dict[str, StateTable], ticks: ValueColumn, old_mask: MaskCodes) -> Array:
        """The previous silences of rows. They are undecided for rows that were absent."""
        is_found, rows = tables[OPEN].find([ticks])
        silences = np.where(is_found, rows[self._possible_column].data, np.uint8(_UNDECIDED))
        if DECIDED in tables and (masks.can_be_shown(old_mask) & ~is_found).any():
            is_found, rows = tables[DECIDED].find([ticks])
            silences = np.where(is_found, rows[self.column_name].data, silences)
        return silences

    def _store_open(
        self,
        tables: dict[str, StateTable],
        delta: Delta,
        extra_columns: Mapping[str, ValueColumn],
        advance: HorizonAdvance,
        horizon: int,
    ) -> None:
        """Stores the rows that are still open or can break silences of later rows, and the decided silences."""
        new = delta.new
        silences = new.columns[self.column_name]
        assert isinstance(silences, MaskColumn)
        is_live, is_undecided = masks.can_be_shown(new.mask), silences.possible == _UNDECIDED
        is_open = is_live & (is_undecided | (delta.fixed[self.tick].data > horizon))
        to_store = np.flatnonzero(is_open | masks.can_be_shown(delta.old_mask()))
        if len(to_store):
            rows = {**encode_rows(self.layout, delta.fixed, new), **extra_columns}
            taken = {name: column.take(to_store) for name, column in rows.items()}
            tables[OPEN] = tables[OPEN].with_rows(taken, ~is_open[to_store])
        if DECIDED in tables:
            self._store_decided(tables, delta.fixed, new, ~is_undecided, advance)

    def _complete_silences(
        self, tables: dict[str, StateTable], least: HorizonAdvance, advance: HorizonAdvance
    ) -> list[Delta]:
        """Removes the rows whose time span has ended, and reports the silences that became true."""
        ended_rows = self.end_index.find_sealed_rows(tables[OPEN], least)
        if not ended_rows.row_count:
            return []
        tables[OPEN] = tables[OPEN].without_rows(ended_rows)
        ended_rows = ended_rows.take(np.flatnonzero(ended_rows[self._possible_column].data == _UNDECIDED))
        old = decode_knowledge(self.layout, ended_rows)
        delta = Delta(
            decode_fixed(self.layout, ended_rows),
            old,
            self._with_silences(old, masks.full(_QUIET, ended_rows.row_count)),
        )
        if DECIDED in tables:
            self._store_decided(tables, delta.fixed, delta.new, np.ones(ended_rows.row_count, bool), advance)
        return [delta]

    def _store_decided(
        self,
        tables: dict[str, StateTable],
        fixed: Mapping[str, ValueColumn],
        new: RowKnowledge,
        is_decided: Bools,
        advance: HorizonAdvance,
    ) -> None:
        """Stores decided silences until the row is sealed."""
        columns = {c: unchanging_values(c, fixed, new.columns) for c in self.seal_index.seal_columns}
        is_live = masks.can_be_shown(new.mask) & ~self.seal_index.is_sealed(advance.after, columns, len(new))
        silences = new.columns[self.column_name]
        assert isinstance(silences, MaskColumn)
        rows = {stored_column(c): fixed[c] for c in (*self.fixed_per, self.tick)} | {
            self.column_name: ValueColumn(silences.possible)
        }
        rows |= self.seal_index.tick_values(columns, len(new))
        decided_rows = np.flatnonzero(is_decided)
        tables[DECIDED] = tables[DECIDED].with_rows(
            {n: column.take(decided_rows) for n, column in rows.items()}, ~is_live[decided_rows]
        )

    @property
    def _possible_column(self) -> str:
        return f"{stored_column(self.column_name)}.possible"

    def _with_silences(self, knowledge: RowKnowledge, silences: Array) -> RowKnowledge:
        """The knowledge of rows with the column of their silences."""
        now = np.where(silences == _QUIET, np.uint8(1), np.uint8(2))
        columns: dict[str, KnowledgeColumn] = {c: knowledge.columns[c] for c in self.source_layout.evolving}
        return RowKnowledge(
            {**columns, self.column_name: MaskColumn(silences.astype(np.uint8), now)}, knowledge.mask, knowledge.steps
        )


@dataclass(frozen=True)
class _GroupRows:
    """Rows of some groups. `stays`: the permanently shown rows, which break silences."""

    per: Sequence[ValueColumn]
    group_hashes: Array
    tick: Array
    stays: Bools
    silences: Array

    def decide(self, span: int, horizon: int) -> Array:
        """The new silence of each row. The next permanently shown row decides it; ticks are unique."""
        count = len(self.tick)
        group_numbers = RowGroups(self.per, count, self.group_hashes).group_numbers
        order = np.lexsort((self.tick, group_numbers))
        staying_positions = np.where(self.stays[order], np.arange(count), count)
        following = np.append(np.minimum.accumulate(staying_positions[::-1])[::-1][1:], count)
        # A sentinel without a group follows the last row.
        ranked, tick = np.append(group_numbers[order], -1), np.append(self.tick[order], 0)
        silent_until = shift_ticks(self.tick, span)
        broken = np.empty(count, bool)
        broken[order] = (ranked[following] == ranked[:-1]) & (tick[following] <= silent_until[order])
        decisions = np.where(broken, _BROKEN, np.where(silent_until <= horizon, _QUIET, _UNDECIDED)).astype(np.uint8)
        return np.where(self.silences == _UNDECIDED, decisions, self.silences)


def _per_column(number: int) -> str:
    return f"per {number}"
