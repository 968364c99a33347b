"""A small batch touches as many rows of a large state as of a small one, and not more than its changes justify."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from smile.algebra.arrow_types import stream_schema
from smile.encoding.arrow_changes import arrow_changes
from smile.engine.local import LocalEngine
from smile.kernels.compile import compile_graph
from smile.log.input_batch import InputBatch
from smile.program import compile_program
from smile.source import Source
from smile.state import table as tables
from smile.state.run import TableSchema

SMALL = 2_000
"""Events of each stream that fill the state,"""
TIMES = 8
"""and how many times as many of them must make no difference."""

EVENTS = 10
"""Of each stream, in a small frame."""

FRAMES = 12
"""Small ones, of which the first third are not counted."""

GROWTH_MAX = 1.5
"""What it may be by chance, beside a few rows."""

SECOND = 1024 * 1_000_000
"""Between two events of a stream, in ticks."""

pytestmark = pytest.mark.slow

STREAMS = """
CREATE STREAM S (t: time -> k: int, v: int NOT NULL, s: string NOT NULL);
CREATE STREAM R (u: time -> k: int, w: int NOT NULL, ref: time);
"""


@dataclass(frozen=True)
class Case:
    """`view` may name `{n}`, the number of seconds that the state was filled in. `behind` is a stream that says nothing
    while the state is filled, and then catches up, an event's time with each. `same` is how many events have one k."""

    name: str
    view: str
    behind: str = ""
    same: int = 8
    events: int = SMALL
    whole: str = ""
    """Why a small frame reads more than its changes warrant, if it does."""


