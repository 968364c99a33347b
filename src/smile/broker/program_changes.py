"""Changes the program of a running broker: one change at a time, and back to the previous program if it fails."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Protocol

from smile import limits
from smile.algebra import mmpl
from smile.broker.directory import BrokerMetadata
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.network.descriptions import FetchDescription, FetchedDescriptions, ImportRecords
from smile.broker.network.routed_stream import RoutedImport
from smile.broker.program_difference import (
    GenerationRecord,
    ProgramDifference,
    compare_programs,
    plan_generations,
    refuse_changed_streams,
)
from smile.broker.program_streams import add_streams
from smile.broker.retention import refuse_truncated_streams
from smile.broker.running_program import RunningProgram
from smile.broker.views.view import View
from smile.errors import SmileError, error
from smile.log.storage.durable import DurableLog
from smile.program import CompiledProgram
from smile.source import Source


class ProgramReaders(Protocol):
    """Those parts of a broker that follow its program."""

    def check_program(self, program: mmpl.Program) -> None:
        """Raises an error if there cannot be this program now."""

    def set_inputs(self) -> None:
        """There is another program. The log has its streams."""

    def views_changed(self) -> None:
        """There are other views."""

    def subscribed_program_changed(self) -> None:
        """There is another program, with its views."""


class ProgramChanges:
    """Thread-safe. `find_executor_log` returns how a pipeline reads the log."""

    def __init__(
        self,
        running: RunningProgram,
        log: DurableLog,
        maintainer: Maintainer,
        readers: ProgramReaders,
        fetch_description: FetchDescription,
        find_executor_log: Callable[[], DurableLog],
    ) -> None:
        self._running, self._log, self._maintainer, self._readers = running, log, maintainer, readers
        self._fetch_description, self._find_executor_log = fetch_description, find_executor_log
        self._lock = Lock()
        self._is_routing_changing = False

    # ── compiling ───────────────────────────────────────────────────────────────────────────────────────────────────

    def difference(self, source: Source) -> ProgramDifference:
        """Returns what `apply` would change."""
        return self._check_difference(self._compile_with_imports(source)[0])

    def check(self, source: Source) -> CompiledProgram:
        """Compiles a program as `apply` does, but asks no neighbour. Changes nothing."""
        return self._running.compile(source, self._running.metadata.imports)[0]

    def _compile_with_imports(self, source: Source) -> tuple[CompiledProgram, ImportRecords]:
        """Compiles a program with new descriptions of what it imports."""
        fetched = self._running.metadata.imports.fetch(source, self._fetch_description)
        return self._running.compile(source, fetched.require_all())

    def _check_difference(self, compiled: CompiledProgram) -> ProgramDifference:
        # Dropped streams are still in the log: they may be added again only with the same definition.
        logged = {s.name: s for s in DurableLog.read_definitions(self._log.path)}
        refuse_changed_streams(logged, compiled.rewritten.log_streams)
        self._readers.check_program(compiled.original)
        return compare_programs(self._running.compiled, compiled)

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, source: Source) -> ProgramDifference:
        """Switches to this program. Returns when new and changed views have caught up with the log."""
        compiled, import_records = self._compile_with_imports(source)
        return self._change(source, compiled, import_records)

    def fetch_descriptions(self) -> FetchedDescriptions:
        """Asks for the descriptions that the program lacks, and for those that relations with errors do not fit."""
        metadata, compiled = self._running.metadata, self._running.compiled
        wanted = {*compiled.missing_imports, *(i for broken in compiled.broken.values() for i in broken.imports)}
        return metadata.imports.fetch(metadata.program, self._fetch_description, wanted)

    def apply_descriptions(self, fetched: FetchedDescriptions) -> None:
        """Applies the part of the program that can be compiled with these descriptions."""
        source = self._running.metadata.program
        compiled, import_records = self._running.compile(source, fetched.records, True, leaves_out_broken=True)
        running = self._running.compiled
        is_changed = compiled.left_out.keys() != running.left_out.keys() or compiled.broken != running.broken
        if is_changed and self._running.metadata.program is source:
            self._change(source, compiled, import_records)

    def _change(self, source: Source, compiled: CompiledProgram, import_records: ImportRecords) -> ProgramDifference:
        # A change of routed imports takes a moment, and nobody has asked for it.
        wait_s = limits.routing_change_s_max if self._is_routing_changing else 0.0
        if not self._lock.acquire(timeout=wait_s):
            raise error("E102", "another change of the program is in progress", hint="Try again later.")
        try:
            return self._apply_compiled(compiled, import_records, source)
        finally:
            self._lock.release()

    def add_streams(self, streams: Sequence[mmpl.StreamDef]) -> ProgramDifference:
        """Adds streams to the program, whatever else is being changed in it. They are broker-timed, and have columns
        only."""
        with self._lock:
            source = add_streams(self._running.compiled.source, streams)
            compiled, import_records = self._running.compile(source, self._running.metadata.imports)
            return self._apply_compiled(compiled, import_records, source)

    def set_routed_imports(self, routed: Mapping[str, RoutedImport]) -> bool:
        """Changes the imports that global subscriptions need. Views and subscribers are not disturbed. Returns False if
        another change of the program is in progress."""
        if not self._lock.acquire(blocking=False):
            return False
        self._is_routing_changing = True
        try:
            running = self._running.compiled
            source, left_out, broken = running.source, bool(running.left_out), bool(running.broken)
            records = replace(self._running.metadata.imports, routed=dict(routed))
            compiled, records = self._running.compile(source, records, left_out, broken)
            self._check_difference(compiled)
            self._switch(compiled, source, records, None)
        finally:
            self._is_routing_changing = False
            self._lock.release()
        return True

    def _apply_compiled(
        self, compiled: CompiledProgram, import_records: ImportRecords, source: Source
    ) -> ProgramDifference:
        running = self._running
        try:
            difference = self._check_difference(compiled)
            _, new_generation = plan_generations(compiled, running.metadata.generations)
            if new_generation is not None:
                new_generation.generation.plan(1)  # raises an error if the program cannot run
                refuse_truncated_streams(self._log, compiled, tuple(new_generation.digests))
            previous = running.compiled, running.metadata
            self._switch(compiled, source, import_records, new_generation)
            return difference
        except SmileError as problem:
            if running.compiled is compiled and problem.diagnostics[0].code != "E098":
                self._restore(*previous)
            raise

    def _switch(
        self,
        compiled: CompiledProgram,
        source: Source,
        import_records: ImportRecords,
        new_generation: GenerationRecord | None,
    ) -> None:
        running = self._running
        schemas = self._log.schemas
        added_streams = [
            s for s in compiled.rewritten.log_streams if s.name not in schemas or schemas[s.name].stream != s
        ]
        if added_streams:
            self._log.add_streams(added_streams)
        with running.metadata_lock:
            # The maintainer's thread may have paused views since the generations were planned.
            previous = running.metadata
            unchanged, _ = plan_generations(compiled, previous.generations)
            generations = (*unchanged, *([new_generation] if new_generation else []))
            running.write(replace(previous, program=source, generations=generations, imports=import_records))
        remaining_names = {view for record in unchanged for view in record.digests}
        stale_views = [view for view in running.views if view not in remaining_names]
        if stale_views:
            try:
                self._maintainer.drop(stale_views)
            except SmileError:
                running.write(previous)
                raise
        running.compiled = compiled
        self._readers.set_inputs()
        ended_views = [running.views[view] for view in stale_views]
        new_views = {} if new_generation is None else running.create_views([new_generation])
        remaining = {name: view for name, view in running.views.items() if name in remaining_names}
        running.views = {**remaining, **new_views}
        self._readers.views_changed()
        for view in ended_views:
            if view.name in new_views:
                reason, hint = "was changed", "Subscribe again: its columns and rows may be others now."
            else:
                reason, hint = "is no longer in the program", "GET /views lists the views that there are."
            view.end(error("E095", f"the view {view.name} {reason}", hint=hint))
        self._readers.subscribed_program_changed()
        if new_generation is not None:
            self._add_generation(new_generation, new_views)

    def _add_generation(self, record: GenerationRecord, new_views: Mapping[str, View]) -> None:
        try:
            self._maintainer.add(record.generation, self._find_executor_log())
        except SmileError as problem:
            views = self._running.views
            self._running.views = {name: view for name, view in views.items() if name not in new_views}
            for view in new_views.values():
                view.end(problem)
            raise

    def _restore(self, compiled: CompiledProgram, metadata: BrokerMetadata) -> None:
        """Restores the previous program; its dropped views may have to be computed again. Not used while the broker is
        stopping: then the next start continues with the new program."""
        _, missing = plan_generations(compiled, self._running.metadata.generations)
        self._switch(compiled, metadata.program, metadata.imports, missing)
