"""Where a pipeline stands: its directory says what it is and how far it has come.

The directory has `pipeline.json`, which names the generations, the number of partitions and the folder of their state;
that folder; `delivered.json`, the mark of the last version of which everything was delivered; and `status.json`, how
it fares.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow import fs

from smile.engine.repartition import repartitioned
from smile.engine.spark.job import Generation, Job, Json, Offset
from smile.engine.spark.task import states_of, tables_of
from smile.errors import SmileError, error
from smile.log.position import Limit, Log
from smile.state.store import Mark, directory

FORMAT = 1
PIPELINE = "pipeline.json"
DELIVERED = "delivered.json"
STATUS = "status.json"

Tell = Callable[[str], None]


class Standing:
    """A pipeline's directory."""

    def __init__(self, uri: str) -> None:
        # Executors have working directories of their own.
        self.uri = uri.rstrip("/") if "://" in uri else str(Path(uri).absolute())
        self.filesystem, self.root = directory(self.uri)

    # ── what it is ──────────────────────────────────────────────────────────────────────────────────────────────────

    def job(self, generations: tuple[Generation, ...], partitions: int, log: Log, limit: Limit, tell: Tell) -> Job:
        """A job that goes on from what is here, or begins. State of another number of partitions is cut anew."""
        start = Offset(0, log.start())
        known = self._pipeline()
        if known is None:
            found = Job(generations, partitions, self.next_folder(), log, limit, start, uuid4().hex)
            self.settle(found)
            return found
        found = Job(generations, known["partitions"], self._folder(known["folder"]), log, limit, start, uuid4().hex)
        if [g.to_json() for g in generations] != known["generations"]:
            hint = "Choose another directory, or delete this one if what it knows is of no use any more."
            raise error("E065", f"{self.uri} is the state of another program", hint=hint)
        found = replace(found, start=self.resumed(found, tell))
        return found if partitions == found.partitions else self._cut_anew(found, partitions)

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
            if {"generations", "partitions", "folder"} <= set(known):
                return known
        raise error("E061", f"{self.uri}/{PIPELINE} is damaged: it does not say what the pipeline is")

    def settle(self, job: Job) -> None:
        """From now on this is the pipeline; the state of the one before it is deleted."""
        before = self._pipeline()
        folder = job.state.rpartition("/")[2]
        self._write(
            PIPELINE,
            {
                "format": FORMAT,
                "generations": [g.to_json() for g in job.generations],
                "partitions": job.partitions,
                "folder": folder,
            },
        )
        if before is not None and before["folder"] != folder:
            self.filesystem.delete_dir(f"{self.root}/{before['folder']}")

    def clear(self) -> None:
        """Nothing is left of it."""
        self.filesystem.delete_dir(self.root)
        self.filesystem.create_dir(self.root)

    def next_folder(self) -> str:
        """For the state of a pipeline that is to take the place of this one: it has never been used."""
        found = self.filesystem.get_file_info(fs.FileSelector(self.root))
        used = [int(name[1]) for info in found if (name := re.fullmatch(r"state-(\d+)", info.base_name))]
        return self._folder(f"state-{max(used, default=0) + 1}")

    def _folder(self, name: str) -> str:
        return f"{self.uri}/{name}"

    # ── how far it has come ─────────────────────────────────────────────────────────────────────────────────────────

    def resumed(self, job: Job, tell: Tell) -> Offset:
        """The newest version that was delivered and is whole in all partitions. What lies above it is deleted."""
        stores = job.stores()
        common = set[Mark].intersection(*(store.versions() for store in stores.values()))
        noted = self._read(DELIVERED)
        delivered = Mark(*noted) if isinstance(noted, list) and len(noted) == 2 else None
        newest = max(common, default=None)
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

    def note_delivered(self, offset: Offset) -> None:
        mark = Mark.of(offset.number, offset.horizons)
        self._write(DELIVERED, [mark.number, mark.digest])

    def note_status(self, status: Json) -> None:
        self._write(STATUS, status)

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

    def _write(self, name: str, what: Any) -> None:
        """Wholly or not at all."""
        try:
            with self.filesystem.open_output_stream(f"{self.root}/{name}.new") as sink:
                sink.write(json.dumps(what).encode())
            self.filesystem.move(f"{self.root}/{name}.new", f"{self.root}/{name}")
        except OSError as problem:
            raise error("E064", f"{self.uri}/{name} cannot be written: {problem}") from None

    def _cut_anew(self, job: Job, partitions: int) -> Job:
        """The same job in another number of partitions."""
        new = replace(job, partitions=partitions, state=self.next_folder(), run=uuid4().hex)
        if job.start.number:
            found = states_at(job, job.start)
            cut = {
                g: repartitioned(job.plans[g], new.plans[g], {place: of[g] for place, of in found.items() if g in of})
                for g in job.plans
            }
            for (stage, p), store in new.stores().items():
                tables = tables_of({g: cut[g][stage, p] for g in new.works(stage)})
                store.save(job.start.number, job.start.horizons, tables)
        self.settle(new)
        return new


def _whole(job: Job, mark: Mark) -> Offset:
    horizons: Mapping[str, int] = {}
    for stage, p in job.stores():
        # A store of its own, so that what it has opened goes with it.
        horizons = job.store(stage, p).read(mark, job.shapes(stage)).horizons
    return Offset(mark.number, job.log.resumed(horizons))


def states_at(job: Job, offset: Offset) -> dict[tuple[int, int], dict[str, Any]]:
    """What every partition remembers at an offset, by its stage and number, and then by generation."""
    if not offset.number:
        return {}
    mark = Mark.of(offset.number, offset.horizons)
    return {
        (stage, p): states_of(job.works(stage), store.read(mark, job.shapes(stage), whole=False).tables)
        for (stage, p), store in job.stores().items()
    }
