"""Domains: for every relational expression, the cells of an absent row (its bottom row). The cells of every row are
within them, whatever the row becomes.

`shown_rows` are the domains of rows that are shown in the end. They are narrower: a predicate is true of such a row,
and such a group has a member. A hidden row may lie outside of them, so they are used only by what depends on shown rows
alone, as an aggregate does.

Domains are computed from the domains of stream columns by the same rules as knowledge. The ranges of types are
narrower: they count ticks, and knowledge is never bounded by counting.
"""

from functools import lru_cache

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading
from smile.analysis.type_analysis import TypeAnalysis, exporting_analysis
from smile.knowledge.column_values import column_limits, column_values
from smile.knowledge.types import RelationType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import cell_from_values
from smile.knowledge.values.transfer import expression_knowledge
from smile.operators.catalogue import operator_of
from smile.operators.operator import BottomRow


class Domains:
    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis, every_row: "Domains | None" = None) -> None:
        """`every_row`: the domains of all rows, if these are the domains of shown rows."""
        self.analysis = analysis
        self.bodies = {v.name: v.body for v in program.all_views}
        self._bottom_rows: dict[mmpl.Rel, BottomRow] = {}
        self.every_row = every_row or self
        self.shown_rows = self if every_row else Domains(program, analysis, self)

    def heading_of(self, rel: mmpl.Rel) -> Heading:
        return self.analysis.heading_of(rel)

    def relation_type(self, rel: mmpl.Rel) -> RelationType:
        return self.analysis.relation_type(rel)

    def bottom_row(self, rel: mmpl.Rel) -> BottomRow:
        bottoms = self._bottom_rows.get(rel)
        if bottoms is None:
            operator = operator_of(rel)
            bottoms = operator.bottom_row(rel, self)
            if self.shown_rows is self:
                bottoms = operator.narrow_shown_row(rel, bottoms, self)
            self._bottom_rows[rel] = bottoms
        return bottoms

    def expression_bottom(self, expr: mmpl.Expr, rel: mmpl.Rel) -> CellKnowledge:
        """The bottom of an expression over rows of `rel`."""
        columns = self.relation_type(rel).columns
        limits = column_limits({c: columns[c] for c in trees.columns_in(expr)})
        return expression_knowledge(expr, self.bottom_row(rel), self.heading_of(rel).columns, limits)

    def named_bottom_row(self, ref: mmpl.RelationRef) -> BottomRow:
        if ref.name in self.bodies:
            return self.bottom_row(self.bodies[ref.name])
        columns = self.relation_type(ref).columns
        return {n: cell_from_values(column_values(c, shown=True), c.data) for n, c in columns.items()}

    def imported_bottom_row(self, rel: mmpl.Imported) -> BottomRow:
        exporting = exporting_domains(rel.source)
        domains = exporting.shown_rows if self.shown_rows is self else exporting
        return domains.bottom_row(mmpl.RelationRef(rel.source.relation_name))


@lru_cache(maxsize=1024)
def exporting_domains(import_: mmpl.ImportDef) -> Domains:
    """The domains of the program that the import is defined in."""
    return Domains(import_.exporting_program, exporting_analysis(import_))
