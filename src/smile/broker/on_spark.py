"""The keeper whose views are a pipeline on Spark, in a Java process of its own.

All that is asked of Spark is asked by one thread. Whatever becomes of Java, the state on the disk says where to go on:
another Java is started, for as long as that takes.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from smile import limits
from smile.broker.keeper import Horizons, Listener
from smile.broker.orders import Orders, is_lasting
from smile.broker.telling import Telling
from smile.engine.generation import Generation, Json
from smile.engine.spark.changing import Filling, dropped, refuse_twice, widened, without
from smile.engine.spark.figures import Figures
from smile.engine.spark.job import Job
from smile.engine.spark.pipeline import Pipeline, Taken, status_of
from smile.engine.spark.planning import Offset
from smile.engine.spark.session import TROUBLE, Java, Session, running
from smile.engine.spark.standing import Standing, rows_at
from smile.errors import SmileError, error
from smile.kernels.transform import Input
from smile.log.position import Limit, Log

LIMIT = Limit(limits.spark_batch_rows_max, limits.spark_batch_bytes_max)
STOPPING = "the keeper is stopping"


class OnSpark:
    """A `Keeper`. It uses the Java that this process has, or starts one, which then ends with it. With `token` its
    executors read the log over the network where they are on other machines."""

    def __init__(
        self,
        directory: Path,
        log: Log,
        generations: Sequence[Generation],
        listener: Listener,
        master: str,
        partitions: int,
        spark_log: Path,
        token: str | None = None,
    ) -> None:
        self._standing = Standing(str(directory / "on-spark"))
        self._log, self._generations = log, tuple(generations)
        self._master, self._partitions, self._spark_log, self._token = master, partitions, spark_log, token
        self._inputs = {view: source for g in generations for view, source in g.inputs().items()}
        self._telling = Telling(listener)
        self._figures = Figures()
        self._job: Job | None = None
        self._java: Java | None = None
        self._is_own = False
        self._pipeline: Pipeline | None = None
        self._filling: Filling | None = None
        self._asked: dict[str, Future[None]] = {}
        """Generations that somebody waits for, by name."""
        self._woken = Condition()
        self._orders = Orders(self._wake)
        self._thread = Thread(target=self._run, name="keeper", daemon=True)
        self.state = "starting"
        self._status: Json = {}

    # ── a keeper ────────────────────────────────────────────────────────────────────────────────────────────────────

    def inputs(self, view: str) -> Input:
        if view not in self._inputs:
            raise error("E021", f"no view {view} is kept")
        return self._inputs[view]

    def start(self) -> None:
        job = self._go_on()
        self._restore(job, job.start)
        self._status = status_of(job, job.start, None, self._figures.status({}))
        self._thread.start()

    def wake(self) -> None:
        """Spark looks into the log all the time."""

    def add(self, generation: Generation, log: Log) -> None:
        self._orders.give(lambda: self._begin(generation, log)).result()

    def drop(self, views: Sequence[str]) -> None:
        self._orders.give(lambda: self._without(views))

    def checkpoint(self) -> Horizons | None:
        held = self._orders.give(self._hold) if self.state == "running" else None
        return None if held is None else self._standing.harden(*held)

    def status(self) -> Mapping[str, Any]:
        return {"state": self.state, **self._status}

    def stop(self) -> None:
        self._orders.close(error("E098", STOPPING))
        self._telling.close()
        self._wake()
        if self._thread.is_alive():
            if self._pipeline is None:
                # Java is on its way, and nobody waits for it any more.
                self._end_java()
            self._thread.join(limits.keeper_stop_s_max)
            if self._thread.is_alive():
                self._end_java()
                self._thread.join(limits.keeper_stop_s_max)
        if self.state != "failed":
            self.state = "stopped"

    # ── its thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _wake(self) -> None:
        with self._woken:
            self._woken.notify_all()

    def _wait(self, seconds: float) -> None:
        """Until there is something to do, or so long."""
        with self._woken:
            if not self._orders.any:
                self._woken.wait(seconds)

    def _rest(self, seconds: float) -> None:
        """So long, unless it is to stop."""
        until = time.monotonic() + seconds
        with self._woken:
            while not self._orders.closed and (left := until - time.monotonic()) > 0:
                self._woken.wait(left)

    def _run(self) -> None:
        pause = 0.0
        while not self._orders.closed:
            batches = self._figures.batches
            try:
                self._serve()
            except Exception as problem:  # noqa: BLE001  # whatever it is, the next try may do better
                told = self._told(problem)
                if is_lasting(told):
                    self._fail(told)
                    break
                if not self._orders.closed:
                    self.state = "recovering"
                    self._telling.trouble(str(told) or repr(told))
            self._put_away()
            pause = 0.0 if self._figures.batches > batches else pause
            pause = min(max(2 * pause, limits.keeper_pause_s_min), limits.keeper_pause_s_max)
            self._rest(pause)
        self._put_away()
        self._end_java()
        self._orders.refuse(error("E098", STOPPING), self._asked)

    def _serve(self) -> None:
        """Until it is to stop, or something goes wrong."""
        spark = self._session()
        job = self._job or self._go_on()
        self._pipeline = Pipeline(spark, self._standing, job, self._deliver, self._telling.trouble)
        self._pipeline.figures = self._figures
        self._pipeline.start()
        while not self._orders.closed:
            self._orders.obey()
            self._fill()
            self._pipeline.look()
            self._status = self._pipeline.last_status
            if self.state != "running" and self._pipeline.has_begun:
                self.state = "running"
            self._wait(limits.keeper_poll_s)

    def _session(self) -> Session:
        self._java, self._is_own = running(), False
        if self._java is None:
            self._java, self._is_own = Java(self._master, self._spark_log, self._token), True
            if self._orders.closed:
                raise error("E098", STOPPING)
        try:
            return self._java.session("smile")
        except BaseException:
            self._end_java()
            raise

    def _end_java(self) -> None:
        if self._java is not None and self._is_own:
            self._java.end()

    def _go_on(self) -> Job:
        """From where the state on the disk is; what is not in it yet is to be filled."""
        self._job = self._standing.went_on(self._generations, self._partitions, self._log, LIMIT, self._telling.trouble)
        return self._job

    def _put_away(self) -> None:
        """Pipelines. The next ones begin with what is on the disk."""
        for pipeline in (None if self._filling is None else self._filling.own, self._pipeline):
            try:
                if pipeline is not None:
                    pipeline.stop()
            except (*TROUBLE, SmileError):
                pass  # it is gone with its Java, or its last status cannot be written
        self._pipeline = self._filling = self._job = None

    def _told(self, problem: Exception) -> Exception:
        """What there is to say of what went wrong."""
        if isinstance(problem, TROUBLE) and self._java is not None:
            return self._java.told(problem) or problem
        return problem

    def _fail(self, problem: SmileError) -> None:
        self.state = "failed"
        self._orders.close(problem)
        self._orders.refuse(problem, self._asked)
        self._telling.failed(problem)

    # ── telling ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _deliver(self, batch: Taken) -> None:
        views = [view for generation in batch.job.generations for view in generation.wanted]
        start, end = batch.start.horizons, batch.end.horizons
        self._telling.batch(views, start, end, batch.changes, lambda view: rows_at(batch.job, batch.end, view))

    def _restore(self, job: Job, offset: Offset) -> None:
        if offset.number:
            views = [view for generation in job.generations for view in generation.wanted]
            self._telling.restore(views, offset.horizons, lambda view: rows_at(job, offset, view))

    # ── views come and go ───────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, generation: Generation, log: Log) -> "Future[None]":
        assert self._pipeline is not None
        refuse_twice(self._generations, generation)
        self._log = log
        widened(self._pipeline, log)
        self._inputs |= generation.inputs()
        self._generations += (generation,)
        future: Future[None] = Future()
        self._asked[generation.name] = future
        return future

    def _fill(self) -> None:
        """Generations that are to be there and are not, one after the other."""
        assert self._pipeline is not None
        if self._filling is None:
            missing = self._missing(self._pipeline.job)
            if not missing:
                return
            self._filling = Filling.begun(self._pipeline, missing[0])
            own = self._filling.own
            self._restore(own.job, own.offset)
            own.start()
        generation = self._filling.generation
        try:
            if not self._filling.look():
                return
            self._filling.join()
        except SmileError as problem:
            if generation.name not in self._asked or not is_lasting(problem):
                raise
            self._filling.give_up()
            self._filling = None
            self._forget(generation.wanted)
            self._asked.pop(generation.name).set_exception(problem)
            return
        self._filling = None
        if generation.name in self._asked:
            self._asked.pop(generation.name).set_result(None)

    def _missing(self, job: Job) -> list[Generation]:
        there = {generation.name for generation in job.generations}
        return [generation for generation in self._generations if generation.name not in there]

    def _forget(self, views: Sequence[str]) -> None:
        self._generations = without(self._generations, views)
        self._inputs = {view: source for view, source in self._inputs.items() if view not in views}
        self._telling.forget(views)

    def _without(self, views: Sequence[str]) -> None:
        assert self._pipeline is not None
        for view in views:
            self.inputs(view)
        if self._filling is not None and set(views) & set(self._filling.generation.wanted):
            self._filling.give_up()
            waiting = self._asked.pop(self._filling.generation.name, None)
            if waiting is not None:
                waiting.set_exception(error("E021", f"{', '.join(views)} was dropped"))
            self._filling = None
        here = [view for view in views if view in self._pipeline.views]
        if here:
            dropped(self._pipeline, here)
        self._forget(views)

    def _hold(self) -> tuple[Job, Offset] | None:
        """A version that stays. None while views are filled: they read the log from the first."""
        pipeline = self._pipeline
        assert pipeline is not None
        if not pipeline.offset.number or self._missing(pipeline.job):
            return None
        with pipeline.turn:
            self._standing.hold(pipeline.job, pipeline.offset)
            return pipeline.job, pipeline.offset
