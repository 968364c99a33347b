"""Domains: for every relational expression, the cells of an absent row (its bottom row). The cells of every row are
within them, whatever the row becomes.

Domains are computed from the domains of stream columns by the same rules as knowledge. The ranges of types are
narrower: they count ticks, and knowledge is never bounded by counting.
"""

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.algebra.types import BOOL
from smile.analysis.type_analysis import TypeAnalysis
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import domain_ends
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import expression_knowledge
from smile.operators.catalogue import operator_of
from smile.operators.operator import BottomRow


class Domains:
    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis) -> None:
        self.analysis = analysis
        self.bodies = {v.name: v.body for v in program.views}
        self._bottom_rows: dict[mmpl.Rel, BottomRow] = {}

    def heading_of(self, rel: mmpl.Rel) -> Heading:
        return self.analysis.heading_of(rel)

    def bottom_row(self, rel: mmpl.Rel) -> BottomRow:
        bottoms = self._bottom_rows.get(rel)
        if bottoms is None:
            bottoms = self._bottom_rows[rel] = operator_of(rel).bottom_row(rel, self)
        return bottoms

    def expression_bottom(self, expr: mmpl.Expr, rel: mmpl.Rel) -> CellKnowledge:
        """The bottom of an expression over rows of `rel`."""
        return expression_knowledge(expr, self.bottom_row(rel), self.heading_of(rel).columns)

    def named_bottom_row(self, ref: mmpl.RelationRef) -> BottomRow:
        if ref.name in self.bodies:
            return self.bottom_row(self.bodies[ref.name])
        columns = self.analysis.relation_type(ref).columns
        return {n: Mask.bottom() if c.data == BOOL else Range.bottom(*domain_ends(c)) for n, c in columns.items()}
