"""SILENCE: adds whether no row of the same group follows within some time."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.coercions import interval_text
from smile.algebra.heading import Heading, check_columns_exist, check_comparable, check_unique
from smile.algebra.types import BOOL
from smile.errors import error
from smile.knowledge.seals import Seal
from smile.knowledge.state_retention import StateRetention, of_each
from smile.knowledge.symbolic import ONE
from smile.knowledge.types import ColumnType, Direction, MaskDirection, MaskType, RelationType
from smile.knowledge.values.mask import Mask
from smile.operators.operator import (
    BottomRow,
    BottomRowLookup,
    GroupwiseOperator,
    HeadingLookup,
    StateLookup,
    TypeLookup,
)


class SilenceOperator(GroupwiseOperator[mmpl.Silence]):
    only_adds_columns = True

    def heading(self, rel: mmpl.Silence, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist((*rel.per, rel.tick), heading, rel.span)
        check_comparable(rel.per, heading, rel.span)
        if heading.key != (rel.tick,) or heading.tick != heading.key:
            raise error("E043", f"SILENCE needs rows whose key is one tick, but {rel.tick} is not their key", rel.span)
        check_unique((*heading.columns, rel.name), rel.span)
        return replace(heading, columns={**heading.columns, rel.name: BOOL}, total=False)

    def relation_type(self, rel: mmpl.Silence, lookup: TypeLookup) -> RelationType:
        source = lookup.relation_type(rel.input)
        rows = lookup.relation_type(lookup.without_added_columns(rel.input))
        if not rows.is_append_only or any(source.columns[c].evolves for c in rel.per):
            raise error("E045", "SILENCE needs rows that are final when they appear", rel.span)
        mask = MaskType(MaskDirection.RISES, ONE)
        quiet = ColumnType(BOOL, "mask", None, ONE, Direction.FIXED, True, False, False, mask)
        seals = {s: seal.latest(Seal.from_column(rel.tick, rel.longer_than)) for s, seal in source.seals.items()}
        columns = {**source.columns, rel.name: quiet}
        reach = source.constraints.extend_reach(source.reach, [rel.tick])
        return replace(source, heading=lookup.heading_of(rel), columns=columns, seals=seals, reach=reach)

    def bottom_row(self, rel: mmpl.Silence, lookup: BottomRowLookup) -> BottomRow:
        return {**lookup.bottom_row(rel.input), rel.name: Mask.from_truths((True, False), False)}

    def state(self, rel: mmpl.Silence, lookup: StateLookup) -> list[StateRetention]:
        until = f"the horizon reaches {rel.tick} + {interval_text(rel.longer_than)}"
        return [StateRetention(f"the last row{of_each(rel.per)}", until)]
