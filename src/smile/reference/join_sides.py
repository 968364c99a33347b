"""The two sides of a join, and when their rows match.

A total relation that is joined on its whole key has a row for every key: the default row where no other is present.
While a side is not sealed, further rows may appear in it and match.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from smile.algebra import mmpl
from smile.algebra.heading import is_key_equated
from smile.algebra.types import Value
from smile.knowledge.join_types import match_constraints
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import equality_mask, null_cell
from smile.knowledge.values.mask import MAY_APPEAR, F, Mask, T, all_of, any_of
from smile.reference.evaluation import Evaluation
from smile.reference.relation import Cells, Key, ReferenceRow, Relation, is_sealed, key_of


@dataclass(frozen=True)
class ReferenceJoinSide:
    """`join_columns` are its equated columns, in the order of the join. `is_unique`: they include its whole key, so
    that a row of the other side matches at most one of its rows. `is_total`: there is always such a row. `stays`: a row
    that is present stays present, so that no other row of its key can come."""

    rel: mmpl.Rel
    rows: Relation
    key: tuple[str, ...]
    join_columns: tuple[str, ...]
    is_unique: bool
    is_total: bool
    stays: bool
    fixed_columns: tuple[str, ...]


class ReferenceJoinSides:
    """Both sides of a join, and when their rows match."""

    def __init__(self, ev: Evaluation, rel: mmpl.Join) -> None:
        self.ev, self.rel = ev, rel
        self.left = self._read_side(rel.left, tuple(a for a, _ in rel.on))
        self.right = self._read_side(rel.right, tuple(b for _, b in rel.on))
        self.constraints = match_constraints(rel, ev.relation_type(rel.left), ev.relation_type(rel.right))
        column_types = (ev.relation_type(rel.left).columns, ev.relation_type(rel.right).columns)
        self.has_evolving_keys = any(column_types[0][a].evolves or column_types[1][b].evolves for a, b in rel.on)
        is_equated_once = len(set(self.left.join_columns)) == len(set(self.right.join_columns)) == len(rel.on)
        on_keys = all(a in self.left.key and b in self.right.key for a, b in rel.on)
        self.has_extra_condition = rel.when is not None or not on_keys or not is_equated_once

    def _read_side(self, rel: mmpl.Rel, on: tuple[str, ...]) -> ReferenceJoinSide:
        relation_type = self.ev.relation_type(rel)
        is_unique = is_key_equated(relation_type.heading, on)
        fixed_columns = tuple(c for c, t in relation_type.columns.items() if not t.evolves)
        return ReferenceJoinSide(
            rel,
            self.ev.relation(rel),
            relation_type.heading.key,
            on,
            is_unique,
            is_unique and relation_type.heading.total,
            not relation_type.can_become_absent,
            fixed_columns,
        )

    def match_mask(self, left: Cells, right: Cells) -> Mask:
        """Whether two rows match. NULL means unknown; only a NULL-aware join distinguishes it from false."""
        equated = all_of(*(equality_mask(left[a], right[b]) for a, b in self.rel.on))
        if not self.rel.null_aware:
            equated = F if self.have_conflicting_keys(left, right) else equated.null_as_false()
        if self.rel.when is None or equated.possible == {False}:
            return equated
        when = self.ev.expression_knowledge(self.rel.when, {**right, **left}, self.rel.left, self.rel.right)
        assert isinstance(when, Mask)
        return all_of(equated, when.null_as_false())

    def possible_matches(
        self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide, include_former: bool = False
    ) -> list[tuple[Mask, ReferenceRow]]:
        """Rows of the other side that match or may match, each with the mask of being present and matching. With
        `include_former` also rows that may have matched earlier."""
        matches = []
        for candidate in self._candidates(row, own, other):
            mask = self._row_match_mask(row, candidate, own)
            if mask.possible != {False} or (include_former and self.has_evolving_keys):
                present = T if other.is_total else candidate.mask
                matches.append((all_of(present, mask), candidate))
        return matches

    def _row_match_mask(self, row: ReferenceRow, other: ReferenceRow, own: ReferenceJoinSide) -> Mask:
        return self.match_mask(row.cells, other.cells) if own is self.left else self.match_mask(other.cells, row.cells)

    def _candidates(
        self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide
    ) -> Iterator[ReferenceRow]:
        yield from other.rows.values()
        if other.is_total:
            key = self._lookup_key(row, own, other)
            if None not in key and key not in other.rows:
                yield self.ev.default_row(other.rel, key)

    def _lookup_key(self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide) -> Key:
        """The key of the other side that this row looks up at present. The whole key must be equated."""
        source = {b: a for a, b in zip(own.join_columns, other.join_columns, strict=True)}
        return tuple(row.cells[source[c]].now for c in other.key)

    def can_gain_match(self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide) -> bool:
        """Whether an absent row of the other side may still appear and match this row."""
        join_cells = [row.cells[a] for a in own.join_columns]
        if not self.rel.null_aware and any(c.is_final and c.now is None for c in join_cells):
            return False
        if not self.rel.null_aware and self._has_conflicting_keys(row.cells, own, other):
            return False
        is_key_final = all(c.is_final for c in join_cells)
        if other.is_total and not is_key_final:
            return True  # there is a row for whatever key is looked up in the end
        if other.is_unique and is_key_final:
            key = self._lookup_key(row, own, other)
            if (other.stays and key in other.rows) or (other.is_total and None not in key):
                return False
        seals = {
            s: self.constraints.express_seal(seal, own.fixed_columns)
            for s, seal in self.ev.relation_type(other.rel).seals.items()
        }
        return not is_sealed(seals, row.cells, self.ev.column_types(own.rel), self.ev.history.horizons)

    def have_conflicting_keys(self, left: Cells, right: Cells) -> bool:
        return self._has_conflicting_keys(left, self.left, self.right) or self._has_conflicting_keys(
            right, self.right, self.left
        )

    def _has_conflicting_keys(self, cells: Cells, own: ReferenceJoinSide, other: ReferenceJoinSide) -> bool:
        """Whether two different values are looked up in one column, which no row has."""
        values: dict[str, Value] = {}
        final_values = [
            (b, cells[a].now) for a, b in zip(own.join_columns, other.join_columns, strict=True) if cells[a].is_final
        ]
        return any(values.setdefault(b, value) != value for b, value in final_values)

    def existence_mask(self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide) -> Mask:
        """Whether this row has a match."""
        masks = [mask for mask, _ in self.possible_matches(row, own, other)]
        if self.can_gain_match(row, own, other):
            masks.append(Mask.bottom(False) if self.rel.null_aware else MAY_APPEAR)
        return any_of(masks)

    def merge_cells(self, left: Cells, right: Cells) -> dict[str, CellKnowledge]:
        """The columns of a pair. A column that both sides share comes from the side where it is part of the key."""
        merged = {**left, **right} if self.rel.kind == "right" else {**right, **left}
        for name in set(self.right.key) & set(left) - set(self.left.key):
            merged[name] = right.get(name, left[name])
        return {c: merged[c] for c in self.ev.relation_type(self.rel).heading.columns}

    def null_cells(self, side: ReferenceJoinSide, other: Cells) -> dict[str, CellKnowledge]:
        """The columns of a side that has no row. A column that both sides share comes from the other side."""
        return {c: other.get(c, null_cell(t)) for c, t in self.ev.column_types(side.rel).items()}

    def output_key(self, cells: Cells) -> Key:
        return key_of(cells, self.ev.relation_type(self.rel).heading.key)
