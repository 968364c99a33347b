"""MERGE and UNION: the rows of several relations, each with the position of the relation it comes from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from smile.algebra import mmpl
from smile.algebra.heading import Heading, check_unique
from smile.algebra.types import INT, TIME
from smile.errors import error
from smile.knowledge.expression_types import greatest_per_event
from smile.knowledge.seals import Seal, TimeConstraints, union_reach
from smile.knowledge.symbolic import ONE, Bound, Interval
from smile.knowledge.types import ColumnType, MaskDirection, MaskType, RelationType
from smile.knowledge.values.cells import optional_cell
from smile.knowledge.values.range import Range
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, Operator, TypeLookup
from smile.source import Span

U = TypeVar("U", mmpl.Merge, mmpl.Union)


class _PositionedUnion(Operator[U]):
    position_column: str
    """The column with the position of the input, counted from 1."""

    def relation_type(self, rel: U, lookup: TypeLookup) -> RelationType:
        sources = [lookup.relation_type(i) for i in rel.inputs]
        heading = lookup.heading_of(rel)
        position_type = ColumnType(INT, "key", Interval(ONE, Bound.from_number(len(sources))), ONE, nullable=False)
        columns = {}
        for name in heading.columns:
            column_types = [s.columns[name] for s in sources if name in s.columns]
            columns[name] = (
                position_type
                if name == self.position_column
                else _union_column_type(column_types, len(column_types) < len(sources))
            )
            if name in heading.key and any(p.evolves for p in column_types):
                raise error("E040", f"{name} identifies rows, and evolves in one of the relations", rel.span)
        first = sources[0]
        seals: dict[str, Seal] = {}
        for source in sources:
            for stream, seal in source.seals.items():
                seals[stream] = seal if stream not in seals else seals[stream].latest(seal)
        rows, events = first.rows, first.events
        for source in sources[1:]:
            rows, events = rows + source.rows, events + source.events
        steps = max((s.steps for s in sources), key=lambda b: b.limit if b.limit is not None else float("inf"))
        mask = _union_mask_type([s.mask for s in sources])
        distances = {
            pair: max(s.constraints.distance_max[pair] for s in sources)
            for pair in first.constraints.distance_max
            if all(pair in s.constraints.distance_max for s in sources)
        }
        reach = first.reach
        for source in sources[1:]:
            reach = union_reach(reach, source.reach)
        nulls = {c: c for c, t in columns.items() if t.nullable}
        constraints = TimeConstraints(distances, nulls)
        can_become_absent = any(s.can_become_absent for s in sources)
        return RelationType(
            heading, columns, mask, rows, steps, events, seals, constraints, reach, can_become_absent,
            has_early_rows=any(s.has_early_rows for s in sources),
        )  # fmt: skip

    def bottom_row(self, rel: U, lookup: BottomRowLookup) -> BottomRow:
        sources = [lookup.bottom_row(i) for i in rel.inputs]
        columns = lookup.heading_of(rel).columns
        cells = {c: optional_cell(t, [s[c] for s in sources if c in s]) for c, t in columns.items()}
        return {**cells, self.position_column: Range.between(1, len(sources))}

    def has_expiring_rows(self, rel: U, inputs: Sequence[bool]) -> bool:
        return all(inputs)


class MergeOperator(_PositionedUnion[mmpl.Merge]):
    position_column = "source"

    def heading(self, rel: mmpl.Merge, lookup: HeadingLookup) -> Heading:
        headings = [lookup.heading_of(i) for i in rel.inputs]
        for heading, node in zip(headings, rel.inputs, strict=True):
            if len(heading.key) != 1 or heading.tick != heading.key:
                raise error("E043", "MERGE needs relations whose key is one tick", node.span or rel.span)
        first = _check_same_visible_columns("MERGE", headings, rel.span)
        if any(h.key != first.key for h in headings):
            raise error("E044", "MERGE needs the tick in the same column of each relation", rel.span)
        if first.key[0] in first.hidden:
            raise error("E043", "MERGE needs the tick to be selected", rel.span)
        check_unique((*first.visible, "source"), rel.span)
        tick = (first.key[0], "source")
        columns = {tick[0]: TIME, "source": INT, **{c: first.columns[c] for c in first.visible}}
        return Heading(columns, tick, tick=tick)


class UnionOperator(_PositionedUnion[mmpl.Union]):
    position_column = "branch"

    def heading(self, rel: mmpl.Union, lookup: HeadingLookup) -> Heading:
        headings = [lookup.heading_of(i) for i in rel.inputs]
        first = _check_same_visible_columns("UNION", headings, rel.span)
        columns = {c: first.columns[c] for c in first.visible}
        hidden = {"branch": INT}
        for heading in headings:
            for c in sorted(heading.hidden):
                if c in columns or c == "branch" or hidden.get(c, heading.columns[c]) != heading.columns[c]:
                    raise error("E044", f"the hidden key column {c} clashes in UNION", rel.span)
                hidden[c] = heading.columns[c]
        check_unique((*columns, "branch"), rel.span)
        keys = [c for c in columns if any(c in h.key for h in headings)]
        return Heading(
            {**columns, **hidden}, ("branch", *keys, *(c for c in hidden if c != "branch")), frozenset(hidden)
        )


def _check_same_visible_columns(operator: str, headings: list[Heading], span: Span | None) -> Heading:
    first = headings[0]
    for h in headings[1:]:
        if h.visible != first.visible or any(h.columns[c] != first.columns[c] for c in h.visible):
            raise error("E044", f"{operator} needs the same columns of the same types in each relation", span)
    return first


def _union_column_type(parts: list[ColumnType], is_missing_in_some: bool) -> ColumnType:
    result = parts[0]
    for part in parts[1:]:
        evolving = result if result.evolves else part
        masks = [m for m in (result.mask, part.mask) if m is not None]
        direction = result.direction.combine(part.direction)
        result = replace(
            evolving.hull(part if evolving is result else result),
            steps=_greater_bound(result.steps, part.steps),
            direction=direction,
            nullable=result.nullable or part.nullable,
            per_event=greatest_per_event([result, part]),
            null_evolves=result.null_evolves or part.null_evolves,
            is_by_source=result.is_by_source or part.is_by_source,
            mask=_union_mask_type(masks) if masks else None,
        )
    return replace(result, nullable=True) if is_missing_in_some else result


def _union_mask_type(masks: list[MaskType]) -> MaskType:
    """The type of rows of which each has one of these types. MaskDirection lists directions by how much they allow."""
    directions = {m.direction for m in masks}
    direction = max(directions, key=list(MaskDirection).index)
    if direction is MaskDirection.FALLS and MaskDirection.RISES in directions:
        direction = MaskDirection.PEAKS
    steps = masks[0].steps
    for mask in masks[1:]:
        steps = _greater_bound(steps, mask.steps)
    return MaskType(direction, steps, any(m.can_be_final_true for m in masks))


def _greater_bound(a: Bound, b: Bound) -> Bound:
    return max(a, b, key=lambda bound: bound.limit if bound.limit is not None else float("inf"))
