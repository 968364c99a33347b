"""Over a steady load of which a bounded part is live, state is bounded, unless the program was warned that it grows."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench import workload
from smile.algebra.arrow_types import stream_schema
from smile.engine.local import LocalEngine
from smile.kernels import expiry
from smile.kernels.compile import compile_graph
from smile.log.input_batch import InputBatch
from smile.program import CompiledProgram, compile_program, read_source
from smile.source import Source

pytestmark = pytest.mark.slow

SECOND = 1024 * 1_000_000
"""Between two events of a stream, in ticks."""
EVENTS = 30
"""Of each stream, in a frame."""
FRAMES = (20, 80)
LIFE = 20
"""So many seconds after a key is first heard of, it is heard of no more."""

LIVE_MAX = 300
"""More rows than any of these programs has live at once; there are more events before they are counted."""
SLACK = 5

PROGRAMS = Path(__file__).parents[2] / "programs"

LIVING = ("k", "flight", "game", "issue", "sensor")

STREAMS = """
CREATE DOMAIN few AS int CHECK (VALUE BETWEEN 0 AND 6);
CREATE STREAM S (t: time -> k: int, v: int NOT NULL, d: few NOT NULL, ref: time);
CREATE STREAM R (u: time -> k: int, w: int NOT NULL, d: few NOT NULL, ref: time);
"""


class Load:
    """A steady load: every batch has the same number of events of each stream, and the events resemble the earlier
    ones."""

    def __init__(self, compiled: CompiledProgram) -> None:
        self.streams = {s.name: stream_schema(s) for s in compiled.original.streams}
        self.random = np.random.default_rng(1)
        self.done = 0

    def frames(self, count: int) -> Iterator[InputBatch]:
        for _ in range(count):
            seconds = np.arange(self.done + 1, self.done + EVENTS + 1)
            self.done += EVENTS
            made = {
                name: self._batch(schema, seconds * SECOND + number * 1024)
                for number, (name, schema) in enumerate(self.streams.items())
            }
            yield InputBatch(made, dict.fromkeys(self.streams, self.done * SECOND + SECOND // 2))

    def _batch(self, schema: pa.Schema, ticks: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.RecordBatch:
        columns = [pa.array(ticks)]
        count = len(ticks)
        for field in list(schema)[1:]:
            if field.name in LIVING:
                # Two or three keys are alive at any time.
                values = (ticks // SECOND + self.random.integers(LIFE, size=count)) // 10
            elif field.name == "ref":
                # Every event of the first stream is spoken of once, two seconds later.
                values = np.maximum(ticks // SECOND - 2, 1) * SECOND
            else:
                values = self.random.integers(1, 5, size=count)
            if pa.types.is_string(field.type):
                columns.append(pa.array([f"{field.name}{value}" for value in values]))
            elif pa.types.is_decimal(field.type):
                columns.append(pa.array([Decimal(int(value)) for value in values], field.type))
            elif pa.types.is_boolean(field.type):
                columns.append(pa.array(values > 2))
            else:
                columns.append(pa.array(values).cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is spent waits for more of it; here it shall not wait long."""
    monkeypatch.setattr(expiry, "PENDING_ROWS_MAX", 20)


def sizes(compiled: CompiledProgram) -> list[int]:
    """Rows of all tables, after few frames and after many."""
    engine = LocalEngine(compile_graph(compiled.graph, compiled.rewritten.streams))
    load = Load(compiled)
    row_counts = []
    done = 0
    for upto in FRAMES:
        for frame in load.frames(upto - done):
            engine.advance(frame)
        done = upto
        row_counts.append(sum(t.row_count for t in engine.tables.values()))
    return row_counts


def program(view: str) -> CompiledProgram:
    return compile_program(Source("bounded.smile", f"{STREAMS}CREATE VIEW V AS {view};\nSUBSCRIBE V;\n"))


def is_warned(compiled: CompiledProgram) -> bool:
    return any(w.code == "W001" for w in compiled.warnings)


TUMBLED = (
    "(SELECT window_start, k, COUNT(*) AS n FROM TUMBLE(S, t, INTERVAL '10' SECOND) GROUP BY window_start, k) AS q"
)
OPEN = "(SELECT t, v FROM S JOIN (SELECT ref, COUNT(*) AS n FROM R GROUP BY ref) AS a ON S.t = a.ref WHERE n < 1) AS q"
NEAR = "R.k = S.k AND u BETWEEN t AND t + INTERVAL '10' SECOND"

