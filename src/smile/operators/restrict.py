"""WHERE: shows the rows for which the predicate is true."""

from collections.abc import Callable
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import expect_type
from smile.algebra.heading import Heading
from smile.algebra.time_forms import START, time_constraints
from smile.algebra.types import BOOL
from smile.knowledge.column_values import narrow_columns
from smile.knowledge.constraints import non_null_columns
from smile.knowledge.expression_types import conjunction_mask, predicate_mask
from smile.knowledge.types import RelationType
from smile.knowledge.values.cells import narrow_cells
from smile.operators.operator import (
    BottomRow,
    BottomRowLookup,
    HeadingLookup,
    RowWiseOperator,
    StateLookup,
    TypeLookup,
    input_cells,
)


class RestrictOperator(RowWiseOperator[mmpl.Restrict]):
    def heading(self, rel: mmpl.Restrict, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        expect_type(rel.predicate, BOOL, heading.columns)
        return replace(heading, total=False)

    def relation_type(self, rel: mmpl.Restrict, lookup: TypeLookup) -> RelationType:
        source = lookup.relation_type(rel.input)
        heading = lookup.heading_of(rel)
        fixed = {n: t for n, t in heading.columns.items() if not source.columns[n].evolves}
        non_null = [c for c in non_null_columns(rel.predicate) if c in fixed]
        constraints = source.constraints.where_not_null(non_null).with_constraints(
            t for t in time_constraints(rel.predicate, heading.columns) if {t[0], t[1]} <= {START, *fixed}
        )
        columns = narrow_columns(source.columns, rel.predicate)
        columns |= {n: replace(columns[n], nullable=False) for n in non_null}
        predicate = predicate_mask(rel.predicate, source.columns)
        mask = conjunction_mask([source.mask, predicate])
        can_be_sealed = not any(s.is_never for s in source.seals.values())
        can_be_final = source.mask.can_be_final_true and (can_be_sealed or predicate.can_be_final_true)
        reach = constraints.extend_reach(source.reach, fixed)
        mask = replace(mask, can_be_final_true=can_be_final)
        return replace(source, heading=heading, columns=columns, constraints=constraints, mask=mask, reach=reach)

    def bottom_row(self, rel: mmpl.Restrict, lookup: BottomRowLookup) -> BottomRow:
        return input_cells(rel, lookup)

    def narrow_shown_row(self, rel: mmpl.Restrict, row: BottomRow, lookup: BottomRowLookup) -> BottomRow:
        return narrow_cells(row, rel.predicate, lookup.heading_of(rel).columns)

    def map_expressions(self, rel: mmpl.Restrict, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Restrict:
        return replace(rel, predicate=change(rel.predicate))

    def hiding_condition(self, rel: mmpl.Restrict, source: mmpl.Rel, of_group: bool, lookup: StateLookup) -> str | None:
        if not of_group and lookup.is_transient(rel):
            return f"{lookup.view_name(rel)} hides the row for good"
        return super().hiding_condition(rel, source, of_group, lookup)
