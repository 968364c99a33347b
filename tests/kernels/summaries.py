"""Random programs with aggregates: over streams, over rows that arrive, evolve and leave, and over aggregates."""

from collections.abc import Callable
from random import Random
from typing import get_args

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.algebra.types import BOOL, FLOAT, INT, INTERVAL, STRING, SUM_OF_INTS, TIME, DataType, decimal_type
from smile.errors import SmileError
from tests.random_programs import Programs, argument_types

CENTS = decimal_type(10, 2)
_COLUMNS = (
    ("k", STRING),
    ("v", INT),
    ("w", INT),
    ("x", FLOAT),
    ("d", CENTS),
    ("u", TIME),
    ("f", BOOL),
    ("i", INTERVAL),
)


def _at_least(name: str, value: object, data: DataType) -> mmpl.Expr:
    return mmpl.Call(">=", (mmpl.ColumnRef(name), mmpl.Constant(value, data)))  # type: ignore[arg-type]


_CHECKS = (
    _at_least("v", 0, INT),
    mmpl.Call("<=", (mmpl.ColumnRef("w"), mmpl.Constant(3, INT))),
    mmpl.Call("<=", (mmpl.ColumnRef("u"), mmpl.ColumnRef("t"))),
)
STREAMS = (
    mmpl.StreamDef("A", "t", _COLUMNS, (*_CHECKS, _at_least("x", 0.0, FLOAT))),
    mmpl.StreamDef("B", "t", _COLUMNS, (mmpl.Call("is not null", (mmpl.ColumnRef("v"),)),)),
)
_COLUMN_TYPES = (INT, SUM_OF_INTS, FLOAT, CENTS, STRING, TIME, BOOL, INTERVAL)


class Summaries(Programs):
    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.program = mmpl.Program(STREAMS, (), ())

    def draw(self, count: int) -> mmpl.Program:
        for number in range(count):
            name = f"V{number + 1}"
            views = (*self.program.views, mmpl.ViewDef(name, self._summary()))
            self.program = mmpl.Program(STREAMS, views, (*self.program.subscriptions, name))
        return self.program

    def _summary(self) -> mmpl.Rel:
        """Some operators, usually with an aggregate."""
        rel = self._head()
        for operators in ([_BELOW] * self.random.randint(0, 2), [_GROUPS], [_BELOW] * self.random.randint(0, 1)):
            for choices in operators:
                try:
                    grown = self.random.choice(choices)(self, rel)
                    self._heading(grown)
                except (SmileError, IndexError):
                    continue
                rel = grown
        return rel if not isinstance(rel, mmpl.RelationRef) else mmpl.Restrict(rel, mmpl.Constant(True, BOOL))

    def _head(self) -> mmpl.Rel:
        names = [s.name for s in STREAMS] + [v.name for v in self.program.views] * 2
        if self.random.random() < 0.1:
            return mmpl.Merge((mmpl.RelationRef("A"), mmpl.RelationRef("B")))
        return mmpl.RelationRef(self.random.choice(names))

    def _aggregate(self, heading: Heading) -> mmpl.Aggregate:
        function: mmpl.AggregateName = self.random.choice(get_args(mmpl.AggregateName))
        if function == "group":
            scalar_columns = tuple(c for c in heading.visible if heading.columns[c].name != "relation")
            return mmpl.Aggregate("group", columns=scalar_columns[:2])
        if function == "count" and self.random.random() < 0.5:
            return mmpl.Aggregate("count")
        name = self._column(heading, *argument_types(function, _COLUMN_TYPES))
        arg: mmpl.Expr = mmpl.ColumnRef(name)
        if heading.columns[name] == INT and self.random.random() < 0.3:
            arg = mmpl.Call(self.random.choice(("+", "-", "*")), (arg, self._constant(INT)))
        return mmpl.Aggregate(function, arg)

    def _aggregates(self, heading: Heading, most: int = 3) -> tuple[tuple[str, mmpl.Aggregate], ...]:
        aggregates = []
        for _ in range(self.random.randint(1, most)):
            try:
                aggregates.append((self._name(), self._aggregate(heading)))
            except IndexError:
                aggregates.append((self._name(), mmpl.Aggregate("count")))
        return tuple(aggregates)


_BELOW: list[Callable[[Summaries, mmpl.Rel], mmpl.Rel]] = [
    Summaries.restrict, Summaries.restrict, Summaries.extend, Summaries.project, Summaries.window, Summaries.window,
    Summaries.window, Summaries.silence, Summaries.best,
]  # fmt: skip
_GROUPS = [Summaries.summarize, Summaries.summarize, Summaries.summarize, Summaries.distinct]


def random_summary(random: Random, views_max: int = 3) -> mmpl.Program:
    return Summaries(random).draw(random.randint(1, views_max))
