"""A pipeline's directory: it records which generations the pipeline has, and how far it has come.

The directory contains `pipeline.json` (the generations, the number of partitions and the name of the state folder), the
state folder, `delivered.json` (the identity of the last version that was completely delivered) and `status.json`.
Nothing here needs Spark.
"""

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow import fs

from smile.engine.generation import Generation, Json
from smile.engine.repartition import repartition_states
from smile.engine.spark.job import Job
from smile.engine.spark.planning import Offset
from smile.engine.spark.task import states_of_tables, tables_of_states
from smile.errors import SmileError, error
from smile.kernels.compile import materialized_name
from smile.kernels.delta import Delta, concat_deltas
from smile.kernels.materialized_view import MaterializedView
from smile.log.position import BatchLimit, Log, Position
from smile.state.file import write_json
from smile.state.hard_checkpoint import common_hard_checkpoints, common_versions, finish_hard_checkpoint
from smile.state.store import Tables, VersionId, open_directory

FORMAT = 1
PIPELINE_FILE = "pipeline.json"
DELIVERED_FILE = "delivered.json"
STATUS_FILE = "status.json"
_BACKFILLS_SUFFIX = "-filling"

WarningCallback = Callable[[str], None]
JobStates = Mapping[tuple[int, int], Mapping[str, Any]]
"""The states of all partitions, by stage and partition, then by generation."""


