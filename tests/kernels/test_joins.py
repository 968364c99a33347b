"""Joins give the same output as the reference after every batch: over streams, aggregates, and rows that come and go."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.algebra.printer import print_program
from smile.errors import SmileError
from smile.kernels.joins.evolving_join import EvolvingJoin
from smile.kernels.joins.inner_join import InnerJoin
from smile.kernels.joins.keyed_join import FullKeyedJoin, TotalKeyedJoin
from smile.kernels.joins.lookup_join import LookupJoin
from smile.kernels.transform import Transform
from smile.program import compile_program
from smile.reference.history import RecordedLine
from smile.source import Source
from tests.kernels.harness import EngineAndReference, cuts, differences
from tests.random_programs import SEED_ID, STREAMS, Programs, seeds
from tests.reference.histories import Histories

KINDS: tuple[type[Transform], ...] = (InnerJoin, LookupJoin, TotalKeyedJoin, FullKeyedJoin, EvolvingJoin)
TRIES_MAX = 200

_BELOW: list[Callable[[Programs, mmpl.Rel], mmpl.Rel]] = [
    Programs.restrict, Programs.restrict, Programs.extend, Programs.project, Programs.rename, Programs.window,
    Programs.summarize, Programs.summarize, Programs.summarize,
]  # fmt: skip
_ABOVE: list[Callable[[Programs, mmpl.Rel], mmpl.Rel]] = [Programs.restrict, Programs.extend, Programs.project]


class Joins(Programs):
    """Draws programs with one or two joins, most of them on the whole key of a side."""

    wanted: type[Transform]

    def draw_join(self, wanted: type[Transform]) -> mmpl.Program:
        self.wanted = wanted
        for _ in range(TRIES_MAX):
            self.program = mmpl.Program(STREAMS, (), ())
            try:
                for number in range(self.random.randint(1, 2)):
                    self._add(f"V{number + 1}", self._above(self._join()))
                kernels = EngineAndReference(self.program).engine.kernels
            except (SmileError, IndexError, NotImplementedError):
                continue
            if any(type(t) is wanted for t in kernels.transforms.values()):
                return self.program
        raise AssertionError(f"no program with {wanted.__name__} was drawn")

    def _add(self, name: str, body: mmpl.Rel) -> None:
        views = (*self.program.views, mmpl.ViewDef(name, body))
        self.program = mmpl.Program(STREAMS, views, tuple(v.name for v in views))

    def _above(self, rel: mmpl.Rel) -> mmpl.Rel:
        if self.random.random() < 0.7:
            return rel
        grown = self.random.choice(_ABOVE)(self, rel)
        self._heading(grown)
        return grown

    def _side(self) -> mmpl.Rel:
        names = [s.name for s in STREAMS] + [v.name for v in self.program.views] * 2
        rel: mmpl.Rel = mmpl.RelationRef(self.random.choice(names))
        for _ in range(self.random.randint(0, 3)):
            try:
                grown = self.random.choice(_BELOW)(self, rel)
                self._heading(grown)
            except (SmileError, IndexError):
                continue
            rel = grown
        if self.wanted is TotalKeyedJoin and self.random.random() < 0.8:
            grown = self.summarize(rel)
            self._heading(grown)
            return grown
        return rel

    def _aggregate(self, heading: Heading) -> mmpl.Aggregate:
        aggregate = super()._aggregate(heading)
        return aggregate if aggregate.function != "group" else mmpl.Aggregate("count")

    def _join(self) -> mmpl.Rel:
        left, right = self._side(), self._side()
        left_heading = self._heading(left)
        clashing = tuple((c, self._name()) for c in self._heading(right).columns if c in left_heading.columns)
        right = mmpl.Rename(right, clashing) if clashing else right
        right_heading = self._heading(right)
        on = self._on(left_heading, right_heading)
        is_one_to_one = len({a for a, _ in on}) == len({b for _, b in on}) == len(on)
        if is_one_to_one and self.random.random() < (0.9 if self.wanted is FullKeyedJoin else 0.4):
            right, on = mmpl.Rename(right, tuple((b, a) for a, b in on)), tuple((a, a) for a, _ in on)
            right_heading = self._heading(right)
        when = None
        if self.random.random() < 0.2:
            when = self._predicate(replace(left_heading, columns={**right_heading.columns, **left_heading.columns}), 0)
        kinds: list[mmpl.JoinKind] = ["inner", "inner", "left", "right", "full"]
        kind = "full" if self.wanted is FullKeyedJoin else self.random.choice(kinds)
        joined = mmpl.Join(kind, left, right, on, when)
        self._heading(joined)
        return joined

    def _on(self, left: Heading, right: Heading) -> tuple[tuple[str, str], ...]:
        if self.random.random() < 0.25:
            return self._pairs(left, right)
        keyed, probing = (right, left) if self.random.random() < 0.6 else (left, right)
        pairs = []
        for column in keyed.key:
            candidates = [c for c, t in probing.columns.items() if t == keyed.columns[column]]
            keys = [c for c in candidates if c in probing.key]
            chosen = self.random.choice(keys if keys and self.random.random() < 0.6 else candidates)
            pairs.append((chosen, column) if keyed is right else (column, chosen))
        extra = self._pairs(left, right) if self.random.random() < 0.15 else ()
        return tuple(dict.fromkeys([*pairs, *extra]))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", seeds(4), ids=SEED_ID)
def test_random_joins(seed: int, kind: type[Transform]) -> None:
    random = Random(f"{kind.__name__} {seed}")
    for _ in range(TRIES_MAX):
        program = Joins(random).draw_join(kind)
        histories = Histories(program, random)
        lines = [histories.line() for _ in range(random.randint(4, 22))]
        try:
            problems = differences(program, lines, cuts(random, len(lines)))
        except NotImplementedError:
            continue  # A key is NULL, which the reference rejects too.
        assert not problems, "\n".join([print_program(program), *problems])
        return


BOUNDED = """
CREATE STREAM Orders (o: time -> item: string);
CREATE STREAM Payments (p: time -> name: string);
CREATE VIEW Paid AS SELECT o, p, item FROM Orders JOIN Payments ON item = name
  AND p >= o AND p <= o + INTERVAL '1' MICROSECOND;
