"""The stand-in: the in-process engine, which maintains the views of a pipeline on Spark until Spark has caught up.

It continues from the pipeline's last state, in memory only, and delivers like the pipeline: knowledge depends on the
horizons alone, so a subscriber cannot see who computed it. `OrderedDelivery` skips what the pipeline repeats, until the
pipeline reaches the delivered horizons. A stand-in that fails or grows too large ends, and the views wait for Spark.
"""

import time
from collections.abc import Callable
from threading import Event, Thread

from smile import limits
from smile.broker.maintenance.local_batches import BatchFigures, advance_each
from smile.broker.maintenance.local_generation import LocalGeneration
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation
from smile.engine.local import EngineState
from smile.engine.repartition import repartition_states
from smile.engine.spark.job import Job
from smile.engine.spark.pipeline_directory import JobStates, read_states
from smile.engine.spark.task import tables_of_states
from smile.engine.view_error import ViewError
from smile.errors import message_of


class StandIn:
    """Runs in a thread of its own between `start` and `stop`."""

    def __init__(self, job: Job, delivery: OrderedDelivery, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._job, self._delivery, self._clock = job, delivery, clock
        self._events = 0
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="stand-in", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when it delivers nothing more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    # ── its thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            backlog, _ = self._job.log.backlog(self._job.start.position)
            generations = [] if backlog > limits.stand_in_backlog_max else self._load_generations()
            while generations and not self._stopping.is_set() and not self._is_too_large(generations):
                if not self._advance(generations):
                    self._stopping.wait(limits.stand_in_poll_s)
        except ViewError:
            pass  # the pipeline fails in the same way, and the maintainer then pauses the views
        except Exception as problem:  # noqa: BLE001  # whatever it is, Spark maintains the views
            self._delivery.warn(f"the views wait for Spark: {message_of(problem) or repr(problem)}")

    def _load_generations(self) -> list[LocalGeneration]:
        """At the start of the job; none if the state is too large."""
        states = read_states(self._job, self._job.start)
        tables = [table for by_name in states.values() for table in tables_of_states(by_name).values()]
        if sum(table.nbytes for table in tables) > limits.stand_in_state_bytes_max:
            return []
        return [self._load_generation(generation, states) for generation in self._job.generations]

    def _load_generation(self, generation: Generation, states: JobStates) -> LocalGeneration:
        plan, start = generation.plan(1), self._job.start
        state: EngineState | None = None
        if start.number:
            own_states = {
                place: by_name[generation.name] for place, by_name in states.items() if generation.name in by_name
            }
            merged = repartition_states(self._job.plans[generation.name], plan, own_states)
            state = EngineState(start.number, start.horizons, merged[plan.stages[0].number, 0])
        return LocalGeneration.in_memory(generation, plan, state, self._job.log, self._clock)

    def _is_too_large(self, generations: list[LocalGeneration]) -> bool:
        state_bytes = sum(local.state_bytes for local in generations)
        return self._events > limits.stand_in_events_max or state_bytes > limits.stand_in_state_bytes_max

    def _advance(self, generations: list[LocalGeneration]) -> bool:
        failures = list[ViewError]()
        advanced = advance_each(generations, self._job.log, self._delivery, failures, self._count_events)
        for failure in failures[:1]:
            raise failure
        return advanced

    def _count_events(self, batch: BatchFigures) -> None:
        self._events += batch.events
