"""Computes the heading of a relational expression: its columns, their data types and its key.

Only a valid expression has a heading. MMPL is checked by computing headings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatchmethod

from smile import limits
from smile.algebra import mmpl
from smile.algebra.functions.catalogue import expect_type, type_of
from smile.algebra.types import (
    BOOL,
    FLOAT,
    INT,
    SUM_OF_INTS,
    TICKS_PER_MICROSECOND,
    TIME,
    TIMESTAMP,
    DataType,
    decimal_type,
    relation_type,
)
from smile.errors import did_you_mean, error
from smile.source import Span

WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True)
class Heading:
    """`hidden` are key columns that were not selected. `tick` are the key columns with the tick of a row, if any.

    A total relation has a row for every value of its key: a group without members has the default row.
    """

    columns: Mapping[str, DataType]
    key: tuple[str, ...]
    hidden: frozenset[str] = frozenset()
    tick: tuple[str, ...] = ()
    total: bool = False

    @property
    def visible(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if c not in self.hidden)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The visible columns that are not part of the key."""
        return tuple(c for c in self.visible if c not in self.key)


def stream_heading(stream: mmpl.StreamDef) -> Heading:
    _check_unique((stream.tick, *(name for name, _ in stream.columns)), stream.span)
    return Heading({stream.tick: TIME, **dict(stream.columns)}, (stream.tick,), tick=(stream.tick,))


def is_key_equated(heading: Heading, joined: Iterable[str]) -> bool:
    """Whether a join that equates the columns `joined` equates the whole key."""
    return set(heading.key) <= set(joined)


