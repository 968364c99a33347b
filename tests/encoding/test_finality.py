"""Why a row is not final: what is said is compared with what happens when the horizons advance."""

from collections.abc import Iterable, Iterator, Mapping
from random import Random

import numpy as np
import pytest

from smile.algebra import mmpl
from smile.encoding.finality import finality_json, row_finality
from smile.encoding.json_changes import json_changes
from smile.engine.local import LocalEngine
from smile.horizons import END, origin_name, with_origins
from smile.kernels.delta import Delta, is_row_final
from smile.knowledge.finality import FinalityContext, HorizonWait, Obstacle, RowFinality, input_streams
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from tests.engine.invariants import Run, advance, draw, kernels_of
from tests.programs.reader import compile_text, programs
from tests.random_programs import SEED_ID, seeds
from tests.reference.histories import random_lines

OpenRows = Iterator[tuple[str, Delta, RowFinality]]


class ExplainedEngine:
    """The engine after a part of a history, and what it says of the rows that are not final."""

    def __init__(self, program: mmpl.Program) -> None:
        self.program = program
        self.engine = LocalEngine(kernels_of(program))

    def context(self) -> FinalityContext:
        return FinalityContext(input_streams(self.program), self.engine.state.horizons)

    def rows(self, view: str) -> Iterator[Delta]:
        rows = self.engine.snapshot(view)
        return (rows.take(np.array([i])) for i in range(len(rows)))

    def open_rows(self) -> OpenRows:
        for view in self.program.views:
            for row in self.rows(view.name):
                yield view.name, row, row_finality(self.engine.kernels.inputs[view.name], row, self.context())

    def find(self, view: str, key: str) -> Delta | None:
        source = self.engine.kernels.inputs[view]
        for row in self.rows(view):
            (message,) = json_changes(source, row, self.engine.state.horizons)
            if str(message["key"]) == key:
                return row
        return None

    def key(self, view: str, row: Delta) -> str:
        (message,) = json_changes(self.engine.kernels.inputs[view], row, self.engine.state.horizons)
        return str(message["key"])

    def silence(self, ticks: Mapping[tuple[str, str | None], int]) -> None:
        """Advances horizons, of streams and of origins, without events."""
        now, many = dict(self.engine.state.horizons), {s.name for s in self.program.streams if s.many_origins}
        for (stream, origin), tick in ticks.items():
            name = stream if origin is None else origin_name(stream, origin)
            now[name] = max(now[name], tick)
        for stream in many:
            origins = {n.rpartition(":")[2]: h for n, h in now.items() if n.startswith(f"{stream}:")}
            now |= with_origins(stream, origins) if origins else {}
        self.engine.advance(InputBatch({}, now))


def needs(waits: Iterable[HorizonWait]) -> dict[tuple[str, str | None], int]:
    return {(w.stream, w.origin): END if w.needs_tick is None else w.needs_tick for w in waits}


