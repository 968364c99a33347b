"""The keeper that needs no Spark: all views in this process, one engine for each generation, advanced by one thread.

The directory has a folder for each generation, named by what it is, with its text and the soft checkpoints of its
state. Whatever else is there is left of something that was given up, and is deleted.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from smile import limits
from smile.broker.folders import Folders
from smile.broker.keeper import Horizons, Listener
from smile.broker.kept import Kept
from smile.broker.orders import Orders, is_lasting
from smile.broker.telling import Telling
from smile.engine.generation import Generation
from smile.engine.spark.figures import Figures
from smile.errors import SmileError, error
from smile.kernels.transform import Input
from smile.log.frame import NOTHING, Frame
from smile.log.position import Limit, Log, Position
from smile.state.store import Mark


class InProcess:
    """A `Keeper`. What is asked of it from other threads is done by its own."""

    def __init__(self, directory: Path, log: Log, generations: Sequence[Generation], listener: Listener) -> None:
        self._folders = Folders(directory / "in-process")
        self._log = log
        self._generations = tuple(generations)
        self._inputs = {view: source for g in generations for view, source in g.inputs().items()}
        self._telling = Telling(listener)
        self._kept: list[Kept] = []
        self._filling: dict[str, Future[None]] = {}
        self._figures = Figures()
        self._moved = Condition()
        self._news = False
        self._orders = Orders(self.wake)
        self._thread = Thread(target=self._run, name="keeper", daemon=True)
        self.state = "starting"
        self._written = 0

    # ── a keeper ────────────────────────────────────────────────────────────────────────────────────────────────────

    def inputs(self, view: str) -> Input:
        if view not in self._inputs:
            raise error("E021", f"no view {view} is kept")
        return self._inputs[view]

    def start(self) -> None:
        for generation in self._generations:
            self._kept.append(self._folders.opened(generation, self._log, self._telling.trouble))
        self._folders.clear_but([kept.generation for kept in self._kept])
        self._make_up()
        self.state = "running"
        self._thread.start()

    def wake(self) -> None:
        with self._moved:
            self._news = True
            self._moved.notify_all()

    def add(self, generation: Generation, log: Log) -> None:
        self._orders.give(lambda: self._begin(generation, log)).result()

    def drop(self, views: Sequence[str]) -> None:
        self._orders.give(lambda: self._without(views))

    def checkpoint(self) -> Horizons | None:
        held = self._orders.give(self._hold)
        if held is None:
            return None
        found = [self._folders.hardened(generation, mark) for generation, mark in held]
        return {stream: min(of.get(stream, NOTHING) for of in found) for stream in self._log.streams} if found else None

    def status(self) -> Mapping[str, Any]:
        kept = list(self._kept)
        behind = min((one.position for one in kept), key=lambda position: position.commit, default=None)
        waiting, waiting_bytes = (0, 0) if behind is None else self._log.waiting(behind)
        return {
            "state": self.state,
            "at": time.time(),
            "views": [view for one in kept for view in one.generation.wanted],
            "partitions": 1,
            "number": max((one.version for one in kept), default=0),
            "horizons": {} if behind is None else behind.streams(),
            "waiting_events": waiting,
            "waiting_bytes": waiting_bytes,
            "ui": None,
            **self._figures.status({}),
            "state_bytes": sum(one.bytes for one in kept),
        }

    def stop(self) -> None:
        self._orders.close(error("E098", "the keeper is stopping"))
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._telling.close()
        if self.state != "failed":
            self.state = "stopped"

    # ── its thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        pause = 0.0
        while not self._orders.closed:
            try:
                self._orders.obey()
                if pause:
                    self._make_up()
                moved = self._step()
                self._save(hurried=False)
                pause, self.state = 0.0, "running"
            except Exception as problem:  # noqa: BLE001  # whatever it is, the next try may do better
                if is_lasting(problem):
                    self._fail(problem)
                    return
                self._telling.trouble(str(problem) or repr(problem))
                pause = min(max(2 * pause, limits.keeper_pause_s_min), limits.keeper_pause_s_max)
                moved, self.state = False, "recovering"
            if not moved:
                self._wait(pause)
        self._orders.refuse(error("E098", "the keeper is stopping"), self._filling)
        self._save(hurried=True)

    def _make_up(self) -> None:
        """What is known and has not been told, as at first, or when something went wrong."""
        for kept in self._kept:
            if kept.version:
                self._telling.restore(kept.generation.wanted, kept.horizons, kept.rows)

    def _wait(self, pause: float) -> None:
        """Until there may be news; after something went wrong, at least for the pause."""
        until = time.monotonic() + pause
        with self._moved:
            while not self._orders.closed and (left := until - time.monotonic()) > 0:
                self._moved.wait(left)
            if not self._news:
                self._moved.wait(limits.keeper_poll_s)
            self._news = False

    def _fail(self, problem: SmileError) -> None:
        self.state = "failed"
        self._orders.close(problem)
        self._orders.refuse(problem, self._filling)
        self._telling.failed(problem)

    def _step(self) -> bool:
        """A batch of every generation that has news; whether any had. Those that are filled take turns with it."""
        moved = False
        settled = [kept for kept in self._kept if kept.generation.name not in self._filling]
        for position in _distinct([kept.position for kept in settled]):
            moved |= self._advance([kept for kept in settled if kept.position == position], position)
        for kept in [kept for kept in self._kept if kept.generation.name in self._filling]:
            moved |= self._fill(kept, max((one.position.commit for one in settled), default=0))
        return moved

    def _advance(self, together: Sequence[Kept], position: Position) -> bool:
        """Generations that are equally far."""
        begun = time.perf_counter()
        fresh = [kept for kept in together if not kept.version]
        for kept in fresh:
            # What is shown before anything has happened comes first.
            self._tell(kept, kept.advance(Frame({}, {}), position))
        end = self._log.after(position, Limit(limits.batch_rows_max, limits.batch_bytes_max))
        if end == position:
            return bool(fresh)
        read = {
            stream: self._log.read(stream, position, end)
            for stream in dict.fromkeys(stream for kept in together for stream in kept.streams)
        }
        events = {stream: batch for stream, batch in read.items() if batch.num_rows}
        frame = Frame(events, end.streams())
        found = time.perf_counter()
        changed = 0
        for kept in together:
            changed += self._tell(kept, kept.advance(frame, end))
        self._count(sum(batch.num_rows for batch in events.values()), changed, begun, found)
        return True

    def _tell(self, kept: Kept, before: Horizons) -> int:
        views = kept.generation.wanted
        self._telling.batch(views, before, kept.horizons, kept.changes, kept.rows)
        return sum(map(len, kept.changes.values()))

    def _count(self, events: int, changed: int, begun: float, read: float) -> None:
        done = time.perf_counter()
        figures = {"read": read - begun, "kernels": done - read, "save": 0.0, "pack": 0.0}
        figures |= {"events": events, "written": self._written, "state": 0}
        self._figures.take([{"stage": 1, "partition": 0, "figures": figures}], changed)
        self._written = 0

    def _save(self, hurried: bool) -> None:
        """Soft checkpoints that are due, or all."""
        now = time.monotonic()
        for kept in self._kept:
            if kept.is_due(now) or (hurried and kept.is_new):
                try:
                    self._written += kept.save(now)
                except SmileError as problem:
                    self._telling.trouble(str(problem))

    # ── views come and go ───────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, generation: Generation, log: Log) -> "Future[None]":
        taken = {view for kept in self._kept for view in kept.generation.wanted}
        twice = sorted(taken & set(generation.wanted))
        if twice or any(kept.generation.name == generation.name for kept in self._kept):
            raise error("E020", f"{', '.join(twice) or generation.name} is kept already")
        added = self._folders.opened(generation, log, self._telling.trouble)
        self._log = log
        for kept in self._kept:
            kept.widen(log)
        self._inputs |= added.inputs
        if added.version:
            self._telling.restore(generation.wanted, added.horizons, added.rows)
        self._kept.append(added)
        future: Future[None] = Future()
        self._filling[generation.name] = future
        return future

    def _fill(self, kept: Kept, goal: int) -> bool:
        """One batch of what is filled. It has caught up once it is where the others were, or where the log ends."""
        name = kept.generation.name
        try:
            moved = self._advance([kept], kept.position)
        except SmileError as problem:
            if not is_lasting(problem):
                raise
            self._kept.remove(kept)
            self._forget(kept.generation, problem)
            return True
        if not moved or (goal and kept.position.commit >= goal):
            kept.save(time.monotonic())
            self._filling.pop(name).set_result(None)
        return moved

    def _without(self, views: Sequence[str]) -> None:
        for view in views:
            self.inputs(view)
        # Nothing is let go before all that stays is on the disk.
        smaller = [(kept, self._smaller(kept, views)) for kept in self._kept if {*views} & {*kept.generation.wanted}]
        for kept, left in smaller:
            self._kept.remove(kept)
            if left is None:
                self._forget(kept.generation, error("E021", f"{', '.join(kept.generation.wanted)} was dropped"))
            else:
                self._kept.append(left)
                self._folders.forget(kept.generation)
        self._telling.forget(views)
        self._inputs = {view: source for view, source in self._inputs.items() if view not in views}

    def _smaller(self, kept: Kept, views: Sequence[str]) -> Kept | None:
        """The same without these views; None if nothing is left."""
        generation = kept.generation
        wanted, left = (tuple(v for v in some if v not in views) for some in (generation.wanted, generation.kept))
        return self._folders.smaller(kept, replace(generation, wanted=wanted, kept=left)) if wanted else None

    def _forget(self, generation: Generation, reason: SmileError) -> None:
        self._telling.forget(generation.wanted)
        self._inputs = {view: source for view, source in self._inputs.items() if view not in generation.wanted}
        self._folders.forget(generation)
        waiting = self._filling.pop(generation.name, None)
        if waiting is not None:
            waiting.set_exception(reason)

    def _hold(self) -> list[tuple[Generation, Mark]] | None:
        """Of every generation a version that stays. None if one has not begun."""
        if not all(kept.version for kept in self._kept):
            return None
        return [(kept.generation, self._folders.held(kept)) for kept in self._kept]


def _distinct(positions: Sequence[Position]) -> list[Position]:
    found: list[Position] = []
    for position in positions:
        if position not in found:
            found.append(position)
    return found
