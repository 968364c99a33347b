"""Type analysis: the monotonic type of every relation of a program. Each operator's type is a function of the types of
its inputs alone."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import singledispatchmethod

from smile.algebra import mmpl, trees
from smile.algebra.heading import WINDOW_COLUMNS, Headings, stream_heading
from smile.algebra.types import BOOL, INT, TICKS_PER_MICROSECOND, TIME
from smile.errors import error
from smile.knowledge import join_types
from smile.knowledge.aggregate_types import aggregate_column, membership, values_and_null, values_of
from smile.knowledge.expression_types import both, expression_type, predicate_mask
from smile.knowledge.ranges import column_range, columns_there, ties_in
from smile.knowledge.seals import Seal, Ties, furthest
from smile.knowledge.symbolic import ONE, Bound, Interval, at_most
from smile.knowledge.types import ColumnType, Course, Direction, MaskType, RelationType


def stream_type(stream: mmpl.StreamDef) -> RelationType:
    heading = stream_heading(stream)
    known = {c.args[0] for c in stream.checks if isinstance(c, mmpl.Call) and c.function == "is not null"}
    columns = {}
    for name, data in heading.columns.items():
        nullable = name != stream.tick and mmpl.Column(name) not in known
        domain = "key" if name == stream.tick else "once"
        range_ = column_range(name, data, stream.checks)
        mask = MaskType() if data == BOOL else None
        columns[name] = ColumnType(data, domain, range_, ONE, nullable=nullable, mask=mask)
    nulls = {c: c for c, t in columns.items() if t.nullable}
    ties = Ties().with_((t for check in stream.checks for t in ties_in(check, heading.columns)), nulls)
    ticks = values_of(columns[stream.tick])
    last = columns[stream.tick].range
    if last is not None and isinstance(last.hi.number, int):
        ties = ties.with_([(stream.tick, "", last.hi.number)])
    reach = ties.extend({stream.name: {stream.tick: 0}}, columns)
    return RelationType(
        heading, columns, MaskType(), ticks, ONE, ticks, {stream.name: Seal.of(stream.tick)}, ties, reach
    )


class Analysis:
    """Types of all the relational expressions of one program, each computed once."""

    def __init__(self, program: mmpl.Program) -> None:
        self.headings = Headings.of_program(program)
        self.relations = {s.name: stream_type(s) for s in program.streams}
        self.bodies = {v.name: v.body for v in program.views}
        self._known: dict[mmpl.Rel, RelationType] = {}
        for view in program.views:
            self.relations[view.name] = self.of(view.body)

    def of(self, rel: mmpl.Rel) -> RelationType:
        found = self._known.get(rel)
        if found is None:
            found = self._known[rel] = self._compute(rel)
        return found

    @singledispatchmethod
    def _compute(self, rel: mmpl.Rel) -> RelationType:
        raise AssertionError(rel)

    @_compute.register
    def _(self, rel: mmpl.Ref) -> RelationType:
        return self.relations[rel.name]

    @_compute.register
    def _(self, rel: mmpl.Restrict) -> RelationType:
        source = self.of(rel.input)
        heading = self.headings.of(rel)
        fixed = {n: t for n, t in heading.columns.items() if not source.columns[n].evolves}
        there = [c for c in columns_there(rel.predicate) if c in fixed]
        known = source.ties.never_null(there)
        ties = known.with_(t for t in ties_in(rel.predicate, heading.columns) if {t[0], t[1]} <= {"", *fixed})
        columns = {n: replace(c, nullable=False) if n in there else c for n, c in source.columns.items()}
        predicate = predicate_mask(rel.predicate, source.columns)
        mask = both([source.mask, predicate])
        sealed = not any(s.is_never for s in source.seals.values())
        final = source.mask.final_true and (sealed or predicate.final_true)
        reach = ties.extend(source.reach, fixed)
        mask = replace(mask, final_true=final)
        return replace(source, heading=heading, columns=columns, ties=ties, mask=mask, reach=reach)

    @_compute.register
    def _(self, rel: mmpl.Project) -> RelationType:
        return _kept(self.of(rel.input), self.headings.of(rel).columns, self.headings, rel)

    @_compute.register
    def _(self, rel: mmpl.Extend) -> RelationType:
        source = self.of(rel.input)
        columns = {**source.columns, **{n: expression_type(e, source.columns) for n, e in rel.assignments}}
        types = {n: c.data for n, c in columns.items()}
        equal = [mmpl.Call("=", (mmpl.Column(n), e)) for n, e in rel.assignments if not columns[n].evolves]
        nulls = {n: _null_group(e, source.ties, n) for n, e in rel.assignments if columns[n].nullable}
        ties = source.ties.with_((t for e in equal for t in ties_in(e, types)), nulls)
        reach = ties.extend(source.reach, columns)
        return replace(source, heading=self.headings.of(rel), columns=columns, ties=ties, reach=reach)

    @_compute.register
    def _(self, rel: mmpl.Rename) -> RelationType:
        source, new = self.of(rel.input), dict(rel.pairs)
        return replace(
            source,
            heading=self.headings.of(rel),
            columns={new.get(n, n): c for n, c in source.columns.items()},
            seals={s: seal.renamed(new) for s, seal in source.seals.items()},
            ties=source.ties.renamed(new),
            reach={s: {new.get(c, c): d for c, d in known.items()} for s, known in source.reach.items()},
        )

    @_compute.register
    def _(self, rel: mmpl.Join) -> RelationType:
        return join_types.join_type(rel, self.of(rel.left), self.of(rel.right), self.headings.of(rel))

    @_compute.register
    def _(self, rel: mmpl.Asof) -> RelationType:
        return join_types.asof_type(rel, self.of(rel.left), self.of(rel.right), self.headings.of(rel))

    @_compute.register
    def _(self, rel: mmpl.Summarize) -> RelationType:
        source = self.of(rel.input)
        group = membership(source, rel.per)
        columns = _keys(source, rel.per)
        columns |= {n: aggregate_column(a, source, group) for n, a in rel.aggregates}
        return self._grouped(rel, source, rel.per, columns)

    @_compute.register
    def _(self, rel: mmpl.Distinct) -> RelationType:
        source, per = self.of(rel.input), self.headings.of(rel).key
        return self._grouped(rel, source, per, _keys(source, per))

    def _grouped(
        self, rel: mmpl.Rel, source: RelationType, per: tuple[str, ...], columns: Mapping[str, ColumnType]
    ) -> RelationType:
        """A group is shown while one of its members is; without grouping there is one row, always."""
        group = membership(source, per)
        if not per:
            mask = MaskType()
        elif group.single:
            mask = source.mask
        else:
            # A member comes and goes as its own mask does, and as what it is grouped by moves; not only events do that.
            moves = source.mask.steps
            for column in per:
                if source.columns[column].evolves:
                    moves = moves + source.columns[column].steps + ONE
            mask = MaskType() if not group.leaving else MaskType(Course.EITHER, group.members * moves)
        rows = ONE
        for column in per:
            rows = rows * values_and_null(columns[column])
        rows = at_most(rows, source.rows)
        fixed = [c for c in per if not source.columns[c].evolves]
        seals = {s: source.ties.express(seal, fixed) for s, seal in source.seals.items()}
        ties, reach = source.ties.of(fixed), source.ties.extend(source.reach, fixed)
        forgets = bool(per) and (source.forgets or len(fixed) < len(per))
        return RelationType(
            self.headings.of(rel), columns, mask, rows, group.steps, source.events, seals, ties, reach, forgets
        )  # fmt: skip

    @_compute.register
    def _(self, rel: mmpl.Best) -> RelationType:
        source = self.of(rel.input)
        ordering = {c for e, _ in rel.by for c in trees.columns_in(e)} | set(rel.per)
        settled = source.never_leaves and not any(source.columns[c].evolves for c in ordering)
        rank = MaskType(Course.FALLS, Bound.of(2)) if settled else MaskType(Course.EITHER, source.events)
        fixed = [c for c in rel.per if not source.columns[c].evolves]
        seals = {s: seal.latest(source.ties.express(seal, fixed)) for s, seal in source.seals.items()}
        sealed = not any(s.is_never for s in seals.values())
        mask = replace(both([source.mask, rank]), final_true=source.mask.final_true and sealed)
        reach = source.ties.extend(source.reach, fixed)
        return replace(source, heading=self.headings.of(rel), mask=mask, seals=seals, reach=reach)

    @_compute.register
    def _(self, rel: mmpl.Window) -> RelationType:
        source, heading = self.of(rel.input), self.headings.of(rel)
        on = source.columns[rel.on]
        if rel.kind == "last":
            mask = both([source.mask, MaskType(Course.FALLS, Bound.of(2))])
            seals = {s: seal.latest(Seal.of(rel.on, rel.size)) for s, seal in source.seals.items()}
            return replace(source, heading=heading, mask=mask, seals=seals)
        unit = 1 if on.data == TIME else TICKS_PER_MICROSECOND
        if on.evolves:
            raise error("E046", f"a window needs a column that does not change, and {rel.on} evolves", rel.span)
        starts = _window_starts(on.range, rel.size // unit, rel.slide is not None)
        length = Interval.exactly(rel.size // unit)
        ranges = (starts, starts + length if starts is not None else None)
        there = replace(on, nullable=False)
        bounds = {n: replace(there, domain="once", range=r) for n, r in zip(WINDOW_COLUMNS, ranges, strict=True)}
        # What has no time is in no window.
        ties = source.ties.never_null([rel.on]).with_(
            [
                (rel.on, "window_end", -unit),
                ("window_start", rel.on, 0),
                ("window_end", "window_start", rel.size),
                ("window_start", "window_end", -rel.size),
            ]
        )
        copies = ONE if rel.slide is None else Bound.of(-(-rel.size // rel.slide))
        return replace(
            source, heading=heading, columns={**source.columns, rel.on: there, **bounds}, ties=ties,
            rows=source.rows * copies, events=source.events * copies, reach=ties.extend(source.reach, heading.columns),
        )  # fmt: skip

    @_compute.register
    def _(self, rel: mmpl.Over) -> RelationType:
        source = self.of(rel.input)
        at_once = membership(source, (*rel.per, rel.by))
        reached = source.rows if rel.range is None else at_most(Bound.of(rel.range + 1) * at_once.members, source.rows)
        steps = at_most(reached * source.steps, source.events)
        group = replace(at_once, members=reached, steps=steps, single=False)
        columns = {**source.columns, **{n: aggregate_column(a, source, group) for n, a in rel.aggregates}}
        seals = {s: seal.latest(source.ties.express(seal, [rel.by])) for s, seal in source.seals.items()}
        # An event affects the rows after it as far as the window goes back.
        by = source.ties.extend(source.reach, [rel.by])
        reach = {
            s: {c: d + rel.range for c, d in known.items()} if rel.range is not None else {} for s, known in by.items()
        }
        heading = self.headings.of(rel)
        return replace(source, heading=heading, columns=columns, seals=seals, steps=group.steps, reach=reach)

    @_compute.register
    def _(self, rel: mmpl.Silence) -> RelationType:
        source = self.of(rel.input)
        rows = self.of(self._without_added_columns(rel.input))
        if not rows.is_history or any(source.columns[c].evolves for c in rel.per):
            raise error("E045", "SILENCE needs rows that are final when they appear", rel.span)
        mask = MaskType(Course.RISES, ONE)
        quiet = ColumnType(BOOL, "mask", None, ONE, Direction.FIXED, True, False, False, mask)
        seals = {s: seal.latest(Seal.of(rel.tick, rel.longer_than)) for s, seal in source.seals.items()}
        columns = {**source.columns, rel.name: quiet}
        reach = source.ties.extend(source.reach, [rel.tick])
        return replace(source, heading=self.headings.of(rel), columns=columns, seals=seals, reach=reach)

    def _without_added_columns(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Below operators that only add to rows: whether a row is there, and when, is decided there."""
        while True:
            match rel:
                case mmpl.Silence() | mmpl.Over() | mmpl.Extend():
                    rel = rel.input
                case mmpl.Ref() if rel.name in self.bodies:
                    rel = self.bodies[rel.name]
                case _:
                    return rel

    @_compute.register
    def _(self, rel: mmpl.Merge) -> RelationType:
        return self._all(rel, rel.inputs, "source")

    @_compute.register
    def _(self, rel: mmpl.Union) -> RelationType:
        return self._all(rel, rel.inputs, "branch")

    def _all(self, rel: mmpl.Rel, inputs: Iterable[mmpl.Rel], position: str) -> RelationType:
        """Rows of several relations in one, each with the position of the relation it came from."""
        sources = [self.of(i) for i in inputs]
        heading = self.headings.of(rel)
        own = ColumnType(INT, "key", Interval(ONE, Bound.of(len(sources))), ONE, nullable=False)
        columns = {}
        for name in heading.columns:
            parts = [s.columns[name] for s in sources if name in s.columns]
            columns[name] = own if name == position else _either_of(parts, len(parts) < len(sources))
            if name in heading.key and any(p.evolves for p in parts):
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
        mask = _covering([s.mask for s in sources])
        ties = {
            pair: max(s.ties.at_most[pair] for s in sources)
            for pair in first.ties.at_most
            if all(pair in s.ties.at_most for s in sources)
        }
        reach = first.reach
        for source in sources[1:]:
            reach = furthest(reach, source.reach)
        nulls = {c: c for c, t in columns.items() if t.nullable}
        forgets = any(s.forgets for s in sources)
        return RelationType(heading, columns, mask, rows, steps, events, seals, Ties(ties, nulls), reach, forgets)


