"""An imported view. Its properties are those of its definition at the exporting broker, but rows that are hidden there
are absent here."""

from smile.algebra import mmpl
from smile.algebra.heading import ColumnNames, Heading
from smile.knowledge.state_retention import StateRetention, format_columns, has_open_seal, seal_condition
from smile.knowledge.types import RelationType
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, Operator, StateLookup, TypeLookup


class ImportedOperator(Operator[mmpl.Imported]):
    def heading(self, rel: mmpl.Imported, lookup: HeadingLookup) -> Heading:
        return lookup.imported_heading(rel)

    def relation_type(self, rel: mmpl.Imported, lookup: TypeLookup) -> RelationType:
        return lookup.imported_type(rel)

    def bottom_row(self, rel: mmpl.Imported, lookup: BottomRowLookup) -> BottomRow:
        return lookup.imported_bottom_row(rel)

    def state(self, rel: mmpl.Imported, lookup: StateLookup) -> list[StateRetention]:
        """As many rows as the exporting broker shows, so that no warning is needed here."""
        type_ = lookup.relation_type(rel)
        by = f" by {format_columns(type_.heading.key)}" if type_.heading.key else ""
        until = "it is hidden" if has_open_seal(type_.seals) else seal_condition(type_.seals)
        return [StateRetention(f"each row of {rel.source.name}{by}", until)]

    def partition_columns(self, rel: mmpl.Imported, heading: Heading) -> list[ColumnNames]:
        """All changes of a row must be processed in one partition. They agree on every fixed column."""
        return [(c,) for c in heading.columns]
