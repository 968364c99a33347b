"""Type analysis: infers the monotonic type of every relation of a program. The type of an operator's result depends
only on the types of its inputs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import singledispatchmethod

from smile.algebra import mmpl, trees
from smile.algebra.heading import WINDOW_COLUMNS, Headings, stream_heading
from smile.algebra.types import BOOL, INT, TICKS_PER_MICROSECOND, TIME
from smile.errors import error
from smile.knowledge import join_types
from smile.knowledge.aggregate_types import aggregate_column_type, membership, value_count, value_count_with_null
from smile.knowledge.constraints import column_range, non_null_columns, time_constraints
from smile.knowledge.expression_types import conjunction_mask, expression_type, predicate_mask
from smile.knowledge.seals import START, Seal, TimeConstraints, union_reach
from smile.knowledge.symbolic import ONE, Bound, Interval, tighter_bound
from smile.knowledge.types import ColumnType, Direction, MaskDirection, MaskType, RelationType


def stream_type(stream: mmpl.StreamDef) -> RelationType:
    heading = stream_heading(stream)
    non_null = {c.args[0] for c in stream.checks if isinstance(c, mmpl.Call) and c.function == "is not null"}
    columns = {}
    for name, data in heading.columns.items():
        nullable = name != stream.tick and mmpl.ColumnRef(name) not in non_null
        domain = "key" if name == stream.tick else "once"
        range_ = column_range(name, data, stream.checks)
        mask = MaskType() if data == BOOL else None
        columns[name] = ColumnType(data, domain, range_, ONE, nullable=nullable, mask=mask)
    nulls = {c: c for c, t in columns.items() if t.nullable}
    constraints = TimeConstraints().with_constraints(
        (t for check in stream.checks for t in time_constraints(check, heading.columns)), nulls
    )
    ticks = value_count(columns[stream.tick])
    tick_range = columns[stream.tick].range
    if tick_range is not None and isinstance(tick_range.hi.number, int):
        constraints = constraints.with_constraints([(stream.tick, START, tick_range.hi.number)])
    reach = constraints.extend_reach({stream.name: {stream.tick: 0}}, columns)
    seals = {stream.name: Seal.from_column(stream.tick)}
    return RelationType(heading, columns, MaskType(), ticks, ONE, ticks, seals, constraints, reach)


class TypeAnalysis:
    """The types of all relational expressions of one program. Each is computed once."""

    def __init__(self, program: mmpl.Program) -> None:
        self.headings = Headings.from_program(program)
        self.relations = {s.name: stream_type(s) for s in program.streams}
        self.bodies = {v.name: v.body for v in program.views}
        self._types: dict[mmpl.Rel, RelationType] = {}
        for view in program.views:
            self.relations[view.name] = self.relation_type(view.body)

    def relation_type(self, rel: mmpl.Rel) -> RelationType:
        relation_type = self._types.get(rel)
        if relation_type is None:
            relation_type = self._types[rel] = self._compute(rel)
        return relation_type

    @singledispatchmethod
    def _compute(self, rel: mmpl.Rel) -> RelationType:
        raise AssertionError(rel)

    @_compute.register
    def _(self, rel: mmpl.RelationRef) -> RelationType:
        return self.relations[rel.name]

    @_compute.register
    def _(self, rel: mmpl.Restrict) -> RelationType:
        source = self.relation_type(rel.input)
        heading = self.headings.heading_of(rel)
        fixed = {n: t for n, t in heading.columns.items() if not source.columns[n].evolves}
        non_null = [c for c in non_null_columns(rel.predicate) if c in fixed]
        constraints = source.constraints.where_not_null(non_null).with_constraints(
            t for t in time_constraints(rel.predicate, heading.columns) if {t[0], t[1]} <= {START, *fixed}
        )
        columns = {n: replace(c, nullable=False) if n in non_null else c for n, c in source.columns.items()}
        predicate = predicate_mask(rel.predicate, source.columns)
        mask = conjunction_mask([source.mask, predicate])
        can_be_sealed = not any(s.is_never for s in source.seals.values())
        can_be_final = source.mask.can_be_final_true and (can_be_sealed or predicate.can_be_final_true)
        reach = constraints.extend_reach(source.reach, fixed)
        mask = replace(mask, can_be_final_true=can_be_final)
        return replace(source, heading=heading, columns=columns, constraints=constraints, mask=mask, reach=reach)

    @_compute.register
    def _(self, rel: mmpl.Project) -> RelationType:
        return _projection_type(
            self.relation_type(rel.input), self.headings.heading_of(rel).columns, self.headings, rel
        )

    @_compute.register
    def _(self, rel: mmpl.Extend) -> RelationType:
        source = self.relation_type(rel.input)
        columns = {**source.columns, **{n: expression_type(e, source.columns) for n, e in rel.assignments}}
        types = {n: c.data for n, c in columns.items()}
        equations = [mmpl.Call("=", (mmpl.ColumnRef(n), e)) for n, e in rel.assignments if not columns[n].evolves]
        nulls = {n: _null_group(e, source.constraints, n) for n, e in rel.assignments if columns[n].nullable}
        new_constraints = (t for e in equations for t in time_constraints(e, types))
        constraints = source.constraints.with_constraints(new_constraints, nulls)
        reach = constraints.extend_reach(source.reach, columns)
        return replace(
            source, heading=self.headings.heading_of(rel), columns=columns, constraints=constraints, reach=reach
        )

    @_compute.register
    def _(self, rel: mmpl.Rename) -> RelationType:
        source, new_names = self.relation_type(rel.input), dict(rel.pairs)
        return replace(
            source,
            heading=self.headings.heading_of(rel),
            columns={new_names.get(n, n): c for n, c in source.columns.items()},
            seals={s: seal.rename(new_names) for s, seal in source.seals.items()},
            constraints=source.constraints.rename(new_names),
            reach={s: {new_names.get(c, c): d for c, d in distances.items()} for s, distances in source.reach.items()},
        )

    @_compute.register
    def _(self, rel: mmpl.Join) -> RelationType:
        return join_types.join_type(
            rel, self.relation_type(rel.left), self.relation_type(rel.right), self.headings.heading_of(rel)
        )

    @_compute.register
    def _(self, rel: mmpl.Asof) -> RelationType:
        return join_types.asof_type(
            rel, self.relation_type(rel.left), self.relation_type(rel.right), self.headings.heading_of(rel)
        )

    @_compute.register
    def _(self, rel: mmpl.Summarize) -> RelationType:
        source = self.relation_type(rel.input)
        group = membership(source, rel.per)
        columns = _key_columns(source, rel.per)
        columns |= {n: aggregate_column_type(a, source, group) for n, a in rel.aggregates}
        return self._group_type(rel, source, rel.per, columns)

    @_compute.register
    def _(self, rel: mmpl.Distinct) -> RelationType:
        source, per = self.relation_type(rel.input), self.headings.heading_of(rel).key
        return self._group_type(rel, source, per, _key_columns(source, per))

    def _group_type(
        self, rel: mmpl.Rel, source: RelationType, per: tuple[str, ...], columns: Mapping[str, ColumnType]
    ) -> RelationType:
        """A group is shown while one of its members is. Without grouping there is always one row."""
        group = membership(source, per)
        if not per:
            mask = MaskType()
        elif group.is_single:
            mask = source.mask
        else:
            # A member enters and leaves as its own mask changes and as the columns it is grouped by evolve. Such
            # changes are not only caused by events.
            steps = source.mask.steps
            for column in per:
                if source.columns[column].evolves:
                    steps = steps + source.columns[column].steps + ONE
            mask = MaskType() if not group.can_leave else MaskType(MaskDirection.EITHER, group.members * steps)
        rows = ONE
        for column in per:
            rows = rows * value_count_with_null(columns[column])
        rows = tighter_bound(rows, source.rows)
        fixed = [c for c in per if not source.columns[c].evolves]
        seals = {s: source.constraints.express_seal(seal, fixed) for s, seal in source.seals.items()}
        constraints, reach = source.constraints.project(fixed), source.constraints.extend_reach(source.reach, fixed)
        can_become_absent = bool(per) and (source.can_become_absent or len(fixed) < len(per))
        return RelationType(
            self.headings.heading_of(rel), columns, mask, rows, group.steps, source.events, seals, constraints, reach,
            can_become_absent,
        )  # fmt: skip

    @_compute.register
    def _(self, rel: mmpl.Best) -> RelationType:
        source = self.relation_type(rel.input)
        ordering = {c for e, _ in rel.by for c in trees.columns_in(e)} | set(rel.per)
        is_order_fixed = source.never_leaves and not any(source.columns[c].evolves for c in ordering)
        rank = (
            MaskType(MaskDirection.FALLS, Bound.from_number(2))
            if is_order_fixed
            else MaskType(MaskDirection.EITHER, source.events)
        )
        fixed = [c for c in rel.per if not source.columns[c].evolves]
        seals = {s: seal.latest(source.constraints.express_seal(seal, fixed)) for s, seal in source.seals.items()}
        can_be_final = source.mask.can_be_final_true and not any(s.is_never for s in seals.values())
        mask = replace(conjunction_mask([source.mask, rank]), can_be_final_true=can_be_final)
        reach = source.constraints.extend_reach(source.reach, fixed)
        return replace(source, heading=self.headings.heading_of(rel), mask=mask, seals=seals, reach=reach)

    @_compute.register
    def _(self, rel: mmpl.Window) -> RelationType:
        source, heading = self.relation_type(rel.input), self.headings.heading_of(rel)
        on = source.columns[rel.on]
        if rel.kind == "last":
            mask = conjunction_mask([source.mask, MaskType(MaskDirection.FALLS, Bound.from_number(2))])
            seals = {s: seal.latest(Seal.from_column(rel.on, rel.size)) for s, seal in source.seals.items()}
            return replace(source, heading=heading, mask=mask, seals=seals)
        unit = 1 if on.data == TIME else TICKS_PER_MICROSECOND
        if on.evolves:
            raise error("E046", f"a window needs a column that does not change, and {rel.on} evolves", rel.span)
        starts = _window_starts(on.range, rel.size // unit, rel.slide is not None)
        length = Interval.exactly(rel.size // unit)
        ranges = (starts, starts + length if starts is not None else None)
        time_column = replace(on, nullable=False)
        bounds = {n: replace(time_column, domain="once", range=r) for n, r in zip(WINDOW_COLUMNS, ranges, strict=True)}
        # A row without a time is in no window.
        constraints = source.constraints.where_not_null([rel.on]).with_constraints(
            [
                (rel.on, "window_end", -unit),
                ("window_start", rel.on, 0),
                ("window_end", "window_start", rel.size),
                ("window_start", "window_end", -rel.size),
            ]
        )
        copies = ONE if rel.slide is None else Bound.from_number(-(-rel.size // rel.slide))
        columns = {**source.columns, rel.on: time_column, **bounds}
        reach = constraints.extend_reach(source.reach, heading.columns)
        return replace(
            source, heading=heading, columns=columns, constraints=constraints, rows=source.rows * copies,
            events=source.events * copies, reach=reach,
        )  # fmt: skip

    @_compute.register
    def _(self, rel: mmpl.Over) -> RelationType:
        source = self.relation_type(rel.input)
        peers = membership(source, (*rel.per, rel.by))
        members = (
            source.rows
            if rel.range is None
            else tighter_bound(Bound.from_number(rel.range + 1) * peers.members, source.rows)
        )
        steps = tighter_bound(members * source.steps, source.events)
        group = replace(peers, members=members, steps=steps, is_single=False)
        columns = {**source.columns, **{n: aggregate_column_type(a, source, group) for n, a in rel.aggregates}}
        seals = {s: seal.latest(source.constraints.express_seal(seal, [rel.by])) for s, seal in source.seals.items()}
        # An event affects later rows up to the length of the window.
        reach = {
            s: {c: d + rel.range for c, d in distances.items()} if rel.range is not None else {}
            for s, distances in source.constraints.extend_reach(source.reach, [rel.by]).items()
        }
        heading = self.headings.heading_of(rel)
        return replace(source, heading=heading, columns=columns, seals=seals, steps=group.steps, reach=reach)

    @_compute.register
    def _(self, rel: mmpl.Silence) -> RelationType:
        source = self.relation_type(rel.input)
        rows = self.relation_type(self._without_added_columns(rel.input))
        if not rows.is_append_only or any(source.columns[c].evolves for c in rel.per):
            raise error("E045", "SILENCE needs rows that are final when they appear", rel.span)
        mask = MaskType(MaskDirection.RISES, ONE)
        quiet = ColumnType(BOOL, "mask", None, ONE, Direction.FIXED, True, False, False, mask)
        seals = {s: seal.latest(Seal.from_column(rel.tick, rel.longer_than)) for s, seal in source.seals.items()}
        columns = {**source.columns, rel.name: quiet}
        reach = source.constraints.extend_reach(source.reach, [rel.tick])
        return replace(source, heading=self.headings.heading_of(rel), columns=columns, seals=seals, reach=reach)

    def _without_added_columns(self, rel: mmpl.Rel) -> mmpl.Rel:
        """The input below operators that only add columns. It decides which rows exist, and when they are final."""
        while True:
            match rel:
                case mmpl.Silence() | mmpl.Over() | mmpl.Extend():
                    rel = rel.input
                case mmpl.RelationRef() if rel.name in self.bodies:
                    rel = self.bodies[rel.name]
                case _:
                    return rel

    @_compute.register
    def _(self, rel: mmpl.Merge) -> RelationType:
        return self._union_type(rel, rel.inputs, "source")

    @_compute.register
    def _(self, rel: mmpl.Union) -> RelationType:
        return self._union_type(rel, rel.inputs, "branch")

    def _union_type(self, rel: mmpl.Rel, inputs: Iterable[mmpl.Rel], position: str) -> RelationType:
        """The rows of several relations, each with the position of the relation it comes from."""
        sources = [self.relation_type(i) for i in inputs]
        heading = self.headings.heading_of(rel)
        position_type = ColumnType(INT, "key", Interval(ONE, Bound.from_number(len(sources))), ONE, nullable=False)
        columns = {}
        for name in heading.columns:
            column_types = [s.columns[name] for s in sources if name in s.columns]
            columns[name] = (
                position_type
                if name == position
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
        return RelationType(heading, columns, mask, rows, steps, events, seals, constraints, reach, can_become_absent)


def _null_group(expr: mmpl.Expr, constraints: TimeConstraints, name: str) -> str:
    """The group of columns that are NULL together with `expr`. A time with an offset is NULL when its column is."""
    column_names = trees.columns_in(expr)
    is_shifted = isinstance(expr, mmpl.ColumnRef) or (isinstance(expr, mmpl.Call) and expr.function in ("+", "-"))
    return constraints.nulls.get(next(iter(column_names)), name) if is_shifted and len(column_names) == 1 else name


def _projection_type(source: RelationType, columns: Iterable[str], headings: Headings, rel: mmpl.Rel) -> RelationType:
    """The type of some of the columns. Seals are expressed by those that do not evolve."""
    projected = {c: source.columns[c] for c in columns}
    fixed = [c for c, t in projected.items() if not t.evolves]
    seals = {s: source.constraints.express_seal(seal, fixed) for s, seal in source.seals.items()}
    constraints, reach = source.constraints.project(fixed), source.constraints.extend_reach(source.reach, fixed)
    return replace(
        source, heading=headings.heading_of(rel), columns=projected, seals=seals, constraints=constraints, reach=reach
    )


def _key_columns(source: RelationType, per: tuple[str, ...]) -> dict[str, ColumnType]:
    return {
        c: replace(
            source.columns[c], domain="key", direction=Direction.FIXED, evolves=False, steps=ONE, has_default=True
        )
        for c in per
    }


def _window_starts(times: Interval | None, size: int, overlap: bool) -> Interval | None:
    """The starts of windows that contain these times. Windows that do not overlap start at multiples of their size."""
    if times is None:
        return None
    first = times.lo.number
    if overlap or not isinstance(first, int):
        return Interval(times.lo - Bound.from_number(size - 1), times.hi)
    return Interval(Bound.from_number(first // size * size), times.hi)


def _union_column_type(parts: list[ColumnType], is_missing_in_some: bool) -> ColumnType:
    result = parts[0]
    for part in parts[1:]:
        evolving = result if result.evolves else part
        masks = [m for m in (result.mask, part.mask) if m is not None]
        range_ = result.range.hull(part.range) if result.range is not None and part.range is not None else None
        direction = result.direction.combine(part.direction)
        result = replace(
            evolving,
            range=range_,
            steps=_greater_bound(result.steps, part.steps),
            direction=direction,
            nullable=result.nullable or part.nullable,
            null_evolves=result.null_evolves or part.null_evolves,
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