class Headings:
    """The headings of all relational expressions of a program. Each is computed once."""

    def __init__(self, relations: Mapping[str, Heading] | None = None) -> None:
        self.relations = dict(relations or {})
        self._cache: dict[mmpl.Rel, Heading] = {}

    @classmethod
    def from_program(cls, program: mmpl.Program) -> "Headings":
        headings = cls({s.name: stream_heading(s) for s in program.streams})
        for stream in program.streams:
            for check in stream.checks:
                expect_type(check, BOOL, headings.relations[stream.name].columns)
        for view in program.views:
            headings.relations[view.name] = headings.heading_of(view.body)
        return headings

    def heading_of(self, rel: mmpl.Rel) -> Heading:
        heading = self._cache.get(rel)
        if heading is None:
            heading = self._cache[rel] = self._compute(rel)
        return heading

    @singledispatchmethod
    def _compute(self, rel: mmpl.Rel) -> Heading:
        raise AssertionError(rel)

    @_compute.register
    def _(self, rel: mmpl.RelationRef) -> Heading:
        if rel.name not in self.relations:
            raise error(
                "E021", f"there is no stream or view {rel.name}", rel.span, did_you_mean(rel.name, self.relations)
            )
        return self.relations[rel.name]

    @_compute.register
    def _(self, rel: mmpl.Restrict) -> Heading:
        heading = self.heading_of(rel.input)
        expect_type(rel.predicate, BOOL, heading.columns)
        return replace(heading, total=False)

    @_compute.register
    def _(self, rel: mmpl.Project) -> Heading:
        heading = self.heading_of(rel.input)
        _check_unique(rel.columns, rel.span)
        _check_columns_exist(rel.columns, heading, rel.span)
        hidden = [c for c in heading.key if c not in rel.columns]
        columns = {c: heading.columns[c] for c in (*rel.columns, *hidden)}
        return replace(heading, columns=columns, hidden=frozenset(hidden))

    @_compute.register
    def _(self, rel: mmpl.Extend) -> Heading:
        heading = self.heading_of(rel.input)
        new_columns = {name: type_of(e, heading.columns) for name, e in rel.assignments}
        _check_unique((*heading.columns, *(name for name, _ in rel.assignments)), rel.span)
        return replace(heading, columns={**heading.columns, **new_columns})

    @_compute.register
    def _(self, rel: mmpl.Rename) -> Heading:
        heading = self.heading_of(rel.input)
        _check_columns_exist((old for old, _ in rel.pairs), heading, rel.span)
        _check_unique((old for old, _ in rel.pairs), rel.span)
        new_names = dict(rel.pairs)
        names = tuple(new_names.get(c, c) for c in heading.columns)
        _check_unique(names, rel.span)
        return Heading(
            dict(zip(names, heading.columns.values(), strict=True)),
            tuple(new_names.get(c, c) for c in heading.key),
            frozenset(new_names.get(c, c) for c in heading.hidden),
            tuple(new_names.get(c, c) for c in heading.tick),
            heading.total,
        )

    @_compute.register
    def _(self, rel: mmpl.Join) -> Heading:
        left, right = self.heading_of(rel.left), self.heading_of(rel.right)
        _check_pairs(rel.on, left, right, rel.span)
        if rel.when is not None:
            expect_type(rel.when, BOOL, {**right.columns, **left.columns})
        if rel.kind in ("semi", "anti"):
            return replace(left, total=False)
        if rel.kind == "match":
            assert rel.match_column is not None
            _check_unique((*left.columns, rel.match_column), rel.span)
            return replace(left, columns={**left.columns, rel.match_column: BOOL}, total=False)
        merged = [r for a, r in rel.on if a == r]
        _check_unique((*left.columns, *(c for c in right.columns if c not in merged)), rel.span)
        key, tick = _join_key_and_tick(rel, left, right)
        on_keys = {a for a, _ in rel.on} == set(left.key) and {b for _, b in rel.on} == set(right.key)
        # If the key has the columns of both sides, no row exists for keys in which they differ.
        one_key = len(key) == len(left.key)
        total = left.total and right.total and on_keys and one_key and rel.when is None
        columns = {**left.columns, **{c: t for c, t in right.columns.items() if c not in merged}}
        hidden = (left.hidden | right.hidden) - (set(left.visible) | set(right.visible))
        dropped = hidden - set(key)
        columns = {c: t for c, t in columns.items() if c not in dropped}
        return Heading(columns, key, hidden - dropped, tick, total)

    @_compute.register
    def _(self, rel: mmpl.Asof) -> Heading:
        left, right = self.heading_of(rel.left), self.heading_of(rel.right)
        _check_pairs((*rel.on, rel.ticks), left, right, rel.span)
        for side, column in ((left, rel.ticks[0]), (right, rel.ticks[1])):
            if side.columns[column] not in (TIME, TIMESTAMP):
                raise error("E043", f"ASOF JOIN needs a time, but {column} is {side.columns[column]}", rel.span)
        if right.tick[:1] != (rel.ticks[1],):
            raise error("E043", f"{rel.ticks[1]} is not the tick of the joined relation", rel.span)
        merged = [r for a, r in (*rel.on, rel.ticks) if a == r]
        right_columns = {c: t for c, t in right.columns.items() if c not in merged and c not in right.hidden}
        _check_unique((*left.columns, *right_columns), rel.span)
        return replace(left, columns={**left.columns, **right_columns}, total=False)

    @_compute.register
    def _(self, rel: mmpl.Summarize) -> Heading:
        heading = self.heading_of(rel.input)
        _check_columns_exist(rel.per, heading, rel.span)
        _check_comparable(rel.per, heading, rel.span)
        _check_unique((*rel.per, *(name for name, _ in rel.aggregates)), rel.span)
        columns = {c: heading.columns[c] for c in rel.per}
        columns |= {name: aggregate_type(a, heading, rel.span) for name, a in rel.aggregates}
        tick = heading.tick if set(heading.tick) <= set(rel.per) else ()
        return Heading(columns, rel.per, tick=tick, total=True)

    @_compute.register
    def _(self, rel: mmpl.Distinct) -> Heading:
        heading = self.heading_of(rel.input)
        visible = heading.visible
        _check_comparable(visible, heading, rel.span)
        tick = heading.tick if set(heading.tick) <= set(visible) else ()
        return Heading({c: heading.columns[c] for c in visible}, visible, tick=tick)

    @_compute.register
    def _(self, rel: mmpl.Best) -> Heading:
        heading = self.heading_of(rel.input)
        _check_columns_exist(rel.per, heading, rel.span)
        _check_comparable(rel.per, heading, rel.span)
        if rel.k < 1:
            raise error("E033", "the number of rows must be a positive whole number", rel.span)
        for e, _ in rel.by:
            t = type_of(e, heading.columns)
            if not t.is_ordered:
                raise error("E031", f"rows cannot be ordered by a {t.name}", e.span)
        return replace(heading, total=False)

    @_compute.register
    def _(self, rel: mmpl.Window) -> Heading:
        heading = self.heading_of(rel.input)
        _check_columns_exist((rel.on,), heading, rel.span)
        on_type = heading.columns[rel.on]
        if on_type not in (TIME, TIMESTAMP):
            raise error("E046", f"a window needs a time or a timestamp, but {rel.on} is {on_type}", rel.span)
        if rel.size <= 0 or (rel.slide is not None and rel.slide <= 0):
            raise error("E046", "the size and slide of a window must be positive", rel.span)
        if on_type == TIMESTAMP and (rel.size % TICKS_PER_MICROSECOND or (rel.slide or 0) % TICKS_PER_MICROSECOND):
            raise error("E046", "the size and slide of a window on a timestamp must be whole microseconds", rel.span)
        if rel.slide is not None and rel.size // rel.slide > limits.windows_max:
            message = (
                f"a row would be in {rel.size // rel.slide:,} windows at once, the maximum is {limits.windows_max:,}"
            )
            raise error("E046", message, rel.span, "Increase the slide or decrease the size of the window.")
        if rel.kind == "last":
            if heading.tick[:1] != (rel.on,):
                raise error("E043", f"LAST needs the tick of the relation, but {rel.on} is not its tick", rel.span)
            return replace(heading, total=False)
        _check_unique((*heading.columns, *WINDOW_COLUMNS), rel.span)
        columns = {**heading.columns, **dict.fromkeys(WINDOW_COLUMNS, on_type)}
        key = (*heading.key, "window_start") if rel.kind == "hop" else heading.key
        return replace(heading, columns=columns, key=key, total=False)

    @_compute.register
    def _(self, rel: mmpl.Over) -> Heading:
        heading = self.heading_of(rel.input)
        _check_columns_exist((*rel.per, rel.by), heading, rel.span)
        _check_comparable(rel.per, heading, rel.span)
        if heading.tick[:1] != (rel.by,):
            raise error(
                "E043", f"OVER must be ordered by the tick of the relation, but {rel.by} is not its tick", rel.span
            )
        new_columns = {name: aggregate_type(a, heading, rel.span) for name, a in rel.aggregates}
        _check_unique((*heading.columns, *(name for name, _ in rel.aggregates)), rel.span)
        return replace(heading, columns={**heading.columns, **new_columns}, total=False)

    @_compute.register
    def _(self, rel: mmpl.Silence) -> Heading:
        heading = self.heading_of(rel.input)
        _check_columns_exist((*rel.per, rel.tick), heading, rel.span)
        _check_comparable(rel.per, heading, rel.span)
        if heading.key != (rel.tick,) or heading.tick != heading.key:
            raise error("E043", f"SILENCE needs rows whose key is one tick, but {rel.tick} is not their key", rel.span)
        _check_unique((*heading.columns, rel.name), rel.span)
        return replace(heading, columns={**heading.columns, rel.name: BOOL}, total=False)

    @_compute.register
    def _(self, rel: mmpl.Merge) -> Heading:
        headings = [self.heading_of(i) for i in rel.inputs]
        for heading, node in zip(headings, rel.inputs, strict=True):
            if len(heading.key) != 1 or heading.tick != heading.key:
                raise error("E043", "MERGE needs relations whose key is one tick", node.span or rel.span)
        first = _check_same_visible_columns("MERGE", headings, rel.span)
        if any(h.key != first.key for h in headings):
            raise error("E044", "MERGE needs the tick in the same column of each relation", rel.span)
        if first.key[0] in first.hidden:
            raise error("E043", "MERGE needs the tick to be selected", rel.span)
        _check_unique((*first.visible, "source"), rel.span)
        tick = (first.key[0], "source")
        columns = {tick[0]: TIME, "source": INT, **{c: first.columns[c] for c in first.visible}}
        return Heading(columns, tick, tick=tick)

    @_compute.register
    def _(self, rel: mmpl.Union) -> Heading:
        headings = [self.heading_of(i) for i in rel.inputs]
        first = _check_same_visible_columns("UNION", headings, rel.span)
        columns = {c: first.columns[c] for c in first.visible}
        hidden = {"branch": INT}
        for heading in headings:
            for c in sorted(heading.hidden):
                if c in columns or c == "branch" or hidden.get(c, heading.columns[c]) != heading.columns[c]:
                    raise error("E044", f"the hidden key column {c} clashes in UNION", rel.span)
                hidden[c] = heading.columns[c]
        _check_unique((*columns, "branch"), rel.span)
        keys = [c for c in columns if any(c in h.key for h in headings)]
        return Heading(
            {**columns, **hidden}, ("branch", *keys, *(c for c in hidden if c != "branch")), frozenset(hidden)
        )


