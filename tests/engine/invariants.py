"""The promises of the engine in one process, checked for every message that a subscriber receives during a run.

A run has a program, the lines of a history, and a seed. The seed decides where batches end, which batches are repeated,
when state is written and lost, and how the history might have continued otherwise.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from traceback import format_exc
from unittest.mock import patch

import pyarrow as pa

from smile.algebra import mmpl, trees
from smile.algebra.arrow_types import stream_schema
from smile.algebra.printer import print_program
from smile.algebra.types import Value
from smile.analysis.type_analysis import TypeAnalysis
from smile.encoding.json_changes import json_changes
from smile.engine.local import BatchResult, LocalEngine
from smile.engine.plan import build_plan
from smile.errors import SmileError
from smile.graph.build import build_graph
from smile.horizons import END, HORIZON_MIN, origin_name
from smile.kernels import expiry
from smile.kernels.compile import Kernels, compile_graph, materialized_name
from smile.kernels.materialized_view import MaterializedView
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from smile.reference.evaluate import evaluate
from smile.reference.history import History, RecordedLine
from smile.reference.wire import snapshot_messages
from smile.rules import rewrite
from smile.state import table
from smile.state.store import StateStore
from tests.engine.intake import Intake
from tests.engine.partitions import Partitions
from tests.engine.subscriber_knowledge import SubscriberKnowledge, unsafe
from tests.kernels.harness import EngineAndReference, cuts, input_batch_between
from tests.messages import key_text
from tests.random_programs import random_program
from tests.reference.histories import Histories, names_read

LINES_MAX = 16
COMPLETIONS = 2
FRAMES_SHOWN = 6


@dataclass(frozen=True)
class Run:
    program: mmpl.Program
    lines: list[RecordedLine]
    completions: list[list[RecordedLine]] = field(default_factory=list)
    """Other ways in which the history might have gone on after `cut` lines."""
    cut: int = 0


def draw(seed: int, views_max: int = 6) -> Run:
    random = Random(seed)
    program = random_program(random, random.choice((1, 2, 3, views_max)))
    histories = Histories(program, random)
    lines = [histories.line() for _ in range(random.randint(2, LINES_MAX) + len(histories.joins))]
    cut = random.randint(0, len(lines))
    again = Histories(program, random)
    again.horizons = dict(History.from_lines(program, lines[:cut]).horizons)
    again.remember(lines[:cut])
    completions = []
    for _ in range(COMPLETIONS):
        drawn = deepcopy(again)
        drawn.random = Random(random.random())
        completions.append([drawn.line() for _ in range(random.randint(0, 4))])
    return Run(program, lines, completions, cut)


def with_ended_streams(run: Run, seed: int) -> Run:
    """The run with some streams that end early, while the others go on."""
    random = Random(seed)
    names = [s.name for s in run.program.streams]
    lines = list(run.lines)
    for name in random.sample(names, random.randint(1, max(1, len(names) - 1))):
        at = random.randint(0, len(lines))
        end: RecordedLine = {"stream": name, "silence_to": END}
        lines = [*lines[:at], end, *(line for line in lines[at:] if line.get("stream") != name)]
    return Run(run.program, lines, cut=random.randint(0, len(lines)))


def problems(run: Run, seed: int) -> list[str]:
    """The first promise that is broken, with all there is to say of it; nothing if all hold."""
    for name in PROMISES:
        broken_promises = broken(name, run, seed)
        if broken_promises:
            return [f"{name}:", *broken_promises]
    return []


def broken(promise: str, run: Run, seed: int) -> list[str]:
    """How one promise is broken; nothing if it holds. A run that fails breaks every promise."""
    try:
        with small(Random(seed)):
            return PROMISES[promise](run, Random(seed))
    except NotImplementedError:
        raise
    except Exception:  # noqa: BLE001  # whatever it is, the program and the events that lead to it are to be shown
        return [format_exc(limit=-FRAMES_SHOWN)]


class RandomThreshold:
    """Stands in for how many times as long a run must be to be left alone: now any run is, now none is."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def __rmul__(self, _: int) -> float:
        return self.random.choice((-inf, inf))


@contextmanager
def small(random: Random) -> Iterator[None]:
    """What usually needs many rows happens with few: any number of the newest runs is merged at any time, and state
    expires soon. The output does not change."""
    merging = patch.multiple(table, RUNS_MAX=1, MERGE_SIZE_RATIO=RandomThreshold(random))
    with merging, patch.object(expiry, "PENDING_ROWS_MAX", random.choice((1, 2, 5))):
        yield


# ── current, prefix, evolve, drop, end ──────────────────────────────────────────────────────────────────────────────