CASES = [
    Case("sum by key", "SELECT k, SUM(v) AS x FROM S GROUP BY k"),
    Case(
        "avg, min, max, latest by key",
        "SELECT k, AVG(v) AS a, MIN(v) AS x, MAX(v) AS y, LATEST(v) AS l FROM S GROUP BY k",
    ),
    Case("total sum", "SELECT SUM(v) AS x, COUNT(*) AS n, MAX(v) AS y FROM S"),
    Case("count distinct by key", "SELECT k, COUNT(DISTINCT v) AS x FROM S GROUP BY k"),
    Case("count distinct of all", "SELECT COUNT(DISTINCT v) AS x FROM S"),
    Case("medians by key", "SELECT k, MEDIAN(v) AS x, QUANTILE(v, 0.9) AS y FROM S GROUP BY k"),
    Case("median of all", "SELECT MEDIAN(v * 65536) AS x FROM S"),
    Case("distinct", "SELECT DISTINCT k, s FROM S"),
    Case(
        "groups of groups",
        "SELECT k, SUM(c) AS n, MAX(c) AS m FROM (SELECT k, s, COUNT(*) AS c FROM S GROUP BY k, s) AS q GROUP BY k",
    ),
    Case("group as", "SELECT k, GROUP (t, v) AS rows FROM S GROUP BY k"),
    Case("texts by key", "SELECT k, STRING_AGG(s, ',' ORDER BY v) AS x FROM S GROUP BY k"),
    Case("count distinct of all of last", "SELECT COUNT(DISTINCT k) AS x FROM LAST(S, t, INTERVAL '{n}' SECOND)"),
    Case("every row with the total", "SELECT t, v, x FROM S JOIN (SELECT SUM(w) AS x FROM R) AS a ON TRUE"),
    Case("not in, NULLs", "SELECT t, k FROM S WHERE NULLIF(k, 3) NOT IN (SELECT NULLIF(k, 5) FROM R WHERE w < 1000)"),
    Case("last", "SELECT t, k, v FROM LAST(S, t, INTERVAL '{n}' SECOND)"),
    Case("sum of last", "SELECT k, SUM(v) AS x FROM LAST(S, t, INTERVAL '{n}' SECOND) GROUP BY k"),
    Case("min and max of last", "SELECT k, MIN(v) AS x, MAX(v) AS y FROM LAST(S, t, INTERVAL '{n}' SECOND) GROUP BY k"),
    Case("latest of last", "SELECT k, LATEST(v) AS x FROM LAST(S, t, INTERVAL '{n}' SECOND) GROUP BY k"),
    Case(
        "count distinct of last",
        "SELECT k, COUNT(DISTINCT v) AS x FROM LAST(S, t, INTERVAL '{n}' SECOND) GROUP BY k",
    ),
    Case("median of last", "SELECT k, MEDIAN(v) AS x FROM LAST(S, t, INTERVAL '{n}' SECOND) GROUP BY k"),
    Case("median of all of last", "SELECT QUANTILE(v, 0.9) AS x FROM LAST(S, t, INTERVAL '{n}' SECOND)"),
    Case("distinct of last", "SELECT DISTINCT k, s FROM LAST(S, t, INTERVAL '{n}' SECOND)"),
    Case("max of all of last", "SELECT MAX(v) AS y FROM LAST(S, t, INTERVAL '{n}' SECOND)"),
    Case(
        "tumbling window",
        "SELECT window_start, COUNT(*) AS n, SUM(v) AS x FROM TUMBLE(MERGE((SELECT t, k, v FROM S), (SELECT "
        "u, k, w FROM R)), t, INTERVAL '10' SECOND) GROUP BY window_start",
        behind="R",
    ),
    Case(
        "hopping window",
        "SELECT window_start, COUNT(*) AS n, MAX(v) AS x FROM HOP(MERGE((SELECT t, k, v FROM S), (SELECT u, "
        "k, w FROM R)), t, INTERVAL '10' SECOND, INTERVAL '30' SECOND) GROUP BY window_start",
        behind="R",
    ),
    Case("inner join", "SELECT t, u, S.k, v, w FROM S JOIN R ON S.k = R.k"),
    Case(
        "interval join",
        "SELECT t, u, S.k, v, w FROM S JOIN R ON S.k = R.k AND u BETWEEN t AND t + INTERVAL '{n}' SECOND",
    ),
    Case(
        "join with a total aggregate",
        "SELECT t, S.k, v, x FROM S JOIN (SELECT ref, SUM(w) AS x FROM R GROUP BY ref) AS a ON S.t = a.ref",
    ),
    Case(
        "join with an aggregate by key",
        "SELECT t, S.k, v, x FROM S JOIN (SELECT k, SUM(w) AS x FROM R GROUP BY k) AS a ON S.k = a.k",
    ),
    Case(
        "aggregate with aggregate",
        "SELECT k, x, y FROM (SELECT k, SUM(v) AS x FROM S GROUP BY k) AS a JOIN (SELECT k, SUM(w) AS y FROM "
        "R GROUP BY k) AS b USING (k)",
    ),
    Case(
        "contents of a table, as its changes",
        "SELECT k, v, s FROM (SELECT k, LATEST(v) AS v, LATEST(s) AS s FROM S GROUP BY k) AS q WHERE s IS DISTINCT FROM 's1'",
    ),
    Case(
        "join with the contents of a table",
        "SELECT u, w, v FROM R JOIN (SELECT k, v FROM (SELECT k, LATEST(v) AS v, LATEST(s) AS s FROM S GROUP BY k) AS q "
        "WHERE s IS DISTINCT FROM 's1') AS c ON R.k = c.k",
    ),
    Case(
        "join with VALUES", "SELECT t, v, name FROM S JOIN (VALUES ('s1', 'a'), ('s2', 'b')) AS q (s, name) USING (s)"
    ),
    Case("left join", "SELECT t, u, S.k, v, w FROM S LEFT JOIN R ON S.k = R.k"),
    Case(
        "left join, bounded",
        "SELECT t, u, S.k, v, w FROM S LEFT JOIN R ON S.k = R.k AND u BETWEEN t AND t + INTERVAL '{n}' SECOND",
    ),
    Case(
        "left join of one row",
        "SELECT t, v, x FROM S LEFT JOIN (SELECT ref, SUM(w) AS x FROM R GROUP BY ref HAVING SUM(w) > 3) AS a "
        "ON S.t = a.ref",
    ),
    Case("full join", "SELECT t, u, S.k, v, w FROM S FULL JOIN R ON S.k = R.k"),
    Case("semi join", "SELECT t, k FROM S WHERE k IN (SELECT k FROM R WHERE w > 3)", same=1),
    Case(
        "semi join, more than equal",
        "SELECT t, k FROM S WHERE EXISTS (SELECT 1 FROM R WHERE R.k = S.k AND R.w > S.v)",
    ),
    Case("anti join", "SELECT t, k FROM S WHERE NOT EXISTS (SELECT 1 FROM R WHERE R.k = S.k)", same=1),
    Case(
        "anti join, bounded",
        "SELECT t, k FROM S WHERE NOT EXISTS (SELECT 1 FROM R WHERE R.ref = S.t AND u <= t + INTERVAL '{n}' SECOND)",
    ),
    Case("not in", "SELECT t, k FROM S WHERE k NOT IN (SELECT k FROM R)", same=1),
    Case(
        "anti join with rows that leave",
        "SELECT t, k FROM S WHERE NOT EXISTS (SELECT 1 FROM LAST(R, u, INTERVAL '{n}' SECOND) AS q WHERE q.k = S.k)",
    ),
    Case("as of", "SELECT t, S.k, v, w FROM S ASOF JOIN R ON S.k = R.k AND S.t >= R.u"),
    Case("as of, right behind", "SELECT t, S.k, v, w FROM S ASOF JOIN R ON S.k = R.k AND S.t >= R.u", behind="R"),
    Case("as of, left behind", "SELECT t, S.k, v, w FROM S ASOF JOIN R ON S.k = R.k AND S.t >= R.u", behind="S"),
    Case("as of, one history", "SELECT t, v, w FROM S ASOF JOIN R ON S.t >= R.u", behind="R"),
    Case("best", "SELECT t, k, v FROM S BEST 10 BY v DESC"),
    Case("best by key", "SELECT t, k, v FROM S BEST 3 BY v DESC PER k"),
    Case(
        "sessions by key",
        "SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS x FROM SESSION(S PARTITION BY k, t, INTERVAL '20' "
        "SECOND) GROUP BY k, window_start, window_end",
    ),
    Case(
        "one long session",
        "SELECT window_start, window_end, COUNT(*) AS n, MAX(v) AS x FROM SESSION(S, t, INTERVAL '5' SECOND) "
        "GROUP BY window_start, window_end",
    ),
    Case("silence", "SELECT t, k FROM S WHERE SILENCE(t) > INTERVAL '20' SECOND"),
    Case("silence by key", "SELECT t, k FROM S WHERE SILENCE(t PER k) > INTERVAL '{n}' SECOND"),
    Case(
        "over range by key",
        "SELECT t, k, SUM(v) OVER (PARTITION BY k ORDER BY t RANGE INTERVAL '{n}' SECOND PRECEDING) AS x FROM S",
    ),
    Case("over range", "SELECT t, k, SUM(v) OVER (ORDER BY t RANGE INTERVAL '20' SECOND PRECEDING) AS x FROM S"),
    Case("over all by key", "SELECT t, k, SUM(v) OVER (PARTITION BY k ORDER BY t) AS x FROM S"),
    Case("over all", "SELECT t, k, SUM(v) OVER (ORDER BY t) AS x FROM S"),
    Case("rows by key", "SELECT t, k, SUM(v) OVER (PARTITION BY k ORDER BY t ROWS 3 PRECEDING) AS x FROM S"),
    Case("rows of all", "SELECT t, MAX(v) OVER (ORDER BY t ROWS BETWEEN 5 PRECEDING AND 2 FOLLOWING) AS x FROM S"),
    Case("lead by key", "SELECT t, k, LEAD(v, 2) OVER (PARTITION BY k ORDER BY t) AS x FROM S"),
    Case("union", "SELECT t, k FROM S UNION ALL SELECT u, k FROM R"),
    Case("merge", "SELECT t, source, k FROM MERGE((SELECT t, k, v FROM S), (SELECT u, k, w FROM R))"),
    Case("having", "SELECT k, COUNT(*) AS n FROM S GROUP BY k HAVING COUNT(*) > 8"),
]

