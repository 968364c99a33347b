"""The truth: what views are at any horizons, computed from a log that no broker holds any more."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from smile.encoding.json_changes import json_changes
from smile.engine.generation import Generation
from smile.engine.local import LocalEngine
from smile.horizons import END, HORIZON_MIN
from smile.log.input_batch import InputBatch
from smile.log.storage.durable import DurableLog
from smile.log.storage.piece_log import slice_events
from smile.program import CompiledProgram
from smile.reference.evaluate import evaluate
from smile.reference.history import History
from smile.reference.wire import snapshot_messages
from tests.torture.floor import VIEWS
from tests.torture.witness import Horizons, Json, key_of

Tables = Mapping[str, Mapping[str, Json]]
"""By view and key."""


class Recorded:
    """All that a log has."""

    def __init__(self, path: Path, compiled: CompiledProgram) -> None:
        self.compiled = compiled
        log = DurableLog(str(path), compiled.rewritten.streams)
        try:
            newest = log.newest()
            self.horizons = newest.stream_horizons()
            self.events = {s: log.read(s, log.start(), newest) for s in log.streams}
        finally:
            log.close()

    @property
    def count(self) -> int:
        return sum(batch.num_rows for batch in self.events.values())

    def between(self, before: Horizons, after: Horizons) -> dict[str, pa.RecordBatch]:
        events = {
            s: slice_events(batch, before.get(s, HORIZON_MIN), after.get(s, HORIZON_MIN))
            for s, batch in self.events.items()
        }
        return {stream: batch for stream, batch in events.items() if batch.num_rows}


class Truth:
    """Moves from horizons to later ones."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        plan = Generation("truth", recorded.compiled.rewritten, VIEWS, VIEWS, VIEWS).plan(1)
        self._inputs = plan.kernels.inputs
        self._engine = LocalEngine(plan.kernels, None, plan.stages[0])
        self._engine.advance(InputBatch({}, {}))
        self._at: Horizons = dict.fromkeys(recorded.events, HORIZON_MIN)

    def at(self, horizons: Horizons) -> Tables:
        self._engine.advance(InputBatch(self._recorded.between(self._at, horizons), dict(horizons)))
        self._at = dict(horizons)
        return {view: self._rows(view) for view in VIEWS}

    def end(self) -> Tables:
        """Once nothing more can happen."""
        return self.at(dict.fromkeys(self._recorded.events, END))

    def _rows(self, view: str) -> dict[str, Json]:
        source = self._inputs[view]
        messages = json_changes(source, self._engine.snapshot(view), self._at, include_hidden=True)
        return {key_of(message): message for message in messages}


def by_reference(recorded: Recorded, horizons: Horizons) -> Tables:
    """The same by the slow, obvious evaluator, which shares nothing with the engine."""
    program, analysis = recorded.compiled.rewritten, recorded.compiled.analysis
    history = History.from_lines(program)
    for stream in program.streams:
        batch = slice_events(recorded.events[stream.name], HORIZON_MIN, horizons[stream.name])
        history.events[stream.name] = {row[stream.tick]: row for row in batch.to_pylist()}
        history.horizons[stream.name] = horizons[stream.name]
    relations = evaluate(program, analysis, history)
    messages_by_view = {view: snapshot_messages(view, analysis.relations[view], relations[view]) for view in VIEWS}
    return {view: {key_of(message): message for message in rows.values()} for view, rows in messages_by_view.items()}
