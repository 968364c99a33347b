"""Where a pipeline stands: its directory says what it is and how far it has come.

The directory has `pipeline.json`, which names the generations, the number of partitions and the folder of their state;
that folder; `delivered.json`, the mark of the last version of which everything was delivered; and `status.json`, how
it fares. Nothing of it needs Spark.
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
from smile.engine.repartition import repartitioned
from smile.engine.spark.job import Job
from smile.engine.spark.planning import Offset
from smile.engine.spark.task import states_of, tables_of
from smile.errors import SmileError, error
from smile.kernels.changes import Changes, concat
from smile.kernels.compile import shown
from smile.kernels.shown import Shown
from smile.log.position import Limit, Log, Position
from smile.state.file import write_json
from smile.state.store import Mark, Tables, directory

FORMAT = 1
PIPELINE = "pipeline.json"
DELIVERED = "delivered.json"
STATUS = "status.json"

Tell = Callable[[str], None]
States = Mapping[tuple[int, int], Mapping[str, Any]]
"""What partitions remember, by stage and number, and then by generation."""


class Standing:
    """A pipeline's directory."""

    def __init__(self, uri: str) -> None:
        # Executors have working directories of their own.
        self.uri = uri.rstrip("/") if "://" in uri else str(Path(uri).absolute())
        self.filesystem, self.root = directory(self.uri)

    # ── what it is ──────────────────────────────────────────────────────────────────────────────────────────────────

    def job(self, generations: tuple[Generation, ...], partitions: int, log: Log, limit: Limit, tell: Tell) -> Job:
        """A job that goes on from what is here, or begins. State of another number of partitions is cut anew."""
        known = self._pipeline()
        if known is None:
            found = Job(generations, partitions, self.next_folder(), log, limit, Offset(0, log.start()), uuid4().hex)
            self.settle(found)
            return found
        found = _job(generations, known["partitions"], self._folder(known["folder"]), log, limit)
        if [g.to_json() for g in generations] != known["generations"]:
            hint = "Choose another directory, or delete this one if what it knows is of no use any more."
            raise error("E065", f"{self.uri} is the state of another program", hint=hint)
        found = replace(found, start=self.resumed(found, tell))
        return found if partitions == found.partitions else self._cut_anew(found, partitions)

    def went_on(self, generations: Sequence[Generation], partitions: int, log: Log, limit: Limit, tell: Tell) -> Job:
        """The same for generations that may be others than were here last. Those that are not wanted any more are
        dropped; new ones are not in the job, and have to be filled, unless there are no others."""
        try:
            known = self.generations()
        except SmileError as problem:
            if problem.diagnostics[0].code != "E061":
                raise
            tell(f"{problem}; it is made again")
            known = self._made_again(generations, log, limit)
        left = tuple(found for g in known or () if (found := g.as_one_of(generations)) is not None)
        if known is None or (known and not left):
            self.clear()
            return self.job(tuple(generations), partitions, log, limit, tell)
        if [g.to_json() for g in left] == [g.to_json() for g in known]:
            return self.job(left, partitions, log, limit, tell)
        job = self.job(known, partitions, log, limit, tell)
        return self.become(job, job.start, left, states_at(job, job.start))

    def generations(self) -> tuple[Generation, ...] | None:
        """Those that were here last."""
        known = self._pipeline()
        return None if known is None else tuple(map(Generation.from_json, known["generations"]))

    def _pipeline(self) -> Json | None:
        """What `pipeline.json` says, if there is one."""
        known = self._read(PIPELINE)
        if known is None:
            return None
        if isinstance(known, dict) and isinstance(known.get("format"), int):
            if known["format"] > FORMAT:
                raise error("E062", f"{self.uri} was written by a newer SMILE (format {known['format']}, not {FORMAT})")
            if known.pop("crc", None) == _checksum(known):
                return known
        raise error("E061", f"{self.uri}/{PIPELINE} is damaged: it does not say what the pipeline is")

    def settle(self, job: Job) -> None:
        """From now on this is the pipeline; the state of the one before it is deleted."""
        folder = job.state.rpartition("/")[2]
        told = {
            "format": FORMAT,
            "generations": [g.to_json() for g in job.generations],
            "partitions": job.partitions,
            "folder": folder,
        }
        write_json(self.filesystem, f"{self.root}/{PIPELINE}", {**told, "crc": _checksum(told)}, hard=True)
        for name in self._folders():
            if name != folder:
                self.filesystem.delete_dir(f"{self.root}/{name}")

    def become(self, job: Job, offset: Offset, generations: tuple[Generation, ...], states: States) -> Job:
        """A job of these generations, which remembers of these states what it needs, and goes on from the offset. What
        was here before is deleted, so that its state is on the disk first."""
        new = replace(job, generations=generations, state=self.next_folder(), start=offset, run=uuid4().hex)
        self._save(new, {place: tables_of(of) for place, of in states.items()})
        self.settle(new)
        return new

    def _save(self, job: Job, tables: Mapping[tuple[int, int], Tables]) -> None:
        mark = Mark.of(job.start.number, job.start.horizons)
        for (stage, partition), store in job.stores().items() if job.start.number else ():
            found, shapes = tables.get((stage, partition), {}), job.shapes(stage)
            store.save(job.start.number, job.start.horizons, {name: found[name] for name in shapes})
            store.hold(mark)
            store.harden(mark, shapes)

    def _made_again(self, generations: Sequence[Generation], log: Log, limit: Limit) -> tuple[Generation, ...] | None:
        """Of a pipeline whose description is lost: if there is state of these generations, that is it."""
        for name in sorted(self._folders(), key=_number, reverse=True):
            listed = self.filesystem.get_file_info(fs.FileSelector(f"{self.root}/{name}/stage-1", allow_not_found=True))
            found = _job(tuple(generations), max(1, len(listed)), self._folder(name), log, limit)
            try:
                marks = found.store(1, 0).versions()
                if marks:
                    found.store(1, 0).read(max(marks), found.shapes(1), whole=False)
                    self.settle(found)
                    return tuple(generations)
            except SmileError as problem:
                if problem.diagnostics[0].code not in ("E061", "E065"):
                    raise
        return None

    def clear(self) -> None:
        """Nothing is left of it."""
        self.filesystem.delete_dir(self.root)
        self.filesystem.create_dir(self.root)

    def next_folder(self) -> str:
        """For the state of a pipeline that is to take the place of this one: it has never been used."""
        return self._folder(f"state-{max(map(_number, self._folders()), default=0) + 1}")

    def _folders(self) -> list[str]:
        try:
            found = self.filesystem.get_file_info(fs.FileSelector(self.root))
        except OSError as problem:
            raise error("E063", f"{self.uri} cannot be listed: {problem}") from None
        return [info.base_name for info in found if re.fullmatch(r"state-(\d+)", info.base_name)]

    def _folder(self, name: str) -> str:
        return f"{self.uri}/{name}"

    # ── how far it has come ─────────────────────────────────────────────────────────────────────────────────────────

    def resumed(self, job: Job, tell: Tell) -> Offset:
        """The newest version that was delivered and is whole in all partitions. What lies above it is deleted."""
        stores = job.stores()
        common = set[Mark].intersection(*(store.versions() for store in stores.values()))
        noted = self._read(DELIVERED)
        delivered = Mark(*noted) if isinstance(noted, list) and len(noted) == 2 else None
        newest = max(common - self.hard(job), default=None)
        found: Offset | None = None
        for mark in sorted(common, reverse=True):
            # A version is complete before what it changed is delivered; the one before it was delivered then.
            if mark == newest if delivered is None else mark.number >= delivered.number and mark != delivered:
                continue
            try:
                found = _whole(job, mark)
                break
            except SmileError as problem:
                if problem.diagnostics[0].code != "E061":
                    raise
                tell(f"{problem}; it is passed over")
        result = found or Offset(0, job.log.start())
        # What comes next may be another version of a number that was delivered before.
        self.note_delivered(result)
        for store in stores.values():
            store.clear_above(result.number)
        return result

    def note_delivered(self, offset: Offset, hard: bool = False) -> None:
        mark = Mark.of(offset.number, offset.horizons)
        write_json(self.filesystem, f"{self.root}/{DELIVERED}", [mark.number, mark.digest], hard)

    def note_status(self, status: Json) -> None:
        write_json(self.filesystem, f"{self.root}/{STATUS}", status, hard=False)

    # ── hard checkpoints ────────────────────────────────────────────────────────────────────────────────────────────

    def hold(self, job: Job, offset: Offset) -> None:
        """The version of this offset, which was delivered, is not deleted from now on."""
        for store in job.stores().values():
            store.hold(Mark.of(offset.number, offset.horizons))
        self.note_delivered(offset, hard=True)

    def harden(self, job: Job, offset: Offset) -> Mapping[str, int]:
        """Once a version that is held is on the disk, the horizons of the hard checkpoint before it, which stays in
        case that something becomes of this one; without it, of the oldest version. It may be done beside all else."""
        mark = Mark.of(offset.number, offset.horizons)
        stores = job.stores()
        for (stage, _), store in stores.items():
            store.harden(mark, job.shapes(stage))
        versions = set[Mark].intersection(*(store.versions() for store in stores.values()))
        oldest = max((one for one in self.hard(job) if one < mark), default=min(versions))
        for store in stores.values():
            store.let_go(oldest)
        return next(iter(stores.values())).horizons(oldest)

    def hard(self, job: Job) -> set[Mark]:
        """Versions that are held in all partitions."""
        return set[Mark].intersection(*(store.hard() & store.versions() for store in job.stores().values()))

    def _read(self, name: str) -> Any:
        path = f"{self.root}/{name}"
        if self.filesystem.get_file_info(path).type != fs.FileType.File:
            return None
        try:
            with self.filesystem.open_input_file(path) as file:
                return json.loads(file.read())
        except (OSError, ValueError) as problem:
            if name == DELIVERED:
                return None
            raise error("E061", f"{self.uri}/{name} is damaged: {problem}") from None

    def _cut_anew(self, job: Job, partitions: int) -> Job:
        """The same job in another number of partitions."""
        new = replace(job, partitions=partitions, state=self.next_folder(), run=uuid4().hex)
        if job.start.number:
            found = states_at(job, job.start)
            cut = {
                g: repartitioned(job.plans[g], new.plans[g], {place: of[g] for place, of in found.items() if g in of})
                for g in job.plans
            }
            places = ((stage, p) for stage, p in new.stores())
            self._save(new, {(s, p): tables_of({g: cut[g][s, p] for g in new.works(s)}) for s, p in places})
        self.settle(new)
        return new


