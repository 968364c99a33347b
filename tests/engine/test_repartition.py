"""A run whose number of partitions changes continues as if it had always had the new number."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from traceback import format_exc

import msgspec
import pytest

from smile.algebra import mmpl
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.analysis.check import check_program
from smile.analysis.type_analysis import TypeAnalysis
from smile.engine.local import BatchResult, LocalEngine
from smile.engine.plan import Plan, build_plan, partition_of
from smile.engine.repartition import StatesByPartition, repartition_states
from smile.graph.build import build_graph
from smile.kernels.compile import materialized_name
from smile.kernels.expiry import PENDING_KEYS
from smile.kernels.materialized_view import MaterializedView
from smile.log.input_batch import InputBatch
from smile.program import compile_program, read_source
from smile.reference.history import History, RecordedLine, read_events
from smile.source import Source
from smile.state.table import StateTable
from tests.engine.invariants import Run, draw, shrunk, small, view_messages
from tests.engine.partitions import Partitions
from tests.kernels.harness import cuts, input_batch_between
from tests.random_programs import SEED_ID, seeds

COUNTS = (1, 2, 3, 7)
SEEDS = 4
PROGRAMS = Path(__file__).parents[2] / "programs"


def planned(program: mmpl.Program, partitions: int) -> Plan:
    graph = build_graph(program, TypeAnalysis(program))
    return build_plan(graph, program.streams, partitions, program.subscriptions)


def cut_anew(run: Partitions, plan: Plan) -> Partitions:
    """The same run by another plan from now on."""
    new = Partitions(plan, run.random, run.version)
    new.states, new.horizons = repartition_states(run.plan, plan, run.states), run.horizons
    return new


def frames(program: mmpl.Program, lines: list[RecordedLine], ends: list[int]) -> Iterator[InputBatch]:
    """The first knows nothing; after the last all streams are finished."""
    before = History.from_lines(program)
    for stop in [0, *ends]:
        after = History.from_lines(program, lines[:stop])
        yield input_batch_between(program, before, after)
        before = after
    yield input_batch_between(program, before, before.with_finished_streams())


def kept(program: mmpl.Program, plan: Plan, states: StatesByPartition, horizons: Mapping[str, int]) -> list[str]:
    """All rows that views show, from all partitions."""
    messages: list[str] = []
    for view in program.subscriptions:
        transform, number = plan.kernels.transforms[materialized_name(view)], plan.materializing_stage(view).number
        assert isinstance(transform, MaterializedView)
        for p in range(plan.partitions):
            rows = transform.read_rows(states[number, p][materialized_name(view)])
            messages += messages_of(program, plan, BatchResult({view: rows}, horizons))
    return sorted(messages)


def messages_of(program: mmpl.Program, plan: Plan, batch: BatchResult) -> list[str]:
    return sorted(msgspec.json.encode(message).decode() for message in view_messages(batch, plan.kernels, program))


def differences(program: mmpl.Program, lines: list[RecordedLine], random: Random) -> list[str]:
    """How the messages and the stored rows of a run that is repartitioned before some batches differ from those of the
    local engine."""
    plans = {count: planned(program, count) for count in COUNTS}
    engine, several = LocalEngine(plans[1].kernels), Partitions(plans[random.choice(COUNTS)], random)
    problems: list[str] = []
    for number, frame in enumerate(frames(program, lines, cuts(random, len(lines)))):
        if random.random() < 0.4:
            several = cut_anew(several, plans[random.choice(COUNTS)])
        wanted, actual = (messages_of(program, plans[1], run.advance(frame)) for run in (engine, several))
        if actual != wanted:
            problems.append(f"frame {number}: told is {actual}\n    instead of {wanted}")
        rows = kept(program, several.plan, several.states, several.horizons)
        alone = kept(program, plans[1], {(1, 0): engine.state.states}, engine.state.horizons)
        if rows != alone:
            problems.append(f"frame {number}: kept are {rows}\n    instead of {alone}")
    return problems


# ── random programs ─────────────────────────────────────────────────────────────────────────────────────────────────


def of_random(run: Run, seed: int) -> list[str]:
    try:
        with small(Random(seed)):
            return differences(run.program, run.lines, Random(seed))
    except NotImplementedError:
        raise
    except Exception:  # noqa: BLE001  # whatever it is, the program and the events that lead to it are to be shown
        return [format_exc(limit=-6)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(100), ids=SEED_ID)
def test_random_programs_go_on(seed: int) -> None:
    run = draw(seed)
    try:
        problems = of_random(run, seed)
    except NotImplementedError:
        return  # an outer join whose rows would share a key: refused, and said so
    if problems:
        least = shrunk(run, lambda r: bool(of_random(r, seed)))
        lines = [str(line) for line in least.lines]
        repeat = f"to repeat it: SMILE_SEEDS={seed} .venv/bin/python -m pytest tests/engine/test_repartition.py"
        pytest.fail("\n".join(["", *of_random(least, seed), "", print_program(least.program), *lines, "", repeat]))


# ── programs ────────────────────────────────────────────────────────────────────────────────────────────────────────

ROUTED = {
    ("BuySatisfied", "groups"): [".buyid"],
    ("RemainingBuy.1", "left"): [".buyid"],
    ("RemainingBuy.1", "right"): [".buyid"],
    ("RemainingSell shown", "rows"): [".sellid"],
    ("Matchable.1", "left"): [".issue", ".price"],
    ("Matchable.1", "right"): [".issue", ".price"],
    ("Matchable shown", "rows"): [".issue", ".price"],
}
"""Of tables of Trade-Floor, the columns that say where a row is."""

SPENT = "RemainingBuy.2 spent"
"""What is forgotten of bids that are satisfied waits here."""


@pytest.fixture(scope="module")
def tradefloor() -> mmpl.Program:
    return compile_program(read_source(str(PROGRAMS / "tradefloor.smile"))).rewritten


@pytest.fixture(scope="module")
def events() -> list[RecordedLine]:
    return read_events((PROGRAMS / "tradefloor.events").read_text())


def tables(run: Partitions, transform: str, table: str) -> list[StateTable]:
    """Of all partitions."""
    work = next(w for w in run.plan.stages if transform in w.table_schemas)
    return [run.states[work.number, p][transform][table] for p in range(run.plan.partitions)]


def keys(state_tables: list[StateTable]) -> set[tuple[object, ...]]:
    rows = [(table.scan(), table.schema.key) for table in state_tables]
    listed = [k for row, key in rows for k in zip(*(row[c].data.tolist() for c in key), strict=True)]
    assert len(set(listed)) == len(listed)
    return set(listed)


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 1), (2, 7), (7, 3), (3, 3)])
def test_rows_lie_where_they_are_read(tradefloor: mmpl.Program, events: list[RecordedLine], old: int, new: int) -> None:
    before = Partitions(planned(tradefloor, old), Random(0))
    before.advance(
        input_batch_between(tradefloor, History.from_lines(tradefloor), History.from_lines(tradefloor, events[:30]))
    )
    after = cut_anew(before, planned(tradefloor, new))
    waiting = keys(tables(before, SPENT, PENDING_KEYS))
    assert waiting and not keys(tables(after, SPENT, PENDING_KEYS))
    for (transform, table), by in ROUTED.items():
        state_tables = tables(after, transform, table)
        had = keys(tables(before, transform, table))
        assert had and keys(state_tables) == had - (
            waiting if transform in ("BuySatisfied", "RemainingBuy.1") else set()
        )
        for p, each in enumerate(state_tables):
            rows = each.scan()
            assert (partition_of([rows[c] for c in by], rows.row_count, new) == p).all()


def test_tradefloor_goes_on(tradefloor: mmpl.Program, events: list[RecordedLine]) -> None:
    assert not differences(tradefloor, events, Random(0))


@pytest.mark.parametrize(
    "view",
    [
        pytest.param("S JOIN R ON {k} PROJECT {t, u, a, b}", id="the columns that rows met by are gone"),
        pytest.param("UNION {G PROJECT {k}, S PROJECT {k}}", id="rows come from different partitions"),
        pytest.param("S SEMIJOIN (R RENAME {k AS j}) ON {k = j}", id="values that are asked for"),
        pytest.param("G WHERE n > 1 FULL JOIN (H WHERE m > 2) ON {k}", id="full join"),
        pytest.param(
            "S SILENCE {p := t PER {a} > INTERVAL '30' TICK} SILENCE {q := t PER {k} > INTERVAL '12' TICK}",
            id="silence that is decided",
        ),
    ],
)
def test_views_go_on(view: str) -> None:
    text = f"""
    STREAM S (t: time -> k: string, a: int);
    STREAM R (u: time -> k: string, b: int);
    VIEW G := S SUMMARIZE PER {{k}} ADD {{n := COUNT()}};
    VIEW H := R SUMMARIZE PER {{k}} ADD {{m := COUNT()}};
    VIEW V := {view};
    SUBSCRIBE V;
    """
    program = check_program(parse_program(Source("test.mmpl", text)))
    for seed in range(SEEDS):
        random = Random(seed)
        assert not differences(program, lines(random), random), f"Random({seed})"


def lines(random: Random) -> list[RecordedLine]:
    recorded: list[RecordedLine] = []
    for t in sorted(random.sample(range(100), 40)):
        event = {"k": random.choice("xyz"), "a": t, "b": t}
        recorded.append(
            random.choice(
                ({"stream": "S", "at": t, "event": event}, {"stream": "R", "at": t, "event": event}, {"silence_to": t})
            )
        )
    return recorded
