"""A relation as a value: rows by key, each under a mask. A row that is not there is at bottom, or gone if sealed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from smile.knowledge.known import Known, Wire
from smile.knowledge.masked import Masked
from smile.knowledge.range import Range

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """The cells of one row; they evolve each by itself."""

    cells: Mapping[str, Known] = field(default_factory=dict)

    @property
    def now(self) -> dict[str, Any]:
        return {name: cell.now for name, cell in self.cells.items()}

    @property
    def is_final(self) -> bool:
        return all(c.is_final for c in self.cells.values())

    def evolves_to(self, other: object) -> bool:
        return isinstance(other, Row) and all(c.evolves_to(other.cells[name]) for name, c in self.cells.items())

    def merge(self, other: "Row") -> "Row":
        return Row({name: c.merge(other.cells[name]) for name, c in self.cells.items()})

    def show(self) -> str:
        return "{" + ", ".join(f"{name}: {c.show()}" for name, c in self.cells.items()) + "}"

    def wire(self) -> Wire:
        return {"exactly": self.now} if self.is_final else {"unknown": True}


def _is_bottom(row: Masked) -> bool:
    """Nothing at all is known of it, not even that there is something to know."""
    if row.mask.is_for_good:
        return False
    cells = row.inner.cells.values() if isinstance(row.inner, Row) else (row.inner,)
    return all(isinstance(c, Range) and c == Range.bottom() for c in cells)


@dataclass(frozen=True)
class Nested:
    """`sealed`: no row can appear that is not here. Rows at what absence means are left out, so that each state of
    knowledge has one form."""

    rows: Mapping[Key, Masked] = field(default_factory=dict)
    sealed: bool = False

    def __post_init__(self) -> None:
        kept = {k: r for k, r in self.rows.items() if not (r.mask.gone if self.sealed else _is_bottom(r))}
        object.__setattr__(self, "rows", kept)

    @staticmethod
    def bottom() -> "Nested":
        return Nested()

    @staticmethod
    def exactly(rows: Mapping[Key, Known]) -> "Nested":
        return Nested({k: Masked.exactly(r) for k, r in rows.items()}, sealed=True)

    @property
    def now(self) -> list[tuple[Key, Any]]:
        """In the order of keys, NULLs last."""
        shown = [(k, r.now) for k, r in self.rows.items() if r.mask.shown]
        return sorted(shown, key=lambda item: [(part is None, 0 if part is None else part) for part in item[0]])

    @property
    def is_final(self) -> bool:
        return self.sealed and all(r.is_final for r in self.rows.values())

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, Nested) or (self.sealed and not other.sealed):
            return False
        for key in self.rows.keys() | other.rows.keys():
            mine, yours = self.rows.get(key), other.rows.get(key)
            if mine is None:
                # Absent here is bottom, from which all is possible, or gone, from which nothing is.
                if self.sealed:
                    return False
            elif not (mine.evolves_to(yours) if yours else other.sealed and mine.evolves_to(Masked.nothing())):
                return False
        return True

    def merge(self, other: "Nested") -> "Nested":
        rows = {}
        for key in self.rows.keys() | other.rows.keys():
            mine, yours = self.rows.get(key), other.rows.get(key)
            if mine and yours:
                rows[key] = mine.merge(yours)
            elif mine:
                rows[key] = mine.merge(Masked.nothing()) if other.sealed else mine
            elif yours:
                rows[key] = yours.merge(Masked.nothing()) if self.sealed else yours
        return Nested(rows, self.sealed or other.sealed)

    def show(self) -> str:
        rows = ", ".join(f"{k}: {r.show()}" for k, r in sorted(self.rows.items()) if r.mask.shown)
        return f"{'=' if self.is_final else '≥' if not self.sealed else ''}{{{rows}}}"

    def wire(self) -> Wire:
        return {"exactly": self.now} if self.is_final else {"unknown": True}
