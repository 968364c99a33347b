"""The program of a broker as it runs: compiled, with its generations, and with its views.

Invariant: the directory has the metadata of the program that runs, so that a restart continues with it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from threading import RLock

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.broker.directory import BrokerDirectory, BrokerMetadata
from smile.broker.global_streams.registry_report import import_epochs
from smile.broker.maintenance.listener import Horizons, ViewPause
from smile.broker.network.descriptions import ImportRecords, refuse_circles
from smile.broker.network.exported_relations import global_history
from smile.broker.network.producer_registry import check_origin_number
from smile.broker.program_difference import GenerationRecord, plan_generations, separate_views
from smile.broker.retention import refuse_truncated_streams
from smile.broker.views.portable_tokens import base_streams, portable_digest
from smile.broker.views.view import View
from smile.engine.generation import Generation
from smile.errors import error
from smile.horizons import HORIZON_MIN
from smile.log.storage.durable import DurableLog
from smile.program import CompiledProgram
from smile.settings import Settings
from smile.source import Source

_log = logging.getLogger("smile.broker")


class RunningProgram:
    """`views`, `compiled` and `metadata` are replaced when the program changes: look them up for each use. Who changes
    the metadata holds `metadata_lock`. `find_log` and `find_horizons` return the log and its horizons; `monotonic`
    returns seconds. If the program `has_run` before, it runs also if relations no longer fit what they import."""

    def __init__(
        self,
        directory: BrokerDirectory,
        metadata: BrokerMetadata,
        settings: Settings,
        monotonic: Callable[[], float],
        find_log: Callable[[], DurableLog],
        find_horizons: Callable[[], Horizons],
        has_run: bool = False,
    ) -> None:
        self._directory, self._settings, self._monotonic = directory, settings, monotonic
        self._find_log, self._find_horizons = find_log, find_horizons
        self.metadata_lock = RLock()
        self.compiled, imports = self.compile(metadata.program, metadata.imports, True, has_run)
        self.metadata = replace(metadata, imports=imports)
        self.views: Mapping[str, View] = {}

    def compile(
        self,
        source: Source,
        records: ImportRecords,
        leaves_out_missing: bool = False,
        leaves_out_broken: bool = False,
    ) -> tuple[CompiledProgram, ImportRecords]:
        compiled, new_records = records.compile(source, leaves_out_missing, leaves_out_broken)
        refuse_circles(self._settings.name, compiled.original, new_records)
        if compiled.original.advertisements:
            check_origin_number(str(self._settings.origin))
        return compiled, new_records

    def begin(self, log_id: str) -> None:
        """Plans the generations of a broker that starts. The log must have the streams of the program."""
        unchanged, new_generation = plan_generations(self.compiled, self.metadata.generations)
        new_views = () if new_generation is None else tuple(new_generation.digests)
        refuse_truncated_streams(self._find_log(), self.compiled, new_views)
        generations = (*unchanged, *([new_generation] if new_generation else []))
        self.write(replace(self.metadata, generations=generations, log_id=log_id))

    def write(self, metadata: BrokerMetadata) -> None:
        self._directory.write_metadata(metadata)
        self.metadata = metadata

    @property
    def program(self) -> mmpl.Program:
        return self.compiled.rewritten

    def has_history(self, import_: mmpl.ImportDef, history: str) -> bool:
        """Whether the events of an import of the program, as this edition has them, are of this history."""
        if import_.is_global:
            return global_history(self.metadata.log_id, import_) == history
        return self.metadata.imports.has_history(import_, history)

    # ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def create_views(self, records: Iterable[GenerationRecord]) -> dict[str, View]:
        views: dict[str, View] = {}
        log, metadata = self._find_log(), self.metadata
        for record in records:
            inputs, program = record.generation.plan(1).kernels.inputs, record.generation.program
            imported = {stream.name for import_ in program.imports for stream in import_.log_streams}
            for name, digest in record.digests.items():
                # A new view has reached no horizon, so subscribers with resume tokens wait until it catches up.
                horizons = dict.fromkeys(log.streams, HORIZON_MIN)
                views[name] = View(
                    name,
                    inputs[name],
                    f"{digest} {metadata.log_id}",
                    self._find_horizons,
                    base_streams(program, name),
                    self._monotonic,
                    horizons,
                    pause=record.pause,
                    portable_digest=portable_digest(program, name, metadata.imports, metadata.log_id),
                    imported_streams=imported,
                    find_epochs=partial(import_epochs, subprogram(program, name), log),
                )
        return views

    def refuse_lost_log(self) -> None:
        """Refuses a log that ends before the horizons of a view: the log has lost its end (E089)."""
        log_horizons = self._find_log().newest().named_horizons()
        for view in self.views.values():
            for stream, tick in view.horizons.items():
                if tick > log_horizons.get(stream, HORIZON_MIN):
                    message = (
                        f"{view.name} has {stream} up to tick {tick}, but the log ends at {log_horizons.get(stream)}"
                    )
                    hint = "The log has lost its end: restore a backup, or delete state/ to continue without it."
                    raise error("E089", message, hint=hint)

    def pause_views(self, generation: str, separated: Generation, pause: ViewPause) -> None:
        with self.metadata_lock:
            records = separate_views(self.metadata.generations, generation, separated, pause)
            self.write(replace(self.metadata, generations=records))
        views = ", ".join(separated.views)
        _log.error("views are paused", extra={"views": views, "code": pause.code, "what": pause.message})
        self._set_pause(separated, pause)

    def resume_views(self, generation: Generation) -> None:
        with self.metadata_lock:
            records = [
                replace(record, pause=None) if record.generation.name == generation.name else record
                for record in self.metadata.generations
            ]
            self.write(replace(self.metadata, generations=tuple(records)))
        _log.info("views are resumed", extra={"views": ", ".join(generation.views)})
        self._set_pause(generation, None)

    def _set_pause(self, generation: Generation, pause: ViewPause | None) -> None:
        for name in generation.views:
            if name in self.views:
                self.views[name].set_pause(pause)
