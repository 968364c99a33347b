"""Runs test files in an engine: what it shows at each cut, and what each line changes, if the file expects something of
it.

The local engine is here; a pipeline on Spark is another `CaseEngine`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import pyarrow as pa

from smile.encoding.json_changes import json_changes
from smile.engine.local import BatchResult, LocalEngine
from smile.horizons import END
from smile.kernels.compile import Kernels, compile_graph
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from smile.testing.comparison import Difference, compare_rows
from smile.testing.reader import CaseFile

EMPTY_BATCH = InputBatch({}, {})


class CaseEngine(Protocol):
    """Runs the program of one case. `start` comes first: views may have rows before any event."""

    def start(self) -> None: ...

    def advance(self, batch: InputBatch) -> list[Json]:
        """What the batch changes in the views."""
        ...

    def rows(self) -> list[Json]:
        """The rows that are shown now."""
        ...


OpenEngine = Callable[[CaseFile], AbstractContextManager[CaseEngine]]
"""A new engine for a case."""


@dataclass(frozen=True)
class Segment:
    """The event lines above `line` and up to it, which is included; None is the end of all streams. `batch` is None if
    they say nothing new."""

    line: int | None
    batch: InputBatch | None


def find_differences(case: CaseFile, engine: CaseEngine) -> list[Difference]:
    """Where the engine does not show what the file expects, in the order of the file."""
    engine.start()
    differences: list[Difference | None] = []
    for segment in _segments(case):
        changes = engine.advance(segment.batch) if segment.batch is not None else []
        if segment.line is not None and (expected := case.changes.get(segment.line)) is not None:
            differences.append(compare_rows(expected, changes))
        if (expected := case.rows.get(segment.line)) is not None:
            differences.append(compare_rows(expected, engine.rows()))
    return sorted((d for d in differences if d is not None), key=lambda d: d.expected.line)


def _segments(case: CaseFile) -> Iterator[Segment]:
    """The events, cut wherever something is expected: around a line that changes something, it alone is a segment."""
    cuts = {line for line in case.rows if line is not None}
    stops = sorted(cuts | {stop for line in case.changes for stop in (line - 1, line)})
    if None in case.rows:
        stops.append(len(case.events))
    batches = list(case.batches())
    done = 0
    for stop in dict.fromkeys(stops):
        part = [batch for line, batch in batches if done < line <= stop]
        yield Segment(stop, _merged(part) if part else None)
        done = stop
    if None in case.rows:
        streams = (stream.name for stream in case.rewritten.input_streams)
        horizons = batches[-1][1].horizons if batches else streams
        yield Segment(None, InputBatch({}, dict.fromkeys(horizons, END)))


def _merged(batches: Sequence[InputBatch]) -> InputBatch:
    """One batch with the events of all."""
    names = dict.fromkeys(chain.from_iterable(batch.events for batch in batches))
    events = {n: pa.concat_batches([batch.events[n] for batch in batches if n in batch.events]) for n in names}
    return InputBatch(events, batches[-1].horizons)


def shown_messages(kernels: Kernels, views: Sequence[str], batch: BatchResult) -> list[Json]:
    """The changes of these views, as subscribers receive them."""
    shown = (view for view in views if view in batch.deltas)
    return [row for view in shown for row in json_changes(kernels.inputs[view], batch.deltas[view], batch.horizons)]


class LocalCaseEngine:
    """Runs the program in this process."""

    def __init__(self, case: CaseFile) -> None:
        self._views = case.views
        graph = case.compiled.graph.for_views(self._views)
        kernels = compile_graph(graph, case.rewritten.log_streams).with_materialized_views(self._views)
        self._engine = LocalEngine(kernels)

    def start(self) -> None:
        self._engine.advance(EMPTY_BATCH)

    def advance(self, batch: InputBatch) -> list[Json]:
        return shown_messages(self._engine.kernels, self._views, self._engine.advance(batch))

    def rows(self) -> list[Json]:
        deltas = {view: self._engine.snapshot(view) for view in self._views}
        return shown_messages(self._engine.kernels, self._views, BatchResult(deltas, self._engine.state.horizons))