SUBSCRIBE Paid;
"""


def test_rows_expire_when_they_can_match_no_other() -> None:
    program = compile_program(Source("bounded.smile", BOUNDED)).rewritten
    both = EngineAndReference(program)
    lines: list[RecordedLine] = []
    for n in range(1, 6):
        lines.append({"stream": "Orders", "at": 10_000 * n, "event": {"item": "a"}})
        lines.append({"stream": "Payments", "at": 10_000 * n + 5, "event": {"name": "a"}})
    assert not both.advance(lines)
    # The last order can still be paid, and the last payment can belong to an order that has not arrived.
    assert join_row_count(both) == 2
    assert not both.advance([{"silence_to": 60_000}])
    assert join_row_count(both) == 0


def join_row_count(both: EngineAndReference) -> int:
    states = both.engine.state.states
    joins = [name for name, t in both.engine.kernels.transforms.items() if isinstance(t, InnerJoin)]
    return sum(table.row_count for name in joins for table in states[name].values())


SHARED_KEY = """
CREATE STREAM B (t: time -> k: string, u: int);
CREATE STREAM C (t: time -> n: int, u: int);
CREATE VIEW Counts AS SELECT k, u, COUNT(*) AS n FROM B GROUP BY k, u;
CREATE VIEW Wanted AS SELECT n, u, COUNT(*) AS c FROM C GROUP BY n, u;
CREATE VIEW V AS SELECT k, u, n, c FROM Counts RIGHT JOIN Wanted USING (n, u);
SUBSCRIBE V;
"""


@pytest.mark.parametrize("last", [0, 4])
def test_pair_that_matches_is_shown_beside_pairs_with_its_key(last: int) -> None:
    """Both sides have the column u: pairs in which it differs have the key of the pair that matches."""
    both = EngineAndReference(compile_program(Source("shared.smile", SHARED_KEY)).rewritten)
    assert any(isinstance(t, EvolvingJoin) for t in both.engine.kernels.transforms.values())
    lines: list[RecordedLine] = [
        {"stream": "B", "at": at, "event": {"k": "b", "u": u}} for at, u in enumerate((0, 4, 4 - last, last, last), 1)
    ]
    lines.append({"stream": "C", "at": 9, "event": {"n": 3, "u": last}})
    assert not both.advance(lines)
    shown = [m["key"] for m in both.messages if not m.get("deleted")]
    assert {"k": "b", "u": last, "n": 3} in shown


def test_full_join_of_two_total_relations_shows_what_either_shows() -> None:
    text = """
        CREATE STREAM A (t: time -> k: int, x: int);
        CREATE STREAM B (t: time -> k: int, x: int);
        CREATE VIEW L AS SELECT k, COUNT(*) AS n FROM A GROUP BY k;
        CREATE VIEW R AS SELECT k AS j, COUNT(*) AS m FROM B WHERE x > 0 GROUP BY k;
        CREATE VIEW V AS SELECT k, n, j, m FROM L FULL JOIN R ON k = j AND n = j;
        SUBSCRIBE V;
    """
    both = EngineAndReference(compile_program(Source("total.smile", text)).rewritten)
    assert any(isinstance(t, EvolvingJoin) for t in both.engine.kernels.transforms.values())
    assert not both.advance([{"stream": "A", "at": 1, "event": {"k": 1, "x": 1}}])
    assert not both.advance([{"stream": "B", "at": 2, "event": {"k": 1, "x": 0}}])
    assert not both.advance([{"stream": "B", "at": 3, "event": {"k": 1, "x": 1}}])
    assert not both.advance([{"stream": "B", "at": 4, "event": {"k": 2, "x": 1}}])
    assert not both.advance([], end=True)
