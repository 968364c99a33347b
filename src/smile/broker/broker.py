"""The broker: logs published events, has a maintainer compute the views, and sends changes to subscribers.

The current program is the one that `smile serve` or `smile apply` named last. Every acknowledged event is in the log,
and views are computed only from the log. So a broker that was killed resumes where it stopped.
"""

import logging
import secrets
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from smile.algebra import mmpl
from smile.broker.directory import BrokerDirectory, BrokerMetadata, source_digest
from smile.broker.maintenance.executor import Executor
from smile.broker.maintenance.listener import BatchDelivery, Horizons, ViewSnapshot
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.program_difference import (
    GenerationRecord,
    ProgramDifference,
    compare_programs,
    plan_generations,
    refuse_changed_streams,
)
from smile.broker.publishing.publication import Publication, PublishResult, SilencePublication
from smile.broker.publishing.publisher import Publisher
from smile.broker.views.view import View
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError, did_you_mean, error
from smile.horizons import HORIZON_MIN
from smile.log.clock import Clock, TickGenerator, wall_clock
from smile.log.storage.durable import DurableLog
from smile.log.storage.remote import RemoteLog, ServedLog
from smile.program import CompiledProgram, compile_program
from smile.settings import TOKEN_PREFIX, Settings, parse_address
from smile.source import Source

PULSE_INTERVAL_S = 0.25
"""How often the broker looks for idle subscribers that are due for a progress message."""
RETENTION_INTERVAL_S = 60.0

_log = logging.getLogger("smile.broker")


