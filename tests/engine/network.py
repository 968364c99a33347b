"""Runs the brokers of `network_programs` on a history: each has a log, an engine and views of its own. The schedule is
random: when events are published, when each import is sent, how many commits make a batch.

After every batch a broker must know exactly what the reference does over the history that has come to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from tempfile import TemporaryDirectory
from typing import Protocol

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema, stream_types
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.printer import print_program
from smile.algebra.types import Value
from smile.analysis.type_analysis import TypeAnalysis
from smile.broker.imports.exported_view import ExportedView
from smile.broker.imports.import_frame import FrameAssembly, ImportFrame
from smile.broker.imports.receipt import Receipt
from smile.broker.imports.view_cache import ViewCache
from smile.broker.views.portable_tokens import base_streams as view_streams
from smile.broker.views.view import View
from smile.encoding.json_changes import json_changes
from smile.engine.local import BatchResult, LocalEngine
from smile.engine.plan import Plan, StageResult, build_plan
from smile.graph.build import build_graph
from smile.horizons import END, HORIZON_MIN, origin_name, select_streams
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from smile.log.position import DEFAULT_ORIGIN, BatchLimit, Position
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from smile.reference.evaluate import evaluate
from smile.reference.history import History, RecordedLine
from smile.reference.relation import Key
from smile.reference.wire import change_messages, snapshot_messages
from tests.engine.network_programs import BrokerProgram, NotImportableError, base_streams, cut_program
from tests.engine.partitions import Partitions
from tests.engine.subscriber_knowledge import SubscriberKnowledge
from tests.kernels.harness import differences_of_messages, messages_by_key
from tests.random_programs import random_program
from tests.reference.histories import Histories

LINES_MAX = 16


class Engine(Protocol):
    def advance(self, input_batch: InputBatch) -> BatchResult: ...


@dataclass
class NetworkBroker:
    """A broker of the network. `truth` is the history of everything that was published."""

    program: mmpl.Program
    origins: Mapping[str, str]
    """For each stream of its history, the published stream."""
    truth: History
    log: DurableLog
    random: Random
    partitions: int = 1
    position: Position = field(init=False)
    views: dict[str, View] = field(init=False)

    def __post_init__(self) -> None:
        self.analysis = TypeAnalysis(self.program)
        graph = build_graph(self.program, self.analysis)
        streams, subscriptions = self.program.log_streams, self.program.subscriptions
        self.plan: Plan = build_plan(graph, streams, self.partitions, subscriptions)
        self.engine: Engine
        if self.partitions == 1:
            self.engine = LocalEngine(self.plan.kernels, stage=self.plan.stages[0])
        else:
            self.engine = Partitions(self.plan, self.random)
        self.inputs = self.plan.kernels.inputs
        self.position = self.log.start()
        horizons = dict.fromkeys(self.log.streams, HORIZON_MIN)
        self.views = {
            name: View(
                name,
                self.inputs[name],
                name,
                self.log_horizons,
                view_streams(self.program, name),
                count(step=60).__next__,
                horizons,
            )
            for name in subscriptions
        }
        layouts = {i.name: self.inputs[i.name].layout for i in self.program.imports if i.stream is None}
        self.caches = {
            i.name: ViewCache(i, layouts[i.name], self.log) for i in self.program.imports if i.stream is None
        }
        self.shown: dict[str, dict[Key, Json]] = {name: {} for name in subscriptions}
        self.subscriber = SubscriberKnowledge()
        first = self.engine.advance(InputBatch({}, {}))
        self._deliver(first)
        self.problems = self._compare(self._messages(first), self.horizons)

    def log_horizons(self) -> Mapping[str, int]:
        return self.log.newest().named_horizons()

    @property
    def horizons(self) -> dict[str, int]:
        return self.position.named_horizons()

    # ── inputs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, stream: mmpl.StreamDef, published: str, horizons: Mapping[str, int]) -> None:
        """Appends what is published of each origin of a stream up to a tick: at its home, or at a broker that imports
        it."""
        pieces, origins = [], self.truth.origins.get(published, {})
        for origin, upto in horizons.items():
            selected = sorted(self._selected_events(stream, published).items())
            rows = [row for t, row in selected if t <= upto and origins.get(t, DEFAULT_ORIGIN) == origin]
            events = pa.RecordBatch.from_pylist(rows, stream_schema(stream)) if rows else None
            pieces.append(StreamPiece(stream.name, origin, HORIZON_MIN, upto, events))
        self.log.append(pieces)

    def _selected_events(self, stream: mmpl.StreamDef, origin: str) -> dict[int, dict[str, Value]]:
        """The events of a published stream that an import of it selects: its conditions are among its checks."""
        types, published = stream_types(stream), self.truth.streams[origin]
        conditions = [check for check in stream.checks if check not in published.checks]
        return {
            t: row
            for t, row in self.truth.events[origin].items()
            if all(evaluate_expr(condition, row, types) is True for condition in conditions)
        }

    # ── batches ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def advance(self) -> bool:
        """Processes a batch of some commits, and compares with the reference."""
        end = self.log.after(self.position, BatchLimit(commits=self.random.choice((1, 1, 2, 5))))
        if end == self.position:
            return False
        events = {s: self.log.read(s, self.position, end) for s in self.plan.stages[0].streams}
        self.position = end
        result = self.engine.advance(InputBatch({s: e for s, e in events.items() if e.num_rows}, self.horizons))
        self._deliver(result)
        self.problems += self._compare(self._messages(result), result.horizons)
        return True

    def _deliver(self, result: BatchResult) -> None:
        deltas = result.deltas
        if self.partitions == 1:
            deltas = dict(self.plan.stages[0].view_deltas(0, StageResult({}, result.deltas)))
        for name, view in self.views.items():
            view.deliver(deltas.get(name), self.horizons)

    def _messages(self, result: BatchResult) -> dict[str, list[Json]]:
        return {
            name: list(json_changes(self.inputs[name], result.deltas[name], result.horizons))
            for name in self.program.subscriptions
            if name in result.deltas
        }

    # ── the reference ───────────────────────────────────────────────────────────────────────────────────────────────

    def history(self) -> History:
        """What has come to this broker."""
        history, horizons = History.from_lines(self.program), self.horizons
        for name, origin in self.origins.items():
            events, origins = self._selected_events(history.streams[name], origin), self.truth.origins.get(origin, {})
            many = history.streams[name].many_origins
            upto = {t: horizons.get(origin_name(name, origins[t]) if many else name, HORIZON_MIN) for t in events}
            history.events[name] = {t: row for t, row in events.items() if t <= upto[t]}
            history.horizons |= select_streams(horizons, [name])
        return history

    def _compare(self, messages: Mapping[str, list[Json]], horizons: Mapping[str, int]) -> list[str]:
        history = self.history()
        relations = evaluate(self.program, self.analysis, history)
        problems = []
        for name in self.program.subscriptions:
            type_, shown = self.analysis.relations[name], self.shown[name]
            expected = change_messages(name, type_, shown, relations[name], {**horizons, **history.horizons})
            self.shown[name] = snapshot_messages(name, type_, relations[name])
            told = _with_expected_finality(messages.get(name, []), expected)
            problems += differences_of_messages(name, told, expected, messages_by_key(shown.values()))
            problems += [p for message in messages.get(name, []) for p in self.subscriber.receive(message)]
        return [f"at {self.horizons}: {p}" for p in problems]


def _with_expected_finality(messages: Sequence[Json], expected: Sequence[Json]) -> list[Json]:
    """A row that an exporting broker has hidden for good is deleted for good here too. The reference takes it for
    absent, and so it does not know. That the row never returns is checked with all later messages."""
    not_final = {str(m["key"]) for m in expected if m.get("deleted") and not m["final"]}
    return [{**m, "final": False} if m.get("deleted") and str(m["key"]) in not_final else m for m in messages]


# ── a network ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Network:
    """All brokers, and the exports between them."""

    def __init__(
        self, programs: Sequence[BrokerProgram], lines: Sequence[RecordedLine], random: Random, folder: str
    ) -> None:
        self.programs, self.lines, self.random = programs, lines, random
        self.truth = History.from_lines(programs[0].program, lines)
        self.published = History.from_lines(programs[0].program)
        self.published_lines = 0
        self.brokers = []
        for number, broker_program in enumerate(programs):
            program = broker_program.program
            log = DurableLog.open_or_create(f"{folder}/log{number}", program.log_streams, flush=False)
            partitions = random.choice((1, 1, 2, 3, 7)) if number else 1
            broker = NetworkBroker(program, base_streams(programs, number), self.truth, log, random, partitions)
            self.brokers.append(broker)
        self.exports: dict[tuple[int, str], ExportedView] = {}
        self.assemblies: dict[tuple[int, str], FrameAssembly] = {}
        self.old_frames: list[tuple[int, str, ImportFrame]] = []

    def run(self) -> list[str]:
        """Until everything has arrived everywhere. Returns what is wrong."""
        try:
            while self.published_lines < len(self.lines):
                self._step()
                if self._problems():
                    return self._problems()
            self._finish()
            return self._problems() or self._unfinished()
        finally:
            for broker in self.brokers:
                broker.log.close()

    def _problems(self) -> list[str]:
        return [f"broker {n}: {p}" for n, broker in enumerate(self.brokers) for p in broker.problems]

    def _step(self) -> None:
        action = self.random.random()
        if action < 0.4:
            self.published.add(self.lines[self.published_lines])
            self.published_lines += 1
            for stream in self.programs[0].program.streams:
                self.brokers[0].append(stream, stream.name, _origin_horizons(self.published, stream))
            self.brokers[0].advance()
        elif action < 0.8:
            number = self.random.randrange(1, len(self.brokers))
            name = self.random.choice([i.name for i in self.programs[number].program.imports])
            self.transfer(number, name)
        else:
            self.random.choice(self.brokers).advance()

    def _finish(self) -> None:
        """Publishes the end of all streams, and passes everything on."""
        self.published = self.published.with_finished_streams()
        for stream in self.programs[0].program.streams:
            horizons = _origin_horizons(self.published, stream)
            self.brokers[0].append(stream, stream.name, horizons or {DEFAULT_ORIGIN: END})
        for number, broker in enumerate(self.brokers):
            for import_ in self.programs[number].program.imports:
                self.transfer(number, import_.name, whole=True)
            while broker.advance():
                pass

    def _unfinished(self) -> list[str]:
        return [
            f"broker {n}: at the end {message} is not final"
            for n, broker in enumerate(self.brokers)
            for message in broker.subscriber.shown()
            if not message["final"]
        ]

    # ── transfers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def transfer(self, number: int, name: str, whole: bool = False) -> None:
        """Sends what is new of an import, or a part of a stream, or something old once more."""
        broker, source = self.brokers[number], self.brokers[self.programs[number].sources[name]]
        import_ = next(i for i in broker.program.imports if i.name == name)
        if import_.stream is not None:
            published, horizons = broker.origins[import_.stream.name], {}
            known = broker.log.newest().horizons[import_.stream.name]
            origins = self.truth.origins.get(published, {})
            for origin, horizon in source.log.newest().horizons[_logged_name(source.program, import_.relation)].items():
                have = known.get(origin, HORIZON_MIN)
                events = (t for t in self.truth.events[published] if origins.get(t, DEFAULT_ORIGIN) == origin)
                ticks = [t for t in events if have < t <= horizon]
                horizons[origin] = horizon if whole or not ticks else self.random.choice([*ticks, horizon])
            broker.append(import_.stream, published, horizons)
            return
        if self.old_frames and self.random.random() < 0.2:
            old_number, old_name, old_frame = self.random.choice(self.old_frames)
            receipt = self.brokers[old_number].caches[old_name].append(old_frame)
            assert receipt in (Receipt.REDUNDANT, Receipt.APPENDED, Receipt.GAP), receipt
        if not whole and self.random.random() < 0.2:
            self._disconnect(number, name)
        frame = self._next_frame(number, name)
        while frame is not None:
            self.old_frames.append((number, name, frame))
            if not whole and self.random.random() < 0.15:
                return  # the frame is lost
            if broker.caches[name].append(frame) is Receipt.GAP:
                self._disconnect(number, name)  # the export begins again with what is missing
            frame = self._next_frame(number, name) if whole else None

    def _next_frame(self, number: int, name: str) -> ImportFrame | None:
        link = (number, name)
        if link not in self.exports:
            broker, source = self.brokers[number], self.brokers[self.programs[number].sources[name]]
            cache = broker.caches[name]
            self.exports[link] = ExportedView(
                source.views[cache.import_.relation],
                cache.import_.base_streams,
                cache.import_.condition,
                cache.horizons,
                lambda: None,
            )
            self.assemblies[link] = FrameAssembly()
        while (part := self.exports[link].next_part(self.random.choice((1, 2, 100)))) is not None:
            frame = self.assemblies[link].add(part)
            if frame is not None:
                return frame
        return None

    def _disconnect(self, number: int, name: str) -> None:
        export = self.exports.pop((number, name), None)
        if export is not None:
            export.close()


def _origin_horizons(history: History, stream: mmpl.StreamDef) -> dict[str, int]:
    """The horizon of each origin of a stream that is published."""
    if not stream.many_origins:
        return {DEFAULT_ORIGIN: history.horizons[stream.name]}
    return {o: history.horizons[origin_name(stream.name, o)] for o in history.stream_origins(stream.name)}


def _logged_name(program: mmpl.Program, relation: str) -> str:
    """The name of a stream in the log of a broker."""
    streams = {i.name: i.stream.name for i in program.imports if i.stream is not None}
    return streams.get(relation, relation)


# ── random networks ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class NetworkRun:
    programs: Sequence[BrokerProgram]
    lines: Sequence[RecordedLine]
    seed: int

    def problems(self) -> list[str]:
        """What is wrong; nothing if every broker knows what it should."""
        random = Random(self.seed)
        with TemporaryDirectory() as folder:
            return Network(self.programs, self.lines, random, folder).run()

    def report(self, problems: list[str]) -> str:
        programs = [f"broker {n}:\n{print_program(p.program)}" for n, p in enumerate(self.programs)]
        return "\n".join([*problems, *programs, *map(str, self.lines)])


def draw_network(seed: int) -> NetworkRun | None:
    """A random program on two or three brokers; None if it has one view only, or one that cannot be imported."""
    random = Random(seed)
    program = random_program(random, random.choice((2, 3, 4, 6)))
    if len(program.views) < 2:
        return None
    try:
        programs = cut_program(program, random, random.choice((2, 2, 3)))
    except NotImportableError:
        return None
    histories = Histories(program, random)
    return NetworkRun(
        programs, [histories.line() for _ in range(random.randint(2, LINES_MAX) + len(histories.joins))], seed
    )
