"""What is true in a simulated network: everything that was published, and what each program shows of it at any horizons,
by the reference evaluator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.types import Value
from smile.analysis.type_analysis import TypeAnalysis
from smile.horizons import HORIZON_MIN
from smile.knowledge.values.json import Json
from smile.reference.evaluate import evaluate
from smile.reference.history import History
from smile.reference.wire import snapshot_messages
from tests.simulation.programs import base_streams

Event = dict[str, Value]


@dataclass
class PublishedStream:
    """A stream at its home. `announced` is the greatest horizon that anybody has been told."""

    definition: mmpl.StreamDef
    events: dict[int, Event] = field(default_factory=dict)
    horizon: int = HORIZON_MIN
    announced: int = HORIZON_MIN


class Truth:
    def __init__(self, streams: Mapping[str, mmpl.StreamDef]) -> None:
        self.streams = {name: PublishedStream(stream) for name, stream in streams.items()}
        self._analyses: dict[str, TypeAnalysis] = {}
        self._snapshots: dict[Any, dict[str, dict[str, Json]]] = {}
        self._selections: dict[tuple[str, str], tuple[int, dict[int, Event]]] = {}
        """By conditions and stream: the selected ones of so many events."""

    def log(self, stream: str, hi: int, events: pa.RecordBatch | None) -> list[str]:
        """The home of a stream has committed this. Returns what is wrong about it."""
        published, problems = self.streams[stream], list[str]()
        for row in [] if events is None else events.to_pylist():
            tick = row[published.definition.tick]
            if tick in published.events:
                if published.events[tick] != row:
                    problems.append(f"{stream} has two events at tick {tick}")
            elif tick <= published.announced:
                problems.append(
                    f"{stream} has a new event at {tick}, below the announced horizon {published.announced}"
                )
            published.events[tick] = row
        published.horizon = max(published.horizon, hi)
        return problems

    def announce(self, stream: str, tick: int, who: str) -> list[str]:
        """Somebody has been told that nothing is missing up to a tick."""
        published = self.streams[stream]
        published.announced = max(published.announced, tick)
        if tick > published.horizon:
            return [f"{who} says that {stream} is complete up to {tick}, but its home has {published.horizon}"]
        return []

    def selected(self, stream: mmpl.StreamDef, base: str) -> dict[int, Event]:
        """The events of a published stream that an import of it selects: its conditions are among its checks."""
        published = self.streams[base]
        conditions = [check for check in stream.checks if check not in published.definition.checks]
        if not conditions:
            return published.events
        key = repr(conditions), base
        count, known = self._selections.get(key, (-1, {}))
        if count != len(published.events):
            types = stream_types(stream)
            known = {
                tick: row
                for tick, row in published.events.items()
                if all(evaluate_expr(condition, row, types) is True for condition in conditions)
            }
            self._selections[key] = len(published.events), known
        return known

    def snapshot(self, program: mmpl.Program, text: str, horizons: Mapping[str, int]) -> dict[str, dict[str, Json]]:
        """What each view of a program shows at these horizons, by its key. `text` identifies the program."""
        history = History.from_lines(program)
        for name, base in base_streams(program).items():
            horizon = horizons.get(name, HORIZON_MIN)
            events = self.selected(history.streams[name], base)
            history.events[name] = {tick: row for tick, row in events.items() if tick <= horizon}
            history.horizons[name] = horizon
        key = text, tuple(history.horizons.items()), tuple(len(events) for events in history.events.values())
        if key not in self._snapshots:
            if text not in self._analyses:
                self._analyses[text] = TypeAnalysis(program)
            analysis = self._analyses[text]
            relations = evaluate(program, analysis, history)
            self._snapshots[key] = {
                name: {
                    str(m["key"]): without_steps(m)
                    for m in snapshot_messages(name, analysis.relations[name], relations[name]).values()
                }
                for name in program.subscriptions
            }
        return self._snapshots[key]


def without_steps(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != "steps"}
