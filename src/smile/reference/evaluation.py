"""What the meaning of an operator can ask: the content, types and bottom rows of other expressions, and seals."""

from abc import ABC, abstractmethod

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.types import DataType
from smile.analysis.domains import Domains
from smile.analysis.type_analysis import TypeAnalysis
from smile.knowledge.column_values import column_limits
from smile.knowledge.types import RelationType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.transfer import ColumnLimits, expression_knowledge, to_operand
from smile.reference.history import History
from smile.reference.relation import Cells, Key, ReferenceRow, Relation, is_sealed


class Evaluation(ABC):
    """The content of all relational expressions of one program for one history."""

    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis, history: History) -> None:
        self.analysis = analysis
        self.history = history
        self.domains = Domains(program, analysis)
        self.bodies = {v.name: v.body for v in program.all_views}
        self.exporting: dict[mmpl.ImportDef, Evaluation] = {}
        """The programs that define imports."""
        self._column_limits: dict[tuple[mmpl.Rel, ...], tuple[dict[str, DataType], ColumnLimits]] = {}

    @abstractmethod
    def relation(self, rel: mmpl.Rel) -> Relation: ...

    @abstractmethod
    def default_row(self, rel: mmpl.Rel, key: Key) -> ReferenceRow:
        """The row of a total relation for an absent key."""

    def relation_type(self, rel: mmpl.Rel) -> RelationType:
        return self.analysis.relation_type(rel)

    def column_types(self, rel: mmpl.Rel) -> dict[str, DataType]:
        return dict(self.relation_type(rel).heading.columns)

    def is_sealed(self, rel: mmpl.Rel, cells: Cells) -> bool:
        """Whether the row of `rel` with these cells is final because no further event can affect it."""
        return is_sealed(self.relation_type(rel).seals, cells, self.column_types(rel), self.history.horizons)

    def expression_knowledge(self, expr: mmpl.Expr, cells: Cells, *sources: mmpl.Rel) -> CellKnowledge:
        """The knowledge of an expression over a row with these cells, which come from `sources`."""
        types, limits = self._types_and_limits(sources)
        cell = expression_knowledge(expr, cells, types, limits)
        return to_operand(cell, type_of(expr, types)) if isinstance(cell, LatestValue) else cell

    def _types_and_limits(self, sources: tuple[mmpl.Rel, ...]) -> tuple[dict[str, DataType], ColumnLimits]:
        """They are the same for all rows, so they are computed once."""
        known = self._column_limits.get(sources)
        if known is None:
            columns = {c: t for rel in reversed(sources) for c, t in self.relation_type(rel).columns.items()}
            known = self._column_limits[sources] = {c: t.data for c, t in columns.items()}, column_limits(columns)
        return known