class PipelineDirectory:
    def __init__(self, uri: str) -> None:
        # Executors have other working directories, so the path must be absolute.
        self.uri = uri.rstrip("/") if "://" in uri else str(Path(uri).absolute())
        self.filesystem, self.root = open_directory(self.uri)

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_job(
        self,
        generations: tuple[Generation, ...],
        partitions: int,
        log: Log,
        limit: BatchLimit,
        on_warning: WarningCallback,
    ) -> Job:
        """A job that resumes from the state in this directory, or begins with the log if there is none.

        State with another number of partitions is repartitioned."""
        description = self._read_description()
        if description is None:
            job = Job(generations, partitions, self.new_state_uri(), log, limit, Offset(0, log.start()), uuid4().hex)
            self.activate(job)
            return job
        job = _new_job(generations, description["partitions"], self._folder_uri(description["folder"]), log, limit)
        if [g.to_json() for g in generations] != description["generations"]:
            hint = "Choose another directory, or delete this one if its state is no longer needed."
            raise error("E065", f"{self.uri} has the state of another program", hint=hint)
        job = replace(job, start=self.recover_offset(job, on_warning))
        return job if partitions == job.partitions else self._repartition(job, partitions)

    def reconcile_job(
        self,
        generations: Sequence[Generation],
        partitions: int,
        log: Log,
        limit: BatchLimit,
        on_warning: WarningCallback,
    ) -> Job:
        """Like `open_job`, for generations that may differ from the stored ones. Deletes generations that are no longer
        in the program. New generations are not in the job and must be backfilled, unless there are no others."""
        try:
            stored = self.generations()
        except SmileError as problem:
            if problem.diagnostics[0].code != "E061":
                raise
            on_warning(f"{problem.message}; it is created again")
            stored = self._recover_description(generations, log, limit)
        remaining = tuple(reduced for g in stored or () if (reduced := g.find_reduced(generations)) is not None)
        if stored is None or (stored and not remaining):
            self.clear()
            return self.open_job(tuple(generations), partitions, log, limit, on_warning)
        if [g.to_json() for g in remaining] == [g.to_json() for g in stored]:
            return self.open_job(remaining, partitions, log, limit, on_warning)
        job = self.open_job(stored, partitions, log, limit, on_warning)
        return self.switch_job(job, job.start, remaining, read_states(job, job.start))

    def generations(self) -> tuple[Generation, ...] | None:
        """The stored generations; None if there is no pipeline here."""
        description = self._read_description()
        return None if description is None else tuple(map(Generation.from_json, description["generations"]))

    def _read_description(self) -> Json | None:
        """The content of `pipeline.json`; None if there is none."""
        description = self._read_json(PIPELINE_FILE)
        if description is None:
            return None
        if isinstance(description, dict) and isinstance(description.get("format"), int):
            if description["format"] > FORMAT:
                raise error(
                    "E062", f"{self.uri} was written by a newer SMILE (format {description['format']}, not {FORMAT})"
                )
            if description.pop("crc", None) == _checksum(description):
                return description
        raise error("E061", f"{self.uri}/{PIPELINE_FILE} is damaged: it does not describe a pipeline")

    def activate(self, job: Job) -> None:
        """Makes this job the current one, and deletes the state of all others."""
        folder = job.state_uri.rpartition("/")[2]
        description = {
            "format": FORMAT,
            "generations": [g.to_json() for g in job.generations],
            "partitions": job.partitions,
            "folder": folder,
        }
        write_json(
            self.filesystem,
            f"{self.root}/{PIPELINE_FILE}",
            {**description, "crc": _checksum(description)},
            is_durable=True,
        )
        for name in self._state_folders():
            if name != folder:
                self.filesystem.delete_dir(f"{self.root}/{name}")

    def switch_job(self, job: Job, offset: Offset, generations: tuple[Generation, ...], states: JobStates) -> Job:
        """Replaces the job by one with these generations, which resumes at the offset from the states that it needs.
        Flushes the new state to disk before it deletes the old one."""
        new_job = replace(
            job, generations=generations, state_uri=self.new_state_uri(), start=offset, run_id=uuid4().hex
        )
        self._save_states(
            new_job, {partition: tables_of_states(partition_states) for partition, partition_states in states.items()}
        )
        self.activate(new_job)
        return new_job

    def _save_states(self, job: Job, tables: Mapping[tuple[int, int], Tables]) -> None:
        version = VersionId.from_horizons(job.start.number, job.start.horizons)
        for (stage, partition), store in job.stores().items() if job.start.number else ():
            partition_tables, schemas = tables.get((stage, partition), {}), job.table_schemas(stage)
            store.save(job.start.number, job.start.horizons, {name: partition_tables[name] for name in schemas})
            store.pin(version)
            store.harden(version, schemas)

    def _recover_description(
        self, generations: Sequence[Generation], log: Log, limit: BatchLimit
    ) -> tuple[Generation, ...] | None:
        """Restores a lost `pipeline.json`: if there is state of exactly these generations, they are the pipeline's."""
        for folder in sorted(self._state_folders(), key=_folder_number, reverse=True):
            partition_folders = self.filesystem.get_file_info(
                fs.FileSelector(f"{self.root}/{folder}/stage-1", allow_not_found=True)
            )
            job = _new_job(tuple(generations), max(1, len(partition_folders)), self._folder_uri(folder), log, limit)
            try:
                versions = job.store(1, 0).versions()
                if versions:
                    job.store(1, 0).read(max(versions), job.table_schemas(1), whole=False)
                    self.activate(job)
                    return tuple(generations)
            except SmileError as problem:
                if problem.diagnostics[0].code not in ("E061", "E065"):
                    raise
        return None

    def clear(self) -> None:
        """Deletes everything in the directory."""
        self.delete()
        self.filesystem.create_dir(self.root)

    def delete(self) -> None:
        self.filesystem.delete_dir(self.root)

    # ── backfills ───────────────────────────────────────────────────────────────────────────────────────────────────

    def backfill_directory(self, generation: Generation) -> "PipelineDirectory":
        """The directory of a generation that is not in the pipeline yet. It is beside this one."""
        return PipelineDirectory(f"{self.uri}{_BACKFILLS_SUFFIX}/{generation.name}")

    def delete_other_backfills(self, generations: Sequence[Generation]) -> None:
        """Deletes the directories of all other generations."""
        names = {generation.name for generation in generations}
        selector = fs.FileSelector(f"{self.root}{_BACKFILLS_SUFFIX}", allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.base_name not in names:
                self.filesystem.delete_dir(info.path)

    def new_state_uri(self) -> str:
        """A state folder that has never been used."""
        return self._folder_uri(f"state-{max(map(_folder_number, self._state_folders()), default=0) + 1}")

    def _state_folders(self) -> list[str]:
        try:
            entries = self.filesystem.get_file_info(fs.FileSelector(self.root))
        except OSError as problem:
            raise error("E063", f"{self.uri} cannot be listed: {problem}") from None
        return [info.base_name for info in entries if re.fullmatch(r"state-(\d+)", info.base_name)]

    def _folder_uri(self, name: str) -> str:
        return f"{self.uri}/{name}"

    # ── recovery ────────────────────────────────────────────────────────────────────────────────────────────────────

    def recover_offset(self, job: Job, on_warning: WarningCallback) -> Offset:
        """The newest version that was delivered and is complete in all partitions. Deletes all newer versions."""
        stores = job.stores()
        versions = common_versions(stores.values())
        delivered_json = self._read_json(DELIVERED_FILE)
        delivered = (
            VersionId(*delivered_json) if isinstance(delivered_json, list) and len(delivered_json) == 2 else None
        )
        newest = max(versions - common_hard_checkpoints(stores.values()), default=None)
        offset: Offset | None = None
        for version in sorted(versions, reverse=True):
            # A version is complete before it is delivered, so the newest may be undelivered. All others were delivered.
            if version == newest if delivered is None else version.number >= delivered.number and version != delivered:
                continue
            try:
                offset = _verify_version(job, version)
                break
            except SmileError as problem:
                if problem.diagnostics[0].code != "E061":
                    raise
                on_warning(f"{problem.message}; it is skipped")
        result = offset or Offset(0, job.log.start())
        # The next version may get a number that an earlier, different version was delivered with.
        self.write_delivered(result)
        for store in stores.values():
            store.delete_after(result.number)
        return result

    def write_delivered(self, offset: Offset, hard: bool = False) -> None:
        version = VersionId.from_horizons(offset.number, offset.horizons)
        write_json(self.filesystem, f"{self.root}/{DELIVERED_FILE}", [version.number, version.digest], hard)

    def write_status(self, status: Json) -> None:
        write_json(self.filesystem, f"{self.root}/{STATUS_FILE}", status, is_durable=False)

    # ── hard checkpoints ────────────────────────────────────────────────────────────────────────────────────────────

    def begin_hard_checkpoint(self, job: Job, offset: Offset) -> None:
        """Pins the delivered version of this offset, so that it is not deleted."""
        for store in job.stores().values():
            store.pin(VersionId.from_horizons(offset.number, offset.horizons))
        self.write_delivered(offset, hard=True)

    def finish_hard_checkpoint(self, job: Job, offset: Offset) -> Mapping[str, int]:
        """Flushes a pinned version to disk. Returns the horizons of the oldest version that is still needed. May run in
        another thread."""
        partitions = [(store, job.table_schemas(stage)) for (stage, _), store in job.stores().items()]
        return finish_hard_checkpoint(partitions, VersionId.from_horizons(offset.number, offset.horizons))

    def _read_json(self, name: str) -> Any:
        path = f"{self.root}/{name}"
        if self.filesystem.get_file_info(path).type != fs.FileType.File:
            return None
        try:
            with self.filesystem.open_input_file(path) as file:
                return json.loads(file.read())
        except (OSError, ValueError) as problem:
            if name == DELIVERED_FILE:
                return None
            raise error("E061", f"{self.uri}/{name} is damaged: {problem}") from None

    def _repartition(self, job: Job, partitions: int) -> Job:
        """The same job with another number of partitions."""
        new_job = replace(job, partitions=partitions, state_uri=self.new_state_uri(), run_id=uuid4().hex)
        if job.start.number:
            old_states = read_states(job, job.start)
            new_states = {
                g: repartition_states(
                    job.plans[g],
                    new_job.plans[g],
                    {
                        partition: partition_states[g]
                        for partition, partition_states in old_states.items()
                        if g in partition_states
                    },
                )
                for g in job.plans
            }
            new_partitions = ((stage, p) for stage, p in new_job.stores())
            self._save_states(
                new_job,
                {
                    (s, p): tables_of_states({g: new_states[g][s, p] for g in new_job.stages_by_generation(s)})
                    for s, p in new_partitions
                },
            )
        self.activate(new_job)
        return new_job


def _new_job(generations: tuple[Generation, ...], partitions: int, folder: str, log: Log, limit: BatchLimit) -> Job:
    """A job whose start is not determined yet."""
    return Job(generations, partitions, folder, log, limit, Offset(0, Position(0, {})), uuid4().hex)


def _folder_number(folder: str) -> int:
    return int(folder.rpartition("-")[2])


def _checksum(description: Json) -> int:
    return zlib.crc32(json.dumps(description, sort_keys=True).encode())


def _verify_version(job: Job, version: VersionId) -> Offset:
    horizons: Mapping[str, int] = {}
    for stage, p in job.stores():
        # A temporary store, so that the files it opens are closed.
        horizons = job.store(stage, p).read(version, job.table_schemas(stage)).horizons
    return Offset(version.number, job.log.resume_position(horizons))


def read_states(job: Job, offset: Offset) -> JobStates:
    """The states of all partitions at an offset."""
    if not offset.number:
        return {}
    version = VersionId.from_horizons(offset.number, offset.horizons)
    return {
        (stage, p): states_of_tables(
            job.stages_by_generation(stage), store.read(version, job.table_schemas(stage), whole=False).tables
        )
        for (stage, p), store in job.stores().items()
    }


def read_snapshot(job: Job, offset: Offset, view: str) -> Delta:
    """All rows that a stored view shows at an offset, as a delta in which all rows are new."""
    generation, plan = next((g.name, job.plans[g.name]) for g in job.generations if view in g.materialized_views)
    stage = plan.materializing_stage(view)
    materialized = stage.kernels.transforms[materialized_name(view)]
    assert isinstance(materialized, MaterializedView)
    version = VersionId.from_horizons(offset.number, offset.horizons)
    deltas = []
    for partition in range(job.partitions):
        saved = job.store(stage.number, partition).read(version, job.table_schemas(stage.number), whole=False)
        deltas.append(
            materialized.read_rows(
                {
                    table: saved.tables[f"{generation}/{materialized_name(view)}/{table}"]
                    for table in materialized.table_schemas
                }
            )
        )
    return concat_deltas(stage.kernels.inputs[view].layout, deltas)
