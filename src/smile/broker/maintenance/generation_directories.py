"""The state directories of a local maintainer, one for each generation. A directory is named by the digest of its
generation, and its file `generation.json` describes the generation.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from smile.broker.maintenance.local_generation import LocalGeneration
from smile.broker.maintenance.maintainer import Horizons
from smile.engine.generation import Generation
from smile.errors import SmileError, error
from smile.log.position import Log
from smile.state.file import flush_to_disk, write_json
from smile.state.store import StateStore, VersionId, open_directory

GENERATION_FILE = "generation.json"


class GenerationDirectories:
    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._filesystem, _ = open_directory(str(self.root))

    def open_generation(self, generation: Generation, log: Log, on_warning: Callable[[str], None]) -> LocalGeneration:
        """Opens the state of a generation. If it has none, takes it from the state of a larger generation that contains
        all its views; otherwise starts with empty state."""
        larger = None if self._directory(generation).exists() else self._find_larger(generation)
        local, problems = LocalGeneration.open(larger or generation, self._open_store(larger or generation), log)
        for problem in problems:
            on_warning(f"{problem}; this checkpoint is skipped")
        return local if larger is None else self.with_fewer_views(local, generation)

    def with_fewer_views(self, local: LocalGeneration, generation: Generation) -> LocalGeneration:
        """Copies a generation with fewer views, and writes it to the disk. Only then may the original be deleted."""
        reduced = local.with_fewer_views(generation, self._open_store(generation))
        if reduced.version:
            reduced.save_checkpoint(0.0)
            store = self._open_store(generation)
            store.pin(reduced.version_id)
            store.harden(reduced.version_id, reduced.engine.table_schemas)
        return reduced

    def begin_hard_checkpoint(self, local: LocalGeneration) -> VersionId:
        """Pins the current version, so that it can become a hard checkpoint."""
        if local.has_unsaved_changes:
            local.save_checkpoint(0.0)
        assert local.engine.store is not None
        local.engine.store.pin(local.version_id)
        return local.version_id

    def finish_hard_checkpoint(self, generation: Generation, version_id: VersionId) -> Horizons:
        """Flushes this version to the disk. Returns the horizons of the previous hard checkpoint, which is retained in
        case this one is damaged later; without one, those of the oldest version. May run concurrently with everything
        else."""
        store = self._open_store(generation)
        stage = generation.plan(1).stages[0]
        schemas = {
            f"{name}/{table}": schema
            for name, tables in stage.table_schemas.items()
            for table, schema in tables.items()
        }
        store.harden(version_id, schemas)
        versions = store.versions()
        oldest = max(
            (version for version in store.hard_checkpoints() & versions if version < version_id), default=min(versions)
        )
        store.unpin_before(oldest)
        return store.horizons(oldest)

    def delete(self, generation: Generation) -> None:
        shutil.rmtree(self._directory(generation), ignore_errors=True)

    def delete_others(self, generations: Sequence[Generation]) -> None:
        """Deletes the state of all other generations."""
        retained_paths = {self._directory(generation) for generation in generations}
        for path in self._list_directories():
            if path not in retained_paths:
                shutil.rmtree(path, ignore_errors=True)

    def _list_directories(self) -> list[Path]:
        try:
            return sorted(path for path in self.root.iterdir() if path.is_dir())
        except OSError as problem:
            raise error("E063", f"{self.root} cannot be listed: {problem}") from None

    def _directory(self, generation: Generation) -> Path:
        return self.root / f"generation-{_generation_digest(generation)[:16]}"

    def _open_store(self, generation: Generation) -> StateStore:
        directory_path = self._directory(generation)
        is_new = not directory_path.exists()
        store = StateStore.open(str(directory_path), _generation_digest(generation))
        if is_new:
            write_json(self._filesystem, str(directory_path / GENERATION_FILE), generation.to_json(), is_durable=True)
            flush_to_disk(self._filesystem, str(self.root))
        return store

    def _find_larger(self, generation: Generation) -> Generation | None:
        for path in self._list_directories():
            try:
                candidate = Generation.from_json(json.loads((path / GENERATION_FILE).read_text()))
            except (OSError, ValueError, KeyError, TypeError, SmileError):
                continue  # not a readable generation
            if candidate.find_reduced([generation]) is not None:
                return candidate
        return None


def _generation_digest(generation: Generation) -> str:
    return hashlib.sha256(json.dumps(generation.to_json()).encode()).hexdigest()
