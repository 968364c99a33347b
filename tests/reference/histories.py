"""Random histories of a program: events that its checks allow, at ticks that its intervals make interesting, with
silences in between. Some values are the greatest and the least of their type, or close to them: sentinels such as
9999-12-31 are values that people use. Every prefix of one is a history, of which the whole, finished, is one
completion."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from smile.algebra import mmpl, trees
from smile.algebra.coercions import (
    DATE_MAX,
    MICROSECONDS_PER_DAY,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    fit_number,
    type_ends,
)
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.functions.time import constant_period
from smile.algebra.types import BOOL, INT_MAX, INT_MIN, TICK_MAX, TICKS_PER_MICROSECOND, DataType, Value
from smile.analysis.type_analysis import TypeAnalysis
from smile.decoding.checks import enforced_check
from smile.horizons import origin_name
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.nested import NestedRelation
from smile.knowledge.values.transfer import to_operand
from smile.operators.catalogue import map_expressions
from smile.reference.evaluate import evaluate
from smile.reference.history import END, History, RecordedLine
from smile.reference.relation import Horizons, Relation
from tests.programs.reader import analyse

TRIES_MAX = 30
EXTREMES = 0.08
"""How many of the values are extreme."""


class Histories:
    """Draws the lines of random histories of one program."""

    def __init__(self, program: mmpl.Program, random: Random, extremes: float = EXTREMES) -> None:
        self.random, self.extremes = random, extremes
        self.streams = program.streams
        names = {name for view in program.views for name in names_read(view.body)}
        self.read = [s for s in program.streams if s.name in names] or list(program.streams)
        self.horizons = {s.name: -1 for s in program.streams}
        """By stream, and by `origin_name` for streams with many origins."""
        self.dead: set[str] = set()
        """Origins that say nothing more."""
        self.joins: list[RecordedLine] = []
        """Lines with which origins join at the beginning, so that their rows are not in order."""
        self.taken: set[tuple[str, int]] = set()
        """The ticks of streams with many origins."""
        self.ticks = [0]
        self.used: set[tuple[str, tuple[str, ...], tuple[Value, ...]]] = set()
        """The values of UNIQUE columns, by stream and columns."""
        self.seen: dict[DataType, list[Value]] = {}
        """What columns of each type had in events."""
        for stream in self.read:
            if stream.many_origins:
                self._draw_origins(stream)
        constants = list(_constants(program))
        intervals = {abs(c.value) for c in constants if c.type.name == "interval" and isinstance(c.value, int)}
        self.intervals = sorted(intervals - {0})
        self.distances = [1, 1, 2, 3, *(d for i in self.intervals for d in (i // 2, i - 1, i, i + 1) if d > 0)]
        self.values: dict[str, list[Any]] = {
            "string": ["a", "b", *(c.value for c in constants if c.type.name == "string")],
            "int": [-1, 0, 1, 2, 3, 10],
            "decimal": [Decimal(0), Decimal("0.5"), Decimal(3), Decimal(-2)],
            "float": [0.0, 0.1, 0.2, 1.5, -2.0, 1e300],
            "bool": [True, False],
            "interval": [0, *self.distances],
            "date": [0, 1, 20000],
            "bytes": ["\\x00", "\\xff"],
            "json": [1, "a", [1, None], {"user": "a", "items": [{"price": 2}], "kind": "order"}, {"user": None}],
        }
        for constant in constants:
            if isinstance(constant.value, int | Decimal) and not isinstance(constant.value, bool):
                near = [int(constant.value) + d for d in (-1, 0, 1)]
                self.values["int"] += [n for n in near if INT_MIN <= n <= INT_MAX]

    def _draw_origins(self, stream: mmpl.StreamDef) -> None:
        """Up to four origins. Most of them join at the beginning; often one of them is never heard of again."""
        origins = self.random.sample(range(9), self.random.choice((1, 2, 2, 3, 4)))
        if self.random.random() < 0.8:
            self.joins += [{"stream": stream.name, "origin": o, "silence_to": 0} for o in origins]
        if len(origins) > 1 and self.random.random() < 0.4:
            self.dead.add(origin_name(stream.name, str(self.random.choice(origins))))

    def line(self) -> RecordedLine:
        if self.joins:
            line = self.joins.pop(0)
            self._advance(line["stream"], str(line["origin"]), line["silence_to"])
            return line
        # What happens on a stream that nobody reads matters little.
        stream = self.random.choice(self.read if self.random.random() < 0.9 else self.streams)
        if stream.many_origins:
            return self._line_of_origin(stream)
        if self.random.random() < 0.15:
            return self._silence(stream)
        tick = self._later(self.horizons[stream.name])
        for _ in range(TRIES_MAX if tick <= TICK_MAX else 0):
            row = {name: self._value(data, tick) for name, data in stream.columns}
            if _is_allowed(stream, {stream.tick: tick, **row}) and self._is_unique(stream, row):
                self.horizons[stream.name] = tick
                self.ticks.append(tick)
                for name, data in stream.columns:
                    self.seen.setdefault(data, []).append(row[name])
                return {"stream": stream.name, "at": tick, "event": row}
        return self._silence(stream)

    def _members(self, stream: str) -> list[str]:
        names = (name.rpartition(":") for name in self.horizons)
        return [origin for of_stream, _, origin in names if of_stream == stream]

    def _advance(self, stream: str, origin: str, tick: int) -> None:
        name = origin_name(stream, origin)
        self.horizons[name] = max(tick, self.horizons.get(name, -1))
        self.horizons[stream] = min(self.horizons[origin_name(stream, o)] for o in self._members(stream))

    def _line_of_origin(self, stream: mmpl.StreamDef) -> RecordedLine:
        """An event or a silence of one origin. Now and then an origin joins, above the horizon of the stream, or
        leaves."""
        members = self._members(stream.name)
        active = [o for o in members if self.horizons[origin_name(stream.name, o)] < END]
        speaking = [o for o in active if origin_name(stream.name, o) not in self.dead]
        new = [str(n) for n in range(4) if str(n) not in members]
        if new and self.horizons[stream.name] < END and (not members or self.random.random() < 0.05):
            origin, horizon = self.random.choice(new), self.horizons[stream.name]
        elif len(active) > 1 and self.random.random() < 0.06:
            origin = self.random.choice(active)
            self._advance(stream.name, origin, END)
            return {"stream": stream.name, "origin": int(origin), "silence_to": END}
        elif speaking:
            # The first is the fastest.
            origin = speaking[0] if self.random.random() < 0.4 else self.random.choice(speaking)
            horizon = self.horizons[origin_name(stream.name, origin)]
        else:
            return self._silence(stream)
        tick = self._later(horizon)
        for _ in range(TRIES_MAX if tick <= TICK_MAX and self.random.random() > 0.15 else 0):
            row = {name: self._value(data, tick) for name, data in stream.columns}
            if (stream.name, tick) not in self.taken and _is_allowed(stream, {stream.tick: tick, **row}):
                self.taken.add((stream.name, tick))
                self._advance(stream.name, origin, tick)
                self.ticks.append(tick)
                for name, data in stream.columns:
                    self.seen.setdefault(data, []).append(row[name])
                return {"stream": stream.name, "origin": int(origin), "at": tick, "event": row}
        silence_to = min(tick, END)
        self._advance(stream.name, origin, silence_to)
        return {"stream": stream.name, "origin": int(origin), "silence_to": silence_to}

    def _is_unique(self, stream: mmpl.StreamDef, row: dict[str, Value]) -> bool:
        """Whether no earlier event has the values of UNIQUE columns. They are used from now on."""
        used = [(stream.name, columns, tuple(row[c] for c in columns)) for columns in stream.unique]
        used = [entry for entry in used if None not in entry[2]]
        if self.used.intersection(used):
            return False
        self.used.update(used)
        return True

    def remember(self, lines: list[RecordedLine]) -> None:
        """Continues after these lines."""
        self.ticks = [0, *(line["at"] for line in lines if "at" in line)]
        self.joins, self.dead = [], set()
        for line in lines:
            if "event" in line:
                stream = next(s for s in self.streams if s.name == line["stream"])
                if stream.many_origins:
                    self.taken.add((stream.name, line["at"]))
                self._is_unique(stream, dict(line["event"]))

    def _later(self, tick: int) -> int:
        """A later tick: often the next one, or one where a window ends or an interval after an event is over, or one at
        which something happened on another stream."""
        if self.extremes and self.random.random() < self.extremes / 8:
            return tick + 2**53
        taken = [t for t in self.ticks if t > tick]
        if taken and self.random.random() < 0.35:
            return self.random.choice(taken)
        if self.intervals and self.random.random() < 0.4:
            interval = self.random.choice(self.intervals)
            edges = [*(t + interval for t in self.ticks), (tick // interval + 1) * interval]
            near = [e + d for e in edges for d in (-2, -1, 0) if e + d > tick]
            if near:
                return min(near) if self.random.random() < 0.5 else self.random.choice(near)
        return tick + self.random.choice(self.distances)

    def _silence(self, stream: mmpl.StreamDef) -> RecordedLine:
        if self.random.random() < 0.5:
            to = min(self._later(self.horizons[stream.name]), END)
            self._advance_stream(stream, to)
            return {"stream": stream.name, "silence_to": to}
        to = min(self._later(self.random.choice(list(self.horizons.values()))), END)
        for silent in self.streams:
            self._advance_stream(silent, to)
        return {"silence_to": to}

    def _advance_stream(self, stream: mmpl.StreamDef, tick: int) -> None:
        if not stream.many_origins:
            self.horizons[stream.name] = max(self.horizons[stream.name], tick)
            return
        for origin in self._members(stream.name) or ["0"]:
            self._advance(stream.name, origin, tick)

    def _value(self, data: DataType, tick: int) -> Value:
        chosen = self.random.random()
        if chosen < 0.1:
            return None
        if chosen < 0.1 + self.extremes and (extremes := extreme_values(data)):
            return self.random.choice(extremes)  # type: ignore[no-any-return]
        if chosen < 0.35 + self.extremes and data in self.seen:
            return self.random.choice(self.seen[data])
        if data.name in ("time", "timestamp"):
            before, after = (self.random.choice(self.distances) for _ in range(2))
            near = [*self.ticks[-4:], tick, tick - before, tick + 1, tick + after]
            value = min(max(0, self.random.choice(near)), TICK_MAX)
            return value if data.name == "time" else value // TICKS_PER_MICROSECOND
        if data.name == "array":
            return [self._value(data.element, tick) for _ in range(self.random.choice((0, 1, 2, 3)))]  # type: ignore[return-value]  # as in JSON
        values = self.values[data.name]
        fitting = values if data.name != "decimal" else [v for v in values if fit_number(v, data) is not None]
        return self.random.choice(fitting)  # type: ignore[no-any-return]


def extreme_values(data: DataType) -> list[Any]:
    """Values at the ends of a type, and at other ends that people meet."""
    if data.name == "time":
        return [0, TICK_MAX]
    if data.name == "timestamp":
        return [TIMESTAMP_MIN, TIMESTAMP_MAX, DATE_MAX * MICROSECONDS_PER_DAY]
    ends: Any = type_ends(data)
    if ends is None:
        return []
    least, greatest = ends
    if data.name in ("int", "interval"):
        return [least, greatest, greatest - 1, 2**62, -(2**62), 2**53, 2**53 + 1]
    return [least, greatest]


def _is_allowed(stream: mmpl.StreamDef, row: dict[str, Value]) -> bool:
    types = {stream.tick: _TIME, **dict(stream.columns)}
    return all(evaluate_expr(enforced_check(check, types), row, types) is not False for check in stream.checks)


_TIME = DataType("time")


def names_read(body: mmpl.Rel) -> set[str]:
    """Of the relations that a view refers to."""
    return {rel.name for rel in trees.walk(body) if isinstance(rel, mmpl.RelationRef)}


def _constants(program: mmpl.Program) -> Iterator[mmpl.Constant]:
    """Every constant, and every length of time that an operator has as its own."""
    expressions: list[mmpl.Expr] = [check for stream in program.streams for check in stream.checks]

    def note(expr: mmpl.Expr) -> mmpl.Expr:
        expressions.append(expr)
        return expr

    interval = DataType("interval")
    for view in program.views:
        for rel in trees.walk(view.body):
            map_expressions(rel, note)
            for name in ("size", "slide", "range", "longer_than"):
                if isinstance(length := getattr(rel, name, None), int):
                    yield mmpl.Constant(length, interval)
    while expressions:
        expr = expressions.pop()
        expressions.extend(trees.operands_of(expr))
        period = _period(expr)
        if period is not None:
            yield mmpl.Constant(period, interval)
        if isinstance(expr, mmpl.Constant) and expr.value is not None:
            yield expr


def _period(expr: mmpl.Expr) -> int | None:
    """The length of the periods that an expression divides time into, in ticks."""
    match expr:
        case mmpl.Cast(_, DataType("date" | "timestamp" as name)):
            return TICKS_PER_MICROSECOND * (MICROSECONDS_PER_DAY if name == "date" else 1)
        case mmpl.Call("date_trunc") if period := constant_period(expr):
            return TICKS_PER_MICROSECOND * period.microseconds_max
    return None


@dataclass(frozen=True)
class Moment:
    """All relations of a program at one point of a history."""

    relations: dict[str, Relation]
    horizons: Horizons
    lines: list[RecordedLine]

    @property
    def at_end(self) -> bool:
        return all(h >= END for h in self.horizons.values())


def moment(program: mmpl.Program, analysis: TypeAnalysis, lines: list[RecordedLine], end: bool = False) -> Moment:
    history = History.from_lines(program, lines)
    if end:
        history = history.with_finished_streams()
    return Moment(evaluate(program, analysis, history), dict(history.horizons), lines)


def random_lines(program: mmpl.Program, random: Random) -> list[RecordedLine]:
    histories = Histories(program, random)
    return [histories.line() for _ in range(random.randint(2, 9) + len(histories.joins))]


def trace(program: mmpl.Program, random: Random) -> list[Moment]:
    """A random history after each of its lines, and once it is finished."""
    lines = random_lines(program, random)
    analysis = analyse(program)
    moments = [moment(program, analysis, lines[:n]) for n in range(len(lines) + 1)]
    return [*moments, moment(program, analysis, lines, end=True)]


# ── what knowledge promises ─────────────────────────────────────────────────────────────────────────────────────────


def allows(before: CellKnowledge, after: CellKnowledge) -> bool:
    """Whether all that is possible after was possible before."""
    if isinstance(before, NestedRelation) and isinstance(after, NestedRelation):
        # A group that all its members left is heard of no more, and so is a row made of it.
        left = {
            k: r
            for k, r in before.rows.items()
            if k not in after.rows and not after.sealed and not r.mask.is_permanently_shown
        }
        return before.evolves_to(NestedRelation({**left, **after.rows}, after.sealed))
    if isinstance(before, NestedRelation) or isinstance(after, NestedRelation):
        return True  # a nested relation that may be NULL: only its presence is known
    if isinstance(before, LatestValue) and isinstance(after, LatestValue):
        return before.evolves_to(after)
    if isinstance(before, Mask) or isinstance(after, Mask):
        return to_operand(before, BOOL).evolves_to(to_operand(after, BOOL))
    return to_range(before).evolves_to(to_range(after))


def broken_promises(before: Relation, after: Relation) -> list[str]:
    """What was said of rows and turned out otherwise, `after` being the same view at a later point."""
    problems = []
    for key, row in before.items():
        later = after.get(key)
        if later is None:
            if row.mask.is_permanently_shown:
                problems.append(f"{key} was to stay, and is gone")
            continue
        if not row.mask.evolves_to(later.mask):
            problems.append(f"{key}: mask {row.mask!r} became {later.mask!r}")
        if later.mask.is_permanently_hidden:
            continue
        problems += [
            f"{key}.{c}: {cell!r} became {later.cells[c]!r}"
            for c, cell in row.cells.items()
            if not allows(cell, later.cells[c])
        ]
    return problems