BOUNDED = [
    "SELECT t, k, v + 1 AS x FROM S",
    "SELECT SUM(v) AS x, COUNT(DISTINCT d) AS n FROM S",
    "SELECT d, MAX(v) AS x, AVG(v) AS y, LATEST(v) AS z FROM S GROUP BY d",
    "SELECT t, COUNT(*) AS n FROM S GROUP BY t",
    "SELECT window_start, k, COUNT(*) AS n FROM TUMBLE(S, t, INTERVAL '10' SECOND) GROUP BY window_start, k",
    "SELECT window_start, k, MAX(v) AS x, COUNT(DISTINCT v) AS n FROM HOP(S, t, INTERVAL '10' SECOND, "
    "INTERVAL '30' SECOND) GROUP BY window_start, k",
    "SELECT d, SUM(n) AS m FROM (SELECT window_start, d, COUNT(*) AS n FROM TUMBLE(S, t, INTERVAL '10' SECOND) "
    "GROUP BY window_start, d) AS q GROUP BY d",
    "SELECT t, k FROM LAST(S, t, INTERVAL '30' SECOND)",
    "SELECT k, COUNT(*) AS n FROM LAST(S, t, INTERVAL '30' SECOND) GROUP BY k",
    "SELECT DISTINCT k FROM LAST(S, t, INTERVAL '30' SECOND)",
    "SELECT d, COUNT(DISTINCT k) AS n FROM LAST(S, t, INTERVAL '30' SECOND) GROUP BY d",
    "SELECT d, MAX(v) AS x, COUNT(DISTINCT v) AS n FROM LAST(S, t, INTERVAL '30' SECOND) GROUP BY d",
    f"SELECT t, u FROM S JOIN R ON {NEAR}",
    "SELECT t, u FROM S JOIN R ON u BETWEEN t AND t + INTERVAL '10' SECOND",
    f"SELECT t, u FROM S LEFT JOIN R ON {NEAR}",
    f"SELECT t, u FROM S FULL JOIN R ON {NEAR}",
    "SELECT t, u FROM LAST(S, t, INTERVAL '20' SECOND) AS q JOIN LAST(R, u, INTERVAL '20' SECOND) AS r ON q.k = r.k",
    f"SELECT t, v FROM {OPEN}",
    "SELECT t, n FROM S JOIN (SELECT d, COUNT(*) AS n FROM R GROUP BY d) AS a ON S.d = a.d WHERE n < 1",
    "SELECT t FROM S WHERE NOT EXISTS (SELECT 1 FROM R WHERE R.ref = S.t)",
    "SELECT t FROM S WHERE t NOT IN (SELECT ref FROM R WHERE ref IS NOT NULL)",
    f"SELECT t FROM S WHERE EXISTS (SELECT 1 FROM R WHERE {NEAR})",
    f"SELECT t FROM S WHERE NOT EXISTS (SELECT 1 FROM R WHERE {NEAR})",
    f"SELECT t, (EXISTS (SELECT 1 FROM R WHERE {NEAR})) AS b FROM S",
    "SELECT t FROM LAST(S, t, INTERVAL '20' SECOND) AS q WHERE t IN (SELECT ref FROM R)",
    "SELECT t, w FROM S ASOF JOIN R ON S.t >= R.u",
    "SELECT t, w FROM S ASOF JOIN R ON S.d = R.d AND S.t >= R.u",
    "SELECT t, w FROM S ASOF LEFT JOIN LAST(R, u, INTERVAL '20' SECOND) AS q ON S.t >= q.u",
    "SELECT t, v FROM S BEST 3 BY v PER d",
    "SELECT t, v FROM LAST(S, t, INTERVAL '20' SECOND) BEST 3 BY v",
    f"SELECT window_start, k, n FROM {TUMBLED} BEST 3 BY n PER window_start",
    f"SELECT window_start, k, n FROM {TUMBLED} BEST 3 BY n",
    f"SELECT t, v FROM {OPEN} BEST 3 BY v",
    "SELECT t, k FROM S WHERE SILENCE(t PER k) > INTERVAL '15' SECOND",
    "SELECT t, SUM(v) OVER (PARTITION BY k ORDER BY t RANGE INTERVAL '20' SECOND PRECEDING) AS x FROM S",
    "SELECT t, COUNT(DISTINCT v) OVER (ORDER BY t RANGE INTERVAL '20' SECOND PRECEDING) AS x FROM S",
    "SELECT t, SUM(v) OVER (PARTITION BY d ORDER BY t) AS x FROM S",
    "SELECT t, SUM(v) OVER (ORDER BY t) AS x FROM LAST(S, t, INTERVAL '10' SECOND)",
    "SELECT t, source, k FROM MERGE((SELECT t, k FROM S), (SELECT u, k FROM R))",
]

