"""The broker: logs published events, has a maintainer compute the views, and sends changes to subscribers.

The current program is the one that `smile serve` or `smile apply` named last. Every acknowledged event is in the log,
and views are computed only from the log. So a broker that was killed resumes where it stopped.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from smile import limits
from smile.algebra import mmpl
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.activity import Activity
from smile.broker.attached_service import AttachedService
from smile.broker.broker_log import open_log
from smile.broker.catalogue import RelationCatalogue
from smile.broker.dead_letters import DeadLetterOffice
from smile.broker.directory import BrokerDirectory, BrokerMetadata
from smile.broker.global_streams.global_imports import GlobalImports
from smile.broker.global_streams.log_sources import LogSources
from smile.broker.health import HealthWord
from smile.broker.health_watch import HealthWatch
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.maintenance.create_executor import create_executor, executor_log
from smile.broker.maintenance.listener import BatchDelivery, Horizons, ViewPause, ViewSnapshot
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.network.description_wait import DescriptionWait
from smile.broker.network.descriptions import (
    FetchDescription,
    FetchedDescriptions,
    ImportRecords,
    fetch_nothing,
)
from smile.broker.network.host import ExportedRelation, OpenAccess
from smile.broker.network.hosted_streams import HostedStreams, found_streams
from smile.broker.network.link_catalogue import LinkCatalogue
from smile.broker.network.local_exports import LocalExports
from smile.broker.network.neighbours import Neighbours
from smile.broker.network.network import Network
from smile.broker.network.origin_commands import OriginCommands
from smile.broker.network.published_ticks import PublishedTicks
from smile.broker.network.routed_imports import RoutedImports
from smile.broker.network.routed_stream import RoutedImport
from smile.broker.network.routing import Routing
from smile.broker.program_changes import ProgramChanges
from smile.broker.program_choice import choose_program, describe_choice
from smile.broker.program_difference import (
    ProgramDifference,
)
from smile.broker.publishing.publication import AtomicPublication, Publication, PublishResult, SilencePublication
from smile.broker.publishing.publisher import Publisher
from smile.broker.queries import AdHocQueries
from smile.broker.retention import Retention, find_histories
from smile.broker.running_program import RunningProgram
from smile.broker.start_progress import StartProgress
from smile.broker.status import BrokerStatus
from smile.broker.subscriptions.durable_subscriptions import DurableSubscriptions
from smile.broker.subscriptions.global_stream import GlobalStream, GlobalStreams, ProducerStream
from smile.broker.views.view import View
from smile.decoding.event_decoder import EventDecoder
from smile.engine.generation import Generation
from smile.errors import SmileError, did_you_mean, error
from smile.links.link import LinkIdentity
from smile.log.clock import Clock, TickGenerator, wall_clock
from smile.program import CompiledProgram
from smile.registry.epochs import ClosedEpoch
from smile.settings import TOKEN_PREFIX, Settings
from smile.source import Source

if TYPE_CHECKING:
    from smile.engine.spark.host import SparkHost  # slow to import, and only needed on Spark

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
        fetched: FetchedDescriptions | None = None,
        spark: "SparkHost | None" = None,
    ) -> None:
        self.settings, self._directory = settings, directory
        self._monotonic = time.monotonic if stepwise is None else stepwise.monotonic
        self._clock = clock
        random = SystemRandom() if stepwise is None else stepwise.random
        self.running = RunningProgram(
            directory,
            metadata,
            settings,
            self._monotonic,
            lambda: self.log,
            lambda: self.log_horizons,
            has_run=fetched is not None and fetched.has_run,
        )
        """The program as it runs."""
        self.descriptions = DescriptionWait(
            settings.name,
            self,
            fetched or FetchedDescriptions(self.running.metadata.imports),
            Random(random.getrandbits(64)),
        )
        """What the program waits for before it can run as a whole."""
        self.log_token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        """Allows Spark's tasks to read the log over the network, and nothing else."""
        self.program_note = ""
        """Which program runs, and why, if it is not simply the one that was served."""
        self.failure: SmileError | None = None
        self.warnings: list[dict[str, Any]] = []
        self.attached: tuple[AttachedService, ...] = ()
        """The services that run beside it."""
        self.dead_letters: DeadLetterOffice | None = None
        """Those of its connectors, if it has any."""
        self._stopping = Event()
        has_log = Path(directory.log_path).exists()
        log_id = metadata.log_id if has_log and metadata.log_id else random.randbytes(8).hex()
        self.log = open_log(directory.log_path, self.program.log_streams, settings.flush)
        self.running.begin(log_id)
        found_streams(settings.name, self.running, self.log)
        records = self.running.metadata.generations
        self.running.views = self.running.create_views(records)
        find_executor_log = partial(executor_log, self.log, settings, self.log_token)
        self._maintainer = Maintainer(
            create_executor(directory, settings, self.log_token, self._monotonic, spark),
            find_executor_log(),
            [record.generation for record in records],
            self,
            {record.generation.name: record.pause for record in records if record.pause is not None},
            settings.view_memory_max or None,
            self._monotonic,
        )
        self._changes = ProgramChanges(
            self.running, self.log, self._maintainer, self, fetch_description, find_executor_log
        )
        ticks = TickGenerator(settings.origin, clock)
        self._publisher = Publisher(
            self.log,
            ticks,
            settings.silence_ms,
            settings.idle_ms,
            self.program.streams,
            self._wake,
            self._monotonic,
            settings.name,
            log_id,
            lambda: self._maintainer.batch_s,
        )
        neighbours = Neighbours(directory.neighbours_path, clock)
        identity = LinkIdentity(settings.name, random.randbytes(8).hex())
        self.links = LinkCatalogue(settings.name, settings.brokers, directory.links_path)
        self.routing = Routing(
            settings.name, directory.routing_path, clock, settings.advertise, lambda: self.network.access
        )
        self.routing.registry.on_producers = self._publisher.set_producers
        self.routing.registry.ticks = PublishedTicks(self.log, clock)
        self.network = Network(identity, self, OpenAccess(), neighbours, Random(random.getrandbits(64)), self.routing)
        self._exports = LocalExports(settings, self.running, self.log, self.descriptions, self.view)
        self._hosted = HostedStreams(
            settings.name, self.running, self.log, self.network, self._publisher, self._is_read
        )
        self._routed_imports = RoutedImports(self.routing, self, self._monotonic)
        self._global_streams = GlobalStreams(self.routing, self)
        self.global_imports = GlobalImports(
            settings.name,
            self.routing,
            LogSources(self.log, self.routing, lambda: self.program, self.running.has_history),
            self,
            directory.plans_path,
            lambda import_: self.find_export(import_.name).history,
            clock,
            settings.lease_us,
            has_thread=stepwise is None,
        )
        self.subscriptions = DurableSubscriptions(
            directory.subscriptions_path,
            directory.tables_path,
            self,
            clock,
            settings.flush,
            has_thread=stepwise is None,
        )
        self.origins = OriginCommands(self.network)
        self._retention = Retention(
            self.log,
            self._maintainer,
            self.network,
            self.subscriptions,
            settings,
            clock,
            self._monotonic,
            self._exports.unread_streams,
            self.global_imports.needed_horizons,
            lambda: find_histories(self.compiled.original),
        )
        self.set_inputs()
        self.subscriptions_changed()
        self._pulse_thread = Thread(target=self._run_pulse, name="pulse", daemon=True)
        self.health_watch = HealthWatch(self._publisher, self._maintainer, directory, settings, self)
        self.queries = AdHocQueries(directory.state_path / "queries", self, self._monotonic)
        self._activity = Activity(self._monotonic)
        self.catalogue = RelationCatalogue(self, self._maintainer, self._activity, self._monotonic)
        """Its streams and views, with their types and figures."""
        self.start_progress = StartProgress(directory.state_path / "starts.json", self._monotonic)
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
        spark: "SparkHost | None" = None,
    ) -> "Broker":
        """Opens the directory and starts all threads. Raises errors of the program, the directory and the settings.
        Slow work, such as starting Spark, continues in the background. `fetch_description` is called only if the
        program is new. If a neighbour cannot be reached then, the broker runs without what needs its descriptions, and
        waits for them. With the engine `spark`, the views run in a session of the given host, if there is one."""
        directory = BrokerDirectory(data)
        try:
            stored = directory.read_metadata()
            metadata, fetched = choose_program(directory, stored, source, fetch_description)
            broker = Broker(directory, metadata, settings, clock, fetch_description, stepwise, fetched, spark)
            broker.program_note = describe_choice(stored, source)
            broker._maintainer.start(has_thread=stepwise is None)
            broker._refuse_lost_log()
            if stepwise is None:
                broker._publisher.start()
                broker._pulse_thread.start()
                broker.global_imports.start()
                broker.health_watch.start()
                broker.descriptions.start()
        except BaseException:
            directory.close()
            raise
        return broker

    def attach(self, service: AttachedService) -> None:
        """The service runs beside the broker from now on."""
        self.attached = (*self.attached, service)

    def stop(self) -> None:
        """Returns when all submitted publications are in the log. A batch that takes too long is not waited for."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for service in self.attached:
            service.stop()
        self.health_watch.stop()  # that threads end is no trouble now
        self.descriptions.stop()
        self.global_imports.stop()
        self._publisher.stop()
        self.queries.close_all()
        self._maintainer.stop()
        self._pulse_thread.join(limits.maintainer_stop_s_max)
        self.subscriptions.close()
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

    def publish(self, publication: Publication | AtomicPublication | SilencePublication) -> "Future[PublishResult]":
        return self._publisher.submit(publication)

    @property
    def log_id(self) -> str:
        """Identifies its log."""
        return self.running.metadata.log_id

    def view(self, name: str) -> View:
        view = self.views.get(name)
        if view is not None:
            return view
        if (query := self.queries.find(name)) is not None:
            query.used_at = self._monotonic()
            return query.view
        if (missing := self.descriptions.error_of(name)) is not None:
            raise missing
        unsubscribed = [v.name for v in self.compiled.original.views if v.name not in self.views]
        if name in unsubscribed:
            hint = f"Add SUBSCRIBE {name}; to the program."
            raise error("E021", f"the program does not subscribe to {name}", hint=hint)
        stream = next((s for s in self.compiled.original.input_streams if s.name == name), None)
        if stream is not None:
            hint = f"Declare a view of its events: CREATE VIEW … AS SELECT {stream.tick}, … FROM {name};"
            raise error("E021", f"{name} is a stream, and no view", hint=hint)
        names = f"There are {', '.join(self.views)}." if self.views else None
        raise error("E021", f"there is no view {name[:100]}", hint=did_you_mean(name[:100], self.views) or names)

    # ── the program ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def compiled(self) -> CompiledProgram:
        return self.running.compiled

    @property
    def program(self) -> mmpl.Program:
        """The program as it runs."""
        return self.running.program

    @property
    def views(self) -> Mapping[str, View]:
        return self.running.views

    @property
    def import_records(self) -> ImportRecords:
        return self.running.metadata.imports

    def difference(self, source: Source) -> ProgramDifference:
        """Returns what `apply` would change."""
        return self._changes.difference(source)

    def check(self, source: Source) -> CompiledProgram:
        """Compiles a program as `apply` does, but asks no neighbour. Changes nothing."""
        return self._changes.check(source)

    def apply(self, source: Source) -> ProgramDifference:
        """Switches to this program. Returns when new and changed views have caught up with the log."""
        return self._changes.apply(source)

    def add_streams(self, streams: Sequence[mmpl.StreamDef]) -> ProgramDifference:
        """Adds streams to the program, whatever else is being changed in it. They are broker-timed, and have columns
        only."""
        return self._changes.add_streams(streams)

    def fetch_descriptions(self) -> FetchedDescriptions:
        return self._changes.fetch_descriptions()

    def apply_descriptions(self, fetched: FetchedDescriptions) -> None:
        self._changes.apply_descriptions(fetched)

    def set_routed_imports(self, routed: Mapping[str, RoutedImport]) -> bool:
        return self._changes.set_routed_imports(routed)

    def check_program(self, program: mmpl.Program) -> None:
        self.routing.check_program(program)

    def set_inputs(self) -> None:
        """Tells the publisher and the network what the program reads. The log has the streams."""
        program, records = self.program, self.import_records
        self._hosted.set_program()
        imported_from = {i.name: _source_of(i) for i in program.imports}
        self._publisher.set_streams(program.streams, imported_from)
        imports = [i for i in program.imports if not i.is_global]
        self.network.set_imports(imports, {i.name: records.history(i) for i in imports})
        self.global_imports.set_program(program)
        self.routing.set_program(self.compiled.original, self._exports.advertisable_streams())
        self.routing.set_imported(frozenset(records.routed))

    def views_changed(self) -> None:
        self.network.update_links()

    def subscribed_program_changed(self) -> None:
        self.subscriptions.program_changed()

    def resume(self, view: str) -> None:
        """Resumes a paused view, and those that were paused with it. Returns before they have caught up."""
        self._maintainer.resume(self.view(view).name)

    def _refuse_lost_log(self) -> None:
        try:
            self.running.refuse_lost_log()
        except SmileError:
            self._maintainer.stop()
            raise

    @property
    def log_horizons(self) -> Horizons:
        """The horizons of the log. No subscriber has seen higher ones."""
        return self._publisher.horizons

    # ── routing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def own_histories(self) -> frozenset[str]:
        return self._exports.own_histories()

    def find_global(self, stream: str, where: Mapping[str, Any], host_where: str | None = None) -> GlobalStream:
        return self._global_streams.find(stream, where, host_where)

    def find_producers(self, stream: str, where: str) -> list[ProducerStream]:
        return [producer for producer, _ in self._global_streams.find_producers(stream, where)]

    def type_problems(self) -> Mapping[str, SmileError]:
        return self._global_streams.problems()

    def subscriptions_changed(self) -> None:
        """The global subscriptions have changed."""
        self.routing.set_subscriptions(self.subscriptions.global_filters())

    def _is_read(self, stream: str) -> bool:
        """Whether a view, a durable subscription or a broker that imports it reads a stream that is published here."""
        return (
            any(stream in view.base_streams for view in self.views.values())
            or self.subscriptions.has_readers(stream)
            or bool(self.network.readers(stream))
        )

    # ── the network ─────────────────────────────────────────────────────────────────────────────────────────────────

    def describe_export(self, relation: str) -> dict[str, Any]:
        """What a neighbour that imports the relation records about it."""
        return self._exports.describe(relation)

    def find_export(self, relation: str) -> ExportedRelation:
        return self._exports.find(relation)

    def close_global_stream(self, stream: str, closed_to: int | None) -> ClosedEpoch:
        """Declares that nobody but the producers that are known publishes a global stream up to a tick; None: now."""
        if not any(s.name == stream and s.is_global for s in self.compiled.original.streams):
            hint = "CREATE GLOBAL STREAM has to be in the program of the broker that closes it."
            raise error("E180", f"{stream[:100]} is not a global stream of this program", hint=hint)
        now = self._clock() * TICKS_PER_MICROSECOND
        return self.global_imports.close(stream, now if closed_to is None else closed_to)

    def readers_changed(self) -> None:
        self.network.update_links()

    def append_imported(self, append: CacheAppend) -> "Future[PublishResult]":
        return self._publisher.submit_imported(append)

    def end_origin(self, stream: str) -> "Future[PublishResult]":
        return self._publisher.submit_end(stream)

    def checkpoint_horizons(self) -> Horizons:
        return self._retention.checkpoint_horizons

    def _wake(self) -> None:
        """There is a new commit in the log."""
        self._maintainer.wake()
        self.queries.log_advanced()
        self.network.log_advanced()
        self.global_imports.wake()
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
        self.running.pause_views(generation, separated, pause)

    def resume_views(self, generation: Generation) -> None:
        self.running.resume_views(generation)

    def warn(self, message: str) -> None:
        _log.warning("the broker recovers from an error", extra={"what": message})
        self.warnings = [*self.warnings[-9:], {"at": time.time(), "what": message}]

    def fail(self, problem: SmileError) -> None:
        _log.error("the views have failed", extra={"code": problem.diagnostics[0].code, "what": problem.message})
        self.failure = problem

    def _run_pulse(self) -> None:
        while not self._stopping.wait(PULSE_INTERVAL_S):
            self.pulse()

    def pulse(self) -> None:
        """Wakes idle subscribers for progress messages, follows registrations, and truncates the log, at intervals."""
        for view in self.views.values():
            view.wake_for_progress()
        self.start_progress.observe(self._maintainer.start_phase)
        self.queries.end_unused()
        self._activity.sample(
            self.log, list(self.log.streams), lambda: {v.name: v.changed_row_count for v in self.views.values()}
        )
        self._step_routing()
        if self._retention.is_due:
            self.routing.forget_absent(self.settings.away_us_max)
            self.truncate_log()

    def _step_routing(self) -> None:
        """Imports what global subscriptions need, here and at neighbours, and stores what neighbours have said."""
        try:
            self.routing.follow_registrations()
            self.global_imports.plan()
            self._routed_imports.step()
            self.routing.save()
        except SmileError as problem:
            self.warn(f"routed streams are not imported: {problem.message}")

    def truncate_log(self) -> None:
        """Removes from the log what is not needed any more. Views that wait for descriptions will need all of it."""
        if self.descriptions.is_waiting:
            return
        try:
            self._retention.truncate(has_views=bool(self.views))
        except SmileError as problem:
            self.warn(f"the log was not truncated: {problem.message}")

    @property
    def lag_s(self) -> Mapping[str, float]:
        """How far each view is behind the log."""
        return self.health_watch.report.lag_s

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


def _source_of(import_: mmpl.ImportDef) -> tuple[str, str]:
    """Where an import comes from, and where one publishes to it."""
    if import_.is_global:
        relation = import_.relation
        return f"the producers of {relation}", f"Publish to {relation}, at a broker that has a producer of it."
    brokers = " or ".join(import_.brokers)
    return brokers, f"Publish to it at {brokers}."
