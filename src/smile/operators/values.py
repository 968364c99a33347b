"""VALUES: rows that the program has. They exist before any event, and all of them are final."""

from collections.abc import Sequence

from smile.algebra import mmpl
from smile.algebra.heading import Heading, check_columns_exist, check_comparable, check_unique
from smile.algebra.types import BOOL, TIME, DataType, Value
from smile.errors import error
from smile.knowledge.column_values import column_values
from smile.knowledge.expression_types import RANGED_TYPES
from smile.knowledge.functional_dependencies import FunctionalDependencies
from smile.knowledge.seals import TimeConstraints
from smile.knowledge.symbolic import ONE, ZERO, Bound, Interval, Number
from smile.knowledge.types import ColumnType, MaskType, RelationType
from smile.knowledge.values.cells import cell_from_values
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, Operator, TypeLookup


class ValuesOperator(Operator[mmpl.Values]):
    def heading(self, rel: mmpl.Values, lookup: HeadingLookup) -> Heading:
        """A single key column of type time is the tick of the rows."""
        check_unique((name for name, _ in rel.columns), rel.span)
        columns = dict(rel.columns)
        tick = rel.key if [columns.get(c) for c in rel.key] == [TIME] else ()
        heading = Heading(columns, rel.key, tick=tick)
        check_columns_exist(rel.key, heading, rel.span)
        check_comparable(rel.key, heading, rel.span)
        if any(len(row) != len(columns) for row in rel.rows):
            raise error("E044", f"a row of VALUES does not have {len(columns)} values", rel.span)
        keys = [tuple(row[tuple(columns).index(c)] for c in rel.key) for row in rel.rows]
        if any(None in key for key in keys):
            raise error("E212", "a key of VALUES is NULL", rel.span)
        if len(set(keys)) < len(keys):
            raise error("E212", "two rows of VALUES have the same key", rel.span)
        return heading

    def relation_type(self, rel: mmpl.Values, lookup: TypeLookup) -> RelationType:
        """No event can affect a row, so there are no seals, and every row is final at once."""
        heading, rows = lookup.heading_of(rel), Bound.from_number(len(rel.rows))
        columns = {
            name: _column_type(data, name in rel.key, [row[i] for row in rel.rows])
            for i, (name, data) in enumerate(rel.columns)
        }
        nulls = {c: c for c, t in columns.items() if t.nullable}
        dependencies = FunctionalDependencies().add(rel.key, columns)
        return RelationType(
            heading, columns, MaskType(), rows, ONE, rows,
            constraints=TimeConstraints({}, nulls), dependencies=dependencies,
        )  # fmt: skip

    def bottom_row(self, rel: mmpl.Values, lookup: BottomRowLookup) -> BottomRow:
        columns = lookup.relation_type(rel).columns
        return {n: cell_from_values(column_values(c, shown=True), c.data) for n, c in columns.items()}

    def has_expiring_rows(self, rel: mmpl.Values, inputs: Sequence[bool]) -> bool:
        return False


def _column_type(data: DataType, is_key: bool, values: Sequence[Value]) -> ColumnType:
    present = [v for v in values if v is not None]
    range_ = None
    if data.name in RANGED_TYPES:
        bounds = [Bound.from_number(v) for v in present if not isinstance(v, str | bytes)] or [ZERO]
        range_ = Interval(min(bounds, key=_number), max(bounds, key=_number))
    mask = MaskType() if data == BOOL else None
    domain = "key" if is_key else "once"
    return ColumnType(data, domain, range_, nullable=len(present) < len(values), mask=mask)


def _number(bound: Bound) -> Number:
    assert bound.number is not None
    return bound.number
