"""`smile replay` in this process."""

import hashlib
from itertools import chain

from smile.algebra.printer import print_program
from smile.cli.replay.output import ReplayMetrics, print_message, write_batch, write_rows
from smile.cli.replay.recording import Recording
from smile.cli.replay.request import ReplayRequest
from smile.engine.local import LocalEngine
from smile.kernels.compile import compile_graph, materialized_name
from smile.kernels.materialized_view import MaterializedView
from smile.log.input_batch import InputBatch
from smile.program import CompiledProgram
from smile.state.store import StateStore


def replay_locally(
    compiled: CompiledProgram, request: ReplayRequest, recording: Recording, metrics: ReplayMetrics
) -> None:
    kernels = compile_graph(compiled.graph.for_views(request.views), compiled.rewritten.log_streams)
    engine = LocalEngine(kernels if request.changes else kernels.with_materialized_views(request.views))
    if request.state is not None:
        engine.store = StateStore.open(f"{request.state}/in-process", _digest(compiled, request))
        for problem in engine.resume():
            print_message(f"{problem}; it is passed over")
    # An empty batch comes first: views may have rows before any event.
    for batch in chain([InputBatch({}, {})], recording.batches()):
        write_batch(request, kernels, engine.advance(batch), metrics)
        if request.state is not None:
            engine.checkpoint()
    if not request.changes:
        states = engine.state.states
        for view in request.views:
            transform = engine.kernels.transforms[materialized_name(view)]
            assert isinstance(transform, MaterializedView)
            write_rows(kernels, view, transform.read_rows(states[materialized_name(view)]), engine.state.horizons)
    tables = engine.tables.values()
    metrics.state_rows = sum(table.row_count for table in tables)
    metrics.state_bytes = sum(table.nbytes for table in tables)


def _digest(compiled: CompiledProgram, request: ReplayRequest) -> str:
    """Identifies what state belongs to: the rewritten program, and the views whose rows are stored."""
    materialized_views = [] if request.changes else sorted(request.views)
    return hashlib.sha256(repr([print_program(compiled.rewritten), materialized_views]).encode()).hexdigest()
