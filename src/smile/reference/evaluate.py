"""Computes the content of every stream and view as a pure function of a history. `now` is plain SQL over the known
events; the possible values cover every continuation of the history."""

from collections.abc import Iterable
from dataclasses import replace
from functools import singledispatchmethod

from smile.algebra import mmpl, trees
from smile.algebra.types import DataType
from smile.knowledge.analysis import TypeAnalysis
from smile.knowledge.domains import Domains
from smile.knowledge.types import RelationType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import null_cell, to_operand_in_domain
from smile.knowledge.values.mask import Mask, T, all_of
from smile.knowledge.values.transfer import exact_cell, expression_knowledge
from smile.reference import asof, best, groups, joins, windows
from smile.reference.history import History
from smile.reference.relation import Cells, Key, ReferenceRow, Relation, is_sealed, key_of


def evaluate(program: mmpl.Program, analysis: TypeAnalysis, history: History) -> dict[str, Relation]:
    """The content of every stream and view by name. `analysis` must be that of `program`."""
    evaluation = Evaluation(program, analysis, history)
    return {d.name: evaluation.relation(mmpl.RelationRef(d.name)) for d in (*program.streams, *program.views)}


class Evaluation:
    """The content of all relational expressions of one program for one history. Each is computed once."""

    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis, history: History) -> None:
        self.analysis = analysis
        self.history = history
        self.domains = Domains(program, analysis)
        self.bodies = {v.name: v.body for v in program.views}
        self._relations: dict[mmpl.Rel, Relation] = {}

    def relation(self, rel: mmpl.Rel) -> Relation:
        relation = self._relations.get(rel)
        if relation is None:
            relation = self._relations[rel] = self._compute(rel)
        return relation

    def relation_type(self, rel: mmpl.Rel) -> RelationType:
        return self.analysis.relation_type(rel)

    def column_types(self, rel: mmpl.Rel) -> dict[str, DataType]:
        return dict(self.relation_type(rel).heading.columns)

    def is_sealed(self, rel: mmpl.Rel, cells: Cells) -> bool:
        """Whether the row of `rel` with these cells is final because no further event can affect it."""
        return is_sealed(self.relation_type(rel).seals, cells, self.column_types(rel), self.history.horizons)

    def expression_knowledge(self, expr: mmpl.Expr, cells: Cells, *sources: mmpl.Rel) -> CellKnowledge:
        """The knowledge of an expression over a row with these cells, which come from `sources`."""
        bottoms = {c: cell for rel in reversed(sources) for c, cell in self.domains.bottom_row(rel).items()}
        types = {c: t for rel in reversed(sources) for c, t in self.column_types(rel).items()}
        return expression_knowledge(
            expr, {c: to_operand_in_domain(cells[c], bottoms[c], types[c]) for c in trees.columns_in(expr)}, types
        )

    @singledispatchmethod
    def _compute(self, rel: mmpl.Rel) -> Relation:
        raise AssertionError(rel)

    @_compute.register
    def _(self, rel: mmpl.RelationRef) -> Relation:
        if rel.name in self.bodies:
            return self.relation(self.bodies[rel.name])
        types = self.column_types(rel)
        rows = self.history.events[rel.name]
        return {
            (t,): ReferenceRow(T, {c: exact_cell(v, types[c]) for c, v in row.items()}, 1)
            for t, row in sorted(rows.items())
        }

    @_compute.register
    def _(self, rel: mmpl.Restrict) -> Relation:
        result = {}
        for key, row in self.relation(rel.input).items():
            predicate = self.expression_knowledge(rel.predicate, row.cells, rel.input)
            assert isinstance(predicate, Mask)
            result[key] = replace(row, mask=all_of(row.mask, predicate.null_as_false()))
        return result

    @_compute.register
    def _(self, rel: mmpl.Project) -> Relation:
        return {key: self.project_row(rel, row) for key, row in self.relation(rel.input).items()}

    @_compute.register
    def _(self, rel: mmpl.Extend) -> Relation:
        return {key: self.extend_row(rel, row) for key, row in self.relation(rel.input).items()}

    @_compute.register
    def _(self, rel: mmpl.Rename) -> Relation:
        return {key: self.rename_row(rel, row) for key, row in self.relation(rel.input).items()}

    @_compute.register
    def _(self, rel: mmpl.Join) -> Relation:
        return joins.join(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Asof) -> Relation:
        return asof.asof(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Summarize) -> Relation:
        return groups.summarize(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Distinct) -> Relation:
        return groups.distinct(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Over) -> Relation:
        return groups.over(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Best) -> Relation:
        return best.best(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Window) -> Relation:
        return windows.last_window(self, rel) if rel.kind == "last" else windows.window(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Silence) -> Relation:
        return windows.silence(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Merge) -> Relation:
        return self._union(rel, rel.inputs, "source")

    @_compute.register
    def _(self, rel: mmpl.Union) -> Relation:
        return self._union(rel, rel.inputs, "branch")

    def _union(self, rel: mmpl.Rel, inputs: Iterable[mmpl.Rel], position: str) -> Relation:
        heading = self.relation_type(rel).heading
        result = {}
        for number, source in enumerate(inputs, 1):
            for row in self.relation(source).values():
                cells = {**row.cells, position: exact_cell(number, heading.columns[position])}
                cells = {c: cells[c] if c in cells else null_cell(t) for c, t in heading.columns.items()}
                result[key_of(cells, heading.key)] = replace(row, cells=cells)
        return result

    # ── single rows, also used for default rows ─────────────────────────────────────────────────────────────────────

    def project_row(self, rel: mmpl.Project, row: ReferenceRow) -> ReferenceRow:
        return replace(row, cells={c: row.cells[c] for c in self.relation_type(rel).heading.columns})

    def extend_row(self, rel: mmpl.Extend, row: ReferenceRow) -> ReferenceRow:
        new_cells = {
            n: row.cells[e.name]
            if isinstance(e, mmpl.ColumnRef)
            else self.expression_knowledge(e, row.cells, rel.input)
            for n, e in rel.assignments
        }
        return replace(row, cells={**row.cells, **new_cells})

    def rename_row(self, rel: mmpl.Rename, row: ReferenceRow) -> ReferenceRow:
        new_names = dict(rel.pairs)
        return replace(row, cells={new_names.get(c, c): cell for c, cell in row.cells.items()})

    def default_row(self, rel: mmpl.Rel, key: Key) -> ReferenceRow:
        """The row of a total relation for an absent key."""
        match rel:
            case mmpl.RelationRef():
                return self.default_row(self.bodies[rel.name], key)
            case mmpl.Summarize():
                return groups.group_row(self, rel, key, [])
            case mmpl.Project():
                return self.project_row(rel, self.default_row(rel.input, key))
            case mmpl.Extend():
                return self.extend_row(rel, self.default_row(rel.input, key))
            case mmpl.Rename():
                return self.rename_row(rel, self.default_row(rel.input, key))
            case mmpl.Join():
                return joins.default_row(self, rel, key)
        raise AssertionError(f"{type(rel).__name__} is never total")