WHOLE = [
    Case(
        "interval join, nothing equated",
        "SELECT t, u FROM S JOIN R ON u BETWEEN t AND t + INTERVAL '10' SECOND",
        behind="R",
        whole="there is no index of distances: every pair is tried",
    ),
    Case(
        "anti join, nothing equated",
        "SELECT t FROM S WHERE NOT EXISTS (SELECT 1 FROM R WHERE u BETWEEN t AND t + INTERVAL '10' SECOND)",
        behind="R",
        whole="there is no index of distances: every pair is tried",
    ),
    Case(
        "over all, count distinct",
        "SELECT t, k, COUNT(DISTINCT v) OVER (ORDER BY t) AS x FROM S",
        events=100,
        whole="there are no running totals of values: all rows of the partition are read",
    ),
    Case(
        "over an evolving partition",
        "SELECT k, t, SUM(v) OVER (PARTITION BY n ORDER BY t RANGE INTERVAL '20' SECOND PRECEDING) AS x FROM "
        "(SELECT t, v, S.k, n FROM S JOIN (SELECT k, COUNT(*) AS n FROM R GROUP BY k) AS a ON S.k = a.k) AS q",
        events=200,
        whole="every row may be of any partition",
    ),
    Case(
        "best by an evolving column",
        "SELECT k, n, m FROM (SELECT k, COUNT(*) AS n, SUM(v) AS m FROM S GROUP BY k) AS q BEST 3 BY m PER n",
        events=200,
        whole="every row may be of any group",
    ),
    Case(
        "as of on an evolving column",
        "SELECT t, v, w FROM (SELECT t, v, 0 - v AS j FROM S) AS S ASOF JOIN (SELECT u, w, c FROM R JOIN "
        "(SELECT k, COUNT(*) AS c FROM S GROUP BY k) AS a ON R.k = a.k) AS b ON S.j = b.c AND S.t >= b.u",
        events=8,
        whole="every pair may match",
    ),
    Case(
        "semi join on an evolving column",
        "SELECT u, w FROM R WHERE 0 - w IN (SELECT n FROM (SELECT k, COUNT(*) AS n FROM S GROUP BY k) AS q)",
        events=40,
        whole="every pair may match",
    ),
    Case(
        "max of all of last, falling",
        "SELECT MAX(0 - CAST(t AS int)) AS y FROM LAST(S, t, INTERVAL '{n}' SECOND)",
        whole="when the extreme leaves, its group is searched for the next",
    ),
    Case(
        "over range, long",
        "SELECT t, k, SUM(v) OVER (ORDER BY t RANGE INTERVAL '{n}' SECOND PRECEDING) AS x FROM S",
        whole="what is summed is summed anew: all rows of the partition that are in range",
    ),
    Case(
        "over, behind",
        "SELECT t, SUM(v) OVER (ORDER BY t RANGE INTERVAL '20' SECOND PRECEDING) AS x FROM MERGE((SELECT t, "
        "k, v FROM S), (SELECT u, k, w FROM R))",
        behind="R",
        whole="all rows of the partition that are kept are read, to find those in range of what changed",
    ),
    Case(
        "by an evolving column",
        "SELECT n, COUNT(*) AS m FROM (SELECT k, COUNT(*) AS n FROM S GROUP BY k) AS q GROUP BY n",
        whole="every row may be of any group",
    ),
    Case(
        "left join on an evolving column",
        "SELECT u, a.k, n FROM (SELECT k, COUNT(*) AS n FROM S GROUP BY k) AS a "
        "LEFT JOIN (SELECT u, 0 - w AS w FROM R) AS b ON a.n = b.w",
        events=20,
        whole="every pair may match",
    ),
    Case(
        "best of groups",
        "SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM S GROUP BY k) AS q ORDER BY n DESC LIMIT 10",
        whole="the rank of every row of a group may have changed",
    ),
]
"""Slow paths: a small frame reads more the more is remembered. Each says why; one that gets better is to be moved."""


