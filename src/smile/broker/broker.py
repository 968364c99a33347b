"""The broker: takes events into the log, has the views kept, and tells subscribers of them.

The program that runs is the one that was named last, by `smile serve` or by `smile apply`. What is acknowledged is in
the log; what views show was computed from the log; so a broker that was killed goes on where it was.
"""

import logging
import secrets
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from smile.algebra import mmpl
from smile.broker.directory import Directory, Noted, digest_of
from smile.broker.keeper import Delivered, Horizons, Keeper, Restored
from smile.broker.programs import Difference, Kept, difference, kept_for, refuse_changed
from smile.broker.publication import Publication, Published, Silence
from smile.broker.publisher import Publisher
from smile.broker.view import View
from smile.errors import SmileError, error, nearest
from smile.log.clock import Clock, Ticks, wall_clock
from smile.log.durable import DurableLog
from smile.log.frame import NOTHING
from smile.log.remote import RemoteLog, ServedLog
from smile.log.shape import Shape
from smile.program import Compiled, compile_program
from smile.settings import TOKEN_PREFIX, Settings, address
from smile.source import Source

PULSE_S = 0.25
"""How often subscribers are looked at to whom nothing has happened."""
RETENTION_EVERY_S = 60.0

_log = logging.getLogger("smile.broker")


