"""UNGROUP: a row for each element of an array."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.arrays import decode_array
from smile.algebra.types import BOOL, INT, DataType, Value
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.mask import Mask, T, all_of
from smile.knowledge.values.range import MAYBE, Range
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluation import Evaluation
from smile.reference.relation import Relation, key_of


def ungroup(ev: Evaluation, rel: mmpl.Ungroup) -> Relation:
    """An array that is not final can become any other: its rows are shown for now, and their elements are not known."""
    heading = ev.relation_type(rel).heading
    result = {}
    for row in ev.relation(rel.input).values():
        array = to_range(row.cells[rel.column])
        encoded = array.now
        assert encoded is None or isinstance(encoded, bytes)
        data = heading.columns[rel.names[0]]
        elements = [] if encoded is None else decode_array(encoded, data)
        numbered: list[tuple[int | None, Value]] = list(enumerate(elements, 1))
        if not numbered and rel.keeps_empty:
            numbered = [(None, None)]
        mask = all_of(row.mask, T if array.is_final else Mask.from_truths((True, False), True))
        for ordinality, element in numbered:
            cell = exact_cell(element, data) if array.is_final else _unknown(element, data)
            cells = {**row.cells, rel.names[0]: cell, rel.ordinality: exact_cell(ordinality, INT)}
            result[key_of(cells, heading.key)] = replace(row, mask=mask, cells=cells)
    return result


def _unknown(now: Value, data: DataType) -> CellKnowledge:
    if data == BOOL:
        assert now is None or isinstance(now, bool)
        return Mask.from_truths((True, False, None), now)
    return Range(None, None, MAYBE, now)