def _same_as_reference(run: Run, random: Random) -> list[str]:
    """After every batch the engine has sent the same messages as the reference, and has not withdrawn anything."""
    both = EngineAndReference(run.program)
    subscriber = SubscriberKnowledge()
    start = 0
    for stop in [*cuts(random, len(run.lines)), None]:
        problems = both.advance(run.lines[start:stop] if stop else [], end=stop is None)
        problems += [p for message in both.messages for p in subscriber.receive(message)]
        if random.random() < 0.2:
            again = both.engine.advance(both.batch)
            problems += [f"{name} is told again: {len(c)} rows" for name, c in again.deltas.items()]
        if problems:
            return [f"after line {stop}, in the frame from line {start}:" if stop else "at the end:", *problems]
        start = stop or 0
    return [f"at the end {message} is not final" for message in subscriber.shown() if not message["final"]]


# ── batching, interleave ────────────────────────────────────────────────────────────────────────────────────────────


def kernels_of(program: mmpl.Program) -> Kernels:
    graph = build_graph(program, TypeAnalysis(program))
    return compile_graph(graph, program.log_streams).with_materialized_views([v.name for v in program.views])


def content(engine: LocalEngine, program: mmpl.Program) -> dict[str, dict[str, Json]]:
    """All rows of all views, as a subscriber who asks now would get them, but for `steps`."""
    rows_by_view = {}
    for view in program.views:
        kept, source = engine.kernels.transforms[materialized_name(view.name)], engine.kernels.inputs[view.name]
        assert isinstance(kept, MaterializedView)
        rows = kept.read_rows(engine.state.states[materialized_name(view.name)])
        messages = json_changes(source, rows, engine.state.horizons)
        rows_by_view[view.name] = {key_text(m): {k: v for k, v in m.items() if k != "steps"} for m in messages}
    return rows_by_view


def advance(
    engine: LocalEngine,
    program: mmpl.Program,
    lines: Sequence[RecordedLine],
    ends: Sequence[int],
    tried: Sequence[int] = (),
) -> None:
    """All lines from the first, whatever the engine knows already. From where `tried` says it goes to the end first,
    which is then lost: it goes on from the version it was at."""
    before = History.from_lines(program)
    engine.advance(input_batch_between(program, before, before))
    for stop in ends:
        after = History.from_lines(program, lines[:stop])
        if stop in tried:
            version = engine.state
            engine.advance(
                input_batch_between(program, before, History.from_lines(program, lines).with_finished_streams())
            )
            engine.state = version
        engine.advance(input_batch_between(program, before, after))
        before = after


def _expected(run: Run) -> dict[str, dict[str, Json]]:
    analysis = TypeAnalysis(run.program)
    relations = evaluate(run.program, analysis, History.from_lines(run.program, run.lines))
    rows_by_view = {}
    for view in run.program.views:
        rows = snapshot_messages(view.name, analysis.relations[view.name], relations[view.name])
        rows_by_view[view.name] = {key_text(m): {k: v for k, v in m.items() if k != "steps"} for m in rows.values()}
    return rows_by_view


def _same_in_any_batches(run: Run, random: Random) -> list[str]:
    """The order across streams does not matter, nor where frames end, nor whether one was tried before and lost."""
    engine = LocalEngine(kernels_of(run.program))
    lines = interleaved(run, random)
    ends = cuts(random, len(lines))
    tried = [stop for stop in ends if random.random() < 0.2]
    advance(engine, run.program, lines, ends, tried)
    return _differences(content(engine, run.program), _expected(run))


