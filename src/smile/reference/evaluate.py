"""The content of every stream and view, as a pure function of a history: `now` is plain SQL over the events known, and
what is possible contains every way in which the history may go on."""

from collections.abc import Iterable
from dataclasses import replace
from functools import singledispatchmethod

from smile.algebra import mmpl, trees
from smile.algebra.types import DataType
from smile.knowledge.analysis import Analysis
from smile.knowledge.cells import as_operand, null
from smile.knowledge.domains import Domains
from smile.knowledge.known import Known
from smile.knowledge.mask import Mask, T, all_of
from smile.knowledge.transfer import exactly, know
from smile.knowledge.types import RelationType
from smile.reference import asof, best, groups, joins, windows
from smile.reference.history import History
from smile.reference.relation import Cells, Key, Relation, Row, is_sealed, key_of


def evaluate(program: mmpl.Program, analysis: Analysis, history: History) -> dict[str, Relation]:
    """Every stream and view by name. `analysis` is of the same program."""
    evaluation = Evaluation(program, analysis, history)
    return {d.name: evaluation.of(mmpl.Ref(d.name)) for d in (*program.streams, *program.views)}


class Evaluation:
    """Relations of all the relational expressions of one program at one history, each computed once."""

    def __init__(self, program: mmpl.Program, analysis: Analysis, history: History) -> None:
        self.analysis = analysis
        self.history = history
        self.domains = Domains(program, analysis)
        self.bodies = {v.name: v.body for v in program.views}
        self._known: dict[mmpl.Rel, Relation] = {}

    def of(self, rel: mmpl.Rel) -> Relation:
        found = self._known.get(rel)
        if found is None:
            found = self._known[rel] = self._compute(rel)
        return found

    def type(self, rel: mmpl.Rel) -> RelationType:
        return self.analysis.of(rel)

    def data(self, rel: mmpl.Rel) -> dict[str, DataType]:
        return dict(self.type(rel).heading.columns)

    def is_sealed(self, rel: mmpl.Rel, cells: Cells) -> bool:
        """Whether the row of `rel` that has these cells is final, because nothing can reach it any more."""
        return is_sealed(self.type(rel).seals, cells, self.data(rel), self.history.horizons)

    def know(self, expr: mmpl.Expr, cells: Cells, *sources: mmpl.Rel) -> Known:
        """What is known of an expression over a row with these cells, which come from these relations."""
        bottoms = {c: known for rel in reversed(sources) for c, known in self.domains.of(rel).items()}
        types = {c: t for rel in reversed(sources) for c, t in self.data(rel).items()}
        return know(expr, {c: as_operand(cells[c], bottoms[c], types[c]) for c in trees.columns_in(expr)}, types)

    @singledispatchmethod
    def _compute(self, rel: mmpl.Rel) -> Relation:
        raise AssertionError(rel)

    @_compute.register
    def _(self, rel: mmpl.Ref) -> Relation:
        if rel.name in self.bodies:
            return self.of(self.bodies[rel.name])
        types = self.data(rel)
        rows = self.history.events[rel.name]
        return {(t,): Row(T, {c: exactly(v, types[c]) for c, v in row.items()}, 1) for t, row in sorted(rows.items())}

    @_compute.register
    def _(self, rel: mmpl.Restrict) -> Relation:
        result = {}
        for key, row in self.of(rel.input).items():
            predicate = self.know(rel.predicate, row.cells, rel.input)
            assert isinstance(predicate, Mask)
            result[key] = replace(row, mask=all_of(row.mask, predicate.filter()))
        return result

    @_compute.register
    def _(self, rel: mmpl.Project) -> Relation:
        return {key: self.project(rel, row) for key, row in self.of(rel.input).items()}

    @_compute.register
    def _(self, rel: mmpl.Extend) -> Relation:
        return {key: self.extend(rel, row) for key, row in self.of(rel.input).items()}

    @_compute.register
    def _(self, rel: mmpl.Rename) -> Relation:
        return {key: self.rename(rel, row) for key, row in self.of(rel.input).items()}

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
        return windows.last(self, rel) if rel.kind == "last" else windows.window(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Silence) -> Relation:
        return windows.silence(self, rel)

    @_compute.register
    def _(self, rel: mmpl.Merge) -> Relation:
        return self._all(rel, rel.inputs, "source")

    @_compute.register
    def _(self, rel: mmpl.Union) -> Relation:
        return self._all(rel, rel.inputs, "branch")

    def _all(self, rel: mmpl.Rel, inputs: Iterable[mmpl.Rel], position: str) -> Relation:
        heading = self.type(rel).heading
        result = {}
        for number, source in enumerate(inputs, 1):
            for row in self.of(source).values():
                cells = {**row.cells, position: exactly(number, heading.columns[position])}
                cells = {c: cells[c] if c in cells else null(t) for c, t in heading.columns.items()}
                result[key_of(cells, heading.key)] = replace(row, cells=cells)
        return result

    # ── single rows, which default rows need too ────────────────────────────────────────────────────────────────────

    def project(self, rel: mmpl.Project, row: Row) -> Row:
        return replace(row, cells={c: row.cells[c] for c in self.type(rel).heading.columns})

    def extend(self, rel: mmpl.Extend, row: Row) -> Row:
        added = {
            n: row.cells[e.name] if isinstance(e, mmpl.Column) else self.know(e, row.cells, rel.input)
            for n, e in rel.assignments
        }
        return replace(row, cells={**row.cells, **added})

    def rename(self, rel: mmpl.Rename, row: Row) -> Row:
        new = dict(rel.pairs)
        return replace(row, cells={new.get(c, c): known for c, known in row.cells.items()})

    def default(self, rel: mmpl.Rel, key: Key) -> Row:
        """The row of a total relation for a key nobody has heard of."""
        match rel:
            case mmpl.Ref():
                return self.default(self.bodies[rel.name], key)
            case mmpl.Summarize():
                return groups.group_row(self, rel, key, [])
            case mmpl.Project():
                return self.project(rel, self.default(rel.input, key))
            case mmpl.Extend():
                return self.extend(rel, self.default(rel.input, key))
            case mmpl.Rename():
                return self.rename(rel, self.default(rel.input, key))
            case mmpl.Join():
                return joins.default(self, rel, key)
        raise AssertionError(f"{type(rel).__name__} is never total")
