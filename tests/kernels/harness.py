"""The engine beside the reference: the same lines, cut into frames; after each frame both must tell the same."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.engine.json_changes import json_changes
from smile.engine.local import LocalEngine
from smile.graph.build import build_graph
from smile.kernels.compile import compile_graph
from smile.knowledge.analysis import TypeAnalysis
from smile.knowledge.json import Json
from smile.log.input_batch import InputBatch
from smile.reference.evaluate import evaluate
from smile.reference.history import History, RecordedLine
from smile.reference.relation import Key, Relation
from smile.reference.wire import change_messages as reference_changes, snapshot_messages


def frame_of(program: mmpl.Program, before: History, after: History) -> InputBatch:
    """What the second history knows beyond the first."""
    events = {}
    for stream in program.streams:
        known = before.horizons[stream.name]
        rows = [row for t, row in sorted(after.events[stream.name].items()) if t > known]
        if rows:
            events[stream.name] = pa.RecordBatch.from_pylist(rows, stream_schema(stream))
    return InputBatch(events, dict(after.horizons))


def cuts(random: Random, count: int) -> list[int]:
    """Where frames end: often after every line, often anywhere."""
    if random.random() < 0.3:
        return list(range(1, count + 1))
    return sorted({*random.sample(range(1, count + 1), random.randint(0, count - 1)), count})


@dataclass
class Beside:
    """The engine and the reference, side by side over one program."""

    program: mmpl.Program
    analysis: TypeAnalysis = field(init=False)
    engine: LocalEngine = field(init=False)
    shown: dict[str, dict[Key, Json]] = field(init=False)
    history: History = field(init=False)
    frame: InputBatch = field(init=False)
    told: list[Json] = field(init=False)
    """What the engine told of all views at the last frame, which was `frame`."""

    def __post_init__(self) -> None:
        self.analysis = TypeAnalysis(self.program)
        graph = build_graph(self.program, self.analysis)
        self.engine = LocalEngine(compile_graph(graph, self.program.streams))
        self.history = History.from_lines(self.program)
        self.shown = {name: {} for name in self.program.subscriptions}

    def reference(self) -> dict[str, Relation]:
        return evaluate(self.program, self.analysis, self.history)

    def advance(self, lines: Sequence[RecordedLine], end: bool = False) -> list[str]:
        """What the two tell differently after these lines."""
        before = self.history
        after = History.from_lines(self.program)
        after.events = {n: dict(e) for n, e in before.events.items()}
        after.horizons = dict(before.horizons)
        after.last_tick = before.last_tick
        for line in lines:
            after.add(line)
        if end:
            after = after.with_finished_streams()
        self.history = after
        self.frame = frame_of(self.program, before, after)
        batch = self.engine.advance(self.frame)
        self.told = []
        relations = self.reference()
        problems = []
        for name in self.program.subscriptions:
            type_ = self.analysis.relations[name]
            told: list[Json] = []
            if name in batch.deltas:
                layout = self.engine.kernels.inputs[name].layout
                told = list(json_changes(name, type_, layout, batch.deltas[name], batch.horizons))
            self.told += told
            shown = self.shown[name]
            wanted = reference_changes(name, type_, shown, relations[name], after.horizons)
            self.shown[name] = snapshot_messages(name, type_, relations[name])
            problems += _differences(name, told, wanted, _by_key(shown.values()))
        return problems


def _differences(view: str, told: list[Json], wanted: list[Json], shown: dict[str, Json]) -> list[str]:
    """Messages that only one of them has. That only the steps of a row changed may be told or not."""
    a, b = _by_key(told), _by_key(wanted)
    found = []
    if len(a) < len(told):
        found.append(f"{view}: a key is told of twice: {told}")
    for key in a.keys() | b.keys():
        if key in a and key in b:
            if _without_steps(a[key]) != _without_steps(b[key]):
                found.append(f"{view}: engine tells {a[key]}\n    reference {b[key]}")
        elif key in shown and _without_steps(a.get(key) or b[key]) == _without_steps(shown[key]):
            continue
        elif key in a:
            found.append(f"{view}: engine alone tells {a[key]}")
        else:
            found.append(f"{view}: reference alone tells {b[key]}")
    return found


def _without_steps(message: Json) -> Json:
    return {k: v for k, v in message.items() if k != "steps"}


def _by_key(told: Iterable[Json]) -> dict[str, Json]:
    return {str(sorted(m["key"].items())): m for m in told}


def differences(
    program: mmpl.Program, lines: Sequence[RecordedLine], ends: Sequence[int], end: bool = True
) -> list[str]:
    """The first differences met with frames that end after these numbers of lines, or nothing."""
    both = Beside(program)
    start = 0
    for stop in ends:
        found = both.advance(lines[start:stop])
        if found:
            return [f"after line {stop} (frame from {start}):", *found]
        start = stop
    if end:
        found = both.advance([], end=True)
        return ["at the end:", *found] if found else []
    return []
