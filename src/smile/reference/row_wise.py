"""WHERE, PROJECT, EXTEND and RENAME: each row by itself. A default row is mapped like any other row."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from smile.algebra import mmpl
from smile.knowledge.column_values import column_limits
from smile.knowledge.expression_types import only_latest_column
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.mask import Mask, all_of
from smile.knowledge.values.transfer import latest_expression_knowledge
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
    return replace(row, cells={**row.cells, **{n: _new_cell(ev, rel, e, row) for n, e in rel.assignments}})


def _new_cell(ev: Evaluation, rel: mmpl.Extend, expr: mmpl.Expr, row: ReferenceRow) -> CellKnowledge:
    if isinstance(expr, mmpl.ColumnRef):
        return row.cells[expr.name]
    latest = only_latest_column(expr, ev.relation_type(rel.input).columns)
    if latest is not None:
        limits = column_limits(ev.relation_type(rel.input).columns)
        return latest_expression_knowledge(expr, latest, row.cells, ev.column_types(rel.input), limits)
    return ev.expression_knowledge(expr, row.cells, rel.input)


def rename_row(_: Evaluation, rel: mmpl.Rename, row: ReferenceRow) -> ReferenceRow:
    new_names = dict(rel.pairs)
    return replace(row, cells={new_names.get(c, c): cell for c, cell in row.cells.items()})


def map_rows(map_row: RowMap) -> Callable[[Evaluation, Any], Relation]:
    return lambda ev, rel: {key: map_row(ev, rel, row) for key, row in ev.relation(rel.input).items()}


def map_default(map_row: RowMap) -> Callable[[Evaluation, Any, Key], ReferenceRow]:
    return lambda ev, rel, key: map_row(ev, rel, ev.default_row(rel.input, key))
