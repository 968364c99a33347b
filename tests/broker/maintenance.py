"""Shared by the tests of maintenance: a listener that records, a random history, and the rows that a fresh engine
computes from the whole log. Whatever happens to a maintainer, its listener ends with these rows. Meanwhile horizons
never fall, and knowledge is never withdrawn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Condition

from smile.algebra import mmpl
from smile.broker.maintenance.executor import Executor
from smile.broker.maintenance.listener import BatchDelivery, Horizons, ViewPause, ViewSnapshot
from smile.broker.maintenance.maintainer import Maintainer
from smile.encoding.json_changes import json_changes
from smile.engine.generation import Generation, remaining_generations
from smile.engine.local import LocalEngine
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN, select_streams, split_name
from smile.kernels.delta import Delta
from smile.kernels.transform import InputRelation
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit, Log
from smile.log.storage.durable import DurableLog
from smile.program import compile_program
from smile.reference.history import History, RecordedLine
from smile.source import Source
from tests.engine.subscriber_knowledge import broken_by
from tests.kernels.harness import input_batch_between
from tests.messages import key_text
from tests.processes import WAIT_S
from tests.reference.histories import Histories, names_read


def generation(name: str, program: mmpl.Program, views: Sequence[str]) -> Generation:
    return Generation(name, program, tuple(views), tuple(views), tuple(views))


def inputs_of(generations: Sequence[Generation]) -> dict[str, InputRelation]:
    return {view: source for one in generations for view, source in one.inputs().items()}


@dataclass
class RecordingListener:
    """Records what it receives, and what it must not receive. `inputs` has the type and layout of each view."""

    inputs: dict[str, InputRelation] = field(default_factory=dict)
    rows: dict[str, dict[str, Json]] = field(default_factory=dict)
    horizons: dict[str, Horizons] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    failure: SmileError | None = None
    restores: int = 0
    pauses: dict[str, ViewPause] = field(default_factory=dict)
    """The generations that are paused now, by name."""
    moved: Condition = field(default_factory=Condition)

    def deliver(self, delivered: BatchDelivery) -> None:
        with self.moved:
            for view in delivered.views:
                self._advance(view, delivered.horizons)
                if view in delivered.deltas:
                    self._take(view, delivered.deltas[view], delivered.horizons)
            self.moved.notify_all()

    def restore(self, restored: ViewSnapshot) -> None:
        with self.moved:
            self.restores += 1
            self._advance(restored.view, restored.horizons)
            before = self.rows.get(restored.view, {})
            self.rows[restored.view] = {}
            self._take(restored.view, restored.rows, restored.horizons)
            now = self.rows[restored.view]
            for key, row in before.items():
                if key in now:
                    self.wrong += broken_by(row, now[key])
                elif row["final"] or row.get("stays"):
                    self.wrong.append(f"{row} was to stay, and is not there after it was restored")
            self.moved.notify_all()

    def warn(self, what: str) -> None:
        with self.moved:
            self.troubles.append(what)
            self.moved.notify_all()

    def fail(self, problem: SmileError) -> None:
        with self.moved:
            self.failure = problem
            self.moved.notify_all()

    def pause_views(self, generation: str, separated: Generation, pause: ViewPause) -> None:
        with self.moved:
            self.pauses[separated.name] = pause
            self.moved.notify_all()

    def resume_views(self, generation: Generation) -> None:
        with self.moved:
            del self.pauses[generation.name]
            self.moved.notify_all()

    def _advance(self, view: str, horizons: Horizons) -> None:
        before = self.horizons.get(view, {})
        self.wrong += [
            f"{view}: the horizon of {s} fell to {horizons.get(s)}" for s in before if horizons.get(s, -1) < before[s]
        ]
        self.horizons[view] = horizons

    def _take(self, view: str, changes: Delta, horizons: Horizons) -> None:
        rows = self.rows.setdefault(view, {})
        for message in messages(self.inputs[view], changes, horizons):
            key = key_text(message)
            if key in rows:
                self.wrong += [f"{p}: {rows[key]}, then {message}" for p in broken_by(rows[key], message)]
            if "deleted" in message:
                rows.pop(key, None)
            else:
                rows[key] = message

    def forget(self, views: Iterable[str]) -> None:
        for view in views:
            self.rows.pop(view, None)
            self.horizons.pop(view, None)

    def await_(self, views: Iterable[str], horizons: Horizons) -> None:
        """Until all views are known up to there. A program with a join that cannot be kept is refused (E051)."""

        def reached() -> bool:
            of = [self.horizons.get(view, {}) for view in views]
            return (
                self.failure is not None
                or any(pause.code == "E051" for pause in self.pauses.values())
                or all(known.get(s, HORIZON_MIN) >= tick for known in of for s, tick in horizons.items())
            )

        with self.moved:
            assert self.moved.wait_for(reached, WAIT_S), (horizons, self.horizons, self.troubles)
            if self.failure is not None:
                raise self.failure
            for pause in self.pauses.values():
                if pause.code == "E051":
                    raise error("E051", pause.message)


def is_unsupported_join(problem: Exception) -> bool:
    """An outer join whose rows would share a key: it was refused, and said so."""
    return isinstance(problem, SmileError) and problem.diagnostics[0].code == "E051"


def messages(source: InputRelation, changes: Delta, horizons: Horizons) -> list[Json]:
    return list(json_changes(source, changes, horizons))


def expected(program: mmpl.Program, views: Sequence[str], log: Log) -> dict[str, dict[str, Json]]:
    """All rows of the views, by a run over the whole log at once; but for `steps`, which may be counted otherwise."""
    plan = generation("0", program, views).plan(1)
    engine = LocalEngine(plan.kernels, stage=plan.stages[0])
    engine.advance(InputBatch({}, {}))
    start = log.start()
    end = log.after(start, BatchLimit())
    events = {s.name: log.read(s.name, start, end) for s in program.streams}
    engine.advance(InputBatch({s: e for s, e in events.items() if e.num_rows}, end.named_horizons()))
    rows_by_view = {}
    for view in views:
        rows = messages(plan.kernels.inputs[view], engine.snapshot(view), engine.state.horizons)
        rows_by_view[view] = {key_text(m): without_steps(m) for m in rows}
    return rows_by_view


def without_steps(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != "steps"}


def differences(listener: RecordingListener, wanted: dict[str, dict[str, Json]]) -> list[str]:
    differences_found = []
    for view, rows in wanted.items():
        has = {key: without_steps(row) for key, row in listener.rows.get(view, {}).items()}
        differences_found += [
            f"{view} {key}: {has.get(key)} instead of {rows.get(key)}"
            for key in has.keys() | rows.keys()
            if has.get(key) != rows.get(key)
        ]
    return [*differences_found, *listener.wrong]


def reads(program: mmpl.Program, view: str) -> set[str]:
    """The streams that a view is made from."""
    bodies = {v.name: v.body for v in program.views}
    left, relations = [view], set[str]()
    while left:
        name = left.pop()
        if name in bodies:
            left += names_read(bodies[name])
        else:
            relations.add(name)
    return relations


def over(program: mmpl.Program, streams: Sequence[str]) -> mmpl.Program:
    """What of a program can be had of these streams."""
    views = tuple(v for v in program.views if reads(program, v.name) <= {*streams})
    names = {v.name for v in views}
    kept = tuple(s for s in program.streams if s.name in streams)
    return mmpl.Program(kept, views, tuple(name for name in program.subscriptions if name in names))


@dataclass
class Publishing:
    """A history published to a log, batch by batch."""

    program: mmpl.Program
    random: Random
    log: DurableLog
    lines: list[RecordedLine] = field(default_factory=list)
    drawn: Histories = field(init=False)

    def __post_init__(self) -> None:
        self.drawn = Histories(self.program, self.random)

    def publish(self, count: int) -> None:
        """Publishes this many lines, in one commit or several. Lines of streams that are not in the log are ignored."""
        for size in self._sizes(count):
            before = self._history()
            while size:
                line = self.drawn.line()
                if line.get("stream", "") in (*self.log.streams, ""):
                    self.lines.append(line)
                    size -= 1
            after = self._history()
            frame = input_batch_between(self.program, before, after)
            known, streams = self.horizons, self.log.streams
            moved = {
                name: h
                for name, h in frame.horizons.items()
                if h > known.get(name, HORIZON_MIN) and split_name(name, streams)[0] in streams
            }
            self.log.append_batch(InputBatch({s: e for s, e in frame.events.items() if s in moved}, moved))

    def _history(self) -> History:
        return History.from_lines(self.program, self.lines)

    def _sizes(self, count: int) -> list[int]:
        ends = sorted({0, count, *self.random.sample(range(count + 1), self.random.randint(0, count))})
        return [b - a for a, b in pairwise(ends)]

    @property
    def horizons(self) -> Horizons:
        return self.log.newest().named_horizons()


SUMS_AND_PAIRS = """
    CREATE STREAM A (t: time -> k: string, v: int);
    CREATE STREAM B (t: time -> k: string, v: int);
    CREATE VIEW Sums AS SELECT k, SUM(v) AS total FROM A GROUP BY k;
    CREATE VIEW Pairs AS SELECT A.t AS a, B.t AS b FROM A JOIN B ON A.k = B.k;
    SUBSCRIBE Sums; SUBSCRIBE Pairs;