def _job(generations: tuple[Generation, ...], partitions: int, folder: str, log: Log, limit: Limit) -> Job:
    """Where it starts is to be found out."""
    return Job(generations, partitions, folder, log, limit, Offset(0, Position(0, {})), uuid4().hex)


def _number(folder: str) -> int:
    return int(folder.rpartition("-")[2])


def _checksum(told: Json) -> int:
    return zlib.crc32(json.dumps(told, sort_keys=True).encode())


def _whole(job: Job, mark: Mark) -> Offset:
    horizons: Mapping[str, int] = {}
    for stage, p in job.stores():
        # A store of its own, so that what it has opened goes with it.
        horizons = job.store(stage, p).read(mark, job.shapes(stage)).horizons
    return Offset(mark.number, job.log.resumed(horizons))


def states_at(job: Job, offset: Offset) -> States:
    """What every partition remembers at an offset."""
    if not offset.number:
        return {}
    mark = Mark.of(offset.number, offset.horizons)
    return {
        (stage, p): states_of(job.works(stage), store.read(mark, job.shapes(stage), whole=False).tables)
        for (stage, p), store in job.stores().items()
    }


def rows_at(job: Job, offset: Offset, view: str) -> Changes:
    """All rows that a view that is kept shows at an offset, as if all of them were new."""
    name, plan = next((g.name, job.plans[g.name]) for g in job.generations if view in g.kept)
    work = plan.place_of(view)
    kept = work.kernels.transforms[shown(view)]
    assert isinstance(kept, Shown)
    mark = Mark.of(offset.number, offset.horizons)
    found = []
    for partition in range(job.partitions):
        saved = job.store(work.number, partition).read(mark, job.shapes(work.number), whole=False)
        found.append(kept.rows({table: saved.tables[f"{name}/{shown(view)}/{table}"] for table in kept.shapes}))
    return concat(work.kernels.inputs[view].layout, found)