GROWING = [
    "SELECT k, COUNT(*) AS n FROM S GROUP BY k",
    "SELECT d, COUNT(DISTINCT k) AS n FROM S GROUP BY d",
    "SELECT COUNT(DISTINCT k) AS n FROM S",
    "SELECT GROUP (t, v) AS m FROM S",
    "SELECT d, GROUP (t, v) AS m FROM S GROUP BY d",
    "SELECT d, MAX(v) AS m FROM S WHERE EXISTS (SELECT 1 FROM LAST(R, u, INTERVAL '10' SECOND) AS q "
    "WHERE q.k = S.k) GROUP BY d",
    f"SELECT k, SUM(n) AS m FROM {TUMBLED} GROUP BY k",
    f"SELECT n, COUNT(*) AS m FROM {TUMBLED} GROUP BY n",
    "SELECT t, u FROM S JOIN R ON S.k = R.k",
    "SELECT t, u FROM S LEFT JOIN R ON S.k = R.k",
    "SELECT t, n FROM S JOIN (SELECT ref, COUNT(*) AS n FROM R GROUP BY ref) AS a ON S.t = a.ref",
    "SELECT t, n FROM S JOIN (SELECT ref, COUNT(DISTINCT k) AS n FROM R GROUP BY ref) AS a ON S.t = a.ref WHERE n < 1",
    "SELECT t, n FROM S JOIN (SELECT ref, COUNT(*) AS n FROM R GROUP BY ref HAVING COUNT(*) < 1) AS a ON S.t = a.ref",
    "SELECT t, n FROM (SELECT t, MAX(v) AS m FROM S GROUP BY t) AS q "
    "JOIN (SELECT ref, COUNT(*) AS n FROM R GROUP BY ref) AS a ON q.t = a.ref WHERE n < 1",
    "SELECT t, n FROM S LEFT JOIN (SELECT ref, COUNT(*) AS n FROM R GROUP BY ref HAVING COUNT(*) < 3) AS a "
    "ON S.t = a.ref",
    "SELECT t, u FROM (SELECT t, k FROM S WHERE NOT EXISTS (SELECT 1 FROM R WHERE R.k = S.k + 1000 "
    "AND u BETWEEN t AND t + INTERVAL '10' SECOND)) AS q JOIN R ON q.k = R.k",
    "SELECT t FROM S WHERE k IN (SELECT k FROM R)",
    "SELECT t FROM S WHERE NOT EXISTS (SELECT 1 FROM R WHERE R.k = S.k)",
    "SELECT t FROM S WHERE k NOT IN (SELECT k FROM R)",
    "SELECT t FROM S WHERE EXISTS (SELECT 1 FROM LAST(R, u, INTERVAL '10' SECOND) AS q WHERE q.k = S.k)",
    "SELECT t, w FROM S ASOF JOIN R ON S.k = R.k AND S.t >= R.u",
    "SELECT t, v FROM S BEST 3 BY v PER k",
    "SELECT t, COUNT(DISTINCT v) OVER (ORDER BY t) AS x FROM S",
    "SELECT t, SUM(v) OVER (PARTITION BY k ORDER BY t) AS x FROM S",
    "SELECT t, SUM(v) OVER (ORDER BY t) AS x FROM (SELECT t, v FROM S WHERE NOT EXISTS (SELECT 1 FROM R "
    "WHERE R.k = S.k + 1000 AND u BETWEEN t AND t + INTERVAL '10' SECOND)) AS q",
]


@pytest.mark.parametrize("view", BOUNDED)
def test_a_program_without_a_warning_holds_what_is_live(view: str) -> None:
    compiled = program(view)
    assert not is_warned(compiled), compiled.warnings
    few, many = sizes(compiled)
    assert few <= LIVE_MAX
    assert many <= 1.3 * few + SLACK, (few, many)


@pytest.mark.parametrize("view", GROWING)
def test_a_warning_that_state_grows_is_true(view: str) -> None:
    compiled = program(view)
    assert is_warned(compiled)
    few, many = sizes(compiled)
    assert many >= few * FRAMES[1] / FRAMES[0] / 1.5, (few, many)


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.smile")), ids=lambda p: p.stem)
def test_the_example_programs_were_warned_if_they_grow(path: Path) -> None:
    compiled = compile_program(read_source(str(path)))
    if path.stem == "tradefloor":
        assert not is_warned(compiled)
        return
    few, many = sizes(compiled)
    assert is_warned(compiled)
    assert many > 1.3 * few


def test_trade_floor_holds_the_bids_that_are_open() -> None:
    """Their number itself grows for long, since a level's buys and sells drift apart."""
    compiled = compile_program(read_source(str(workload.PROGRAM)))
    engine = LocalEngine(compile_graph(compiled.graph, compiled.rewritten.streams))
    blocks = list(workload.tradefloor_blocks(120_000))
    shares = []
    for number, frame in enumerate(workload.input_batches(blocks, 1000), 1):
        engine.advance(frame)
        if number in (30, 120):
            open_ = workload.count_open_bids(workload.first_rows(number * 1000, blocks))
            shares.append(sum(t.row_count for t in engine.tables.values()) / open_)
    few, many = shares
    assert many <= 1.3 * few
    assert many <= 6, "of each open bid its row and its total, in the join and below it, and its row in Matchable"