def aggregate_type(aggregate: mmpl.Aggregate, heading: Heading, span: Span | None) -> DataType:
    error_span = aggregate.span or span
    if aggregate.function == "group":
        _check_columns_exist(aggregate.columns, heading, error_span)
        _check_unique(aggregate.columns, error_span)
        return relation_type(tuple((c, heading.columns[c]) for c in aggregate.columns))
    arg = type_of(aggregate.arg, heading.columns) if aggregate.arg is not None else None
    if aggregate.function == "count_distinct" and arg is not None and not arg.is_ordered:
        raise error("E031", f"COUNT(DISTINCT) cannot compare a {arg.name}", error_span)
    if aggregate.function in ("count", "count_distinct"):
        return INT
    assert arg is not None
    name = aggregate.function.upper()
    if aggregate.function == "latest":
        if not heading.tick:
            raise error(
                "E043",
                "LATEST needs rows that have a tick, and these have none",
                error_span,
                "Take LATEST of a stream, or group so that the tick stays in the key.",
            )
        return arg
    if aggregate.function in ("min", "max"):
        if not arg.is_ordered:
            raise error("E031", f"{name} cannot be applied to a {arg.name}", error_span)
        return arg
    if arg.name == "interval":
        return arg
    if not arg.is_number:
        raise error("E031", f"{name} needs a number or an interval, not {arg}", error_span)
    if aggregate.function == "avg":
        return FLOAT
    if arg.name == "decimal":
        assert arg.scale is not None
        return decimal_type(38, arg.scale)
    return SUM_OF_INTS if arg == INT else FLOAT