def drawn(seed: int) -> Run:
    """A random program, or one of the test programs, of which more have windows; with a random history."""
    if seed % 2:
        return draw(seed, views_max=3)
    random, known = Random(seed), [p for p in programs().values() if not p.imports]
    program = random.choice(known)
    lines = random_lines(program, random)
    return Run(program, lines, cut=random.randint(len(lines) // 2, len(lines)))


def explained(run: Run) -> ExplainedEngine:
    engine = ExplainedEngine(run.program)
    advance(engine.engine, run.program, run.lines, [run.cut])
    return engine


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_a_row_is_final_when_its_waits_are_satisfied_and_not_before(seed: int) -> None:
    run, random = drawn(seed), Random(seed)
    try:
        engine = explained(run)
    except NotImplementedError:
        return
    version, rows = engine.engine.state, list(engine.open_rows())
    for view, row, finality in random.sample(rows, min(6, len(rows))):
        source = engine.engine.kernels.inputs[view]
        assert finality.is_final == bool(is_row_final(source.layout, row)[0])
        assert finality.is_final == (not finality.waits_for), (view, engine.key(view, row))
        key, ticks = engine.key(view, row), needs(finality.waits_for)
        engine.engine.state = version
        engine.silence(ticks)
        after = engine.find(view, key)
        assert after is None or is_row_final(source.layout, after)[0], (view, key, finality)
        for missing, tick in ticks.items():
            engine.engine.state = version
            engine.silence({name: END for name in ticks if name != missing} | {missing: tick - 1})
            after = engine.find(view, key)
            if after is not None and not is_row_final(source.layout, after)[0]:
                left = row_finality(source, after, engine.context())
                assert needs(left.waits_for) == {missing: tick}, (view, key, missing)


def test_random_programs_have_rows_that_wait() -> None:
    """Otherwise the test above says nothing."""
    waits: list[HorizonWait] = []
    for seed in range(40):
        try:
            waits += [w for _, _, finality in explained(drawn(seed)).open_rows() for w in finality.waits_for]
        except NotImplementedError:
            continue
    assert {"window", "horizon", "end"} <= {wait.kind for wait in waits}
    assert any(wait.origin is not None for wait in waits)


PROGRAM = """
CREATE STREAM Bids (t: time -> issue: string, price: int);
CREATE STREAM Ends (u: time -> issue: string) WITH (TICKS = PUBLISHER);
CREATE VIEW PerMinute AS SELECT issue, window_end, COUNT(*) AS n, MAX(price) AS highest
  FROM TUMBLE(Bids, t, INTERVAL '1' MINUTE) GROUP BY issue, window_start, window_end;
CREATE VIEW Always AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;
CREATE VIEW Quiet AS SELECT u, issue FROM Ends WHERE SILENCE(u) > INTERVAL '1' MINUTE;
"""
MINUTE = 60_000_000 * 1024


def first_answer(view: str, **circumstances: object) -> Json:
    program = compile_text("waits", "smile", PROGRAM).rewritten
    engine = ExplainedEngine(program)
    lines = [{"stream": "Bids", "at": 5 * MINUTE + 1024, "event": {"issue": "IBM", "price": 7}}]
    advance(engine.engine, program, lines, [1])
    context = FinalityContext(input_streams(program), engine.engine.state.horizons, **circumstances)  # type: ignore[arg-type]  # its fields
    return finality_json(engine.engine.kernels.inputs[view], next(engine.rows(view)), context)


def test_an_open_window_waits_for_its_end() -> None:
    answer = first_answer("PerMinute")
    assert (answer["final"], answer["earliest"], list(answer["cells"])) == (False, 6 * MINUTE - 1, ["n", "highest"])
    (wait,) = answer["waits_for"]
    assert (wait["kind"], wait["stream"], wait["needs_tick"]) == ("window", "Bids", 6 * MINUTE - 1)
    assert "its period ends at 1970-01-01 00:06:00" in wait["text"]
    assert "the clock has to pass it" in wait["text"]
    # The same with ticks, for those who show times of another clock.
    end, known = {"tick": 6 * MINUTE}, {"tick": wait["now_tick"]}
    assert wait["parts"][:4] == ["its period ends at ", end, "; ", "Bids is known up to "]
    assert wait["parts"][4:] == [known, "; the clock has to pass it"]
    assert answer["cells"]["n"] == {"knowledge": {"at_least": 1}, "waits_for": [wait]}


def test_what_never_closes_says_so() -> None:
    answer = first_answer("Always")
    (wait,) = answer["waits_for"]
    assert (wait["kind"], wait["needs_tick"], answer["earliest"]) == ("end", None, None)
    assert "as long as there are events of Bids" in answer["text"]


def test_what_holds_a_horizon_back_is_said() -> None:
    behind = first_answer("PerMinute", log_horizons={"Bids": 7 * MINUTE})
    assert behind["waits_for"][0]["kind"] == "maintenance"
    gap = first_answer("PerMinute", obstacles={"Bids": Obstacle("gap", "2 ranges from desk are missing")})
    assert (gap["waits_for"][0]["kind"], "from desk are missing" in gap["text"]) == ("gap", True)