def _null_group(expr: mmpl.Expr, ties: Ties, name: str) -> str:
    """A moment some way from a column is NULL whenever the column is."""
    named = trees.columns_in(expr)
    shifted = isinstance(expr, mmpl.Column) or (isinstance(expr, mmpl.Call) and expr.function in ("+", "-"))
    return ties.nulls.get(next(iter(named)), name) if shifted and len(named) == 1 else name


def _kept(source: RelationType, columns: Iterable[str], headings: Headings, rel: mmpl.Rel) -> RelationType:
    """Only some columns: seals are said in terms of those that do not evolve."""
    kept = {c: source.columns[c] for c in columns}
    fixed = [c for c, t in kept.items() if not t.evolves]
    seals = {s: source.ties.express(seal, fixed) for s, seal in source.seals.items()}
    ties, reach = source.ties.of(fixed), source.ties.extend(source.reach, fixed)
    return replace(source, heading=headings.of(rel), columns=kept, seals=seals, ties=ties, reach=reach)


def _keys(source: RelationType, per: tuple[str, ...]) -> dict[str, ColumnType]:
    return {
        c: replace(
            source.columns[c], domain="key", direction=Direction.FIXED, evolves=False, steps=ONE, by_default=True
        )
        for c in per
    }


def _window_starts(times: Interval | None, size: int, hops: bool) -> Interval | None:
    """Where windows that hold these times begin: those that do not overlap at multiples of their size."""
    if times is None:
        return None
    first = times.lo.number
    if hops or not isinstance(first, int):
        return Interval(times.lo - Bound.of(size - 1), times.hi)
    return Interval(Bound.of(first // size * size), times.hi)


def _either_of(parts: list[ColumnType], missing: bool) -> ColumnType:
    result = parts[0]
    for part in parts[1:]:
        evolving = result if result.evolves else part
        masks = [m for m in (result.mask, part.mask) if m is not None]
        range_ = result.range.hull(part.range) if result.range is not None and part.range is not None else None
        direction = result.direction.with_(part.direction)
        result = replace(
            evolving,
            range=range_,
            steps=_greatest(result.steps, part.steps),
            direction=direction,
            nullable=result.nullable or part.nullable,
            null_evolves=result.null_evolves or part.null_evolves,
            mask=_covering(masks) if masks else None,
        )
    return replace(result, nullable=True) if missing else result


def _covering(masks: list[MaskType]) -> MaskType:
    """What holds of rows each of which obeys one of these: courses stand in the order in which they allow more."""
    courses = {m.course for m in masks}
    course = max(courses, key=list(Course).index)
    if course is Course.FALLS and Course.RISES in courses:
        course = Course.PEAKS
    steps = masks[0].steps
    for mask in masks[1:]:
        steps = _greatest(steps, mask.steps)
    return MaskType(course, steps, any(m.final_true for m in masks))


def _greatest(a: Bound, b: Bound) -> Bound:
    return max(a, b, key=lambda bound: bound.limit if bound.limit is not None else float("inf"))
