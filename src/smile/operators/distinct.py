"""DISTINCT: each combination of the visible columns once."""

from smile.algebra import mmpl
from smile.algebra.heading import ColumnNames, Heading, check_comparable
from smile.knowledge.state_retention import StateRetention
from smile.knowledge.types import RelationType
from smile.operators.grouping import GroupingOperator, group_state, group_type, key_columns
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, StateLookup, TypeLookup, input_cells


class DistinctOperator(GroupingOperator[mmpl.Distinct]):
    def heading(self, rel: mmpl.Distinct, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        visible = heading.visible
        check_comparable(visible, heading, rel.span)
        tick = heading.tick if set(heading.tick) <= set(visible) else ()
        return Heading({c: heading.columns[c] for c in visible}, visible, tick=tick)

    def relation_type(self, rel: mmpl.Distinct, lookup: TypeLookup) -> RelationType:
        per = lookup.heading_of(rel).key
        return group_type(rel, per, key_columns(lookup.relation_type(rel.input), per), lookup)

    def bottom_row(self, rel: mmpl.Distinct, lookup: BottomRowLookup) -> BottomRow:
        return input_cells(rel, lookup)

    def state(self, rel: mmpl.Distinct, lookup: StateLookup) -> list[StateRetention]:
        return group_state(rel, lookup.relation_type(rel).heading.key, (), "a count of the rows", lookup)

    def partition_columns(self, rel: mmpl.Distinct, heading: Heading) -> list[ColumnNames]:
        return [(c,) for c in heading.key]
