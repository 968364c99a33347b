"""SESSION: adds the start of each row's session. A session ends when no row of its group follows within the gap."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.coercions import interval_text
from smile.algebra.heading import Heading, check_columns_exist, check_comparable, check_unique
from smile.algebra.types import TIME
from smile.errors import error
from smile.knowledge.state_retention import StateRetention, of_each
from smile.knowledge.symbolic import Bound
from smile.knowledge.types import MaskDirection, MaskType, RelationType, Sessions
from smile.knowledge.values.range import Range
from smile.operators.operator import (
    BottomRow,
    BottomRowLookup,
    GroupwiseOperator,
    HeadingLookup,
    StateLookup,
    TypeLookup,
)

WINDOW_START = "window_start"


class SessionOperator(GroupwiseOperator[mmpl.Session]):
    keeps_sessions = True

    def heading(self, rel: mmpl.Session, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist((*rel.per, rel.tick), heading, rel.span)
        check_comparable(rel.per, heading, rel.span)
        if heading.key != (rel.tick,) or heading.tick != heading.key:
            hint = "Use SESSION on a stream, or on a view that restricts one or adds columns to it."
            message = f"SESSION needs rows whose key is one tick, but {rel.tick} is not their key"
            raise error("E043", message, rel.span, hint)
        if rel.gap <= 0:
            raise error("E046", "the gap between sessions must be positive", rel.span)
        check_unique((*heading.columns, WINDOW_START), rel.span)
        columns = {**heading.columns, WINDOW_START: TIME}
        return replace(heading, columns=columns, key=(rel.tick, WINDOW_START), total=False)

    def relation_type(self, rel: mmpl.Session, lookup: TypeLookup) -> RelationType:
        """A row that comes out of order can join two sessions. The rows of the later one then leave it, and are in the
        earlier one."""
        source = lookup.relation_type(rel.input)
        if not source.is_append_only or source.mask.direction is not MaskDirection.DECIDED:
            hint = "Use SESSION on a stream, or on a view that restricts one or adds columns to it."
            raise error("E181", "SESSION needs rows that are final when they appear", rel.span, hint)
        on_arrival = source.is_sealed_on_arrival
        start = replace(source.columns[rel.tick], domain="once", nullable=False)
        constraints = source.constraints.with_constraints([(WINDOW_START, rel.tick, 0)])
        dependencies = source.dependencies
        if on_arrival:
            dependencies = dependencies.add([rel.tick], [WINDOW_START])
        return replace(
            source, heading=lookup.heading_of(rel), columns={**source.columns, WINDOW_START: start},
            mask=source.mask if on_arrival else MaskType(MaskDirection.FALLS, Bound.from_number(2)),
            constraints=constraints, reach={stream: {} for stream in source.reach}, dependencies=dependencies,
            can_become_absent=source.can_become_absent or not on_arrival,
            sessions=Sessions(frozenset((*rel.per, WINDOW_START)), rel.tick, rel.gap),
        )  # fmt: skip

    def bottom_row(self, rel: mmpl.Session, lookup: BottomRowLookup) -> BottomRow:
        return {**lookup.bottom_row(rel.input), WINDOW_START: Range.bottom()}

    def state(self, rel: mmpl.Session, lookup: StateLookup) -> list[StateRetention]:
        until = f"the horizon reaches {rel.tick} + {interval_text(rel.gap)}"
        return [StateRetention(f"the last row{of_each(rel.per)}", until)]
