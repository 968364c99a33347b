"""Replays recorded events with the engine that was asked for."""

import sys

from smile.cli.replay.local import replay_locally
from smile.cli.replay.output import ReplayMetrics
from smile.cli.replay.recording import open_recording
from smile.cli.replay.request import ReplayRequest
from smile.program import CompiledProgram

BATCH_DEFAULT = 10_000
"""Lines in a batch: enough that the cost of a batch is small for each, few enough that changes appear often."""


def replay(compiled: CompiledProgram, request: ReplayRequest) -> ReplayMetrics:
    """Prints to standard output. Raises SmileError for errors of events, files or the machine."""
    metrics = ReplayMetrics()
    batch = request.batch or BATCH_DEFAULT
    with open_recording(compiled, request.events, batch, request.end, request.bad) as recording:
        if request.spark is None:
            replay_locally(compiled, request, recording, metrics)
        else:
            # Importing Spark takes a second, and only this needs it.
            from smile.cli.replay.spark import replay_on_spark  # noqa: PLC0415

            replay_on_spark(compiled, request, request.spark, recording, metrics)
    metrics.events, metrics.duplicates, metrics.refused = recording.events, recording.duplicates, recording.refused
    sys.stdout.buffer.flush()
    return metrics
