"""VALUES: the rows that the program has."""

from smile.algebra import mmpl
from smile.knowledge.values.mask import T
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluation import Evaluation
from smile.reference.relation import ReferenceRow, Relation, key_of


def values(_: Evaluation, rel: mmpl.Values) -> Relation:
    rows = (
        {name: exact_cell(value, data) for (name, data), value in zip(rel.columns, row, strict=True)}
        for row in rel.rows
    )
    return {key_of(cells, rel.key): ReferenceRow(T, cells, 1) for cells in rows}
