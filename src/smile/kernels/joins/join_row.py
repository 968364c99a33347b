"""Single rows, for joins that go row by row: the mask, the knowledge of every column, and the steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn
from smile.kernels.joins.join_sides import JoinRows, JoinSide
from smile.kernels.layout import EvolvingColumnLayout
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.transfer import to_operand

Key = tuple[Any, ...]
Cells = Mapping[str, CellKnowledge]


@dataclass(frozen=True)
class JoinRow:
    mask: Mask
    cells: Cells
    steps: int


def rows_by_key(side: JoinSide, rows: JoinRows) -> dict[Key, JoinRow]:
    """The rows that are present, by their keys."""
    by_key = {}
    knowledge = rows.knowledge
    columns: dict[str, KnowledgeColumn] = {c: rows.fixed[c] for c in side.layout.fixed}
    columns |= {c: knowledge.columns[c] for c in side.layout.evolving}
    types = side.layout.types
    for i, code in enumerate(knowledge.mask.tolist()):
        if code != masks.ABSENT:
            cells = {c: k.knowledge_at(column, i, types[c]) for c, column in columns.items()}
            by_key[tuple(cells[c].now for c in side.key)] = JoinRow(
                masks.decode_mask(code), cells, int(knowledge.steps[i])
            )
    return by_key


def column_from_cells(cells: Sequence[CellKnowledge], evolving: EvolvingColumnLayout) -> KnowledgeColumn:
    """A column of these cells, of the kind that the layout says."""
    if evolving.kind == "mask":
        return k.from_points([to_operand(c, evolving.data) for c in cells], "mask", evolving.data)
    if evolving.kind == "range":
        return k.from_points([to_range(c) for c in cells], "range", evolving.data)
    return k.from_points(cells, evolving.kind, evolving.data)
