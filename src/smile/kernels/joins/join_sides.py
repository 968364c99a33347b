"""The two sides of a join, and the tables that store their rows.

A row can expire once no row of the other side can match it any more. A pair of rows refers to the rows of both sides: a
column is fetched only when it is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, Literal, TypeVar

import numpy as np

from smile.algebra import mmpl, trees
from smile.algebra.heading import is_key_equated
from smile.columns import knowledge as k, masks
from smile.columns.hashing import hashes
from smile.columns.knowledge import KnowledgeColumn, MaskColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.kernels.delta import Delta, RowKnowledge, RowSelection
from smile.kernels.expressions import compile_expression
from smile.kernels.joins import kleene
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.row_encoding import decode_fixed, decode_knowledge, encode_rows, stored_column, table_columns
from smile.kernels.row_wise import predicate_masks
from smile.kernels.seals import HorizonAdvance, Horizons, SealIndex
from smile.kernels.transform import InputRelation, OutputRelation, TableSource
from smile.knowledge.join_types import match_constraints
from smile.knowledge.seals import TimeConstraints
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

C = TypeVar("C", bound=KnowledgeColumn)
SideName = Literal["left", "right"]


class MultiSourceColumns(Mapping[str, C], Generic[C]):
    """Columns from several mappings, by name."""

    def __init__(self, sources: Mapping[str, Mapping[str, C]]) -> None:
        self.sources = sources

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __getitem__(self, name: str) -> C:
        return self.sources[name][name]


@dataclass(frozen=True)
class JoinRows:
    """Rows of one side, either before or after a batch."""

    fixed: Mapping[str, ValueColumn]
    knowledge: RowKnowledge

    def __len__(self) -> int:
        return len(self.knowledge)

    def take(self, indices: Indices) -> "JoinRows":
        return JoinRows(RowSelection(self.fixed, indices), self.knowledge.take(indices))

    def column(self, name: str) -> KnowledgeColumn:
        return self.knowledge.columns[name] if name in self.knowledge.columns else self.fixed[name]


class JoinSide:
    """One side of a join. `on` are its join key columns, in the join's order. `covers_key`: they include the side's
    whole key, so that a row of the other side matches at most one of its rows; `total`: and that row always exists.
    `excludes_others`: while a row is present, no other row of its key can come.
    `fixed` are the columns that never change. `match_seals` say, in terms of `fixed`, when every row of the other side
    that a row can match is sealed: then none can come any more, and those that have come are final. `layout` has the
    stored columns."""

    def __init__(
        self,
        name: SideName,
        source: InputRelation,
        equalities: Sequence[tuple[str, str]],
        other: InputRelation,
        ties: TimeConstraints,
        read_columns: set[str],
    ) -> None:
        self.name, self.source = name, source
        self.on = on = tuple(a for a, _ in equalities)
        self.columns_equated_twice = [(a, c) for (a, b), (c, d) in combinations(equalities, 2) if b == d]
        """Pairs of columns that are equated to the same column of the other side. A row in which they differ has no
        match."""
        heading, source_layout = source.type.heading, source.layout
        self.key = heading.key
        self.covers_key = is_key_equated(heading, on)
        self.total = self.covers_key and heading.total
        self.excludes_others = self.total or not source.type.can_become_absent
        self.fixed = tuple(c for c, t in source.type.columns.items() if not t.evolves and c in source_layout.fixed)
        self.other_side_seals = {s: ties.express_seal(seal, self.fixed) for s, seal in other.type.seals.items()}
        seal_columns = {c for seal in self.other_side_seals.values() for c in seal.columns}
        needed = {*read_columns, *heading.key, *on, *seal_columns}
        fixed = {c: t for c, t in source_layout.fixed.items() if c in needed}
        evolving = {c: e for c, e in source_layout.evolving.items() if c in needed}
        self.layout = Layout(
            heading.key, fixed, evolving, source_layout.certain, source_layout.includes_permanently_hidden
        )
        self.index = tuple(dict.fromkeys(stored_column(c) for c in on))
        self.match_seals = SealIndex(self.other_side_seals, heading.columns, "meets ")
        is_fixed = all(c in source_layout.fixed for c in on)
        self.table_schema = TableSchema(
            tuple(stored_column(c) for c in heading.key),
            {**table_columns(self.layout), **self.match_seals.column_types},
            (self.index,) if is_fixed and on else (),
            tuple(self.match_seals.column_types),
        )

    @property
    def table_source(self) -> TableSource:
        """The input that the stored rows come from."""
        return TableSource(0 if self.name == "left" else 1)

    # ── storing rows ────────────────────────────────────────────────────────────────────────────────────────────────

    def encode_rows(self, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge) -> dict[str, ValueColumn]:
        """The rows as columns of the side's table."""
        return {**encode_rows(self.layout, fixed, knowledge), **self.match_seals.tick_values(fixed, len(knowledge))}

    def update_table(self, table: StateTable, delta: Delta | None, final_matches: Bools | None = None) -> StateTable:
        """The table after a batch. Removes rows that are absent, rows that are permanently hidden (unless the layout
        includes them), and rows with `final_matches`."""
        return self.split_and_update(table, delta, final_matches)[1]

    def split_and_update(
        self,
        table: StateTable,
        delta: Delta | None,
        final_matches: Bools | None = None,
        key_hashes: Array | None = None,
    ) -> tuple[StateTable, StateTable]:
        """The table of the stored rows that do not change, and the table that `update_table` returns. `key_hashes` are
        those of the method `key_hashes`, if they are known."""
        if delta is None:
            return table, table
        new = delta.new
        keep = masks.is_present(new.mask) if self.layout.includes_permanently_hidden else masks.can_be_shown(new.mask)
        if final_matches is not None:
            keep = keep & ~final_matches
        known_hashes = {} if key_hashes is None else {self.index: key_hashes}
        stored_rows = self.known_stored_rows(table, delta)
        if keep.all():
            return table.split_and_update(self.encode_rows(delta.fixed, new), None, known_hashes, stored_rows)
        if delta.old is None:
            if not keep.any():
                return table, table
            rows_to_store = true_indices(keep)
            delta, known_hashes = (
                delta.take(rows_to_store),
                {on: row_hashes[rows_to_store] for on, row_hashes in known_hashes.items()},
            )
            return table.split_and_update(self.encode_rows(delta.fixed, delta.new), None, known_hashes, stored_rows)
        return table.split_and_update(self.encode_rows(delta.fixed, new), ~keep, known_hashes)

    def known_stored_rows(self, table: StateTable, delta: Delta) -> RowLookup | None:
        """The stored rows of the changed rows, if they are known without a lookup: none, if all were absent. If
        permanently hidden rows are stored, a row that was absent may be stored nevertheless. None: not known."""
        return table.no_rows() if delta.old is None and not self.layout.includes_permanently_hidden else None

    def find_stored(self, table: StateTable, delta: Delta) -> tuple[Delta, RowLookup | None]:
        """The delta of the rows that are new or stored, with the stored rows; None if none was present before. All
        other rows are final."""
        if delta.old is None:
            return delta, None
        is_stored, stored = table.find([delta.fixed[c] for c in self.key])
        known_rows = true_indices(is_stored | ~masks.is_present(delta.old.mask))
        if len(known_rows) == len(delta):
            return delta, stored
        return delta.take(known_rows), stored.take(known_rows)

    def can_match(self, rows: JoinRows) -> Bools:
        """Whether rows can match any row at all: no join key column is NULL for good, and there is no conflict."""
        can_match = ~self.has_conflicting_keys(rows)
        for name in self.on:
            column = rows.column(name)
            if isinstance(column, ValueColumn):
                can_match &= column.is_valid()
            else:
                can_match &= ~(k.is_final(column) & k.current_values(column).is_null())
        return can_match

    def has_conflicting_keys(self, rows: JoinRows) -> Bools:
        """The rows with final but different values in two columns that are equated to one column of the other side:
        they match nothing."""
        has_conflict = np.zeros(len(rows), bool)
        for names in self.columns_equated_twice:
            a, b = (rows.column(name) for name in names)
            has_conflict |= k.is_final(a) & k.is_final(b) & ~k.current_values(a).same(k.current_values(b))
        return has_conflict

    def has_final_matches(self, fixed: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Bools:
        """Whether all rows of the other side that a row can match are sealed: none can come, and all are final."""
        return self.match_seals.is_sealed(horizons, fixed, count)

    def rows_with_final_matches(self, table: StateTable, advance: HorizonAdvance) -> RowLookup:
        """The stored rows whose matches this advance makes final."""
        return self.match_seals.find_sealed_rows(table, advance)

    def expire_rows(self, table: StateTable, advance: HorizonAdvance) -> StateTable:
        """The table without the rows whose matches this advance makes final."""
        if self.match_seals.has_ended(advance.after):
            return StateTable(self.table_schema)
        return self.remove_rows(table, self.rows_with_final_matches(table, advance)) if advance.has_moved else table

    def remove_rows(self, table: StateTable, lookup: RowLookup) -> StateTable:
        """The table without these rows."""
        return table.without_rows(lookup)

    # ── finding rows ────────────────────────────────────────────────────────────────────────────────────────────────

    def decode_rows(self, lookup: RowLookup) -> JoinRows:
        """Stored rows, in the order of the lookup."""
        return JoinRows(decode_fixed(self.layout, lookup), decode_knowledge(self.layout, lookup))

    def join_key(self, columns: Mapping[str, ValueColumn]) -> list[ValueColumn]:
        """The join key columns of rows of this side."""
        return [columns[c] for c in self.on]

    def key_hashes(self, columns: Mapping[str, ValueColumn], count: int) -> Array | None:
        """The hashes of the join keys, which are the same on both sides; None if they cannot be used."""
        key = self.join_key(columns)
        if not key or any(c.valid is not None for c in key) or len(set(self.on)) < len(self.on):
            return None
        return hashes(key, count)

    def match_rows(
        self,
        table: StateTable,
        other_key: Sequence[ValueColumn],
        count: int,
        ordered: bool = True,
        key_hashes: Array | None = None,
    ) -> tuple[Indices, JoinRows]:
        """The rows of this side that have the join keys of the other side's rows: the numbers of the latter, each with
        a matching row. `other_key` has the other side's key columns, of `count` rows."""
        row_numbers, lookup = self.match_lookup(table, other_key, count, ordered, key_hashes)
        return row_numbers, self.decode_rows(lookup)

    def match_lookup(
        self,
        table: StateTable,
        other_key: Sequence[ValueColumn],
        count: int,
        ordered: bool = True,
        key_hashes: Array | None = None,
    ) -> tuple[Indices, RowLookup]:
        """The same as `match_rows`, with the rows as they are stored."""
        if self.on:
            # A column may be equated to several columns: the index has it once, and the others are compared.
            key_hashes = key_hashes if len(self.index) == len(self.on) else None
            first_positions = {stored_column(c): n for n, c in reversed(list(enumerate(self.on)))}
            row_numbers, lookup = table.match(
                self.index, [other_key[first_positions[c]] for c in self.index], ordered, key_hashes
            )
            keep: Array | None = None
            for n, c in enumerate(self.on):
                if first_positions[stored_column(c)] != n:
                    is_same = lookup[stored_column(c)].same(other_key[n].take(row_numbers))
                    keep = is_same if keep is None else keep & is_same
            if keep is not None and not keep.all():
                equal_rows = true_indices(keep)
                row_numbers, lookup = row_numbers[equal_rows], lookup.take(equal_rows)
            return row_numbers, lookup
        all_rows = table.scan()
        row_numbers = np.repeat(np.arange(count), all_rows.row_count)
        return row_numbers, all_rows.take(np.tile(np.arange(all_rows.row_count), count))


class JoinSides:
    """Both sides of a join, and the join condition beside the equalities. `has_evolving_keys`: a join key column
    evolves."""

    def __init__(self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        self.rel = rel
        self.ties = ties = match_constraints(rel, left.type, right.type)
        condition_columns = set(trees.columns_in(rel.when)) if rel.when is not None else set()
        read_columns = {*output.type.heading.columns, *condition_columns}
        self.left = JoinSide("left", left, rel.on, right, ties, read_columns)
        self.right = JoinSide("right", right, [(b, a) for a, b in rel.on], left, ties, read_columns)
        self.table_sources = {str(side.name): side.table_source for side in (self.left, self.right)}
        """For joins that store each side in a table with the side's name."""
        fixed = (left.layout.fixed, right.layout.fixed)
        self.has_evolving_keys = any(a not in fixed[0] or b not in fixed[1] for a, b in rel.on)
        is_one_to_one = len(set(self.left.on)) == len(set(self.right.on)) == len(rel.on)
        on_keys = all(a in self.left.key and b in self.right.key for a, b in rel.on)
        self.has_extra_conditions = rel.when is not None or not on_keys or not is_one_to_one
        self.column_sides = self._assign_columns(output)
        """The side that each output column comes from. If both sides have a column of that name, it is the right side
        for a right join or if the column is part of the right key only; else the left side."""
        self.pair_layout = self._make_pair_layout()
        limits = {**right.limits, **left.limits}
        self.condition = None if rel.when is None else compile_expression(rel.when, self.pair_layout, limits)

    def _assign_columns(self, output: OutputRelation) -> dict[str, JoinSide]:
        first_side, second_side = (self.right, self.left) if self.rel.kind == "right" else (self.left, self.right)
        column_sides = {}
        for name in output.type.heading.columns:
            column_sides[name] = first_side if name in first_side.source.layout.types else second_side
            if name in self.right.key and name in self.left.source.layout.types and name not in self.left.key:
                column_sides[name] = self.right
        return column_sides

    def _make_pair_layout(self) -> Layout:
        """The layout of all columns of both sides; if both have a column of the same name, the left side's."""
        left, right = self.left.layout, self.right.layout
        fixed, evolving = dict(left.fixed), dict(left.evolving)
        fixed |= {c: t for c, t in right.fixed.items() if c not in left.types}
        evolving |= {c: e for c, e in right.evolving.items() if c not in left.types}
        return Layout((), fixed, evolving)

    def other(self, side: JoinSide) -> JoinSide:
        return self.right if side is self.left else self.left

    def output_layout(self, key: tuple[str, ...], certain: bool, includes_hidden: bool) -> Layout:
        """The layout of pairs in which every fixed column of a side is fixed."""
        fixed = {c: s.layout.fixed[c] for c, s in self.column_sides.items() if c in s.layout.fixed}
        evolving: dict[str, EvolvingColumnLayout] = {
            c: s.layout.evolving[c] for c, s in self.column_sides.items() if c not in fixed
        }
        return Layout(key, fixed, evolving, certain, includes_hidden)

    def match_codes(
        self, left: JoinRows, right: JoinRows, equalities: Sequence[tuple[str, str]], uses_condition: bool = True
    ) -> MaskCodes:
        """Masks that say whether pairs of rows match, by these equalities, the absence of conflicts, and the join
        condition (NULL is false)."""
        codes = masks.full(masks.T, len(left))
        for a, b in equalities:
            equal = kleene.compare_columns("=", left.column(a), right.column(b))
            codes = masks.all_of(codes, kleene.as_filter(equal))
        for side, rows in ((self.left, left), (self.right, right)):
            if side.columns_equated_twice:
                codes[side.has_conflicting_keys(rows)] = masks.F
        possible = true_indices(codes != masks.F)
        if uses_condition and self.condition is not None:
            condition_codes = self.evaluate_condition(left.take(possible), right.take(possible))
            assert condition_codes is not None
            codes[possible] = masks.all_of(codes[possible], condition_codes)
        return codes

    def evaluate_condition(self, left: JoinRows, right: JoinRows) -> MaskCodes | None:
        """Masks that say whether the join condition holds for pairs (NULL is false); None if there is no condition."""
        if self.condition is None:
            return None
        fixed = self._merge_sides(self.pair_layout.fixed, left.fixed, right.fixed)
        columns = self._merge_sides(self.pair_layout.evolving, left.knowledge.columns, right.knowledge.columns)
        result = self.condition(fixed, columns, len(left))
        if isinstance(result, MaskColumn):
            return predicate_masks(result)
        assert isinstance(result, ValueColumn)
        holds = result.data if result.valid is None else result.data & result.valid
        return np.where(holds, np.uint8(masks.T), np.uint8(masks.F))

    def _merge_sides(
        self, names: Mapping[str, object], left: Mapping[str, C], right: Mapping[str, C]
    ) -> Mapping[str, C]:
        return MultiSourceColumns({c: left if c in self.left.layout.types else right for c in names})

    def pair_fixed_columns(
        self, layout: Layout, left: Mapping[str, ValueColumn], right: Mapping[str, ValueColumn]
    ) -> Mapping[str, ValueColumn]:
        """The fixed output columns of pairs."""
        return MultiSourceColumns({c: left if self.column_sides[c] is self.left else right for c in layout.fixed})

    def pair_evolving_columns(
        self, layout: Layout, left: Mapping[str, KnowledgeColumn], right: Mapping[str, KnowledgeColumn]
    ) -> MultiSourceColumns[KnowledgeColumn]:
        """The evolving output columns of pairs."""
        return MultiSourceColumns({c: left if self.column_sides[c] is self.left else right for c in layout.evolving})