class Broker:
    """May be used from any thread. `views` and `shapes` are replaced when the program changes: they are to be looked up
    each time."""

    def __init__(self, directory: Directory, noted: Noted, settings: Settings, clock: Clock) -> None:
        self.settings, self._directory, self._clock = settings, directory, clock
        self.compiled = compile_program(noted.program)
        self.log_token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        """With it Spark's tasks may read the log over the network, and do nothing else."""
        self.failure: SmileError | None = None
        self.troubles: list[dict[str, Any]] = []
        self._began = time.time()
        self._changing, self._stopping = Lock(), Event()
        streams = self.compiled.rewritten.streams
        self.log = _opened(directory.log, streams, settings.flush)
        kept, new = kept_for(self.compiled, noted.kept)
        self._refuse_cut(self.compiled, () if new is None else tuple(new.digests))
        self._note(replace(noted, kept=(*kept, *([new] if new else []))))
        self.views: Mapping[str, View] = self._views(self._noted.kept)
        self._keeper: Keeper = self._made_keeper()
        ticks = Ticks(settings.origin, clock)
        self._publisher = Publisher(self.log, ticks, settings.silence_ms, settings.idle_ms, streams, self._keeper.wake)
        self._pulse = Thread(target=self._look, name="pulse", daemon=True)

    @staticmethod
    def open(data: Path, source: Source | None, settings: Settings, clock: Clock = wall_clock) -> "Broker":
        """What is wrong with the program, the directory or the settings is raised; what takes long is done later."""
        directory = Directory(data)
        try:
            found = Broker(directory, _to_run(directory, source), settings, clock)
            found._keeper.start()
            found._refuse_lost()
            found._publisher.start()
            found._pulse.start()
        except BaseException:
            directory.close()
            raise
        return found

    def stop(self) -> None:
        """Everything that was handed in is in the log then."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._publisher.stop()
        self._keeper.stop()
        self._pulse.join()
        self.log.close()
        self._directory.close()

    # ── publishing and subscribing ──────────────────────────────────────────────────────────────────────────────────

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Of the streams that can be published to."""
        return self._publisher.shapes

    def shape(self, stream: str) -> Shape:
        found = self.shapes.get(stream)
        if found is None:
            hint = nearest(stream[:100], self.shapes) or f"There are {', '.join(self.shapes)}."
            raise error("E076", f"there is no stream {stream[:100]}", hint=hint)
        return found

    def publish(self, publication: Publication | Silence) -> "Future[Published]":
        return self._publisher.submit(publication)

    def view(self, name: str) -> View:
        found = self.views.get(name)
        if found is not None:
            return found
        others = [v.name for v in self.compiled.written.views if v.name not in self.views]
        if name in others:
            hint = f"Add SUBSCRIBE {name}; to the program."
            raise error("E021", f"the program does not subscribe to {name}", hint=hint)
        hint = nearest(name[:100], self.views) or f"There are {', '.join(self.views)}."
        raise error("E021", f"there is no view {name[:100]}", hint=hint)

    # ── the program ─────────────────────────────────────────────────────────────────────────────────────────────────

    def difference(self, source: Source) -> Difference:
        """What `apply` would do."""
        return self._difference(compile_program(source))

    def _difference(self, compiled: Compiled) -> Difference:
        # A stream that was dropped is still in the log: it may come back as it was.
        streams = {s.name: s for s in DurableLog.definitions_at(self.log.path)}
        refuse_changed(streams, compiled.rewritten.streams)
        return difference(self.compiled, compiled)

    def apply(self, source: Source) -> Difference:
        """Returns once views that are new, or others now, have caught up with the log."""
        compiled = compile_program(source)
        if not self._changing.acquire(blocking=False):
            raise error("E102", "the program is being changed already", hint="Try again when that is done.")
        try:
            found = self._difference(compiled)
            kept, new = kept_for(compiled, self._noted.kept)
            if new is not None:
                new.generation.plan(1)  # what cannot be run is refused
                self._refuse_cut(compiled, tuple(new.digests))
            before = self.compiled, self._noted
            self._become(compiled, replace(self._noted, program=source, kept=(*kept, *([new] if new else []))), new)
            return found
        except SmileError as problem:
            if self.compiled is compiled and problem.diagnostics[0].code != "E098":
                self._go_back(*before)
            raise
        finally:
            self._changing.release()

    def _become(self, compiled: Compiled, noted: Noted, new: Kept | None) -> None:
        added = [s for s in compiled.rewritten.streams if s.name not in self.log.streams]
        if added:
            self.log.add_streams(added)
        before, begun = self._noted, {} if new is None else new.digests
        stays = {view for one in noted.kept for view in one.digests} - set(begun)
        stale = [view for view in self.views if view not in stays]
        self._note(noted)
        if stale:
            try:
                self._keeper.drop(stale)
            except SmileError:
                self._note(before)
                raise
        self.compiled = compiled
        self._publisher.become(compiled.rewritten.streams)
        ended = [self.views[view] for view in stale]
        fresh = {} if new is None else self._views([new])
        self.views = {**{name: view for name, view in self.views.items() if name in stays}, **fresh}
        for view in ended:
            what = "was changed" if view.name in fresh else "is no longer in the program"
            view.end(error("E095", f"the view {view.name} {what}"))
        if new is not None:
            self._fill(new, fresh)

    def _fill(self, new: Kept, fresh: Mapping[str, View]) -> None:
        try:
            self._keeper.add(new.generation, self._log_of_tasks())
        except SmileError as problem:
            self.views = {name: view for name, view in self.views.items() if name not in fresh}
            for view in fresh.values():
                view.end(problem)
            raise

    def _go_back(self, compiled: Compiled, noted: Noted) -> None:
        """To the program before, whose views may have to be filled anew. A broker that is stopping goes on with the new
        one when it is started again."""
        known = {one.generation.name for one in noted.kept}
        kept, lost = kept_for(compiled, [one for one in self._noted.kept if one.generation.name in known])
        self._become(compiled, replace(noted, kept=(*kept, *([lost] if lost else []))), lost)

    def _views(self, kept: Iterable[Kept]) -> dict[str, View]:
        found: dict[str, View] = {}
        for one in kept:
            inputs = one.generation.plan(1).kernels.inputs
            for name, of in one.digests.items():
                # Before anything is known, that is known: tokens of those who knew more are waited for.
                nothing = dict.fromkeys(self.log.streams, NOTHING)
                found[name] = View(name, inputs[name], of, self._known, horizons=nothing)
        return found

    def _refuse_cut(self, compiled: Compiled, views: Iterable[str]) -> None:
        """Views are of whole histories: none can be begun where some of it is gone."""
        for view in views:
            for stream in compiled.analysis.relations[view].seals:
                tick = self.log.cut_to(stream)
                if tick is not None:
                    message = f"{view} needs all of {stream}, and the log was cut at tick {tick}"
                    hint = "Views can be added while the log has all events; the setting `keep` says how long that is."
                    raise error("E097", message, hint=hint)

    def _refuse_lost(self) -> None:
        """What views were computed from is in the log, or its end was lost."""
        known = self._known()
        for view in self.views.values():
            for stream, tick in view.horizons.items():
                if tick > known.get(stream, NOTHING):
                    self._keeper.stop()
                    message = f"{view.name} knows {stream} up to tick {tick}, and the log ends at {known.get(stream)}"
                    hint = "The log's end was lost: put a copy in its place, or delete state/ to do without."
                    raise error("E089", message, hint=hint)

    def _note(self, noted: Noted) -> None:
        self._directory.note(noted)
        self._noted = noted

    def _known(self) -> Horizons:
        """Of the log: nobody was told of more."""
        return self._publisher.horizons

    # ── the keeper, and what it tells ───────────────────────────────────────────────────────────────────────────────

    def _made_keeper(self) -> Keeper:
        settings, log, generations = self.settings, self._log_of_tasks(), [one.generation for one in self._noted.kept]
        if settings.engine == "local":
            from smile.broker.in_process import InProcess  # noqa: PLC0415  # the other one needs Spark

            return InProcess(self._directory.state, log, generations, self)
        from smile.broker.on_spark import OnSpark  # noqa: PLC0415

        place = (settings.master, settings.partitions, self._directory.spark_log)
        return OnSpark(self._directory.state, log, generations, self, *place, token=self.log_token)

    def _log_of_tasks(self) -> DurableLog:
        """As the keeper reads it. Spark's tasks on this machine read the file, those on others ask this broker."""
        settings, definitions = self.settings, [shape.stream for shape in self.log.shapes.values()]
        if settings.engine == "local" or settings.master.startswith("local") or not settings.flight:
            return self.log
        host, port = address(settings.flight)
        if not port:
            raise error("E100", "on a cluster, flight needs a port that is known before: tasks read the log there")
        name = next(iter(settings.hosts), socket.getfqdn() if host in ("0.0.0.0", "::") else host)
        location = f"{'grpc+tls' if settings.tls else 'grpc'}://{f'[{name}]' if ':' in name else name}:{port}"
        authority = Path(settings.tls_cert).read_bytes() if settings.tls else None
        far = RemoteLog(location, definitions, self.log_token, authority)
        return ServedLog(self.log.path, definitions, far, settings.flush)

    def deliver(self, delivered: Delivered) -> None:
        for name in delivered.views:
            view = self.views.get(name)
            if view is not None:
                view.deliver(delivered.changes.get(name), delivered.horizons)

    def restore(self, restored: Restored) -> None:
        view = self.views.get(restored.view)
        if view is not None:
            view.restore(restored)

    def trouble(self, what: str) -> None:
        _log.warning("trouble", extra={"what": what})
        self.troubles = [*self.troubles[-9:], {"at": time.time(), "what": what}]

    def failed(self, problem: SmileError) -> None:
        _log.error("failed", extra={"code": problem.diagnostics[0].code, "what": str(problem)})
        self.failure = problem

    def _look(self) -> None:
        """After subscribers to whom nothing has happened, and after the log."""
        retained = time.monotonic()
        while not self._stopping.wait(PULSE_S):
            for view in self.views.values():
                view.pulse()
            if time.monotonic() - retained >= RETENTION_EVERY_S:
                retained = time.monotonic()
                self.retain()

    def retain(self) -> None:
        """Cuts the log where no view needs it any more, and the setting lets it."""
        keep = self.settings.keep_us
        if keep is None:
            return
        try:
            needed = self._keeper.checkpoint()
            if needed is not None:
                self.log.cut(needed, before=self._clock() - keep)
        except SmileError as problem:
            self.trouble(f"the log was not cut: {problem}")

    # ── how it fares ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def health(self) -> str:
        if self.failure is not None:
            return f"failed: {self.failure}"
        if self._stopping.is_set():
            return "stopping"
        return "starting" if self._keeper.state == "starting" else "ok"

    def status(self) -> dict[str, Any]:
        horizons = self._known()
        return {
            "at": time.time(),
            "since": self._began,
            "health": self.health,
            "engine": self.settings.engine,
            "program": self._noted.program.name,
            "streams": {name: {"horizon": horizons.get(name)} for name in self.shapes},
            "views": {
                view.name: {
                    "rows": view.rows,
                    "changed": view.changed,
                    "subscribers": view.subscribers,
                    "horizons": dict(view.horizons),
                }
                for view in self.views.values()
            },
            "publisher": self._publisher.status(),
            "keeper": dict(self._keeper.status()),
            "troubles": self.troubles,
        }


def _to_run(directory: Directory, source: Source | None) -> Noted:
    """The program that goes on: what was applied, unless another file is served now."""
    noted = directory.noted()
    if source is None:
        if noted is None:
            hint = "Name one: smile serve PROGRAM."
            raise error("E105", f"{directory.path} has no program", hint=hint)
        return noted
    if noted is None:
        return Noted(source, digest_of(source))
    if noted.served == digest_of(source):
        return noted
    return replace(noted, program=source, served=digest_of(source))


def _opened(path: str, streams: Sequence[mmpl.StreamDef], flush: bool) -> DurableLog:
    """The log with the streams of the program, and those it has of earlier ones."""
    if not Path(path).exists():
        return DurableLog.at(path, streams, flush)
    known = {s.name: s for s in DurableLog.definitions_at(path)}
    refuse_changed(known, streams)
    log = DurableLog.at(path, list(known.values()), flush)
    added = [s for s in streams if s.name not in known]
    if added:
        log.add_streams(added)
    return log
