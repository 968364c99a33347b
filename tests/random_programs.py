"""Random programs: every operator over every other, as far as headings and types allow. Each one is well typed.

Arithmetic on what evolves, and casts to narrower types, are frequent: with the extreme values of `Histories` they
overflow."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache, partial
from random import Random
from typing import get_args

from smile.algebra import mmpl
from smile.algebra.arrays import encode_array
from smile.algebra.coercions import type_ends
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading
from smile.algebra.types import (
    BOOL,
    DATE,
    ELEMENT_TYPES,
    FLOAT,
    INT,
    INTERVAL,
    JSON,
    STRING,
    SUM_OF_INTS,
    TICKS_PER_MICROSECOND,
    TIME,
    TIMESTAMP,
    DataType,
    Value,
    array_type,
    decimal_type,
)
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import SmileError
from smile.knowledge.types import RelationType
from smile.operators.aggregates import aggregate_type
from tests.knowledge.predicates import bounding_predicate
from tests.repeatable import scaled

SEED_ID = "SMILE_SEEDS={}".format
"""What a failing test is named by: `SMILE_SEEDS=17 .venv/bin/python -m pytest …` runs that program alone."""


def seeds(count: int) -> list[int]:
    """The same seeds in every run: the first of them in `make check` and `make test`, all in `make nightly`, and new ones.

    SMILE_SEEDS is one seed, or a range such as 1000-2000.
    """
    asked = os.environ.get("SMILE_SEEDS")
    if not asked:
        return list(range(min(count, scaled(count))))
    first, _, last = asked.partition("-")
    return list(range(int(first), int(last or first) + 1))


@cache
def argument_types(function: mmpl.AggregateName, types: Sequence[DataType]) -> Sequence[DataType]:
    """Those of the types that the aggregate can be applied to."""

    def is_accepted(data: DataType) -> bool:
        heading = Heading({"t": TIME, "x": data}, key=("t",), tick=("t",))
        try:
            aggregate_type(mmpl.Aggregate(function, mmpl.ColumnRef("x")), heading, None)
        except SmileError:
            return False
        return True

    return tuple(filter(is_accepted, types))


WIDE, NARROW, TENTHS = decimal_type(38, 0), decimal_type(4, 2), decimal_type(3, 1)
_COLUMNS = (
    ("k", STRING), ("v", INT), ("w", INT), ("u", TIME), ("f", BOOL), ("x", FLOAT), ("d", WIDE), ("s", TIMESTAMP),
)  # fmt: skip
_V, _W = mmpl.ColumnRef("v"), mmpl.ColumnRef("w")
_K_IS = [mmpl.Call("=", (mmpl.ColumnRef("k"), mmpl.Constant(text, STRING))) for text in ("a", "b")]
_CHECKS = (
    mmpl.Call("or", (mmpl.Call("is null", (_V,)), mmpl.Call(">", (_V, mmpl.Call("neg", (mmpl.Constant(1, INT),)))))),
    mmpl.Call("not", (mmpl.Call(">", (_W, mmpl.Constant(3, INT))),)),
    mmpl.Call("<=", (mmpl.ColumnRef("u"), mmpl.ColumnRef("t"))),
    mmpl.Call(">=", (mmpl.ColumnRef("u"), mmpl.Call("-", (mmpl.ColumnRef("t"), mmpl.Constant(4, INTERVAL))))),
)
_BOUNDS = (
    mmpl.Call(">=", (mmpl.ColumnRef("x"), mmpl.Constant(0.0, FLOAT))),
    mmpl.Call("<=", (mmpl.ColumnRef("x"), mmpl.Constant(1e9, FLOAT))),
    mmpl.Call(">=", (mmpl.ColumnRef("d"), mmpl.Constant(Decimal(0), WIDE))),
    mmpl.Call("<=", (mmpl.ColumnRef("s"), mmpl.Constant(2**52, TIMESTAMP))),
)
STREAMS = (
    mmpl.StreamDef("A", "t", _COLUMNS, (*_CHECKS[:2], *_BOUNDS)),
    mmpl.StreamDef("B", "t", _COLUMNS, (*_CHECKS, *_BOUNDS[2:3])),
    mmpl.StreamDef("C", "t", _COLUMNS, (mmpl.Call("is not null", (_V,)), _CHECKS[1], mmpl.Call("or", tuple(_K_IS)))),
    mmpl.StreamDef("D", "t", _COLUMNS, (mmpl.Call("is not null", (_V,)),), unique=(("v",), ("k", "w"))),
)
INTS, STRINGS = array_type(INT), array_type(STRING)
COLUMN_TYPES = (
    INTS, STRINGS, INT, SUM_OF_INTS, STRING, JSON, TIME, BOOL, FLOAT, TIMESTAMP, DATE, INTERVAL, NARROW, TENTHS,
)  # fmt: skip
_CASTS: dict[str, tuple[DataType, ...]] = {
    "int": (SUM_OF_INTS, TENTHS, FLOAT, TIME, STRING), "float": (INT, NARROW), "decimal": (NARROW, TENTHS, INT, FLOAT),
    "time": (TIMESTAMP, INT), "timestamp": (DATE, TIME), "date": (TIMESTAMP,), "interval": (STRING,),
    "string": (INT,), "bool": (INT,), "json": (STRING, INT, BOOL),
}  # fmt: skip
SPANS = (1, 3, 5)
LONG_SPANS = (86_400_000_000 * TICKS_PER_MICROSECOND, 2**62)
"""A day, and more than is left after the greatest tick."""
OPERATORS_MAX = 4


MANY_ORIGINS = 0.3
"""How many of the programs have streams with many origins."""


def _with_origins(random: Random) -> tuple[mmpl.StreamDef, ...]:
    """The streams, some of them with many origins. The programs are those that would be drawn otherwise."""
    own_random = Random(str(random.getstate()[1][:8]))
    if own_random.random() >= MANY_ORIGINS:
        return STREAMS
    return tuple(replace(s, many_origins=not s.unique and own_random.random() < 0.7) for s in STREAMS)


ARRAYS = 0.12
"""How many of the programs have streams with arrays. The other programs are those that would be drawn without them."""


def _with_arrays(random: Random, streams: tuple[mmpl.StreamDef, ...]) -> tuple[mmpl.StreamDef, ...]:
    if Random(f"{random.getstate()[1][:8]} arrays").random() >= ARRAYS:
        return streams
    return tuple(replace(s, columns=(*s.columns, ("a", INTS), ("b", STRINGS))) for s in streams)


def _constant(data: DataType, random: Random) -> mmpl.Constant:
    if data.name == "array":
        elements = [_constant(data.element, random).value for _ in range(random.randint(0, 2))]
        return mmpl.Constant(encode_array(elements, data.element), data)
    values: dict[str, list[Value]] = {
        "int": [0, 1, 2, 3], "string": ["a", "b"],
        "decimal": [Decimal(n).quantize(Decimal((0, (1,), -(data.scale or 0)))) for n in (0, 2, 4)],
        "time": [0, 3, 6], "bool": [True, False], "interval": [1, 3], "float": [1.0, 2.0],
        "timestamp": [0, 10**6], "date": [0, 1], "json": ['{"a": 1}', "1", "null", '["a"]'],
    }  # fmt: skip
    if data.name in ("int", "decimal", "float") and random.random() < 0.1:
        extremes: list[Value] = [2**62, -(2**62)] if data == INT else list(type_ends(data) or ())
        return mmpl.Constant(random.choice(extremes), data)
    return mmpl.Constant(random.choice(values[data.name]), data)


SESSIONS = 0.08
"""How many of the views are of sessions. The other programs are those that would be drawn without these and frames."""
FRAMES = 0.06
"""How many of the views have frames of ROWS."""
_DELETED = mmpl.Constant("b", STRING)
TABLES = 0.06
"""How many of the views are of the contents of a table with a primary key, or of these as of a tick."""
LOOKUPS = 0.06
"""How many of the views look up rows that others may replace."""
DOCUMENTS = 0.06
"""How many of the views make JSON of columns, and take it apart again."""
WRITTEN_ROWS = 0.2
"""How many of the programs have VALUES instead of a stream."""


class Programs:
    """Draws one program: views over streams and over earlier views."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.streams = _with_arrays(random, _with_origins(random))
        self.has_arrays = ("a", INTS) in self.streams[0].columns
        self.program = mmpl.Program(self.streams, (), ())
        self.written = self._written_rows(Random(f"{random.getstate()[1][:8]} VALUES"))
        self.names = 0
        self._analysed: tuple[mmpl.Program, TypeAnalysis] | None = None

    def draw(self, count: int) -> mmpl.Program:
        for number in range(count):
            body = self._body()
            name = f"V{number + 1}"
            views = (*self.program.views, mmpl.ViewDef(name, body))
            self.program = mmpl.Program(self.streams, views, (*self.program.subscriptions, name))
        return self.program

    def _body(self) -> mmpl.Rel:
        own_random = Random(str(self.random.getstate()[1][:8]))
        if (chosen := own_random.random()) < SESSIONS + FRAMES + TABLES + LOOKUPS + DOCUMENTS:
            special = [
                (SESSIONS, self._sessions), (SESSIONS + FRAMES, self._frames),
                (SESSIONS + FRAMES + TABLES, self._table),
                (SESSIONS + FRAMES + TABLES + LOOKUPS, self._lookup), (1.0, self._documents),
            ]  # fmt: skip
            return next(draw for limit, draw in special if chosen < limit)()
        if self.has_arrays and own_random.random() < 0.7:
            return self._arrays()
        chosen = self.random.random()
        heads = [
            (0.1, self._remaining), (0.2, self._newest), (0.28, self._offers), (0.36, self._first_times),
            (1.0, self._head),
        ]  # fmt: skip
        head = next(draw for limit, draw in heads if chosen < limit)()
        if isinstance(head, mmpl.Merge) and self.random.random() < 0.4:
            head = self.groups(head)  # of rows that come out of order
        rel = self._grown(head, self.random.randint(1, OPERATORS_MAX))
        return rel if not isinstance(rel, mmpl.RelationRef) else mmpl.Restrict(rel, mmpl.Constant(True, BOOL))

    def _grown(self, rel: mmpl.Rel, operators: int) -> mmpl.Rel:
        """`rel` with operators applied, those left out that do not fit."""
        for _ in range(operators):
            apply = self.random.choice(_OPERATORS)
            rel = self._applied(partial(apply, self), rel)
        return rel

    def _applied(self, apply: Callable[[mmpl.Rel], mmpl.Rel], rel: mmpl.Rel) -> mmpl.Rel:
        """`rel` with an operator applied, if it fits."""
        try:
            grown = apply(rel)
            self._heading(grown)
        except (SmileError, IndexError):
            return rel
        return grown

    def _written_rows(self, random: Random, share: float = WRITTEN_ROWS) -> dict[str, mmpl.Rel]:
        """For a stream, VALUES with its columns. The programs are those that would be drawn otherwise."""
        if random.random() >= share:
            return {}
        stream = random.choice(self.streams)
        columns = ((stream.tick, TIME), *stream.columns)
        ticks = random.sample(range(-3, 12), random.randint(1, 6))
        rows = tuple(
            (tick, *(_constant(data, random).value if random.random() < 0.8 else None for _, data in stream.columns))
            for tick in ticks
        )
        return {stream.name: mmpl.Values(columns, (stream.tick,), rows)}

    def _head(self) -> mmpl.Rel:
        names = [s.name for s in STREAMS] + [v.name for v in self.program.views] * 2
        chosen = self.random.random()
        if chosen < 0.8:
            name = self.random.choice(names)
            return self.written.get(name, mmpl.RelationRef(name))
        inputs = tuple(
            mmpl.Restrict(mmpl.RelationRef(n), self._predicate(self._heading(mmpl.RelationRef(n))))
            for n in self.random.sample(["A", "B", "C"], 2)
        )
        return mmpl.Merge(inputs) if chosen < 0.92 else mmpl.Union(inputs)

    def _heading(self, rel: mmpl.Rel) -> Heading:
        """Of a relation whose types exist too."""
        return self._type(rel).heading

    def _type(self, rel: mmpl.Rel) -> RelationType:
        if self._analysed is None or self._analysed[0] is not self.program:
            self._analysed = (self.program, TypeAnalysis(self.program))
        return self._analysed[1].relation_type(rel)

    def _name(self) -> str:
        self.names += 1
        return f"c{self.names}"

    # ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _column(self, heading: Heading, *types: DataType) -> str:
        return self.random.choice([c for c, t in heading.columns.items() if t in types or not types])

    def _constant(self, data: DataType) -> mmpl.Constant:
        return _constant(data, self.random)

    def _predicate(self, heading: Heading, depth: int = 2, among: Sequence[str] = ()) -> mmpl.Expr:
        """`among` are the columns that it is about, if not just any."""
        chosen = self.random.random()
        if depth and chosen < 0.25:
            parts = tuple(self._predicate(heading, depth - 1, among) for _ in range(2))
            return mmpl.Call(self.random.choice(("and", "or")), parts)
        if depth and chosen < 0.35:
            return mmpl.Call("not", (self._predicate(heading, depth - 1, among),))
        name = self.random.choice([c for c in among or heading.columns if heading.columns[c].name != "relation"])
        data = heading.columns[name]
        if data.name == "array" and self.random.random() < 0.7:
            return self._array_test(heading)
        if chosen < 0.45:
            return mmpl.Call(self.random.choice(("is null", "is not null")), (mmpl.ColumnRef(name),))
        if data == BOOL and chosen < 0.8:
            return mmpl.ColumnRef(name)
        others = [c for c, t in heading.columns.items() if t == data and c != name]
        if data == TIME and others and self.random.random() < 0.5:
            return self._distance_predicate(mmpl.ColumnRef(name), mmpl.ColumnRef(self.random.choice(others)))
        other: mmpl.Expr = self._constant(data)
        if others and chosen < 0.65:
            other = mmpl.ColumnRef(self.random.choice(others))
        comparisons = ("=", "<>", "<", "<=", ">", ">=") if data.is_ordered else ("=", "<>")
        return mmpl.Call(self.random.choice(comparisons), (mmpl.ColumnRef(name), other))

    def _distance_predicate(self, a: mmpl.Expr, b: mmpl.Expr) -> mmpl.Expr:
        """Bounds the distance of two times, in one of the ways to write it."""
        compare, ticks = self.random.choice(("<", "<=", ">", ">=", "=")), self._constant(INTERVAL)
        difference = mmpl.Call("-", (a, b))
        ways = [
            (a, mmpl.Call("+", (b, ticks))), (mmpl.Call("-", (a, ticks)), b), (difference, ticks), (ticks, difference),
            (mmpl.Call("neg", (difference,)), ticks), (mmpl.Call("abs", (difference,)), ticks),
            (self._truncated(a), self._truncated(b)),
        ]  # fmt: skip
        left, right = self.random.choice(ways)
        return mmpl.Call(compare, (left, right))

    def _truncated(self, time: mmpl.Expr) -> mmpl.Expr:
        """The day, the month or the microsecond of a time, or a day in a time zone, or the end of one of these."""
        unit = self.random.choice((None, "microsecond", "month", "day"))
        timestamp = mmpl.Cast(time, TIMESTAMP)
        if unit is None:
            return mmpl.Cast(mmpl.Cast(time, DATE), TIMESTAMP)
        zone = (mmpl.Constant("Europe/Berlin", STRING),) if unit == "day" else ()
        function = "period_end" if self.random.random() < 0.2 else "date_trunc"
        return mmpl.Call(function, (mmpl.Constant(unit, STRING), timestamp, *zone))

    def _named_period(self, time: mmpl.Expr) -> mmpl.Expr:
        """What names the period that a time is in, alone or with others: a text, or a part."""
        timestamp = mmpl.Cast(time, TIMESTAMP)
        if self.random.random() < 0.5:
            return mmpl.Call(self.random.choice(("extract_year", "extract_month", "extract_hour")), (timestamp,))
        text = self.random.choice(("YYYY-MM-DD", "YYYY-MM", "DD Mon YYYY HH24:MI", "HH24"))
        return mmpl.Call("to_char", (timestamp, mmpl.Constant(text, STRING)))

    def _expression(self, heading: Heading, among: Sequence[str] = ()) -> mmpl.Expr:
        usable = [c for c in among or heading.columns if heading.columns[c].name in _CASTS]
        usable = usable or [c for c, t in heading.columns.items() if t.name in _CASTS]
        name = self.random.choice(usable)
        data = heading.columns[name]
        column: mmpl.Expr = mmpl.ColumnRef(name)
        if data == TIME and self.random.random() < 0.3:
            return self.random.choice((self._truncated(column), self._named_period(column), mmpl.Cast(column, DATE)))
        if self.random.random() < 0.15:
            return mmpl.Cast(column, self.random.choice([t for t in _CASTS[data.name] if t != data] or [STRING]))
        if data in (TIME, TIMESTAMP, INTERVAL) and self.random.random() < 0.8:
            span = mmpl.Constant(self.random.choice((1, 3, *LONG_SPANS)), INTERVAL)
            return mmpl.Call(self.random.choice(("+", "-")), (column, span))
        alike = mmpl.ColumnRef(self.random.choice([c for c, t in heading.columns.items() if t == data]))
        other = self.random.choice([alike, self._constant(data)])
        if self.random.random() < 0.35:
            return mmpl.Case(((self._predicate(heading, among=among), column),), other)
        choices: list[mmpl.Expr] = [
            mmpl.Call(self.random.choice(("coalesce", "nullif", "greatest", "least")), (column, other)),
        ]
        if data.is_number:
            binary = ("+", "-", "*", "/", "%") if data.name != "float" else ("+", "-", "*", "/")
            choices += [mmpl.Call(f, (column, other)) for f in binary]
            choices += [mmpl.Call(f, (column,)) for f in ("abs", "neg")]
        if data == FLOAT:
            choices += [mmpl.Call(f, (column,)) for f in ("exp", "sqrt", "ln")]
        return self.random.choice(choices)

    def _evolving(self, rel: mmpl.Rel) -> list[str]:
        """Columns that evolve, or, half of the time, none: those of which most can be wrong."""
        columns = self._type(rel).columns
        evolving = [c for c, t in columns.items() if t.evolves and t.data.name != "relation"]
        return evolving if self.random.random() < 0.5 else []

    # ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────

    def restrict(self, rel: mmpl.Rel) -> mmpl.Rel:
        return mmpl.Restrict(rel, self._predicate(self._heading(rel), among=self._evolving(rel)))

    def project(self, rel: mmpl.Rel) -> mmpl.Rel:
        visible = self._heading(rel).visible
        kept = tuple(c for c in visible if self.random.random() < 0.7)
        return mmpl.Project(rel, kept or visible[:1])

    def extend(self, rel: mmpl.Rel) -> mmpl.Rel:
        return mmpl.Extend(rel, ((self._name(), self._expression(self._heading(rel), self._evolving(rel))),))

    def rename(self, rel: mmpl.Rel) -> mmpl.Rel:
        return mmpl.Rename(rel, ((self._column(self._heading(rel)), self._name()),))

    def _other(self, taken: Heading) -> mmpl.Rel:
        """Another relation, none of whose columns has a name that is taken."""
        return self._without_names(self._grown(self._head(), self.random.randint(0, 2)), taken)

    def _without_names(self, rel: mmpl.Rel, taken: Heading) -> mmpl.Rel:
        """The relation with other names for columns whose names are taken."""
        clashing = [c for c in self._heading(rel).columns if c in taken.columns]
        return mmpl.Rename(rel, tuple((c, self._name()) for c in clashing)) if clashing else rel

    def _pairs(self, left: Heading, right: Heading, most: int = 2) -> tuple[tuple[str, str], ...]:
        """Pairs of columns of one type; keys more often than not, so that whole keys are equated."""
        alike = [
            (a, b) for a, t in left.columns.items() for b, s in right.columns.items() if t == s and t.name != "relation"
        ]
        keys = [(a, b) for a, b in alike if b in right.key or a in left.key]
        chosen = [self.random.choice(keys if keys and self.random.random() < 0.6 else alike)]
        if most > 1 and self.random.random() < 0.3:
            chosen += [p for p in self.random.sample(alike, 1) if p[0] != chosen[0][0] and p[1] != chosen[0][1]]
        return tuple(chosen)

    def join(self, rel: mmpl.Rel) -> mmpl.Rel:
        left = self._heading(rel)
        other = self._other(left)
        right = self._heading(other)
        kind: mmpl.JoinKind = self.random.choice((*get_args(mmpl.JoinKind), "inner", "inner"))
        on = self._pairs(left, right)
        if self.random.random() < 0.4 and kind in ("inner", "left", "right", "full"):
            other = mmpl.Rename(other, tuple((b, a) for a, b in on))
            on = tuple((a, a) for a, _ in on)
        right = self._heading(other)
        when = None
        if self.random.random() < 0.25:
            when = self._predicate(replace(left, columns={**right.columns, **left.columns}), 0)
        null_aware = kind in ("anti", "match") and self.random.random() < 0.4
        return mmpl.Join(kind, rel, other, on, when, self._name() if kind == "match" else None, null_aware)

    def asof(self, rel: mmpl.Rel) -> mmpl.Rel:
        left = self._heading(rel)
        other = self._other(left)
        right = self._heading(other)
        at = (self._column(left, TIME), self._order(right))
        on = tuple(p for p in self._pairs(left, right, 1) if p[1] != at[1] and p[0] != at[0])
        if at[1] not in right.tick:
            others = [c for c in right.key if c != at[1]]
            on = tuple((self._column(left, right.columns[c]), c) for c in others)
        return mmpl.Asof(self.random.choice(("inner", "left")), rel, other, on, at)

    def _aggregate(self, heading: Heading) -> mmpl.Aggregate:
        if self.has_arrays and self.random.random() < 0.2:
            return self._array_aggregate(heading)
        others = [name for name in get_args(mmpl.AggregateName) if name != "array_concat_agg"]
        function: mmpl.AggregateName = self.random.choice(others)
        if function == "group":
            # A nested relation of groups that move forgets those that were left, so one within another is not tried.
            plain = tuple(c for c in heading.visible if heading.columns[c].name != "relation")
            return mmpl.Aggregate("group", columns=plain[:2])
        if function == "count" and self.random.random() < 0.5:
            return mmpl.Aggregate("count")
        column = mmpl.ColumnRef(self._column(heading, *argument_types(function, COLUMN_TYPES)))
        if function in mmpl.PERCENTILES:
            fraction, descending = self.random.choice((0.0, 0.25, 0.5, 0.9, 1.0)), self.random.random() < 0.3
            return mmpl.Aggregate(function, column, fraction=fraction, descending=descending)
        if function == "string_agg" and self.random.random() < 0.3:
            return mmpl.Aggregate(function, column, separator="-", distinct=True, descending=self.random.random() < 0.5)
        if function == "string_agg":
            ordered = [c for c in heading.visible if heading.columns[c].is_ordered]
            columns = tuple(self.random.sample(ordered, min(len(ordered), self.random.randint(0, 2))))
            directions = tuple(self.random.random() < 0.5 for _ in columns)
            return mmpl.Aggregate(function, column, columns, separator="-", directions=directions)
        return mmpl.Aggregate(function, column)

    def _aggregates(self, heading: Heading, most: int = 2) -> tuple[tuple[str, mmpl.Aggregate], ...]:
        return tuple((self._name(), self._aggregate(heading)) for _ in range(self.random.randint(1, most)))

    def _per(self, heading: Heading, most: int = 2) -> tuple[str, ...]:
        usable = [c for c, t in heading.columns.items() if t.name != "relation"]
        return tuple(self.random.sample(usable, min(len(usable), self.random.randint(0, most))))

    def summarize(self, rel: mmpl.Rel) -> mmpl.Rel:
        heading = self._heading(rel)
        return mmpl.Summarize(rel, self._per(heading), self._aggregates(heading))

    def groups(self, rel: mmpl.Rel) -> mmpl.Summarize:
        """Of several members, most often: by columns in which rows are often alike."""
        heading = self._heading(rel)
        usable = [c for c, t in heading.columns.items() if c not in heading.key and t in (STRING, INT, BOOL, TIME)]
        alike = [c for c in usable if heading.columns[c] in (STRING, BOOL)]
        chosen = self.random.random()
        per = () if chosen < 0.2 else (self.random.choice(alike if alike and chosen < 0.7 else usable),)
        return mmpl.Summarize(rel, per, (*self._aggregates(heading), *self._aggregates(heading)))

    def figures(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Aggregates, and what follows from them."""
        grouped = self.groups(rel)
        heading, names = self._heading(grouped), [n for n, a in grouped.aggregates if a.function != "group"]
        return mmpl.Extend(grouped, ((self._name(), self._expression(heading, names)),))

    def having(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Groups that appear, evolve and vanish, often summarized again."""
        grouped = self.groups(rel)
        names = [n for n, a in grouped.aggregates if a.function != "group"]
        restricted = mmpl.Restrict(grouped, self._condition(self._heading(grouped), names))
        return self.groups(restricted) if self.random.random() < 0.6 else restricted

    def bounded(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Aggregates of a column that a WHERE or a CASE bounds."""
        heading = self._heading(rel)
        numbers = [c for c, t in heading.columns.items() if t in (INT, SUM_OF_INTS)]
        chosen = self.random.sample(numbers, min(2, len(numbers)))
        types = {c: heading.columns[c] for c in chosen}
        predicate = bounding_predicate(self.random, types, 1, extremes=0)
        name = chosen[0]
        if self.random.random() < 0.6:
            rel = mmpl.Restrict(rel, predicate)
        else:
            name, column, other = self._name(), mmpl.ColumnRef(name), self._constant(types[name])
            branch = ((predicate, column), other) if self.random.random() < 0.5 else ((predicate, other), column)
            rel = mmpl.Extend(rel, ((name, mmpl.Case(branch[:1], branch[1])),))
        functions: list[mmpl.AggregateName] = ["sum", "min", "max", "avg", "count_distinct"]
        if types[chosen[0]] == INT:
            functions.append("percentile_disc")
        named = tuple((self._name(), mmpl.Aggregate(f, mmpl.ColumnRef(name))) for f in self.random.sample(functions, 3))
        usable = [c for c, t in heading.columns.items() if c not in heading.key and t in (STRING, BOOL)]
        per = (self.random.choice(usable),) if usable and self.random.random() < 0.8 else ()
        return mmpl.Summarize(rel, per, named)

    def _condition(self, heading: Heading, names: Sequence[str]) -> mmpl.Expr:
        """A predicate about these columns, or about an expression of them."""
        if self.random.random() < 0.5:
            return self._predicate(heading, 1, names)
        expr = self._expression(heading, names)
        data = type_of(expr, heading.columns)
        return mmpl.Call(self.random.choice(("<", "<=", ">", ">=", "<>")), (expr, self._constant(data)))

    def last(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Rows that leave, often summarized."""
        window = mmpl.Window("last", rel, self._heading(rel).tick[0], self.random.choice(SPANS))
        return self.groups(window) if self.random.random() < 0.7 else window

    def total(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Each row or group with the one group that it looks up, present or absent. The result is often restricted by
        knowledge of the group, so that rows are permanently hidden."""
        left = self._heading(rel)
        source = self._grown(self._head(), self.random.randint(0, 1))
        right = self._heading(source)
        usable = (STRING, INT, TIME)
        alike = [(a, b) for a, t in left.columns.items() for b, s in right.columns.items() if t == s and t in usable]
        keys = [(a, b) for a, b in alike if a in left.key and b not in right.key]
        a, b = self.random.choice(keys if keys and self.random.random() < 0.6 else alike)
        if self.random.random() < 0.3:
            rel = mmpl.Summarize(rel, (a,), self._aggregates(left))
        group, named = self._name(), self._aggregates(right, 3)
        grouped = mmpl.Rename(mmpl.Summarize(source, (b,), named), ((b, group),))
        kind: mmpl.JoinKind = self.random.choice(("inner", "inner", "inner", "left", "left", "right", "full"))
        joined = mmpl.Join(kind, rel, grouped, ((a, group),))
        names = [n for n, aggregate in named if aggregate.function != "group"]
        if self.random.random() < 0.6:
            return mmpl.Restrict(joined, self._predicate(self._heading(joined), 1, names))
        return joined

    def totals(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Joins groups with those of other relations by the whole key of both. A group that is absent on one side, or
        has no members left, has the default row there. Columns that follow from the key alone are included too."""
        heading = self._heading(rel)
        if not (heading.total and len(heading.key) == 1):
            usable = [c for c, t in heading.columns.items() if t in (STRING, INT)]
            self.random.shuffle(usable)
            rel = self._by(rel, usable[: self.random.choice((1, 1, 1, 2))] or heading.key)
        by = len(self._heading(rel).key)
        for _ in range(self.random.choice((1, 2, 2, 3))):
            if len(self._heading(rel).key) > by:
                break  # of a FULL JOIN that has the keys of both sides
            rel = self._with_groups(rel)
        return rel

    def _with_groups(self, rel: mmpl.Rel) -> mmpl.Rel:
        left = self._heading(rel)
        key = self.random.sample(left.key, len(left.key))
        source = self._grown(self._head(), self.random.randint(0, 1))
        columns = self._heading(source).columns
        per: list[str] = []
        for name in key:
            per.append(self.random.choice([c for c, t in columns.items() if t == left.columns[name] and c not in per]))
        other = self._by(source, per)
        if self.random.random() < 0.2:
            other = mmpl.Rename(other, tuple(zip(self._heading(other).key, key, strict=True)))
        kind: mmpl.JoinKind = self.random.choice(("inner", "left", "left", "right", "full", "full"))
        return mmpl.Join(kind, rel, other, tuple(zip(key, self._heading(other).key, strict=True)))

    def _by(self, rel: mmpl.Rel, per: Sequence[str]) -> mmpl.Rel:
        """Groups, none of whose columns has a name that was there before."""
        heading = self._heading(rel)
        names = tuple((c, self._name()) for c in per)
        grouped: mmpl.Rel = mmpl.Rename(mmpl.Summarize(rel, tuple(per), self._aggregates(heading)), names)
        if self.random.random() < 0.3:
            grouped = mmpl.Extend(
                grouped, ((self._name(), self._expression(self._heading(grouped), [n for _, n in names])),)
            )
        return grouped

    def _remaining(self) -> mmpl.Rel:
        """Events with what refers to them, as long as that leaves something: Trade-Floor's bids and what satisfies them.
        What is hidden for good is forgotten upstream."""
        bids, satisfied = (mmpl.RelationRef(n) for n in self.random.sample(["A", "B", "C"], 2))
        group, total = self._name(), self._name()
        wanted = mmpl.Aggregate("count") if self.random.random() < 0.5 else mmpl.Aggregate("sum", _V)
        grouped = mmpl.Rename(mmpl.Summarize(satisfied, ("u",), ((total, wanted),)), (("u", group),))
        joined = mmpl.Join(self.random.choice(("inner", "left")), bids, grouped, (("t", group),))
        return mmpl.Restrict(joined, self._predicate(self._heading(joined), 1, [total]))

    def _newest(self) -> mmpl.Rel:
        """The latest event of two streams, which may share a tick."""
        merged = mmpl.Merge(tuple(mmpl.RelationRef(n) for n in self.random.sample(["A", "B", "C"], 2)))
        heading = self._heading(merged)
        newest = (self._name(), mmpl.Aggregate("latest", mmpl.ColumnRef(self._column(heading, INT, STRING, TIME))))
        return mmpl.Summarize(merged, self.random.choice(((), ("k",))), (newest, *self._aggregates(heading, 1)))

    def distinct(self, rel: mmpl.Rel) -> mmpl.Rel:
        heading = self._heading(rel)
        per = self._per(heading) or (self._column(heading, INT, TIME, STRING),)
        return mmpl.Distinct(mmpl.Project(rel, per))

    def best(self, rel: mmpl.Rel) -> mmpl.Rel:
        heading = self._heading(rel)
        by = tuple(
            (mmpl.ColumnRef(c), self.random.random() < 0.5)
            for c in self._per(heading) or heading.key[:1] or [self._column(heading, INT, TIME, STRING)]
        )
        best = mmpl.Best(rel, self.random.randint(1, 2), by, self._per(heading, 1))
        return self._of_first_rows(best) if self.random.random() < 0.5 else best

    def _of_first_rows(self, best: mmpl.Best) -> mmpl.Rel:
        """Aggregates of the first rows, often of what they are ordered by: one that leaves is replaced by another."""
        heading = self._heading(best)
        per = best.per if self.random.random() < 0.8 else self._per(heading, 1)
        functions: list[mmpl.AggregateName] = ["min", "max", "sum", "avg"]
        accepted = [f for f in functions if argument_types(f, (type_of(best.by[0][0], heading.columns),))]
        of_order = [(self._name(), mmpl.Aggregate(f, best.by[0][0])) for f in self.random.sample(accepted, 1)]
        count = (self._name(), mmpl.Aggregate("count"))
        return mmpl.Summarize(best, per, (count, *of_order, *self._aggregates(heading)[:1]))

    def firsts(self, rel: mmpl.Rel) -> mmpl.Rel:
        """The first rows of each group by a time, or the least time itself: both are final once time has passed them.
        Often of pairs of rows of which one follows the other."""
        if self.random.random() < 0.4:
            left = self._heading(rel)
            other = self._other(left)
            right = self._heading(other)
            later = mmpl.Call(
                self.random.choice((">", ">=")),
                (mmpl.ColumnRef(self._column(right, TIME)), mmpl.ColumnRef(self._column(left, TIME))),
            )
            rel = mmpl.Join("inner", rel, other, self._pairs(left, right, 1), later)
        heading = self._heading(rel)
        time: mmpl.Expr = mmpl.ColumnRef(self._column(heading, TIME))
        if self.random.random() < 0.5:
            more = ((mmpl.ColumnRef(self._column(heading, INT, STRING)), True),) if self.random.random() < 0.3 else ()
            return mmpl.Best(rel, self.random.randint(1, 2), ((time, False), *more), self._per(heading, 1))
        if self.random.random() < 0.4:
            shifted = mmpl.Call(self.random.choice(("+", "-")), (time, self._constant(INTERVAL)))
            time = self.random.choice((shifted, self._truncated(time), mmpl.Cast(time, DATE)))
        least = (self._name(), mmpl.Aggregate("min", time))
        return mmpl.Summarize(rel, self._per(heading, 1), (least, *self._aggregates(heading)[:1]))

    def _first_times(self) -> mmpl.Rel:
        """The least ticks of two streams of which one may be behind, or of an attribute that is behind the tick."""
        merged = mmpl.Merge(tuple(mmpl.RelationRef(n) for n in self.random.sample(["A", "B", "C"], 2)))
        head, time = self.random.choice(((merged, "t"), (merged, "t"), (mmpl.RelationRef("B"), "u")))
        least = (self._name(), mmpl.Aggregate("min", mmpl.ColumnRef(time)))
        return mmpl.Summarize(head, self.random.choice(((), (), ("f",))), (least,))

    def _offers(self) -> mmpl.Rel:
        """How many events of one stream come until a time that an event of another has, by the tick of the latter."""
        other = mmpl.RelationRef(self.random.choice(["A", "B", "C"]))
        joined = self._until(mmpl.RelationRef("A"), other, "u")
        return mmpl.Summarize(joined, ("t",), ((self._name(), mmpl.Aggregate("count")),))

    def lifetimes(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Rows with those that come until a time which the row itself has, summarized by the tick of the row: the tick
        determines that time."""
        heading = self._heading(rel)
        joined = self._until(rel, self._other(heading), self._column(heading, TIME))
        return mmpl.Summarize(joined, heading.tick, self._aggregates(self._heading(joined)))

    def _until(self, rel: mmpl.Rel, other: mmpl.Rel, time: str) -> mmpl.Join:
        left = self._heading(rel)
        other = self._without_names(other, left)
        right = self._heading(other)
        until = mmpl.Call("<=", (mmpl.ColumnRef(right.tick[0]), mmpl.ColumnRef(time)))
        return mmpl.Join("inner", rel, other, self._pairs(left, right, 1), until)

    def window(self, rel: mmpl.Rel) -> mmpl.Rel:
        heading = self._heading(rel)
        on = self._column(heading, TIME, TIME, TIMESTAMP)
        unit = TICKS_PER_MICROSECOND if heading.columns[on] == TIMESTAMP else 1
        size = self.random.choice(SPANS) * unit
        kind = self.random.choice(("tumble", "hop", "last"))
        slide = self.random.choice(SPANS) * unit if kind == "hop" else None
        offset = self._window_offset((slide or size) // unit) * unit if kind != "last" else 0
        return mmpl.Window(kind, rel, on, size, slide, offset)  # type: ignore[arg-type]  # one of the three

    def _window_offset(self, units: int) -> int:
        """Usually 0. The program is otherwise the one that would be drawn without offsets."""
        own_random = Random(str(self.random.getstate()[1][:8]))
        return own_random.randrange(units) if own_random.random() < 0.3 else 0

    def over(self, rel: mmpl.Rel) -> mmpl.Rel:
        heading = self._heading(rel)
        span = self.random.choice((None, *SPANS))
        return mmpl.Over(rel, self._per(heading, 1), self._order(heading), span, self._aggregates(heading))

    def _order(self, heading: Heading) -> str:
        """The tick, or another time in the key, as the end of a window is."""
        times = [c for c in heading.key if heading.columns[c] == TIME]
        return heading.tick[0] if heading.tick and self.random.random() < 0.7 else self.random.choice(times)

    def _sessions(self) -> mmpl.Rel:
        """Sessions of the events of a stream, most often grouped by session, and sometimes by a part of it."""
        rel: mmpl.Rel = mmpl.RelationRef(self.random.choice(["A", "B", "C"]))
        if self.random.random() < 0.3:
            rel = mmpl.Restrict(rel, self._predicate(self._heading(rel)))
        if self.random.random() < 0.3:
            rel = self.extend(rel)
        per = self.random.choice(((), ("k",), ("k",), ("f",)))
        gap = self.random.choice(SPANS)
        rel = self._applied(lambda r: mmpl.Session(r, "t", per, gap), rel)
        rel = self._grown(rel, self.random.randint(0, 1))
        chosen = self.random.random()
        if chosen < 0.6 and {"window_start", *per} <= set(self._heading(rel).columns):
            names = ("window_start", *per)
            rel = self._applied(lambda r: mmpl.Summarize(r, names, self._aggregates(self._heading(r))), rel)
        elif chosen < 0.9:
            rel = self._applied(self.summarize, rel)
        return self._grown(rel, self.random.randint(0, 2))

    def _arrays(self) -> mmpl.Rel:
        """The elements of arrays of events, or of arrays that evolve: those of groups, and the latest ones."""
        rel: mmpl.Rel = mmpl.RelationRef(self.random.choice(["A", "B", "C"]))
        rel = self._grown(rel, self.random.choice((0, 0, 1)))
        if self.random.random() < 0.5:
            rel = self._applied(self._collected, rel)
        for _ in range(self.random.choice((1, 1, 2))):
            rel = self._applied(self.ungroup, rel)
        return self._grown(rel, self.random.randint(0, 2))

    def _collected(self, rel: mmpl.Rel) -> mmpl.Rel:
        heading = self._heading(rel)
        aggregates: list[tuple[str, mmpl.Aggregate]] = [(self._name(), self._array_aggregate(heading))]
        if self.random.random() < 0.5:
            function: mmpl.AggregateName = self.random.choice(("latest", "max", "earliest"))
            column = mmpl.ColumnRef(self._column(heading, INTS, STRINGS))
            aggregates.append((self._name(), mmpl.Aggregate(function, column)))
        return mmpl.Summarize(rel, self._per(heading, 1), tuple(aggregates))

    def _array_aggregate(self, heading: Heading) -> mmpl.Aggregate:
        name = self.random.choice([c for c, t in heading.columns.items() if t.name in (*ELEMENT_TYPES, "array")])
        column: mmpl.Expr = mmpl.ColumnRef(name)
        if heading.columns[name].name != "array":
            column = mmpl.Call("array", (column,))
        if self.random.random() < 0.3:
            descending = self.random.random() < 0.5
            return mmpl.Aggregate("array_concat_agg", column, distinct=True, descending=descending)
        ordered = [c for c in heading.visible if heading.columns[c].is_ordered]
        columns = tuple(self.random.sample(ordered, min(len(ordered), self.random.randint(0, 2))))
        directions = tuple(self.random.random() < 0.5 for _ in columns)
        return mmpl.Aggregate("array_concat_agg", column, columns, directions=directions)

    def ungroup(self, rel: mmpl.Rel) -> mmpl.Rel:
        heading = self._heading(rel)
        arrays = [c for c, t in heading.columns.items() if t.name == "array"]
        if self.random.random() < 0.2:
            made, column = self._name(), mmpl.ColumnRef(self._column(heading, INT, STRING, BOOL))
            call = mmpl.Call("array", (column, self._constant(heading.columns[column.name])))
            rel, arrays = mmpl.Extend(rel, ((made, call),)), [made]
        name, keeps_empty = self.random.choice(arrays), self.random.random() < 0.3
        return mmpl.Ungroup(rel, name, (self._name(),), self._name(), keeps_empty)

    def _array_test(self, heading: Heading) -> mmpl.Expr:
        """A predicate about an array."""
        name = self.random.choice([c for c, t in heading.columns.items() if t.name == "array"])
        array, element = mmpl.ColumnRef(name), heading.columns[name].element
        value = self._constant(element)
        first = mmpl.Call("subscript", (array, mmpl.Constant(self.random.randint(0, 2), INT)))
        tests: list[mmpl.Expr] = [
            mmpl.Call("array_contains", (array, value)),
            mmpl.Call("=", (mmpl.Call("array_position", (array, value)), mmpl.Constant(1, INT))),
            mmpl.Call("<", (mmpl.Call("cardinality", (array,)), mmpl.Constant(2, INT))),
            mmpl.Call("=", (first, value)),
        ]
        return self.random.choice(tests)

    def _documents(self) -> mmpl.Rel:
        """JSON that is made of columns, and parts of it, which are grouped, compared and cast."""
        rel = self._head()
        if self.random.random() < 0.4:
            rel = self._applied(self.groups, rel)
        heading, document = self._heading(rel), self._name()
        usable = [c for c, t in heading.columns.items() if t.name != "relation"]
        a, b, c = (mmpl.ColumnRef(self.random.choice(usable)) for _ in range(3))
        items = mmpl.Call("json_build_array", (b, mmpl.Constant(None, STRING), c))
        names = [mmpl.Constant(name, STRING) for name in ("a", "b")]
        rel = mmpl.Extend(rel, ((document, mmpl.Call("json_build_object", (names[0], a, names[1], items))),))
        for _ in range(self.random.randint(1, 2)):
            rel = self._applied(partial(self._part, document), rel)
        chosen = self.random.random()
        if chosen < 0.4:
            rel = self._applied(self.summarize, rel)
        elif chosen < 0.6:
            rel = self._applied(self.restrict, rel)
        return self._grown(rel, self.random.randint(0, 2))

    def _part(self, document: str, rel: mmpl.Rel) -> mmpl.Rel:
        whole = mmpl.ColumnRef(document)
        key = mmpl.Constant(self.random.choice(("a", "b", "c")), STRING)
        part = self.random.choice((whole, mmpl.Call("json_get", (whole, key))))
        position = mmpl.Constant(self.random.choice((-1, 0, 1, 7)), INT)
        parts: list[mmpl.Expr] = [
            part, mmpl.Call("json_get_text", (part, key)), mmpl.Call("json_get", (part, position)),
            mmpl.Call("json_path_text", (whole, key, mmpl.Constant("2", STRING))), mmpl.Call("json_has_key", (part, key)),
            mmpl.Call("json_typeof", (part,)), mmpl.Call("json_array_length", (part,)),
            mmpl.Cast(part, self.random.choice((INT, FLOAT, BOOL, STRING, NARROW))), mmpl.Call("to_json", (part,)),
            mmpl.Cast(mmpl.Cast(part, STRING), JSON),
        ]  # fmt: skip
        return mmpl.Extend(rel, ((self._name(), self.random.choice(parts)),))

    def _frames(self) -> mmpl.Rel:
        """Aggregates of rows before and after each event of a stream."""
        rel: mmpl.Rel = mmpl.RelationRef(self.random.choice(["A", "B", "C"]))
        if self.random.random() < 0.3:
            rel = self._applied(self.restrict, rel)
        per = self.random.choice(((), ("k",), ("k",), ("f",)))
        for _ in range(self.random.choice((1, 1, 2))):
            rel = self._applied(partial(self._frame, per), rel)
        return self._grown(rel, self.random.randint(0, 2))

    def _frame(self, per: tuple[str, ...], rel: mmpl.Rel) -> mmpl.Rel:
        first, last = self.random.choice(
            ((-2, 0), (-1, -1), (-2, -2), (1, 1), (2, 3), (-1, 1), (0, 2), (-3, -2), (0, 0))
        )
        return mmpl.OverRows(rel, per, "t", first, last, self._aggregates(self._heading(rel)))

    def _table(self) -> mmpl.Rel:
        """The contents of a table whose changes are the events of a stream, as CREATE TABLE gives them: the latest row
        of each key, unless it is deleted. Or the rows of the table as of other events."""
        changes: mmpl.Rel = mmpl.RelationRef(self.random.choice(["A", "B", "C"]))
        if self.random.random() < 0.5:
            first = self._written_rows(Random(self.random.random()), share=1.0)
            changes = mmpl.Merge((next(iter(first.values())), changes))
        key, is_present = self.random.choice(("v", "w")), mmpl.Call("is distinct from", (mmpl.ColumnRef("k"), _DELETED))
        if self.random.random() < 0.4:
            at, kind = self._name(), self.random.choice(("inner", "left"))
            events = mmpl.Rename(mmpl.RelationRef(self.random.choice(["A", "B", "C"])), (("t", at),))
            left = mmpl.Project(events, (at, key))
            rel: mmpl.Rel = mmpl.Asof(kind, left, changes, ((key, key),), (at, "t"))  # type: ignore[arg-type]
            return self._grown(mmpl.Restrict(rel, is_present), self.random.randint(0, 2))
        latest = tuple((c, mmpl.Aggregate("latest", mmpl.ColumnRef(c))) for c in ("k", "f", "u", "x"))
        newest = mmpl.Summarize(changes, (key,), latest)
        contents = mmpl.Project(mmpl.Restrict(newest, is_present), (key, "f", "u", "x"))
        rel = self._applied(self.join, contents) if self.random.random() < 0.5 else contents
        return self._grown(rel, self.random.randint(0, 2))

    def _lookup(self) -> mmpl.Rel:
        """Rows with those that they look up by the whole key. The latter are groups by a column that evolves, often
        with the group of another relation: they can become absent, hidden and shown again."""
        key, moved = self._name(), self._name()
        column = mmpl.ColumnRef(self.random.choice(("v", "w")))
        moving = mmpl.Aggregate(self.random.choice(("min", "max", "latest")), column)
        source, per = mmpl.RelationRef(self.random.choice(["A", "B", "C"])), self.random.choice(("v", "w", "k"))
        groups: mmpl.Rel = mmpl.Summarize(source, (per,), ((key, moving),))
        named = [(moved, mmpl.Aggregate("count"))]
        if self.random.random() < 0.5:
            named.append((self._name(), mmpl.Aggregate(self.random.choice(("min", "max")), mmpl.ColumnRef(per))))
        groups = mmpl.Summarize(groups, (key,), tuple(named))
        if self.random.random() < 0.7:
            groups = self._applied(partial(self._with_latest, key), groups)
        if self.random.random() < 0.9:
            heading = self._heading(groups)
            usable = [c for c, t in heading.columns.items() if c not in heading.key and t.name != "relation"]
            condition = mmpl.Call("<=", (mmpl.ColumnRef(moved), mmpl.Constant(self.random.randint(1, 3), INT)))
            groups = mmpl.Restrict(
                groups, condition if self.random.random() < 0.5 else self._predicate(heading, 1, usable)
            )
        left: mmpl.Rel = mmpl.RelationRef(self.random.choice([s.name for s in STREAMS]))
        chosen = self.random.random()
        if chosen < 0.2:
            left = mmpl.Summarize(left, (column.name,), self._aggregates(self._heading(left)))
        elif chosen < 0.4:
            left = self._applied(self.restrict, left)
        kind: mmpl.JoinKind = self.random.choice(("inner", "left", "left", "left", "right", "full"))
        joined = self._applied(lambda r: mmpl.Join(kind, r, groups, ((column.name, key),)), left)
        return self._grown(joined, self.random.randint(0, 2))

    def _with_latest(self, key: str, groups: mmpl.Rel) -> mmpl.Rel:
        """Groups by `key` with the latest values of other events that have the same value."""
        source = mmpl.RelationRef(self.random.choice(["A", "B", "C"]))
        columns = self.random.sample(("k", "v", "f", "x", "u", "t"), 2)
        latest = [(self._name(), mmpl.Aggregate("latest", mmpl.ColumnRef(c))) for c in columns]
        other = self._name()
        found = mmpl.Rename(mmpl.Summarize(source, ("w",), tuple(latest)), (("w", other),))
        kind: mmpl.JoinKind = self.random.choice(("right", "right", "right", "inner", "full"))
        return mmpl.Join(kind, found, groups, ((other, key),))

    def silence(self, rel: mmpl.Rel) -> mmpl.Rel:
        heading = self._heading(rel)
        return mmpl.Silence(rel, self._name(), heading.tick[0], self._per(heading, 1), self.random.choice(SPANS))


_OPERATORS: list[Callable[[Programs, mmpl.Rel], mmpl.Rel]] = [
    Programs.restrict, Programs.restrict, Programs.project, Programs.extend, Programs.extend, Programs.rename,
    Programs.join, Programs.join, Programs.join, Programs.join, Programs.asof, Programs.summarize, Programs.summarize,
    Programs.summarize, Programs.distinct, Programs.best, Programs.window, Programs.over, Programs.over,
    Programs.silence, Programs.silence, Programs.figures, Programs.groups, Programs.having, Programs.having,
    Programs.bounded, Programs.bounded, Programs.last, Programs.last, Programs.total, Programs.total,
    Programs.totals, Programs.totals, Programs.firsts, Programs.firsts, Programs.lifetimes,
]  # fmt: skip


def random_program(random: Random, views_max: int = 3) -> mmpl.Program:
    return Programs(random).draw(random.randint(1, views_max))
