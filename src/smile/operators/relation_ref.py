"""A reference to a stream or view: it has the properties of what it refers to."""

from collections.abc import Sequence

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.knowledge.types import RelationType
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, Operator, TypeLookup


class RelationRefOperator(Operator[mmpl.RelationRef]):
    keeps_displacement = True
    keeps_sessions = True

    def heading(self, rel: mmpl.RelationRef, lookup: HeadingLookup) -> Heading:
        return lookup.named_heading(rel)

    def relation_type(self, rel: mmpl.RelationRef, lookup: TypeLookup) -> RelationType:
        return lookup.named_type(rel)

    def bottom_row(self, rel: mmpl.RelationRef, lookup: BottomRowLookup) -> BottomRow:
        return lookup.named_bottom_row(rel)

    def has_expiring_rows(self, rel: mmpl.RelationRef, inputs: Sequence[bool]) -> bool:
        """The rows of a stream stay."""
        return False