"""
"""Stores rows of every event, and sums of them."""


def sums_and_pairs() -> mmpl.Program:
    return compile_program(Source("test.smile", SUMS_AND_PAIRS)).rewritten


class MaintainedProgram:
    """One maintainer after another of the same log, each with an executor for the directory `state`."""

    def __init__(
        self,
        folder: Path,
        program: mmpl.Program,
        create_executor: Callable[[Path], Executor],
        streams: Sequence[str] | None = None,
        seed: int = 1,
    ) -> None:
        self.program, self.create_executor, self.state = program, create_executor, folder / "state"
        definitions = [s for s in program.streams if streams is None or s.name in streams]
        self.log = DurableLog.open_or_create(str(folder / "log"), definitions, flush=False)
        self.publishing = Publishing(program, Random(seed), self.log)
        first = over(program, self.log.streams)
        self.generations = [generation("0", first, first.subscriptions)]

    def start(self) -> None:
        self.listener = RecordingListener(inputs_of(self.generations))
        self.maintainer = Maintainer(self.create_executor(self.state), self.log, self.generations, self.listener)
        self.maintainer.start()

    def add(self, added: Generation) -> None:
        self.listener.inputs |= added.inputs()
        self.maintainer.add(added, self.log)
        self.generations.append(added)

    def drop(self, views: Sequence[str]) -> None:
        self.maintainer.drop(views)
        self.generations = list(remaining_generations(self.generations, views))
        self.listener.forget(views)

    @property
    def views(self) -> list[str]:
        return [view for one in self.generations for view in one.views]

    def publish(self, count: int) -> None:
        self.publishing.publish(count)
        self.maintainer.wake()

    def publish_and_wait(self, count: int) -> None:
        self.publish(count)
        self.wait()

    def wait(self) -> None:
        """Until all views know everything."""
        for view in self.views:
            used = reads(self.program, view)
            self.listener.await_([view], select_streams(self.publishing.horizons, used))

    def expected(self) -> dict[str, dict[str, Json]]:
        return expected(over(self.program, self.log.streams), self.views, self.log)

    def check(self) -> None:
        self.wait()
        assert differences(self.listener, self.expected()) == []
