"""The global imports of a broker: their plans follow the registrations, and their sources are asked for as routed
streams.

Two steps, both repeated: `plan` compares the registrations with the plans that run, and `step` passes on what the
sources have. Both only compare what is with what should be, so that nothing is lost when a step fails or is repeated.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Any, Final

import msgspec

from smile.algebra import mmpl
from smile.analysis.global_streams import find_readers
from smile.broker.directory import write_file
from smile.broker.global_streams.global_import import GlobalImport, GlobalImportHost, RunningPlans
from smile.broker.global_streams.known_publishers import KnownPublishers, declare_epoch
from smile.broker.global_streams.log_sources import LogSources
from smile.broker.global_streams.registry_explanation import (
    PlannedStream,
    choose_from_scratch,
    explain_import,
    explain_streams,
)
from smile.broker.global_streams.registry_report import Rivalries, describe_closing, report_plan, report_stream
from smile.broker.global_streams.relation_planning import RelationPlanning
from smile.broker.network.routing import Routing
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN, origin_name
from smile.knowledge.finality import Obstacle
from smile.log.clock import Clock
from smile.log.membership import HOME_ORIGIN
from smile.registry.epochs import ClosedEpoch

_log = logging.getLogger("smile.global_streams")

STEP_INTERVAL_S: Final = 0.005
"""How often ranges are passed on at most."""


class GlobalImportsFile(msgspec.Struct):
    """What the broker's directory has of the plans, by the stream of the log that they feed; and the closed epochs that
    the broker has adopted, by global stream."""

    format: int = 1
    running: dict[str, RunningPlans] = msgspec.field(default_factory=dict)
    epochs: dict[str, ClosedEpoch] = msgspec.field(default_factory=dict)


class GlobalImports:
    """Thread-safe. `history_of` identifies what is assembled here. Without a thread, the caller calls `step`."""

    def __init__(
        self,
        broker: str,
        routing: Routing,
        sources: LogSources,
        host: GlobalImportHost,
        path: Path | None,
        history_of: Callable[[mmpl.ImportDef], str],
        clock: Clock,
        lease_us: int,
        has_thread: bool,
    ) -> None:
        self._broker, self._routing, self._log_sources, self._host = broker, routing, sources, host
        self._path, self._history_of = path, history_of
        self._file = _read_file(path)
        self.known = KnownPublishers(routing.publishers, self._file.epochs, clock, lease_us)
        self._lock, self._wanted, self._stopping = RLock(), Event(), Event()
        self._imports: dict[str, GlobalImport] = {}
        self._rivalries = Rivalries()
        self.planning: dict[str, RelationPlanning] = {}
        """By global stream."""
        self._thread = Thread(target=self._run, name="global imports", daemon=True) if has_thread else None

    def start(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def set_program(self, program: mmpl.Program) -> None:
        """The broker has this program now. The log must have the streams of its global imports."""
        with self._lock:
            streams = [stream for stream in program.streams if stream.is_global]
            plannings, present = self.planning, self._imports
            self.planning = {stream.name: _planning_of(stream, plannings.get(stream.name)) for stream in streams}
            self._imports = {}
            for import_ in (i for i in program.imports if i.is_global):
                known, planning = present.get(import_.name), self.planning[import_.relation]
                if known is None or known.import_ != import_:
                    running = self._file.running.get(import_.input_name, RunningPlans())
                    history = self._history_of(import_)
                    known = GlobalImport(
                        import_, planning, self._log_sources, self._host, self._broker, history, running
                    )
                known.views = find_readers(program, import_.name)
                self._imports[import_.name] = known
            for name, gone in present.items():
                if name not in self._imports and gone.import_.relation in self.planning:
                    self.planning[gone.import_.relation].forget(name)
        self.wake()

    @property
    def imports(self) -> Mapping[str, GlobalImport]:
        return self._imports

    # ── plans ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self) -> None:
        """Adapts the plans to the registrations."""
        with self._lock:
            if not self.planning:
                self._routing.set_sources(frozenset())
                return
            self._update_known()
            for import_ in self._imports.values():
                import_.set_registrations(self.known.find(import_.import_.relation))
            for relation, planning in self.planning.items():
                readers = [i for i in self._imports.values() if i.import_.relation == relation]
                withdrawn = {host for reader in readers for host in reader.hosts_with_withdrawn}
                planning.update(self.known.find(relation), withdrawn)
            for import_ in self._imports.values():
                import_.plan_problem = self._plan(import_)
            self._save()
            remote = {
                source.routed(import_.stream.tick)
                for import_ in self._imports.values()
                for source in import_.sources
                if source.host != self._broker and source not in import_.absent
            }
            self._routing.set_sources(remote)
        self.wake()

    def _plan(self, import_: GlobalImport) -> SmileError | None:
        """Why an import cannot be planned: then it goes on with the plan that it has, and the other imports with
        theirs."""
        try:
            import_.set_plan(self.planning[import_.import_.relation].plan(import_.name, import_.query))
        except SmileError as problem:
            return problem
        except Exception as problem:  # noqa: BLE001  # the other imports go on
            _log.exception("a global stream cannot be planned", extra={"import": import_.name})
            return error("E125", f"planning {import_.name} has failed: {problem!r}")
        return None

    def _update_known(self) -> None:
        self.known.update()
        if self.known.epochs != self._file.epochs:
            # Before anything is final: what was adopted must survive a crash.
            self._file.epochs = dict(self.known.epochs)
            self._write()

    def _save(self) -> None:
        running = {i.log_stream: i.running for i in self._imports.values()}
        if running != {name: self._file.running.get(name) for name in running}:
            self._file.running |= running
            self._write()

    def _write(self) -> None:
        if self._path is not None:
            write_file(self._path, msgspec.json.encode(self._file).decode())

    def close(self, stream: str, closed_to: int) -> ClosedEpoch:
        """Declares that nobody but those who are known now publishes a global stream up to this tick. Others follow
        when all of them have confirmed it."""
        with self._lock:
            self._update_known()
            epoch = declare_epoch(stream, self.known.find(stream), closed_to)
            self._routing.declare_epoch(epoch)
            return epoch

    # ── passing on ──────────────────────────────────────────────────────────────────────────────────────────────────

    def wake(self) -> None:
        """There may be something to pass on. Fast: it is called in the thread that writes the log."""
        if self._imports:
            self._wanted.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait()
            self._wanted.clear()
            self.step()
            self._stopping.wait(STEP_INTERVAL_S)

    def step(self) -> None:
        """Passes on what is there."""
        with self._lock:
            for import_ in self._imports.values():
                try:
                    import_.step()
                except SmileError as problem:
                    import_.fail(problem)
                except Exception as problem:  # noqa: BLE001  # the other imports go on
                    _log.exception("a global stream cannot be passed on", extra={"import": import_.name})
                    import_.fail(error("E125", f"the step of {import_.name} has failed: {problem!r}"))

    def needed_horizons(self) -> dict[str, int]:
        """For each stream of the log that is a source, and each origin of it, up to which tick no plan needs it."""
        needed: dict[str, int] = {}
        with self._lock:
            for import_ in self._imports.values():
                horizons = import_.horizons
                for source in import_.sources:
                    opened = self._log_sources.open(source, import_.stream.tick)
                    if opened is None:
                        continue
                    for origin in opened.horizons():
                        _lower(needed, origin_name(opened.name, origin), horizons.get(origin, HORIZON_MIN))
                        _lower(needed, opened.name, horizons.get(origin, HORIZON_MIN))
        return needed

    def obstacles(self) -> dict[str, Obstacle]:
        """Why nothing more becomes final of global imports whose stream is open, by stream or origin of the log."""
        found: dict[str, Obstacle] = {}
        with self._lock:
            for import_ in self._imports.values():
                if import_.problem is not None:
                    found[import_.log_stream] = Obstacle("neighbour", str(import_.problem))
                else:
                    home = origin_name(import_.log_stream, HOME_ORIGIN)
                    found[home] = Obstacle("open", describe_closing(self.known.find(import_.import_.relation)))
        return found

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def report(self) -> dict[str, Any]:
        """What `smile registry` shows."""
        with self._lock:
            streams = [(p.stream, p.problems, self.known.find(relation)) for relation, p in self.planning.items()]
            plans = [
                report_plan(import_, str(self.planning[import_.import_.relation].meta_plan(name)))
                for name, import_ in self._imports.items()
            ]
        # Without the lock: there may be many publishers.
        return {"global_streams": [report_stream(*stream, self._rivalries) for stream in streams], "plans": plans}

    def explain(self) -> dict[str, Any]:
        """Why each publisher that is known is in the plans that run here or not, and the hierarchy of republishers."""
        with self._lock:
            streams = [
                PlannedStream(
                    self._broker,
                    dict(planning.publishers),
                    {name: chosen for name in self._imports if (chosen := planning.chosen(name)) is not None},
                )
                for planning in self.planning.values()
            ]
        # Without the lock: there may be many publishers.
        return explain_streams(streams)

    def explain_query(self, program: mmpl.Program) -> list[dict[str, Any]]:
        """The plans for the global streams that a query reads, whose program this is: those that run where the broker
        receives the same events already."""
        wanted = [import_ for import_ in program.imports if import_.is_global]
        with self._lock:
            planned = [
                (
                    import_,
                    self._imports[import_.name].views if import_.name in self._imports else (),
                    dict(planning.publishers),
                    planning.chosen(import_.name),
                    planning.query_of(import_),
                )
                for import_ in wanted
                for planning in (self.planning[import_.relation],)
            ]
        # Without the lock: there may be many publishers.
        return [
            explain_import(import_.relation, publishers, chosen or choose_from_scratch(query, publishers))
            | {"received_for": list(views)}
            for import_, views, publishers, chosen, query in planned
        ]


def _planning_of(stream: mmpl.StreamDef, present: RelationPlanning | None) -> RelationPlanning:
    return present if present is not None and present.definition == stream else RelationPlanning(stream)


def _lower(needed: dict[str, int], name: str, tick: int) -> None:
    needed[name] = min(needed.get(name, tick), tick)


def _read_file(path: Path | None) -> GlobalImportsFile:
    if path is None or not path.exists():
        return GlobalImportsFile()
    try:
        return msgspec.json.decode(path.read_bytes(), type=GlobalImportsFile)
    except (OSError, msgspec.MsgspecError) as problem:
        hint = "Delete it: the plans are made again from the registrations, and continue where the log ends."
        raise error("E105", f"{path} is damaged: {problem}", hint=hint) from None
