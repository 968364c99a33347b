"""The broker: logs published events, has a maintainer compute the views, and sends changes to subscribers.

The current program is the one that `smile serve` or `smile apply` named last. Every acknowledged event is in the log,
and views are computed only from the log. So a broker that was killed resumes where it stopped.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random, SystemRandom
from threading import Event, Lock, RLock, Thread
from typing import Any

from smile import limits
from smile.algebra import mmpl
from smile.analysis.export_description import definition_digest, export_definition
from smile.broker.directory import BrokerDirectory, BrokerMetadata
from smile.broker.health import HealthWord
from smile.broker.health_watch import HealthWatch
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.maintenance.create_executor import create_executor, executor_log
from smile.broker.maintenance.listener import BatchDelivery, Horizons, ViewPause, ViewSnapshot
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.network.descriptions import FetchDescription, ImportRecords, fetch_nothing, refuse_circles
from smile.broker.network.exported_relations import ExportedRelations, join_histories
from smile.broker.network.host import ExportedRelation, OpenAccess
from smile.broker.network.hosted_stream import HostedStream, found_stream
from smile.broker.network.neighbours import Neighbours
from smile.broker.network.network import Network
from smile.broker.network.origin_commands import OriginCommands
from smile.broker.program_choice import choose_program, describe_choice
from smile.broker.program_difference import (
    GenerationRecord,
    ProgramDifference,
    compare_programs,
    plan_generations,
    refuse_changed_streams,
    separate_views,
)
from smile.broker.publishing.publication import Publication, PublishResult, SilencePublication
from smile.broker.publishing.publisher import Publisher
from smile.broker.retention import Retention, refuse_truncated_streams
from smile.broker.status import BrokerStatus
from smile.broker.subscriptions.durable_subscriptions import DurableSubscriptions
from smile.broker.views.portable_tokens import base_streams, portable_digest
from smile.broker.views.view import View
from smile.decoding.event_decoder import EventDecoder
from smile.engine.generation import Generation
from smile.errors import SmileError, did_you_mean, error
from smile.horizons import HORIZON_MIN
from smile.links.link import LinkIdentity
from smile.log.clock import Clock, TickGenerator, wall_clock
from smile.log.storage.durable import DurableLog
from smile.program import CompiledProgram
from smile.settings import TOKEN_PREFIX, Settings
from smile.source import Source

PULSE_INTERVAL_S = 0.25
"""How often the broker looks for idle subscribers that are due for a progress message."""

_log = logging.getLogger("smile.broker")


@dataclass(frozen=True)
class StepwiseRun:
    """A broker without threads, clock and randomness of its own, for simulations. The caller calls `commit`, `advance`
    and `pulse` of the broker when they are due. `monotonic` returns seconds."""

    monotonic: Callable[[], float]
    random: Random


class Broker:
    """Thread-safe. `views` and `decoder` are replaced when the program changes: look them up for each use."""

    def __init__(
        self,
        directory: BrokerDirectory,
        metadata: BrokerMetadata,
        settings: Settings,
        clock: Clock,
        fetch_description: FetchDescription,
        stepwise: StepwiseRun | None = None,
    ) -> None:
        self.settings, self._directory = settings, directory
        self._monotonic = time.monotonic if stepwise is None else stepwise.monotonic
        random = SystemRandom() if stepwise is None else stepwise.random
        self._fetch_description = fetch_description
        self.compiled, import_records = self._compile(metadata.program, metadata.imports)
        self.log_token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        """Allows Spark's tasks to read the log over the network, and nothing else."""
        self.program_note = ""
        """Which program runs, and why, if it is not simply the one that was served."""
        self.failure: SmileError | None = None
        self.warnings: list[dict[str, Any]] = []
        self._exports: ExportedRelations | None = None
        self._program_lock, self._metadata_lock, self._stopping = Lock(), RLock(), Event()
        has_log = Path(directory.log_path).exists()
        log_id = metadata.log_id if has_log and metadata.log_id else random.randbytes(8).hex()
        self.log = _open_log(directory.log_path, self.compiled.rewritten.log_streams, settings.flush)
        unchanged, new_generation = plan_generations(self.compiled, metadata.generations)
        refuse_truncated_streams(
            self.log, self.compiled, () if new_generation is None else tuple(new_generation.digests)
        )
        generations = (*unchanged, *([new_generation] if new_generation else []))
        self._write_metadata(replace(metadata, generations=generations, imports=import_records, log_id=log_id))
        self._found_streams()
        self.views: Mapping[str, View] = self._create_views(self._metadata.generations)
        records = self._metadata.generations
        self._maintainer = Maintainer(
            create_executor(directory, settings, self.log_token, self._monotonic),
            executor_log(self.log, settings, self.log_token),
            [record.generation for record in records],
            self,
            {record.generation.name: record.pause for record in records if record.pause is not None},
            settings.view_memory_max or None,
            self._monotonic,
        )
        ticks = TickGenerator(settings.origin, clock)
        self._publisher = Publisher(
            self.log,
            ticks,
            settings.silence_ms,
            settings.idle_ms,
            self.compiled.rewritten.streams,
            self._wake,
            self._monotonic,
            settings.name,
            log_id,
        )
        neighbours = Neighbours(directory.neighbours_path, clock)
        identity = LinkIdentity(settings.name, random.randbytes(8).hex())
        self.network = Network(identity, self, OpenAccess(), neighbours, Random(random.getrandbits(64)))
        self.subscriptions = DurableSubscriptions(directory.subscriptions_path, self, clock, settings.flush)
        self.origins = OriginCommands(self.network)
        self._retention = Retention(
            self.log, self._maintainer, self.network, self.subscriptions, settings, clock, self._monotonic
        )
        self._set_inputs()
        self._pulse_thread = Thread(target=self._run_pulse, name="pulse", daemon=True)
        self.health_watch = HealthWatch(self._publisher, self._maintainer, directory, settings, self)
        self._status = BrokerStatus(
            settings.engine,
            directory,
            self._publisher,
            self._maintainer,
            self.network,
            self.subscriptions,
            self.health_watch,
            self._monotonic,
            self,
        )

    @staticmethod
    def open(
        data: Path,
        source: Source | None,
        settings: Settings,
        clock: Clock = wall_clock,
        fetch_description: FetchDescription = fetch_nothing,
        stepwise: StepwiseRun | None = None,
    ) -> "Broker":
        """Opens the directory and starts all threads. Raises errors of the program, the directory and the settings.
        Slow work, such as starting Spark, continues in the background. `fetch_description` is called only if the
        program is new."""
        directory = BrokerDirectory(data)
        try:
            stored = directory.read_metadata()
            metadata = choose_program(directory, stored, source, fetch_description)
            broker = Broker(directory, metadata, settings, clock, fetch_description, stepwise)
            broker.program_note = describe_choice(stored, source)
            broker._maintainer.start(has_thread=stepwise is None)
            broker._refuse_lost_log()
            if stepwise is None:
                broker._publisher.start()
                broker._pulse_thread.start()
                broker.health_watch.start()
        except BaseException:
            directory.close()
            raise
        return broker

    def stop(self) -> None:
        """Returns when all submitted publications are in the log. A batch that takes too long is not waited for."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._publisher.stop()
        self._maintainer.stop()
        self._pulse_thread.join(limits.maintainer_stop_s_max)
        self.subscriptions.close()
        self.health_watch.stop()
        if not self.has_unfinished_work:
            self.log.close()
        self._directory.close()

    @property
    def has_unfinished_work(self) -> bool:
        """Whether threads of a stopped broker still run: only the end of the process ends them."""
        return self._maintainer.is_alive or self._pulse_thread.is_alive()

    # ── steps of a broker without threads ───────────────────────────────────────────────────────────────────────────

    @property
    def commit_due_at(self) -> float:
        """When the next commit is due."""
        return self._publisher.due_at

    def commit(self) -> None:
        """Logs what was published or imported, or the silence since the last commit."""
        self._publisher.step()

    def advance(self) -> bool:
        """Processes a batch of the log. Returns whether there was one."""
        return self._maintainer.step()

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

    @property
    def program(self) -> mmpl.Program:
        """The program as it runs."""
        return self.compiled.rewritten

    # ── the program ─────────────────────────────────────────────────────────────────────────────────────────────────

    def difference(self, source: Source) -> ProgramDifference:
        """Returns what `apply` would change."""
        return self._check_difference(self._compile_with_imports(source)[0])

    def _compile_with_imports(self, source: Source) -> tuple[CompiledProgram, ImportRecords]:
        """Compiles a program with new descriptions of what it imports."""
        return self._compile(source, self._metadata.imports.fetched(source, self._fetch_description))

    def _compile(self, source: Source, records: ImportRecords) -> tuple[CompiledProgram, ImportRecords]:
        compiled, new_records = records.compile(source)
        refuse_circles(self.settings.name, compiled.original, new_records)
        return compiled, new_records

    def _check_difference(self, compiled: CompiledProgram) -> ProgramDifference:
        # Dropped streams are still in the log: they may be added again only with the same definition.
        logged = {s.name: s for s in DurableLog.read_definitions(self.log.path)}
        refuse_changed_streams(logged, compiled.rewritten.log_streams)
        return compare_programs(self.compiled, compiled)

    def apply(self, source: Source) -> ProgramDifference:
        """Switches to this program. Returns when new and changed views have caught up with the log."""
        compiled, import_records = self._compile_with_imports(source)
        if not self._program_lock.acquire(blocking=False):
            raise error("E102", "another change of the program is in progress", hint="Try again later.")
        try:
            difference = self._check_difference(compiled)
            _, new_generation = plan_generations(compiled, self._metadata.generations)
            if new_generation is not None:
                new_generation.generation.plan(1)  # raises an error if the program cannot run
                refuse_truncated_streams(self.log, compiled, tuple(new_generation.digests))
            previous = self.compiled, self._metadata
            self._switch_program(compiled, source, import_records, new_generation)
            return difference
        except SmileError as problem:
            if self.compiled is compiled and problem.diagnostics[0].code != "E098":
                self._restore_previous_program(*previous)
            raise
        finally:
            self._program_lock.release()

    def _switch_program(
        self,
        compiled: CompiledProgram,
        source: Source,
        import_records: ImportRecords,
        new_generation: GenerationRecord | None,
    ) -> None:
        added_streams = [s for s in compiled.rewritten.log_streams if s.name not in self.log.streams]
        if added_streams:
            self.log.add_streams(added_streams)
        with self._metadata_lock:
            # The maintainer's thread may have paused views since the generations were planned.
            previous = self._metadata
            unchanged, _ = plan_generations(compiled, previous.generations)
            generations = (*unchanged, *([new_generation] if new_generation else []))
            self._write_metadata(replace(previous, program=source, generations=generations, imports=import_records))
        remaining_names = {view for record in unchanged for view in record.digests}
        stale_views = [view for view in self.views if view not in remaining_names]
        if stale_views:
            try:
                self._maintainer.drop(stale_views)
            except SmileError:
                self._write_metadata(previous)
                raise
        self.compiled = compiled
        self._set_inputs()
        ended_views = [self.views[view] for view in stale_views]
        new_views = {} if new_generation is None else self._create_views([new_generation])
        self.views = {**{name: view for name, view in self.views.items() if name in remaining_names}, **new_views}
        for view in ended_views:
            reason = "was changed" if view.name in new_views else "is no longer in the program"
            view.end(error("E095", f"the view {view.name} {reason}"))
        self.subscriptions.program_changed()
        if new_generation is not None:
            self._add_generation(new_generation, new_views)

    def _add_generation(self, record: GenerationRecord, new_views: Mapping[str, View]) -> None:
        try:
            log = executor_log(self.log, self.settings, self.log_token)
            self._maintainer.add(record.generation, log)
        except SmileError as problem:
            self.views = {name: view for name, view in self.views.items() if name not in new_views}
            for view in new_views.values():
                view.end(problem)
            raise

    def _restore_previous_program(self, compiled: CompiledProgram, metadata: BrokerMetadata) -> None:
        """Restores the previous program; its dropped views may have to be computed again. Not used while the broker is
        stopping: then the next start continues with the new program."""
        _, missing = plan_generations(compiled, self._metadata.generations)
        self._switch_program(compiled, metadata.program, metadata.imports, missing)

    def _set_inputs(self) -> None:
        """Tells the publisher and the network what the program reads. The log has the streams."""
        program, records = self.compiled.rewritten, self._metadata.imports
        self._found_streams()
        imported_from = {i.name: " or ".join(i.brokers) for i in program.imports}
        self.network.set_hosted([self._find_hosted(stream) for stream in program.streams if stream.many_origins])
        self._publisher.set_streams(program.streams, imported_from)
        self.network.set_imports(program.imports, {i.name: records.history(i) for i in program.imports})

    def _found_streams(self) -> None:
        """This broker becomes the first origin of new streams with many origins that have their home here."""
        log_id = self._metadata.log_id
        for stream in self.compiled.rewritten.streams:
            if stream.many_origins:
                found_stream(stream, self.log, self.settings.name, log_id, join_histories({log_id}))

    def _find_hosted(self, stream: mmpl.StreamDef) -> HostedStream:
        """A stream with many origins that is published here."""
        present, log_id = self.network.hosted_streams.get(stream.name), self._metadata.log_id
        if present is not None and present.stream == stream:
            return present
        digest = definition_digest(export_definition(self.compiled.rewritten, stream.name))
        return HostedStream(
            stream, digest, self.log, self.settings.name, log_id, lambda: self._publisher.own_horizon(stream.name)
        )

    def resume(self, view: str) -> None:
        """Resumes a paused view, and those that were paused with it. Returns before they have caught up."""
        self._maintainer.resume(self.view(view).name)

    def _create_views(self, records: Iterable[GenerationRecord]) -> dict[str, View]:
        views: dict[str, View] = {}
        for record in records:
            inputs, program = record.generation.plan(1).kernels.inputs, record.generation.program
            imported = {stream.name for import_ in program.imports for stream in import_.log_streams}
            for name, digest in record.digests.items():
                # A new view has reached no horizon, so subscribers with resume tokens wait until it catches up.
                horizons = dict.fromkeys(self.log.streams, HORIZON_MIN)
                views[name] = View(
                    name,
                    inputs[name],
                    f"{digest} {self._metadata.log_id}",
                    self._log_horizons,
                    self._monotonic,
                    horizons,
                    pause=record.pause,
                    portable_digest=portable_digest(program, name, self._metadata.imports, self._metadata.log_id),
                    base_streams=base_streams(program, name),
                    imported_streams=imported,
                )
        return views

    def _refuse_lost_log(self) -> None:
        """Refuses a log that ends before the horizons of a view: the log has lost its end."""
        log_horizons = self.log.newest().named_horizons()
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

    # ── the network ─────────────────────────────────────────────────────────────────────────────────────────────────

    def describe_export(self, relation: str) -> dict[str, Any]:
        """What a neighbour that imports the relation records about it."""
        description = self._exported_relations().describe(relation)
        if description is None:
            raise self._no_export_error(relation)
        return description

    def find_export(self, relation: str) -> ExportedRelation:
        exported = self._exported_relations().find(relation, self.views)
        if exported is None:
            raise self._no_export_error(relation)
        return exported

    def append_imported(self, append: CacheAppend) -> "Future[PublishResult]":
        return self._publisher.submit_imported(append)

    def end_origin(self, stream: str) -> "Future[PublishResult]":
        return self._publisher.submit_end(stream)

    def checkpoint_horizons(self) -> Horizons:
        return self._retention.checkpoint_horizons

    def _exported_relations(self) -> ExportedRelations:
        compiled, metadata, exports = self.compiled, self._metadata, self._exports
        if exports is None or not exports.is_of(compiled, metadata.imports, metadata.generations):
            name, origin = self.settings.name, str(self.settings.origin)
            exports = self._exports = ExportedRelations(
                name, metadata.log_id, origin, compiled, metadata.imports, metadata.generations, self.log.membership
            )
        return exports

    def _no_export_error(self, relation: str) -> SmileError:
        try:
            self.view(relation)
        except SmileError as problem:
            return problem
        return error("E021", f"there is no relation {relation[:100]}")

    def _wake(self) -> None:
        """There is a new commit in the log."""
        self._maintainer.wake()
        self.network.log_advanced()
        self.subscriptions.log_advanced()

    # ── the maintainer and its listener ─────────────────────────────────────────────────────────────────────────────

    def deliver(self, delivery: BatchDelivery) -> None:
        for name in delivery.views:
            view = self.views.get(name)
            if view is not None:
                view.deliver(delivery.deltas.get(name), delivery.horizons)

    def restore(self, snapshot: ViewSnapshot) -> None:
        view = self.views.get(snapshot.view)
        if view is not None:
            view.restore(snapshot)

    def pause_views(self, generation: str, separated: Generation, pause: ViewPause) -> None:
        with self._metadata_lock:
            records = separate_views(self._metadata.generations, generation, separated, pause)
            self._write_metadata(replace(self._metadata, generations=records))
        views = ", ".join(separated.views)
        _log.error("views are paused", extra={"views": views, "code": pause.code, "what": pause.message})
        self._set_pause(separated, pause)

    def resume_views(self, generation: Generation) -> None:
        with self._metadata_lock:
            records = [
                replace(record, pause=None) if record.generation.name == generation.name else record
                for record in self._metadata.generations
            ]
            self._write_metadata(replace(self._metadata, generations=tuple(records)))
        _log.info("views are resumed", extra={"views": ", ".join(generation.views)})
        self._set_pause(generation, None)

    def _set_pause(self, generation: Generation, pause: ViewPause | None) -> None:
        for name in generation.views:
            if name in self.views:
                self.views[name].set_pause(pause)

    def warn(self, message: str) -> None:
        _log.warning("the broker recovers from an error", extra={"what": message})
        self.warnings = [*self.warnings[-9:], {"at": time.time(), "what": message}]

    def fail(self, problem: SmileError) -> None:
        _log.error("the views have failed", extra={"code": problem.diagnostics[0].code, "what": str(problem)})
        self.failure = problem

    def _run_pulse(self) -> None:
        while not self._stopping.wait(PULSE_INTERVAL_S):
            self.pulse()

    def pulse(self) -> None:
        """Wakes idle subscribers for progress messages, and truncates the log, at intervals."""
        for view in self.views.values():
            view.wake_for_progress()
        if self._retention.is_due:
            self.truncate_log()

    def truncate_log(self) -> None:
        """Removes from the log what is not needed any more."""
        try:
            self._retention.truncate(has_views=bool(self.views))
        except SmileError as problem:
            self.warn(f"the log was not truncated: {problem}")

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def health(self) -> HealthWord:
        if self._stopping.is_set():
            return "stopping"
        if self._maintainer.state == "starting":
            return "starting"
        report = self.health_watch.report
        return "failing" if report.is_severe else "degraded" if report.troubles else "ok"

    @property
    def is_live(self) -> bool:
        """Whether all threads run. If not, a restart helps."""
        are_running = self._publisher.is_alive and self._pulse_thread.is_alive() and self.health_watch.is_alive
        has_maintainer = self._maintainer.is_alive or self.failure is not None
        return self._stopping.is_set() or (are_running and has_maintainer)

    def status(self) -> dict[str, Any]:
        return self._status.report()


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
