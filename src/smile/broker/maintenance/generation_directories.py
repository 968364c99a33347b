"""The state directories of the local executor, one for each generation. A directory is named by the digest of its
generation, and its file `generation.json` describes the generation.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from smile.broker.maintenance.local_generation import LocalGeneration
from smile.engine.generation import Generation
from smile.errors import SmileError, error
from smile.log.position import Log
from smile.state.file import flush_to_disk, write_json
from smile.state.store import StateStore, open_directory

GENERATION_FILE = "generation.json"


class GenerationDirectories:
    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        self.root, self._clock = root.absolute(), clock
        self._filesystem, _ = open_directory(str(self.root))

    def open_generation(self, generation: Generation, log: Log, on_warning: Callable[[str], None]) -> LocalGeneration:
        """Opens the state of a generation. If it has none, takes it from the state of a larger generation that contains
        all its views; otherwise starts with empty state."""
        local, problems = LocalGeneration.open(generation, self._open_store(generation), log, self._clock)
        larger = None if local.version else self._find_larger(generation)
        if larger is not None:
            local, more_problems = LocalGeneration.open(larger, self._open_store(larger), log, self._clock)
            local, problems = self.with_fewer_views(local, generation), problems + more_problems
        for problem in problems:
            on_warning(f"{problem}; this checkpoint is skipped")
        return local

    def with_fewer_views(self, local: LocalGeneration, generation: Generation) -> LocalGeneration:
        """Copies a generation with fewer views, and writes it to the disk. Only then may the original be deleted."""
        reduced = local.with_fewer_views(generation, self._open_store(generation))
        if reduced.version:
            finish_hard_checkpoint = reduced.begin_hard_checkpoint()
            finish_hard_checkpoint()
        return reduced

    def delete(self, generation: Generation) -> None:
        shutil.rmtree(self._directory(generation), ignore_errors=True)

    def delete_others(self, generations: Sequence[Generation]) -> None:
        """Deletes the state of all other generations."""
        for path in {*self._list_directories()} - {self._directory(generation) for generation in generations}:
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
        own_fields = generation.to_json()
        for path in self._list_directories():
            try:
                fields = json.loads((path / GENERATION_FILE).read_text())
                # Only a generation of the same program can contain it: others need not be parsed.
                if fields == own_fields or fields["program"] != own_fields["program"]:
                    continue
                candidate = Generation.from_json(fields)
            except (OSError, ValueError, KeyError, TypeError, SmileError):
                continue  # not a readable generation
            if candidate.contains(generation):
                return candidate
        return None


def _generation_digest(generation: Generation) -> str:
    return hashlib.sha256(json.dumps(generation.to_json()).encode()).hexdigest()