def _check_pairs(on: Sequence[tuple[str, str]], left: Heading, right: Heading, span: Span | None) -> None:
    _check_unique((f"{a} = {b}" for a, b in on), span)
    for a, b in on:
        _check_columns_exist((a,), left, span)
        _check_columns_exist((b,), right, span)
        if left.columns[a] != right.columns[b]:
            raise error("E030", f"{a} is {left.columns[a]}, but {b} is {right.columns[b]}", span)


def _join_key_and_tick(rel: mmpl.Join, left: Heading, right: Heading) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A side whose whole key is equated adds nothing to the key, if every joined row has a row of the other side."""
    if rel.kind in ("inner", "left") and is_key_equated(right, (b for _, b in rel.on)):
        return left.key, left.tick
    if rel.kind == "right" and is_key_equated(left, (a for a, _ in rel.on)):
        return right.key, right.tick
    if rel.kind == "full" and rel.when is not None and any(a == b for a, b in rel.on):
        hint = "Rename the column on the right side, and equate the two columns."
        raise error("E040", "rows of a FULL JOIN with WHEN cannot share a column of the key", rel.span, hint)
    return (*left.key, *(c for c in right.key if c not in left.key)), ()


def _check_same_visible_columns(operator: str, headings: list[Heading], span: Span | None) -> Heading:
    first = headings[0]
    for h in headings[1:]:
        if h.visible != first.visible or any(h.columns[c] != first.columns[c] for c in h.visible):
            raise error("E044", f"{operator} needs the same columns of the same types in each relation", span)
    return first


def _check_columns_exist(names: Iterable[str], heading: Heading, span: Span | None) -> None:
    for name in names:
        if name not in heading.columns:
            raise error("E022", f"there is no column {name}", span, did_you_mean(name, heading.columns))


def _check_comparable(names: Sequence[str], heading: Heading, span: Span | None) -> None:
    """Columns that rows are compared by must be distinct and have types that can be compared."""
    _check_unique(names, span)
    for name in names:
        if not heading.columns[name].is_ordered:
            raise error("E031", f"rows cannot be compared by {name}, which is a {heading.columns[name].name}", span)


def _check_unique(names: Iterable[str], span: Span | None) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise error("E020", f"there are two columns named {name}", span, "Rename one of them.")
        seen.add(name)
