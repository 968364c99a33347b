"""The folders of what is kept in this process, one for each generation. A folder's name follows from its generation,
and its file `generation.json` says what that is.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from smile.broker.keeper import Horizons
from smile.broker.kept import Kept
from smile.engine.generation import Generation
from smile.errors import SmileError, error
from smile.log.position import Log
from smile.state.file import flushed, write_json
from smile.state.store import Mark, Store, directory

TEXT = "generation.json"


class Folders:
    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._filesystem, _ = directory(str(self.root))

    def opened(self, generation: Generation, log: Log, tell: Callable[[str], None]) -> Kept:
        """What was kept of a generation; of one that is wanted less now than when it was written, what is needed of it.
        Else it begins."""
        larger = None if self._folder(generation).exists() else self._larger(generation)
        kept, problems = Kept.opened(larger or generation, self._store(larger or generation), log)
        for problem in problems:
            tell(f"{problem}; it is passed over")
        return kept if larger is None else self.smaller(kept, generation)

    def smaller(self, kept: Kept, generation: Generation) -> Kept:
        """The same with fewer views, on the disk too: only then may what it was made from be deleted."""
        found = kept.smaller(generation, self._store(generation))
        if found.version:
            found.save(0.0)
            store = self._store(generation)
            store.hold(found.mark)
            store.harden(found.mark, found.engine.shapes)
        return found

    def held(self, kept: Kept) -> Mark:
        """What is kept now stays, to be a hard checkpoint."""
        if kept.is_new:
            kept.save(0.0)
        assert kept.engine.store is not None
        kept.engine.store.hold(kept.mark)
        return kept.mark

    def hardened(self, generation: Generation, mark: Mark) -> Horizons:
        """Once this version is on the disk, the horizons of the hard checkpoint before it, which stays in case that
        something becomes of this one; without it, of the oldest version. It may be done beside everything else."""
        store = self._store(generation)
        work = generation.plan(1).stages[0]
        shapes = {f"{name}/{table}": shape for name, of in work.shapes.items() for table, shape in of.items()}
        store.harden(mark, shapes)
        versions = store.versions()
        oldest = max((one for one in store.hard() & versions if one < mark), default=min(versions))
        store.let_go(oldest)
        return store.horizons(oldest)

    def forget(self, generation: Generation) -> None:
        shutil.rmtree(self._folder(generation), ignore_errors=True)

    def clear_but(self, generations: Sequence[Generation]) -> None:
        """What is there of others."""
        kept = {self._folder(generation) for generation in generations}
        for path in self._all():
            if path not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def _all(self) -> list[Path]:
        try:
            return sorted(path for path in self.root.iterdir() if path.is_dir())
        except OSError as problem:
            raise error("E063", f"{self.root} cannot be listed: {problem}") from None

    def _folder(self, generation: Generation) -> Path:
        return self.root / f"generation-{_digest(generation)[:16]}"

    def _store(self, generation: Generation) -> Store:
        folder = self._folder(generation)
        is_new = not folder.exists()
        store = Store.at(str(folder), _digest(generation))
        if is_new:
            write_json(self._filesystem, str(folder / TEXT), generation.to_json(), hard=True)
            flushed(self._filesystem, str(self.root))
        return store

    def _larger(self, generation: Generation) -> Generation | None:
        for path in self._all():
            try:
                found = Generation.from_json(json.loads((path / TEXT).read_text()))
            except (OSError, ValueError, KeyError, TypeError, SmileError):
                continue  # it is of no use
            if found.as_one_of([generation]) is not None:
                return found
        return None


def _digest(generation: Generation) -> str:
    return hashlib.sha256(json.dumps(generation.to_json()).encode()).hexdigest()