class Broker:
    """Thread-safe. `views` and `decoder` are replaced when the program changes: look them up for each use."""

    def __init__(self, directory: BrokerDirectory, metadata: BrokerMetadata, settings: Settings, clock: Clock) -> None:
        self.settings, self._directory, self._clock = settings, directory, clock
        self.compiled = compile_program(metadata.program)
        self.log_token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        """Allows Spark's tasks to read the log over the network, and nothing else."""
        self.failure: SmileError | None = None
        self.warnings: list[dict[str, Any]] = []
        self._started_at = time.time()
        self._program_lock, self._stopping = Lock(), Event()
        streams = self.compiled.rewritten.streams
        self.log = _open_log(directory.log_path, streams, settings.flush)
        unchanged, new_generation = plan_generations(self.compiled, metadata.generations)
        self._refuse_truncated_log(self.compiled, () if new_generation is None else tuple(new_generation.digests))
        self._write_metadata(replace(metadata, generations=(*unchanged, *([new_generation] if new_generation else []))))
        self.views: Mapping[str, View] = self._create_views(self._metadata.generations)
        generations = [record.generation for record in self._metadata.generations]
        self._maintainer = Maintainer(self._create_executor(), self._maintainer_log(), generations, self)
        ticks = TickGenerator(settings.origin, clock)
        self._publisher = Publisher(
            self.log, ticks, settings.silence_ms, settings.idle_ms, streams, self._maintainer.wake
        )
        self._pulse_thread = Thread(target=self._run_pulse, name="pulse", daemon=True)

    @staticmethod
    def open(data: Path, source: Source | None, settings: Settings, clock: Clock = wall_clock) -> "Broker":
        """Opens the directory and starts all threads. Raises errors of the program, the directory and the settings.
        Slow work, such as starting Spark, continues in the background."""
        directory = BrokerDirectory(data)
        try:
            broker = Broker(directory, _select_program(directory, source), settings, clock)
            broker._maintainer.start()
            broker._refuse_lost_log()
            broker._publisher.start()
            broker._pulse_thread.start()
        except BaseException:
            directory.close()
            raise
        return broker

    def stop(self) -> None:
        """Returns when all submitted publications are in the log."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._publisher.stop()
        self._maintainer.stop()
        self._pulse_thread.join()
        self.log.close()
        self._directory.close()

    # ── publishing and subscribing ──────────────────────────────────────────────────────────────────────────────────

    @property
    def decoder(self) -> EventDecoder:
        """The decoder of the streams that can be published to."""
        return self._publisher.decoder

    def publish(self, publication: Publication | SilencePublication) -> "Future[PublishResult]":
        return self._publisher.submit(publication)

    def view(self, name: str) -> View:
        view = self.views.get(name)
        if view is not None:
            return view
        unsubscribed = [v.name for v in self.compiled.original.views if v.name not in self.views]
        if name in unsubscribed:
            hint = f"Add SUBSCRIBE {name}; to the program."
            raise error("E021", f"the program does not subscribe to {name}", hint=hint)
        hint = did_you_mean(name[:100], self.views) or f"There are {', '.join(self.views)}."
        raise error("E021", f"there is no view {name[:100]}", hint=hint)

    # ── the program ─────────────────────────────────────────────────────────────────────────────────────────────────

    def difference(self, source: Source) -> ProgramDifference:
        """Returns what `apply` would change."""
        return self._check_difference(compile_program(source))

    def _check_difference(self, compiled: CompiledProgram) -> ProgramDifference:
        # Dropped streams are still in the log: they may be added again only with the same definition.
        logged = {s.name: s for s in DurableLog.read_definitions(self.log.path)}
        refuse_changed_streams(logged, compiled.rewritten.streams)
        return compare_programs(self.compiled, compiled)

    def apply(self, source: Source) -> ProgramDifference:
        """Switches to this program. Returns when new and changed views have caught up with the log."""
        compiled = compile_program(source)
        if not self._program_lock.acquire(blocking=False):
            raise error("E102", "another change of the program is in progress", hint="Try again later.")
        try:
            difference = self._check_difference(compiled)
            unchanged, new_generation = plan_generations(compiled, self._metadata.generations)
            if new_generation is not None:
                new_generation.generation.plan(1)  # raises an error if the program cannot run
                self._refuse_truncated_log(compiled, tuple(new_generation.digests))
            previous = self.compiled, self._metadata
            self._switch_program(
                compiled,
                replace(
                    self._metadata,
                    program=source,
                    generations=(*unchanged, *([new_generation] if new_generation else [])),
                ),
                new_generation,
            )
            return difference
        except SmileError as problem:
            if self.compiled is compiled and problem.diagnostics[0].code != "E098":
                self._restore_previous_program(*previous)
            raise
        finally:
            self._program_lock.release()

    def _switch_program(
        self, compiled: CompiledProgram, metadata: BrokerMetadata, new_generation: GenerationRecord | None
    ) -> None:
        added_streams = [s for s in compiled.rewritten.streams if s.name not in self.log.streams]
        if added_streams:
            self.log.add_streams(added_streams)
        previous, new_digests = self._metadata, {} if new_generation is None else new_generation.digests
        remaining_names = {view for record in metadata.generations for view in record.digests} - set(new_digests)
        stale_views = [view for view in self.views if view not in remaining_names]
        self._write_metadata(metadata)
        if stale_views:
            try:
                self._maintainer.drop(stale_views)
            except SmileError:
                self._write_metadata(previous)
                raise
        self.compiled = compiled
        self._publisher.set_streams(compiled.rewritten.streams)
        ended_views = [self.views[view] for view in stale_views]
        new_views = {} if new_generation is None else self._create_views([new_generation])
        self.views = {**{name: view for name, view in self.views.items() if name in remaining_names}, **new_views}
        for view in ended_views:
            reason = "was changed" if view.name in new_views else "is no longer in the program"
            view.end(error("E095", f"the view {view.name} {reason}"))
        if new_generation is not None:
            self._add_generation(new_generation, new_views)

    def _add_generation(self, record: GenerationRecord, new_views: Mapping[str, View]) -> None:
        try:
            self._maintainer.add(record.generation, self._maintainer_log())
        except SmileError as problem:
            self.views = {name: view for name, view in self.views.items() if name not in new_views}
            for view in new_views.values():
                view.end(problem)
            raise

    def _restore_previous_program(self, compiled: CompiledProgram, metadata: BrokerMetadata) -> None:
        """Restores the previous program; its dropped views may have to be computed again. Not used while the broker is
        stopping: then the next start continues with the new program."""
        names = {record.generation.name for record in metadata.generations}
        unchanged, missing = plan_generations(
            compiled, [record for record in self._metadata.generations if record.generation.name in names]
        )
        self._switch_program(
            compiled, replace(metadata, generations=(*unchanged, *([missing] if missing else []))), missing
        )

    def _create_views(self, records: Iterable[GenerationRecord]) -> dict[str, View]:
        views: dict[str, View] = {}
        for record in records:
            inputs = record.generation.plan(1).kernels.inputs
            for name, digest in record.digests.items():
                # A new view has reached no horizon, so subscribers with resume tokens wait until it catches up.
                horizons = dict.fromkeys(self.log.streams, HORIZON_MIN)
                views[name] = View(name, inputs[name], digest, self._log_horizons, horizons=horizons)
        return views

    def _refuse_truncated_log(self, compiled: CompiledProgram, views: Iterable[str]) -> None:
        """Refuses new views whose streams were truncated: a view is computed from all events."""
        for view in views:
            for stream in compiled.analysis.relations[view].seals:
                tick = self.log.truncated_to(stream)
                if tick is not None:
                    message = f"{view} needs all events of {stream}, but the log was truncated at tick {tick}"
                    hint = "Views can be added only while the log has all events. The setting `keep` says how long."
                    raise error("E097", message, hint=hint)

    def _refuse_lost_log(self) -> None:
        """Refuses a log that ends before the horizons of a view: the log has lost its end."""
        log_horizons = self._log_horizons()
        for view in self.views.values():
            for stream, tick in view.horizons.items():
                if tick > log_horizons.get(stream, HORIZON_MIN):
                    self._maintainer.stop()
                    message = (
                        f"{view.name} has {stream} up to tick {tick}, but the log ends at {log_horizons.get(stream)}"
                    )
                    hint = "The log has lost its end: restore a backup, or delete state/ to continue without it."
                    raise error("E089", message, hint=hint)

    def _write_metadata(self, metadata: BrokerMetadata) -> None:
        self._directory.write_metadata(metadata)
        self._metadata = metadata

    def _log_horizons(self) -> Horizons:
        """The horizons of the log. No subscriber has seen higher ones."""
        return self._publisher.horizons

    # ── the maintainer and its listener ─────────────────────────────────────────────────────────────────────────────

    def _create_executor(self) -> Executor:
        state_path, settings = self._directory.state_path, self.settings
        if settings.engine == "local":
            from smile.broker.maintenance.local_executor import LocalExecutor  # noqa: PLC0415  # only one of them is needed

            return LocalExecutor(state_path)
        from smile.broker.maintenance.spark_executor import SparkExecutor  # noqa: PLC0415

        spark_log_path = self._directory.spark_log_path
        return SparkExecutor(state_path, settings.master, settings.partitions, spark_log_path, self.log_token)

    def _maintainer_log(self) -> DurableLog:
        """The log for the maintainer. Spark's tasks on this machine read the file; tasks on other machines ask this
        broker."""
        settings, definitions = self.settings, [schema.stream for schema in self.log.schemas.values()]
        if settings.engine == "local" or settings.master.startswith("local") or not settings.flight:
            return self.log
        host, port = parse_address(settings.flight)
        if not port:
            raise error("E100", "on a cluster, flight needs a fixed port: tasks read the log there")
        name = next(iter(settings.hosts), socket.getfqdn() if host in ("0.0.0.0", "::") else host)
        location = f"{'grpc+tls' if settings.tls else 'grpc'}://{f'[{name}]' if ':' in name else name}:{port}"
        certificate = Path(settings.tls_cert).read_bytes() if settings.tls else None
        remote = RemoteLog(location, definitions, self.log_token, certificate)
        return ServedLog(self.log.path, definitions, remote, settings.flush)

    def deliver(self, delivery: BatchDelivery) -> None:
        for name in delivery.views:
            view = self.views.get(name)
            if view is not None:
                view.deliver(delivery.deltas.get(name), delivery.horizons)

    def restore(self, snapshot: ViewSnapshot) -> None:
        view = self.views.get(snapshot.view)
        if view is not None:
            view.restore(snapshot)

    def warn(self, message: str) -> None:
        _log.warning("the broker recovers from an error", extra={"what": message})
        self.warnings = [*self.warnings[-9:], {"at": time.time(), "what": message}]

    def fail(self, problem: SmileError) -> None:
        _log.error("the views have failed", extra={"code": problem.diagnostics[0].code, "what": str(problem)})
        self.failure = problem

    def _run_pulse(self) -> None:
        """Wakes idle subscribers for progress messages, and truncates the log, at intervals."""
        truncated_at = time.monotonic()
        while not self._stopping.wait(PULSE_INTERVAL_S):
            for view in self.views.values():
                view.wake_for_progress()
            if time.monotonic() - truncated_at >= RETENTION_INTERVAL_S:
                truncated_at = time.monotonic()
                self.truncate_log()

    def truncate_log(self) -> None:
        """Removes events that no view needs and that are older than the setting `keep`."""
        retention_us = self.settings.retention_us
        if retention_us is None:
            return
        try:
            needed_horizons = self._maintainer.checkpoint()
            if needed_horizons is not None:
                self.log.truncate(needed_horizons, before=self._clock() - retention_us)
        except SmileError as problem:
            self.warn(f"the log was not truncated: {problem}")

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def health(self) -> str:
        if self.failure is not None:
            return f"failed: {self.failure}"
        if self._stopping.is_set():
            return "stopping"
        return "starting" if self._maintainer.state == "starting" else "ok"

    def status(self) -> dict[str, Any]:
        horizons = self._log_horizons()
        return {
            "at": time.time(),
            "since": self._started_at,
            "health": self.health,
            "engine": self.settings.engine,
            "program": self._metadata.program.name,
            "streams": {name: {"horizon": horizons.get(name)} for name in self.decoder.schemas},
            "views": {
                view.name: {
                    "rows": view.row_count,
                    "changed": view.changed_row_count,
                    "subscribers": view.subscriber_count,
                    "horizons": dict(view.horizons),
                }
                for view in self.views.values()
            },
            "publisher": self._publisher.status(),
            "keeper": dict(self._maintainer.status()),
            "troubles": self.warnings,
        }


def _select_program(directory: BrokerDirectory, source: Source | None) -> BrokerMetadata:
    """The program to run: the stored one, unless another file is served now."""
    metadata = directory.read_metadata()
    if source is None:
        if metadata is None:
            hint = "Name one: smile serve PROGRAM."
            raise error("E105", f"{directory.path} has no program", hint=hint)
        return metadata
    if metadata is None:
        return BrokerMetadata(source, source_digest(source))
    if metadata.served == source_digest(source):
        return metadata
    return replace(metadata, program=source, served=source_digest(source))


def _open_log(path: str, streams: Sequence[mmpl.StreamDef], flush: bool) -> DurableLog:
    """Opens the log with the streams of the program and those that the log already has."""
    if not Path(path).exists():
        return DurableLog.open_or_create(path, streams, flush)
    logged = {s.name: s for s in DurableLog.read_definitions(path)}
    refuse_changed_streams(logged, streams)
    log = DurableLog.open_or_create(path, list(logged.values()), flush)
    new_streams = [s for s in streams if s.name not in logged]
    if new_streams:
        log.add_streams(new_streams)
    return log
