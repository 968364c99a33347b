"""Computes the content of every stream and view as a pure function of a history. `now` is plain SQL over the known
events; the possible values cover every continuation of the history."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from smile.algebra import mmpl
from smile.analysis.type_analysis import TypeAnalysis
from smile.reference.asof import asof
from smile.reference.best import best
from smile.reference.evaluation import Evaluation
from smile.reference.grouping import distinct, summarize, summarize_default
from smile.reference.history import History
from smile.reference.imported import imported, imported_default
from smile.reference.join import join, join_default
from smile.reference.over import over
from smile.reference.over_rows import over_rows
from smile.reference.relation import Key, ReferenceRow, Relation
from smile.reference.relation_ref import relation_ref, relation_ref_default
from smile.reference.row_wise import extend_row, map_default, map_rows, project_row, rename_row, restrict
from smile.reference.session import session
from smile.reference.silence import silence
from smile.reference.ungroup import ungroup
from smile.reference.union import merge, union
from smile.reference.values import values
from smile.reference.window import window

# An operator takes only nodes of its class, so the parameter for the node is Any.
MEANINGS: Final[Mapping[type[mmpl.Rel], Callable[[Evaluation, Any], Relation]]] = {
    mmpl.RelationRef: relation_ref,
    mmpl.Imported: imported,
    mmpl.Values: values,
    mmpl.Restrict: restrict,
    mmpl.Project: map_rows(project_row),
    mmpl.Extend: map_rows(extend_row),
    mmpl.Rename: map_rows(rename_row),
    mmpl.Join: join,
    mmpl.Asof: asof,
    mmpl.Summarize: summarize,
    mmpl.Distinct: distinct,
    mmpl.Best: best,
    mmpl.Window: window,
    mmpl.Ungroup: ungroup,
    mmpl.Session: session,
    mmpl.Over: over,
    mmpl.OverRows: over_rows,
    mmpl.Silence: silence,
    mmpl.Merge: merge,
    mmpl.Union: union,
}
"""The content of each operator's result."""

DEFAULT_ROWS: Final[Mapping[type[mmpl.Rel], Callable[[Evaluation, Any, Key], ReferenceRow]]] = {
    mmpl.RelationRef: relation_ref_default,
    mmpl.Imported: imported_default,
    mmpl.Project: map_default(project_row),
    mmpl.Extend: map_default(extend_row),
    mmpl.Rename: map_default(rename_row),
    mmpl.Join: join_default,
    mmpl.Summarize: summarize_default,
}
"""The default row of each operator whose result can be total."""


def evaluate(program: mmpl.Program, analysis: TypeAnalysis, history: History) -> dict[str, Relation]:
    """The content of every stream and view by name. `analysis` must be that of `program`."""
    evaluation = ProgramEvaluation(program, analysis, history)
    definitions = (*program.input_streams, *program.all_views)
    return {d.name: evaluation.relation(mmpl.RelationRef(d.name)) for d in definitions}


class ProgramEvaluation(Evaluation):
    """Each expression is computed once."""

    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis, history: History) -> None:
        super().__init__(program, analysis, history)
        self._relations: dict[mmpl.Rel, Relation] = {}

    def relation(self, rel: mmpl.Rel) -> Relation:
        relation = self._relations.get(rel)
        if relation is None:
            relation = self._relations[rel] = MEANINGS[type(rel)](self, rel)
        return relation

    def default_row(self, rel: mmpl.Rel, key: Key) -> ReferenceRow:
        return DEFAULT_ROWS[type(rel)](self, rel, key)
