"""A relation as a value: rows by key, each under a mask. An absent row is at bottom, or permanently hidden if the
relation is sealed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from smile.knowledge.values.cell_knowledge import CellKnowledge, WireKnowledge
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.range import Range

Key = tuple[Any, ...]


@dataclass(frozen=True)
class NestedRow:
    """The cells of one row. Each evolves independently of the others."""

    cells: Mapping[str, CellKnowledge] = field(default_factory=dict)

    @property
    def now(self) -> dict[str, Any]:
        return {name: cell.now for name, cell in self.cells.items()}

    @property
    def is_final(self) -> bool:
        return all(c.is_final for c in self.cells.values())

    def evolves_to(self, other: object) -> bool:
        return isinstance(other, NestedRow) and all(c.evolves_to(other.cells[name]) for name, c in self.cells.items())

    def merge(self, other: "NestedRow") -> "NestedRow":
        return NestedRow({name: c.merge(other.cells[name]) for name, c in self.cells.items()})

    def show(self) -> str:
        return "{" + ", ".join(f"{name}: {c.show()}" for name, c in self.cells.items()) + "}"

    def wire(self) -> WireKnowledge:
        return {"exactly": self.now} if self.is_final else {"unknown": True}


def _is_bottom(row: MaskedValue) -> bool:
    """Whether nothing is known of the row, not even that it exists."""
    if row.mask.is_decided:
        return False
    cells = row.value.cells.values() if isinstance(row.value, NestedRow) else (row.value,)
    return all(isinstance(c, Range) and c == Range.bottom() for c in cells)


@dataclass(frozen=True)
class NestedRelation:
    """`sealed`: no further row can appear. Rows that say no more than an absent row are left out, so that each state of
    knowledge has one representation."""

    rows: Mapping[Key, MaskedValue] = field(default_factory=dict)
    sealed: bool = False

    def __post_init__(self) -> None:
        rows = {
            k: r for k, r in self.rows.items() if not (r.mask.is_permanently_hidden if self.sealed else _is_bottom(r))
        }
        object.__setattr__(self, "rows", rows)

    @staticmethod
    def bottom() -> "NestedRelation":
        return NestedRelation()

    @staticmethod
    def exactly(rows: Mapping[Key, CellKnowledge]) -> "NestedRelation":
        return NestedRelation({k: MaskedValue.exactly(r) for k, r in rows.items()}, sealed=True)

    @property
    def now(self) -> list[tuple[Key, Any]]:
        """The rows shown, in the order of their keys, NULLs last."""
        return [(key, row.now) for key, row in self._shown_rows()]

    def _shown_rows(self) -> list[tuple[Key, MaskedValue]]:
        shown_rows = [(k, r) for k, r in self.rows.items() if r.mask.is_shown]
        return sorted(shown_rows, key=lambda item: [(part is None, 0 if part is None else part) for part in item[0]])

    @property
    def is_open(self) -> bool:
        """Whether rows may still come or leave. A row that may leave may also come back, so this ends only when all
        masks are decided."""
        return not self.sealed or not all(r.mask.is_decided for r in self.rows.values())

    @property
    def is_final(self) -> bool:
        return self.sealed and all(r.is_final for r in self.rows.values())

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, NestedRelation) or (self.sealed and not other.sealed):
            return False
        for key in self.rows.keys() | other.rows.keys():
            own_row, other_row = self.rows.get(key), other.rows.get(key)
            if own_row is None:
                # An absent row is at bottom and can become anything, or is permanently hidden and can become nothing
                # else.
                if self.sealed:
                    return False
            elif not (
                own_row.evolves_to(other_row)
                if other_row
                else other.sealed and own_row.evolves_to(MaskedValue.permanently_hidden())
            ):
                return False
        return True

    def merge(self, other: "NestedRelation") -> "NestedRelation":
        rows = {}
        for key in self.rows.keys() | other.rows.keys():
            own_row, other_row = self.rows.get(key), other.rows.get(key)
            if own_row and other_row:
                rows[key] = own_row.merge(other_row)
            elif own_row:
                rows[key] = own_row.merge(MaskedValue.permanently_hidden()) if other.sealed else own_row
            elif other_row:
                rows[key] = other_row.merge(MaskedValue.permanently_hidden()) if self.sealed else other_row
        return NestedRelation(rows, self.sealed or other.sealed)

    def show(self) -> str:
        rows = ", ".join(f"{k}: {r.show()}" for k, r in sorted(self.rows.items()) if r.mask.is_shown)
        return f"{'=' if self.is_final else '≥' if not self.sealed else ''}{{{rows}}}"

    def wire(self) -> WireKnowledge:
        if self.is_final:
            return {"exactly": self.now}
        return {"rows": [_row_state(row) for _, row in self._shown_rows()], "open": self.is_open}


def _row_state(row: MaskedValue) -> str:
    if row.is_final:
        return "final"
    return "stays" if row.mask.is_permanently_shown else "shown"
