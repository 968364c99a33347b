"""Runs the engine and the reference on the same lines, split into batches. After each batch, both must have sent the
same changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.analysis.type_analysis import TypeAnalysis
from smile.encoding.json_changes import json_changes
from smile.engine.local import LocalEngine
from smile.graph.build import build_graph
from smile.horizons import HORIZON_MIN, origin_name
from smile.kernels.compile import compile_graph
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from smile.reference.evaluate import evaluate
from smile.reference.history import History, RecordedLine
from smile.reference.relation import Key, Relation
from smile.reference.wire import change_messages as reference_changes, snapshot_messages
from tests.messages import key_text


def input_batch_between(program: mmpl.Program, before: History, after: History) -> InputBatch:
    """The batch of what the second history has beyond the first."""
    events = {}
    for stream in program.streams:
        names: dict[str | None, str] = {None: stream.name}
        if stream.many_origins:
            names = {origin: origin_name(stream.name, origin) for origin in after.stream_origins(stream.name)}
        origins = after.origins.get(stream.name, {})
        for origin, name in names.items():
            horizon = before.horizons.get(name, HORIZON_MIN)
            known = sorted(after.events[stream.name].items())
            rows = [row for t, row in known if t > horizon and origins.get(t) == origin]
            if rows:
                events[name] = pa.RecordBatch.from_pylist(rows, stream_schema(stream))
    return InputBatch(events, dict(after.horizons))


def cuts(random: Random, count: int) -> list[int]:
    """Random numbers of lines after which batches end: sometimes after every line, otherwise anywhere."""
    if random.random() < 0.3:
        return list(range(1, count + 1))
    return sorted({*random.sample(range(1, count + 1), random.randint(0, count - 1)), count})


@dataclass
class EngineAndReference:
    """The engine and the reference, running one program."""

    program: mmpl.Program
    analysis: TypeAnalysis = field(init=False)
    engine: LocalEngine = field(init=False)
    shown: dict[str, dict[Key, Json]] = field(init=False)
    history: History = field(init=False)
    batch: InputBatch = field(init=False)
    """The last batch."""
    messages: list[Json] = field(init=False)
    """The changes of all views that the engine sent after the last batch."""

    def __post_init__(self) -> None:
        self.analysis = TypeAnalysis(self.program)
        graph = build_graph(self.program, self.analysis)
        self.engine = LocalEngine(compile_graph(graph, self.program.log_streams))
        self.history = History.from_lines(self.program)
        self.shown = {name: {} for name in self.program.subscriptions}

    def reference(self) -> dict[str, Relation]:
        return evaluate(self.program, self.analysis, self.history)

    def advance(self, lines: Sequence[RecordedLine], end: bool = False) -> list[str]:
        """Processes these lines as one batch. Returns the differences between the changes of both."""
        before = self.history
        after = History.from_lines(self.program)
        after.events = {n: dict(e) for n, e in before.events.items()}
        after.horizons = dict(before.horizons)
        after.origins = {n: dict(o) for n, o in before.origins.items()}
        after.last_tick = before.last_tick
        for line in lines:
            after.add(line)
        if end:
            after = after.with_finished_streams()
        self.history = after
        self.batch = input_batch_between(self.program, before, after)
        result = self.engine.advance(self.batch)
        self.messages = []
        relations = self.reference()
        problems = []
        for name in self.program.subscriptions:
            type_ = self.analysis.relations[name]
            messages: list[Json] = []
            if name in result.deltas:
                source = self.engine.kernels.inputs[name]
                messages = list(json_changes(source, result.deltas[name], result.horizons))
            self.messages += messages
            shown = self.shown[name]
            expected = reference_changes(name, type_, shown, relations[name], after.horizons)
            self.shown[name] = snapshot_messages(name, type_, relations[name])
            problems += differences_of_messages(name, messages, expected, messages_by_key(shown.values()))
        return problems


def differences_of_messages(view: str, messages: list[Json], expected: list[Json], shown: dict[str, Json]) -> list[str]:
    """Changes that only one side has. A change of only the steps of a row may be sent or not."""
    by_engine, by_reference = messages_by_key(messages), messages_by_key(expected)
    problems = []
    if len(by_engine) < len(messages):
        problems.append(f"{view}: a key has two changes: {messages}")
    for key in by_engine.keys() | by_reference.keys():
        if key in by_engine and key in by_reference:
            if _without_steps(by_engine[key]) != _without_steps(by_reference[key]):
                problems.append(f"{view}: engine    {by_engine[key]}\n    reference {by_reference[key]}")
        elif key in shown and _without_steps(by_engine.get(key) or by_reference[key]) == _without_steps(shown[key]):
            continue
        elif key in by_engine:
            problems.append(f"{view}: only the engine sends {by_engine[key]}")
        else:
            problems.append(f"{view}: only the reference sends {by_reference[key]}")
    return problems


def _without_steps(message: Json) -> Json:
    return {k: v for k, v in message.items() if k != "steps"}


def messages_by_key(messages: Iterable[Json]) -> dict[str, Json]:
    return {key_text(message): message for message in messages}


def differences(
    program: mmpl.Program, lines: Sequence[RecordedLine], ends: Sequence[int], end: bool = True
) -> list[str]:
    """The first differences, with batches that end after these numbers of lines; empty if there are none."""
    both = EngineAndReference(program)
    start = 0
    for stop in ends:
        problems = both.advance(lines[start:stop])
        if problems:
            return [f"after line {stop} (batch from line {start}):", *problems]
        start = stop
    if end:
        problems = both.advance([], end=True)
        return ["at the end:", *problems] if problems else []
    return []