def _same_in_any_order(run: Run, random: Random) -> list[str]:
    """Knowledge of streams arrives in pieces, out of order and repeated. The engine receives only the complete prefix."""
    engine = LocalEngine(kernels_of(run.program))
    engine.advance(InputBatch({}, {}))
    history = History.from_lines(run.program, run.lines)
    intake = Intake(run.program.streams, {s.name: history.stream_origins(s.name) for s in run.program.streams})
    pieces = known_ranges(run, random)
    random.shuffle(pieces)
    pieces += random.sample(pieces, len(pieces) // 2)
    for piece in pieces:
        intake.receive(*piece)
        frame = intake.next_batch() if random.random() < 0.5 else None
        if frame is not None:
            engine.advance(frame)
    last = intake.next_batch()
    if last is not None:
        engine.advance(last)
    problems = [f"{stream} is not complete" for stream in intake.incomplete_streams]
    return problems or _differences(content(engine, run.program), _expected(run))


def known_ranges(run: Run, random: Random) -> list[tuple[str, int, int, pa.RecordBatch]]:
    """Of each stream and origin, ranges of ticks that together are all that is known, some of them overlapping."""
    history = History.from_lines(run.program, run.lines)
    pieces = []
    for name, stream, events in events_by_origin(run.program, history):
        ends = sorted({HORIZON_MIN, history.horizons[name], *(t for t in events if random.random() < 0.5)})
        for start, stop in pairwise(ends):
            start = max(HORIZON_MIN, start - random.choice((0, 0, 2)))
            rows = [row for t, row in sorted(events.items()) if start < t <= stop]
            pieces.append((name, start, stop, pa.RecordBatch.from_pylist(rows, stream_schema(stream))))
    return pieces


def events_by_origin(
    program: mmpl.Program, history: History
) -> Iterator[tuple[str, mmpl.StreamDef, dict[int, dict[str, Value]]]]:
    """The events of each stream, or of each origin of a stream with many, with the name of the horizon."""
    for stream in program.streams:
        events, origins = history.events[stream.name], history.origins.get(stream.name, {})
        if not stream.many_origins:
            yield stream.name, stream, events
        for origin in history.stream_origins(stream.name):
            own_events = {t: row for t, row in events.items() if origins[t] == origin}
            yield origin_name(stream.name, origin), stream, own_events


def interleaved(run: Run, random: Random) -> list[RecordedLine]:
    """The same lines of each stream in the same order. The streams are mixed in another way."""
    queues: dict[str, list[RecordedLine]] = {s.name: [] for s in run.program.streams}
    for line in run.lines:
        for stream in [line["stream"]] if "stream" in line else list(queues):
            queues[stream].append({**line, "stream": stream})
    messages = []
    while any(queues.values()):
        messages.append(queues[random.choice([s for s, q in queues.items() if q])].pop(0))
    return messages


def _differences(actual: dict[str, dict[str, Json]], wanted: dict[str, dict[str, Json]]) -> list[str]:
    return [
        f"{view} {key}: {rows.get(key)} instead of {wanted[view].get(key)}"
        for view, rows in actual.items()
        for key in rows.keys() | wanted[view].keys()
        if rows.get(key) != wanted[view].get(key)
    ]


def _same_in_partitions(run: Run, random: Random) -> list[str]:
    """Every batch gives the same messages with any number of partitions."""
    graph = build_graph(run.program, TypeAnalysis(run.program))
    one = LocalEngine(compile_graph(graph, run.program.log_streams))
    several = Partitions(
        build_plan(graph, run.program.streams, random.choice((2, 3, 7)), run.program.subscriptions), random
    )
    before = History.from_lines(run.program)
    problems: list[str] = []
    for stop in [0, *cuts(random, len(run.lines))]:
        after = History.from_lines(run.program, run.lines[:stop])
        frame = input_batch_between(run.program, before, after)
        wanted, actual = (view_messages(e.advance(frame), one.kernels, run.program) for e in (one, several))
        problems += [f"after {stop} lines: {m}" for m in actual if m not in wanted]
        problems += [f"after {stop} lines, missing: {m}" for m in wanted if m not in actual]
        before = after
    return problems


def view_messages(batch: BatchResult, kernels: Kernels, program: mmpl.Program) -> list[Json]:
    messages: list[Json] = []
    for view in program.subscriptions:
        source = kernels.inputs[view]
        if view in batch.deltas:
            messages += json_changes(source, batch.deltas[view], batch.horizons)
    return messages


# ── crash ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _same_after_a_crash(run: Run, random: Random) -> list[str]:
    """State is written now and then; the run stops, files are lost or torn, and another goes on from what is left."""
    kernels = kernels_of(run.program)
    with TemporaryDirectory() as folder:
        engine = LocalEngine(kernels, StateStore.open(folder, "p"))
        before = History.from_lines(run.program)
        for stop in cuts(random, len(run.lines)):
            after = History.from_lines(run.program, run.lines[:stop])
            engine.advance(input_batch_between(run.program, before, after))
            before = after
            if random.random() < 0.6:
                engine.checkpoint()
            if random.random() < 0.15:
                break
        for path in sorted(Path(folder).iterdir(), reverse=True)[: random.choice((0, 0, 1, 2))]:
            _lose(path, random)
        resumed = LocalEngine(kernels, StateStore.open(folder, "p"))
        resumed.resume()
        advance(resumed, run.program, run.lines, cuts(random, len(run.lines)))
        return _differences(content(resumed, run.program), _expected(run))


def _lose(path: Path, random: Random) -> None:
    whole = path.read_bytes()
    if random.random() < 0.5:
        path.unlink()
    else:
        path.write_bytes(whole[: random.randrange(len(whole))])


# ── safety, rewrite ─────────────────────────────────────────────────────────────────────────────────────────────────


def _safe(run: Run, random: Random) -> list[str]:
    """What was sent after `cut` lines holds for every continuation of the history."""
    engine = LocalEngine(kernels_of(run.program))
    if run.cut:
        advance(engine, run.program, run.lines[: run.cut], cuts(random, run.cut))
    now = content(engine, run.program)
    analysis = TypeAnalysis(run.program)
    problems = []
    for more in [run.lines[run.cut :], *run.completions]:
        lines = [*run.lines[: run.cut], *more]
        relations = evaluate(run.program, analysis, History.from_lines(run.program, lines).with_finished_streams())
        for view in run.program.views:
            rows = snapshot_messages(view.name, analysis.relations[view.name], relations[view.name])
            end = {key_text(m): m for m in rows.values()}
            problems += [f"{p}\n    if it goes on with {more}" for p in unsafe(now[view.name], end)]
    return problems


def _rewritten(run: Run, random: Random) -> list[str]:
    """Rewriting a program changes no row, now or at the end."""
    rewritten = rewrite(run.program)
    names = {v.name for v in rewritten.views}
    engine = LocalEngine(kernels_of(rewritten))
    advance(engine, rewritten, run.lines, cuts(random, len(run.lines)))
    actual, wanted = content(engine, rewritten), _expected(run)
    return [
        f"{view}: rewritten shows {_plain(actual[view])}, written {_plain(wanted[view])}"
        for view in wanted
        if view in names and _plain(actual[view]) != _plain(wanted[view])
    ]


def _plain(rows: dict[str, Json]) -> dict[str, Json]:
    return {key: message["row"] for key, message in rows.items()}


PROMISES: dict[str, Callable[[Run, Random], list[str]]] = {
    check.__name__.strip("_"): check
    for check in (
        _same_as_reference,
        _same_in_any_batches,
        _same_in_any_order,
        _same_in_partitions,
        _same_after_a_crash,
        _safe,
        _rewritten,
    )
}


# ── what failed, made small ─────────────────────────────────────────────────────────────────────────────────────────


def shrunk(run: Run, fails: Callable[[Run], bool]) -> Run:
    """The same failure with less of everything, as far as leaving out one thing at a time goes."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(run):
            try:
                failing = fails(smaller)
            except NotImplementedError:
                continue
            if failing:
                run, changed = smaller, True
                break
    return run


def _smaller(run: Run) -> Iterator[Run]:
    """Without a view, without a line, without streams that nobody reads, with an operator or an aggregate less."""
    views = run.program.views
    for index in reversed(range(len(views))):
        rest = (*views[:index], *views[index + 1 :])
        if rest and not any(views[index].name in names_read(v.body) for v in rest):
            yield replace(run, program=mmpl.Program(run.program.streams, rest, tuple(v.name for v in rest)))
    for index in range(len(run.lines)):
        lines = [*run.lines[:index], *run.lines[index + 1 :]]
        if lines:
            yield replace(run, lines=lines, cut=run.cut - (index < run.cut))
    read = {name for v in views for name in names_read(v.body)}
    is_read = [line.get("stream") in {None, *read} for more in (run.lines, *run.completions) for line in more]
    streams = tuple(s for s in run.program.streams if s.name in read)
    if all(is_read) and len(streams) < len(run.program.log_streams):
        yield replace(run, program=replace(run.program, streams=streams))
    for index, view in enumerate(views):
        for body in _simpler(view.body):
            program = replace(run.program, views=(*views[:index], replace(view, body=body), *views[index + 1 :]))
            if _is_sound(program):
                yield replace(run, program=program)


def _simpler(body: mmpl.Rel) -> Iterator[mmpl.Rel]:
    for node in trees.walk(body):
        for source in trees.inputs_of(node):
            yield _replaced(body, node, source)
        if isinstance(node, mmpl.Summarize | mmpl.Over | mmpl.OverRows) and len(node.aggregates) > 1:
            for one in node.aggregates:
                yield _replaced(body, node, replace(node, aggregates=tuple(a for a in node.aggregates if a != one)))


def _replaced(rel: mmpl.Rel, old: mmpl.Rel, new: mmpl.Rel) -> mmpl.Rel:
    if rel is old:
        return new
    return trees.with_inputs(rel, tuple(_replaced(i, old, new) for i in trees.inputs_of(rel)))


def _is_sound(program: mmpl.Program) -> bool:
    try:
        TypeAnalysis(program)
    except SmileError:
        return False
    return True


def report(run: Run, problems: list[str], seed: int) -> str:
    repeat = f"SMILE_SEEDS={seed} .venv/bin/python -m pytest tests/engine/test_random_programs.py"
    lines = [str(line) for line in run.lines]
    return "\n".join(["", *problems, "", print_program(run.program), *lines, "", f"to repeat it: {repeat}"])