# ── measuring ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Work:
    """Rows read and written; those written; and apart from them rows of runs that were merged, as each is now and
    then."""

    rows: int = 0
    written: int = 0
    merged: int = 0


@contextmanager
def counted() -> Iterator[Work]:
    work = Work()
    with pytest.MonkeyPatch.context() as patch:

        def counting(owner: Any, name: str, size: Callable[..., int], *kinds: str) -> None:
            original = getattr(owner, name)

            def wrapped(*args: Any, **options: Any) -> Any:
                for kind in kinds:
                    setattr(work, kind, getattr(work, kind) + size(*args))
                return original(*args, **options)

            patch.setattr(owner, name, wrapped)

        # Found rows are made of a table, the runs they are in, and their places there; merging makes runs by itself.
        gathered = type(tables.StateTable(TableSchema((), {})).scan())
        counting(gathered, "__init__", lambda *given: len(given[3]), "rows")
        counting(tables.StateTable, "_visible_rows", lambda *given: sum(len(places) for _, places in given[1]), "rows")
        counting(tables, "make_run", lambda *given: len(next(iter(given[1].values()))), "rows", "written")
        counting(tables, "merge_runs", lambda *given: sum(map(len, given[1])), "merged")
        yield work


@dataclass
class Measured:
    """The medians of a small batch with events and one without: rows touched, rows changed, and the greatest number of
    bytes in memory, which shows reads that do not count as rows."""

    rows: float
    changed_rows: float
    bytes: float


