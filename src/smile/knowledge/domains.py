"""Domains: for every relational expression, the cells of an absent row (its bottom row). The cells of every row are
within them, whatever the row becomes.

Domains are computed from the domains of stream columns by the same rules as knowledge. The ranges of types are
narrower: they count ticks, and knowledge is never bounded by counting.
"""

from functools import singledispatchmethod

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import WINDOW_COLUMNS
from smile.algebra.types import BOOL, INT
from smile.knowledge.analysis import TypeAnalysis
from smile.knowledge.values.aggregates import aggregate
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import cell_hull, domain_ends, null_cell, to_operand_in_domain, to_range
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.nested import NestedRelation
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import expression_knowledge

BottomRow = dict[str, CellKnowledge]


class Domains:
    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis) -> None:
        self.analysis = analysis
        self.bodies = {v.name: v.body for v in program.views}
        self._bottom_rows: dict[mmpl.Rel, BottomRow] = {}

    def bottom_row(self, rel: mmpl.Rel) -> BottomRow:
        bottoms = self._bottom_rows.get(rel)
        if bottoms is None:
            bottoms = self._bottom_rows[rel] = self._compute(rel)
        return bottoms

    def expression_bottom(self, expr: mmpl.Expr, rel: mmpl.Rel) -> CellKnowledge:
        """The bottom of an expression over rows of `rel`."""
        types = self.analysis.relation_type(rel).heading.columns
        return expression_knowledge(expr, self.bottom_row(rel), types)

    @singledispatchmethod
    def _compute(self, rel: mmpl.Rel) -> BottomRow:
        raise AssertionError(rel)

    @_compute.register
    def _(self, rel: mmpl.RelationRef) -> BottomRow:
        if rel.name in self.bodies:
            return self.bottom_row(self.bodies[rel.name])
        columns = self.analysis.relation_type(rel).columns
        return {n: Mask.bottom() if c.data == BOOL else Range.bottom(*domain_ends(c)) for n, c in columns.items()}

    @_compute.register(mmpl.Restrict)
    @_compute.register(mmpl.Project)
    @_compute.register(mmpl.Distinct)
    @_compute.register(mmpl.Best)
    def _(self, rel: mmpl.Restrict | mmpl.Project | mmpl.Distinct | mmpl.Best) -> BottomRow:
        source = self.bottom_row(rel.input)
        return {c: source[c] for c in self.analysis.relation_type(rel).heading.columns}

    @_compute.register
    def _(self, rel: mmpl.Extend) -> BottomRow:
        return {**self.bottom_row(rel.input), **{n: self.expression_bottom(e, rel.input) for n, e in rel.assignments}}

    @_compute.register
    def _(self, rel: mmpl.Rename) -> BottomRow:
        new_names = dict(rel.pairs)
        return {new_names.get(c, c): cell for c, cell in self.bottom_row(rel.input).items()}

    @_compute.register
    def _(self, rel: mmpl.Join) -> BottomRow:
        left, right = self.bottom_row(rel.left), self.bottom_row(rel.right)
        if rel.kind in ("semi", "anti"):
            return left
        if rel.kind == "match":
            assert rel.match_column is not None
            return {**left, rel.match_column: Mask.bottom()}
        columns = self.analysis.relation_type(rel).heading.columns
        # The default row of a total relation has the key that the other side looks up.
        sources = [left, right, {b: left[a] for a, b in rel.on}, {a: right[b] for a, b in rel.on}]
        return {c: self._optional_cell(columns[c] == BOOL, [s[c] for s in sources if c in s]) for c in columns}

    @_compute.register
    def _(self, rel: mmpl.Asof) -> BottomRow:
        left, right = self.bottom_row(rel.left), self.bottom_row(rel.right)
        columns = self.analysis.relation_type(rel).heading.columns
        return {c: left[c] if c in left else self._optional_cell(columns[c] == BOOL, [right[c]]) for c in columns}

    def _optional_cell(self, is_bool: bool, cells: list[CellKnowledge]) -> CellKnowledge:
        """The cell of a column whose row may have no match."""
        if any(isinstance(c, NestedRelation) for c in cells):
            return cells[0]
        data = BOOL if is_bool else INT
        return cell_hull([*cells, null_cell(data)], None, null_cell(data), data)

    @_compute.register
    def _(self, rel: mmpl.Summarize) -> BottomRow:
        source = self.bottom_row(rel.input)
        return {c: source[c] for c in rel.per} | self._aggregate_bottoms(rel)

    @_compute.register
    def _(self, rel: mmpl.Over) -> BottomRow:
        return self.bottom_row(rel.input) | self._aggregate_bottoms(rel)

    def _aggregate_bottoms(self, rel: mmpl.Summarize | mmpl.Over) -> BottomRow:
        """The aggregates of a group without members, to which any members may be added."""
        bottoms: BottomRow = {}
        types = self.analysis.relation_type(rel).heading.columns
        for name, aggregate_call in rel.aggregates:
            input_types = self.analysis.relation_type(rel.input).heading.columns
            lo, hi, type_ = None, None, BOOL
            if aggregate_call.arg is not None:
                argument = to_range(self.expression_bottom(aggregate_call.arg, rel.input))
                lo, hi = argument.lo, argument.hi
                type_ = type_of(aggregate_call.arg, input_types)
            empty_aggregate = aggregate(aggregate_call.function, [], False, lo, hi, type_)
            bounds = Range.bottom(lo, hi)
            bottoms[name] = (
                empty_aggregate
                if isinstance(empty_aggregate, NestedRelation)
                else to_operand_in_domain(empty_aggregate, bounds, types[name])
            )
        return bottoms

    @_compute.register
    def _(self, rel: mmpl.Window) -> BottomRow:
        source = self.bottom_row(rel.input)
        return source if rel.kind == "last" else source | {c: Range.bottom() for c in WINDOW_COLUMNS}

    @_compute.register
    def _(self, rel: mmpl.Silence) -> BottomRow:
        return {**self.bottom_row(rel.input), rel.name: Mask.from_truths((True, False), False)}

    @_compute.register(mmpl.Merge)
    @_compute.register(mmpl.Union)
    def _(self, rel: mmpl.Merge | mmpl.Union) -> BottomRow:
        sources = [self.bottom_row(i) for i in rel.inputs]
        position = "source" if isinstance(rel, mmpl.Merge) else "branch"
        columns = self.analysis.relation_type(rel).heading.columns
        cells = {c: self._optional_cell(t == BOOL, [s[c] for s in sources if c in s]) for c, t in columns.items()}
        return {**cells, position: Range.between(1, len(sources))}
