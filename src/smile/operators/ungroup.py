"""UNGROUP: a row for each element of an array. The position of the element joins the key.

While the array can still change, so can which of its rows there are, and each of them is known when the array is.
"""

from dataclasses import replace

from smile import limits
from smile.algebra import mmpl
from smile.algebra.heading import Heading, check_columns_exist, check_unique
from smile.algebra.types import BOOL, INT, DataType
from smile.errors import error
from smile.knowledge.expression_types import RANGED_TYPES, conjunction_mask
from smile.knowledge.symbolic import ONE, UNBOUNDED, Bound, Interval
from smile.knowledge.types import ColumnType, Direction, MaskDirection, MaskType, RelationType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.range import Range
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, Operator, TypeLookup

_GROUP_HINT = "The rows of a nested relation are those of the query that it was made of: read that query."


class UngroupOperator(Operator[mmpl.Ungroup]):
    def heading(self, rel: mmpl.Ungroup, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist((rel.column,), heading, rel.span)
        data = heading.columns[rel.column]
        if data.name != "array":
            hint = _GROUP_HINT if data.name == "relation" else None
            raise error("E031", f"UNGROUP needs an array, but {rel.column} is {data}", rel.span, hint)
        if len(rel.names) != 1:
            raise error("E032", f"the elements of {rel.column} have one column, not {len(rel.names)}", rel.span)
        check_unique((*heading.columns, *rel.names, rel.ordinality), rel.span)
        columns = {**heading.columns, rel.names[0]: data.element, rel.ordinality: INT}
        return replace(heading, columns=columns, key=(*heading.key, rel.ordinality), total=False)

    def relation_type(self, rel: mmpl.Ungroup, lookup: TypeLookup) -> RelationType:
        source, heading = lookup.relation_type(rel.input), lookup.heading_of(rel)
        array, data = source.columns[rel.column], heading.columns[rel.names[0]]
        # Only arrays that change can be longer than those of events: an aggregate has an element for each member.
        elements_max = limits.relation_rows_max if array.evolves else limits.array_elements_max
        copies = Bound.from_number(elements_max)
        ordinality = ColumnType(INT, "once", Interval(ONE, copies), nullable=rel.keeps_empty)
        added = {rel.names[0]: _element_type(array, data), rel.ordinality: ordinality}
        mask = source.mask
        if array.evolves:
            mask = conjunction_mask([mask, MaskType(MaskDirection.EITHER, array.steps)])
        return replace(
            source, heading=heading, columns={**source.columns, **added}, mask=mask, rows=source.rows * copies,
            events=source.events * copies, shares_ticks=True,
            can_become_absent=source.can_become_absent or array.evolves,
        )  # fmt: skip

    def bottom_row(self, rel: mmpl.Ungroup, lookup: BottomRowLookup) -> BottomRow:
        data = lookup.heading_of(rel).columns[rel.names[0]]
        return {**lookup.bottom_row(rel.input), rel.names[0]: element_bottom(data), rel.ordinality: Range.bottom()}


def element_bottom(data: DataType) -> CellKnowledge:
    return Mask.from_truths((True, False, None)) if data == BOOL else Range.bottom()


def _element_type(array: ColumnType, data: DataType) -> ColumnType:
    evolves = array.evolves
    direction = Direction.EITHER if evolves else Direction.FIXED
    range_ = UNBOUNDED if data.name in RANGED_TYPES else None
    if data == BOOL:
        mask = MaskType(MaskDirection.EITHER, array.steps) if evolves else MaskType()
        return ColumnType(data, "mask", None, array.steps, Direction.FIXED, evolves, True, evolves, mask)
    return ColumnType(data, "range" if evolves else "once", range_, array.steps, direction, evolves, True, evolves)
