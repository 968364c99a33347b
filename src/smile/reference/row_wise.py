"""WHERE, PROJECT, EXTEND and RENAME: each row by itself. A default row is mapped like any other row."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from smile.algebra import mmpl
from smile.knowledge.values.mask import Mask, all_of
from smile.reference.evaluation import Evaluation
from smile.reference.relation import Key, ReferenceRow, Relation

RowMap = Callable[[Evaluation, Any, ReferenceRow], ReferenceRow]
"""Takes a node of one class, so the second parameter is Any."""


def restrict(ev: Evaluation, rel: mmpl.Restrict) -> Relation:
    result = {}
    for key, row in ev.relation(rel.input).items():
        predicate = ev.expression_knowledge(rel.predicate, row.cells, rel.input)
        assert isinstance(predicate, Mask)
        result[key] = replace(row, mask=all_of(row.mask, predicate.null_as_false()))
    return result


def project_row(ev: Evaluation, rel: mmpl.Project, row: ReferenceRow) -> ReferenceRow:
    return replace(row, cells={c: row.cells[c] for c in ev.relation_type(rel).heading.columns})


def extend_row(ev: Evaluation, rel: mmpl.Extend, row: ReferenceRow) -> ReferenceRow:
    new_cells = {
        n: row.cells[e.name] if isinstance(e, mmpl.ColumnRef) else ev.expression_knowledge(e, row.cells, rel.input)
        for n, e in rel.assignments
    }
    return replace(row, cells={**row.cells, **new_cells})


def rename_row(_: Evaluation, rel: mmpl.Rename, row: ReferenceRow) -> ReferenceRow:
    new_names = dict(rel.pairs)
    return replace(row, cells={new_names.get(c, c): cell for c, cell in row.cells.items()})


def map_rows(map_row: RowMap) -> Callable[[Evaluation, Any], Relation]:
    return lambda ev, rel: {key: map_row(ev, rel, row) for key, row in ev.relation(rel.input).items()}


def map_default(map_row: RowMap) -> Callable[[Evaluation, Any, Key], ReferenceRow]:
    return lambda ev, rel, key: map_row(ev, rel, ev.default_row(rel.input, key))
