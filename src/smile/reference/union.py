"""MERGE and UNION: all rows of the inputs, each with the position of its input."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.knowledge.values.cells import null_cell
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluation import Evaluation
from smile.reference.relation import Relation, key_of


def merge(ev: Evaluation, rel: mmpl.Merge) -> Relation:
    return _positioned_rows(ev, rel, "source")


def union(ev: Evaluation, rel: mmpl.Union) -> Relation:
    return _positioned_rows(ev, rel, "branch")


def _positioned_rows(ev: Evaluation, rel: mmpl.Merge | mmpl.Union, position: str) -> Relation:
    heading = ev.relation_type(rel).heading
    result = {}
    for number, source in enumerate(rel.inputs, 1):
        for row in ev.relation(source).values():
            cells = {**row.cells, position: exact_cell(number, heading.columns[position])}
            cells = {c: cells[c] if c in cells else null_cell(t) for c, t in heading.columns.items()}
            result[key_of(cells, heading.key)] = replace(row, cells=cells)
    return result
