"""Once all streams are finished, the reference shows the same rows as PostgreSQL, for every view in plain SQL of the
tests."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.arrays import decode_array
from smile.algebra.heading import Heading
from smile.algebra.types import DataType, Value
from smile.analysis.headings import Headings
from smile.reference.evaluate import evaluate
from smile.reference.history import History, RecordedLine, read_events
from smile.source import Source
from smile.translate import translate
from tests.programs.reader import ROOT, analyse, cases, recorded_lines
from tests.reference import plain_sql, postgres
from tests.reference.histories import EXTREMES, Histories
from tests.reference.postgres import Connection, name_of
from tests.reference.to_postgres import Known, is_plain, to_postgres
from tests.repeatable import scaled
from tests.translate.fixtures import all_cases
from tests.translate.test_against_sqlite import QUERIES, STREAMS

LINES = (4, 14)
QUOTIENT_SCALE = 16

DEPARTURES = {
    "expressions.test: casts": "a cast that fails is an error in PostgreSQL, and NULL here",
    "group-by-date-trunc": "to PostgreSQL, ticks are ints, which DATE_TRUNC does not take",
    "group-by-parts-of-time": "to PostgreSQL, ticks are ints, which have no parts",
    "sum-distinct": "PostgreSQL does not have ARG_MAX",
    "group-by-day": "to PostgreSQL, ticks are ints, which cannot be cast to a date",
    "expressions.test: quoted literals take the type of the other operand": "to PostgreSQL, times and intervals are ints",
    "narrowing-cast-may-be-null": "a cast that fails is an error in PostgreSQL, and NULL here",
    "sentinel-timestamp-hides-a-group": "PostgreSQL has timestamps after the year 9999",
    "sum-of-products": "a product or a cast that overflows is an error in PostgreSQL, and NULL here",
    "sums-that-overflow": "a sum of floats that overflows is an error in PostgreSQL, and NULL here",
    "joins.test: FULL JOIN of two aggregates": "a row for each key: the groups of NULL, which match none, share one",
    "keys.test: names that differ in case only, in quotes": "names have one case when they are handed to PostgreSQL",
    "deviation": "a variance of integers is a float here, and numeric in PostgreSQL",
    "dialects.test: QUALIFY": "of rows with the same number, the one with the smaller key is first; in PostgreSQL any of them",
    "dialects.test: QUALIFY with another window, and windows by input columns": "PostgreSQL has no QUALIFY, and the subquery that replaces it knows output columns only",
    "dialects.test: * EXCEPT": "PostgreSQL does not have it",
    "dialects.test: ARG_MAX": "PostgreSQL does not have it",
    "dialects.test: NOW()": "to PostgreSQL, ticks are ints",
    "dialects.test: NOW(), written in other ways": "to PostgreSQL, ticks are ints",
    "dialects.test: a deviation of floats": "a square that overflows is an error in PostgreSQL",
    "dialects.test: functions with other names": "PostgreSQL does not have HOUR",
    "arg-max": "PostgreSQL does not have ARG_MAX",
    "recently": "to PostgreSQL, ticks are ints",
    "regular-expressions": "PostgreSQL does not have MINUTE",
    "dialects.test: DATE_FORMAT with the letters of Java and of MySQL": "PostgreSQL does not have DATE_FORMAT",
    "texts-of-a-frame": "PostgreSQL has no percentiles of a frame",
    "dialects.test: variances": "a variance of integers is a float here, and numeric in PostgreSQL",
}
"""Programs of plain SQL that are left out, each with the reason."""


@dataclass(frozen=True)
class Program:
    name: str
    text: str
    events: tuple[RecordedLine, ...] = ()
    histories: int = scaled(20)
    extremes: bool = True
    """PostgreSQL has dates after the year 9999, and its own casts raise an error where ours give NULL."""

    @cached_property
    def statements(self) -> list[lang.Statement]:
        return lang.parse(Source(f"{self.name}.smile", self.text))[0]

    @cached_property
    def written(self) -> mmpl.Program:
        """Without streams that no view reads, which random events would be spent on."""
        program, problems, _ = translate(self.statements, ())
        assert not problems, f"{self.name}: {problems}"
        read = {
            rel.name for view in program.views for rel in trees.walk(view.body) if isinstance(rel, mmpl.RelationRef)
        }
        return replace(program, streams=tuple(s for s in program.streams if s.name in read), subscriptions=())

    @cached_property
    def headings(self) -> Mapping[str, Heading]:
        return Headings.from_program(self.written).relations

    @cached_property
    def plain(self) -> dict[str, lang.CreateView]:
        """The views of plain SQL over streams and other such views, each after those that it reads. Those over tables,
        which publishers change, are not among them."""
        views = {name_of(s.name.text): s for s in self.statements if isinstance(s, lang.CreateView)}
        special = {name_of(s.name.text) for s in self.statements if isinstance(s, lang.CreateTable)}
        queries = {}
        for view in self.written.views:
            statement = views[name_of(view.name)]
            if is_plain(statement, special):
                queries[view.name] = statement
            else:
                special.add(name_of(view.name))
        return queries


def _of_tests() -> list[Program]:
    # To PostgreSQL intervals are ints here, whose mean is a float; to us it is an interval.
    # JSON is compared with PostgreSQL in tests/sql.
    left_out = ("mean-delay", "json")
    written = [c for c in cases() if c.compiled.source.name.endswith(".smile") and c.name not in left_out]
    return [Program(c.name, c.compiled.source.text, tuple(recorded_lines(c))) for c in written]


def _of_examples() -> list[Program]:
    programs = []
    for path in sorted((ROOT / "programs").glob("*.smile")):
        recorded = path.with_suffix(".events")
        events = read_events(recorded.read_text()) if recorded.exists() else []
        programs.append(Program(f"programs/{path.stem}", path.read_text(), tuple(events)))
    return programs


def _of_fixtures() -> list[Program]:
    programs = [Program(f"{c.file}: {c.title}", c.source.text, (), scaled(10), False) for c in all_cases()]
    # PostgreSQL has no relations of other brokers.
    return [p for p in programs if not p.name.startswith(("errors.test: ", "imports.test: "))]


CORPORA: dict[str, Callable[[], list[Program]]] = {
    "test programs": _of_tests,
    "example programs": _of_examples,
    "fixtures": _of_fixtures,
    "queries": lambda: [Program(q, f"{STREAMS}CREATE VIEW V AS {q};", (), scaled(10)) for q in QUERIES],
    "plain_sql": lambda: [
        Program(n, t, tuple(plain_sql.EVENTS), scaled(3), False) for n, t in plain_sql.programs().items()
    ],
}
VIEWS_MIN = {"test programs": 141, "example programs": 20, "fixtures": 150, "queries": 66, "plain_sql": 299}
"""Of fewer views than these, some were lost on the way."""


@pytest.fixture(scope="session")
def server() -> Iterator[Connection]:
    with postgres.running() as connection:
        yield connection


# ── the comparison ──────────────────────────────────────────────────────────────────────────────────────────────────


def create(connection: Connection, program: Program, views: Sequence[str]) -> None:
    known: dict[str, Known] = {}
    for name, heading in program.headings.items():
        columns = tuple(map(name_of, heading.visible))
        shown = tuple(name_of(c) for c in heading.key if c not in heading.hidden)
        query = program.plain[name].query if name in program.plain else None
        known[name_of(name)] = Known(columns, shown, query)
    for stream in program.written.streams:
        postgres.create_table(connection, stream.name, program.headings[stream.name])
    for name in views:
        text = to_postgres(program.plain[name].query, known)
        names = sql.SQL(", ").join(map(sql.Identifier, known[name_of(name)].columns))
        view = sql.SQL("CREATE VIEW {} ({}) AS ").format(sql.Identifier("public", name_of(name)), names)
        connection.execute(view + sql.SQL(text))


def differences(
    connection: Connection, program: Program, views: Sequence[str], lines: Sequence[RecordedLine]
) -> Iterator[str]:
    streams = {s.name for s in program.written.streams}
    history = History.from_lines(program.written, [line for line in lines if line.get("stream") in {None, *streams}])
    relations = evaluate(program.written, analyse(program.written), history.with_finished_streams())
    for stream, events in history.events.items():
        postgres.insert(connection, stream, program.headings[stream], list(events.values()))
    for name in views:
        heading = program.headings[name]
        types = heading.columns
        own = [
            tuple(_own_value(row.cells[c].now, types[c]) for c in heading.visible)
            for row in relations[name].values()
            if row.is_shown
        ]
        theirs = postgres.read(connection, name, heading)
        ours_only, theirs_only = unmatched(own, theirs)
        if ours_only or theirs_only:
            query = lang.print_expression(program.plain[name].query)
            yield f"{name}: {query}\n  the reference only: {ours_only}\n  PostgreSQL only: {theirs_only}"


def _own_value(value: Any, data: DataType) -> Any:
    return tuple(decode_array(value, data.element)) if data.name == "array" and value is not None else value


def unmatched(
    own: list[tuple[Value, ...]], theirs: list[tuple[Value, ...]]
) -> tuple[list[tuple[Value, ...]], list[tuple[Value, ...]]]:
    left = list((Counter(own) - Counter(theirs)).elements())
    right = list((Counter(theirs) - Counter(own)).elements())
    for row in list(left):
        match = next((other for other in right if all(map(agree, row, other))), None)
        if match is not None:
            left.remove(row)
            right.remove(match)
    return left, right


def agree(own: Any, theirs: Any) -> bool:
    """Whether two values are the same. A sum of floats is exact here, and rounded at every step there; a quotient of
    decimals has 16 digits behind the point here, and at least 16 in all there."""
    if isinstance(own, tuple) and isinstance(theirs, tuple):
        return len(own) == len(theirs) and all(map(agree, own, theirs))
    if isinstance(own, float) and isinstance(theirs, float):
        return math.isclose(own, theirs, rel_tol=1e-12)
    if isinstance(own, Decimal) and isinstance(theirs, Decimal) and own.as_tuple().exponent == -QUOTIENT_SCALE:
        return math.isclose(own, theirs, rel_tol=1e-15, abs_tol=10**-QUOTIENT_SCALE)
    return type(own) is type(theirs) and own == theirs


def histories(program: Program) -> Iterator[tuple[str, Sequence[RecordedLine]]]:
    """The events written for it, and random ones."""
    yield "its own events", program.events
    for seed in range(program.histories):
        random = Random(f"{program.name} {seed}")
        drawn = Histories(program.written, random, EXTREMES if program.extremes else 0)
        yield f"seed {seed}", [drawn.line() for _ in range(random.randint(*LINES))]


def first_difference(connection: Connection, program: Program, views: Sequence[str]) -> str | None:
    """Nothing, if all views agree on all histories."""
    try:
        with connection.transaction(force_rollback=True):
            create(connection, program, views)
            for title, lines in histories(program):
                with connection.transaction(force_rollback=True):
                    all_differences = list(differences(connection, program, views, lines))
                if all_differences:
                    return "\n".join([f"{program.name}, {title}", *map(str, lines), *all_differences])
    except psycopg.Error as problem:
        return f"{program.name}: {problem}"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_shows_what_postgres_shows(server: Connection, corpus: str) -> None:
    problems = []
    compared = 0
    for program in CORPORA[corpus]():
        views = [v for v in program.plain if program.name not in DEPARTURES]
        compared += len(views)
        if views and (difference := first_difference(server, program, views)):
            problems.append(difference)
    print(f"{compared} views of the {corpus} compared with PostgreSQL")  # noqa: T201
    assert not problems, "\n\n".join(problems)
    assert compared >= VIEWS_MIN[corpus]


@pytest.mark.slow
def test_departures_are_some(server: Connection) -> None:
    """What is left out would differ: when it does not any more, it is to be compared."""
    left = {p.name: p for corpus in CORPORA.values() for p in corpus() if p.name in DEPARTURES}
    assert left.keys() == DEPARTURES.keys()
    for program in left.values():
        assert differs(server, program), program.name


def differs(server: Connection, program: Program) -> bool:
    """Whether PostgreSQL has other rows, or columns of other types, in enough histories to see it."""
    enough = replace(program, histories=max(program.histories, 20))
    try:
        return first_difference(server, enough, list(enough.plain)) is not None
    except AssertionError as problem:
        return " is numeric, not " in str(problem)
