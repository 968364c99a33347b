"""Random programs with one kind of join, over rows that appear, evolve and vanish, compared with the reference."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.algebra.types import SUM_OF_INTS
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import SmileError
from smile.program import compile_program
from smile.source import Source
from tests.kernels.harness import EngineAndReference, cuts, differences
from tests.random_programs import Programs
from tests.reference.histories import Histories

LINES_MAX = 14

_OPERATORS = (
    "restrict", "restrict", "project", "extend", "extend", "rename", "window", "window", "silence", "summarize",
    "summarize", "distinct",
)  # fmt: skip


class RandomJoins(Programs):
    """`kinds`: the kinds of joins, "asof" included. `can_evolve`: whether equated columns can evolve."""

    def __init__(self, random: Random, kinds: Sequence[str], can_evolve: bool) -> None:
        super().__init__(random)
        self.kinds, self.can_evolve = kinds, can_evolve

    def draw_join(self) -> mmpl.Program:
        while True:
            rel = self._grown(self._head(), self.random.randint(0, 2))
            kind = self.random.choice(self.kinds)
            try:
                rel = self.asof(rel) if kind == "asof" else self.join_of(rel, kind)  # type: ignore[arg-type]
                if self.random.random() < 0.2:
                    rel = self._grown(rel, 1)
                self._heading(rel)
            except (SmileError, IndexError):
                continue
            streams = tuple(replace(stream, many_origins=False) for stream in self.streams)
            return mmpl.Program(streams, (mmpl.ViewDef("V", rel),), ("V",))

    def _grown(self, rel: mmpl.Rel, operators: int) -> mmpl.Rel:
        for _ in range(operators):
            try:
                grown: mmpl.Rel = getattr(self, self.random.choice(_OPERATORS))(rel)
                self._heading(grown)
            except (SmileError, IndexError):
                continue
            rel = grown
        return rel

    def summarize(self, rel: mmpl.Rel) -> mmpl.Rel:
        """Groups by few columns, so that joins find groups. Never by ticks, because such a group has a single event."""
        heading = self._heading(rel)
        names = [c for c, t in heading.columns.items() if t.name in ("string", "int")]
        per = tuple(self.random.sample(names, self.random.randint(0, min(2, len(names)))))
        numbers = [c for c, t in heading.columns.items() if t.name == "int" or t == SUM_OF_INTS]
        function = self.random.choice(("count", "sum", "max", "latest")) if numbers else "count"
        arg = mmpl.ColumnRef(self.random.choice(numbers)) if numbers and function != "count" else None
        return mmpl.Summarize(rel, per, ((self._name(), mmpl.Aggregate(function, arg)),))  # type: ignore[arg-type]

    def join_of(self, rel: mmpl.Rel, kind: mmpl.JoinKind) -> mmpl.Rel:
        left = self._heading(rel)
        other = self._other(left)
        on = self._pairs(left, self._heading(other)) if self.random.random() < 0.95 else ()
        if not self.can_evolve:
            types = (
                TypeAnalysis(self.program).relation_type(rel).columns,
                TypeAnalysis(self.program).relation_type(other).columns,
            )
            on = tuple((a, b) for a, b in on if not types[0][a].evolves and not types[1][b].evolves)
        if self.random.random() < 0.4 and kind in ("left", "right", "full"):
            other = mmpl.Rename(other, tuple((b, a) for a, b in on))
            on = tuple((a, a) for a, _ in on)
        right = self._heading(other)
        when = None
        if self.random.random() < 0.4:
            when = self._predicate(replace(left, columns={**right.columns, **left.columns}), self.random.randint(0, 1))
        match_column = self._name() if kind == "match" else None
        is_null_aware = kind in ("semi", "anti", "match") and bool(on) and self.random.random() < 0.3
        return mmpl.Join(kind, rel, other, on, when, match_column, is_null_aware)


class DoublyEquatedJoins(RandomJoins):
    """One column is equated to two others, so that a row can look up values that no row has."""

    def _pairs(self, left: Heading, right: Heading, most: int = 2) -> tuple[tuple[str, str], ...]:
        left_columns, right_columns = left.columns.items(), right.columns.items()
        candidates = [(a, b) for a, t in left_columns for b, s in right_columns if t == s and t.name != "relation"]
        first = self.random.choice(candidates)
        second = [p for p in candidates if (p[0] == first[0]) != (p[1] == first[1])]
        pairs = [first, *([self.random.choice(second)] if second else [])]
        return tuple(self.random.sample(pairs, len(pairs)))


def join_differences(
    seed: int, kinds: Sequence[str], can_evolve: bool = True, programs: type[RandomJoins] = RandomJoins
) -> tuple[mmpl.Program, list[str]]:
    """A random program, and the first differences over a random history."""
    random = Random(seed)
    program = programs(random, kinds, can_evolve).draw_join()
    histories = Histories(program, random)
    lines = [histories.line() for _ in range(random.randint(2, LINES_MAX))]
    return program, differences(program, lines, cuts(random, len(lines)))


def compile_text(text: str) -> mmpl.Program:
    """Compiles a program in SmileSQL."""
    return compile_program(Source("test.smile", text)).rewritten


def state_row_counts(both: EngineAndReference) -> dict[str, int]:
    """How many rows each table of the program has."""
    states = both.engine.state.states
    return {table: state[table].row_count for state in states.values() for table in state}