class Run:
    def __init__(self, case: Case, events: int) -> None:
        text = f"{STREAMS}CREATE VIEW V AS {case.view.format(n=events)};\nSUBSCRIBE V;\n"
        compiled = compile_program(Source("work.smile", text))
        self.engine = LocalEngine(compile_graph(compiled.graph, compiled.rewritten.streams))
        self.schemas = {s.name: stream_schema(s) for s in compiled.original.streams}
        self.behind, self.keys = case.behind, events // case.same
        self.random = np.random.default_rng(events)
        self.done = dict.fromkeys(self.schemas, 0)
        self.fill(events)

    def fill(self, events: int) -> None:
        for _ in range(4):
            self.engine.advance(self.frame(events // 4, [s for s in self.schemas if s != self.behind]))

    def frame(self, events: int, streams: list[str]) -> InputBatch:
        made = {}
        horizons = dict(self.engine.state.horizons)
        for name in streams:
            made[name] = self.batch(name, events)
            self.done[name] += events
            horizons[name] = self.done[name] * SECOND + SECOND - 1
        return InputBatch(made, horizons)

    def batch(self, name: str, events: int) -> pa.RecordBatch:
        """S speaks on the second, R between. R speaks of seconds before, of which S has one each."""
        first = self.done[name] + 1
        ticks = np.arange(first, first + events) * SECOND + (SECOND // 2 if name == "R" else 0)
        k, number = self.random.integers(self.keys, size=events), self.random.integers(1_000_000, size=events)
        last = {
            "S": pa.array([f"s{n}" for n in self.random.integers(8, size=events)]),
            "R": pa.array(self.random.integers(1, first + 1, size=events) * SECOND),
        }[name]
        columns = [pa.array(ticks), pa.array(k), pa.array(number), last]
        return pa.RecordBatch.from_arrays(columns, schema=self.schemas[name])

    def silence(self) -> InputBatch:
        """Two events' time, for all."""
        for name in self.done:
            self.done[name] += 2
        return InputBatch({}, {s: self.done[s] * SECOND + SECOND - 1 for s in self.schemas})

    def small(self) -> Iterator[InputBatch]:
        while True:
            yield self.frame(EVENTS, list(self.schemas))
            yield self.silence()


def measured(case: Case, events: int) -> Measured:
    run = Run(case, events)
    frames = run.small()
    measurements = []
    for number in range(FRAMES):
        frame = next(frames)
        with counted() as work:
            if not case.whole:
                tracemalloc.start()
            batch = run.engine.advance(frame)
            changed_rows = sum(len(changes) for changes in batch.deltas.values())
            if "V" in batch.deltas:
                arrow_changes(run.engine.kernels.inputs["V"], batch.deltas["V"], batch.horizons)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        # What a run needs to be looked at at all is made the first time.
        if number >= FRAMES // 3:
            measurements.append((work.rows, changed_rows, peak))
    pairs = [np.add(a, b) for a, b in zip(measurements[::2], measurements[1::2], strict=True)]
    rows, changed_rows, peak = np.median(pairs, axis=0)
    return Measured(float(rows), float(changed_rows), float(peak))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_small_frame_costs_what_it_changes(case: Case) -> None:
    few, many = measured(case, case.events), measured(case, case.events * TIMES)
    assert few.changed_rows and many.changed_rows, "nothing happens in a small frame"
    warranted = GROWTH_MAX * many.changed_rows / few.changed_rows
    assert many.rows <= warranted * few.rows + 2 * EVENTS, (few, many)
    assert many.bytes <= warranted * few.bytes, (few, many)
    for measurement, events in ((few, case.events), (many, case.events * TIMES)):
        assert measurement.rows <= measurement.changed_rows * log2(events), measurement


@pytest.mark.parametrize("case", WHOLE, ids=lambda c: c.name)
def test_slow_paths_are_the_ones_that_are_listed(case: Case) -> None:
    few, many = measured(case, case.events), measured(case, case.events * TIMES)
    assert many.rows >= few.rows * TIMES / 4, f"{case.name} has become better: {few}, {many}"


def test_runs_are_merged_seldom_enough() -> None:
    """A row is merged a logarithm of the state's size times, all in all."""
    case = next(c for c in CASES if c.name == "sum of last")
    with counted() as work:
        run = Run(case, SMALL)
        frames = run.small()
        for _ in range(200):
            run.engine.advance(next(frames))
    assert work.merged > 0
    assert work.merged <= work.written * log2(SMALL), work
