"""A generation of views that is kept in this process: its engine, how far it has read the log, and what its last batch
changed. Between two checkpoints there is a bounded time, and a bounded number of events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from smile import limits
from smile.broker.keeper import Horizons
from smile.engine.generation import Generation
from smile.engine.local import LocalEngine, Remembered
from smile.engine.plan import Made, Plan, Work
from smile.kernels.changes import Changes
from smile.kernels.transform import Input
from smile.log.frame import NOTHING, Frame
from smile.log.position import Log, Position
from smile.state.store import Mark, Store


@dataclass
class Kept:
    generation: Generation
    plan: Plan
    engine: LocalEngine
    position: Position
    changes: Mapping[str, Changes] = field(default_factory=dict)
    _events: int = 0
    """Since the last checkpoint."""
    _saved: int = 0
    _saved_at: float | None = None

    @staticmethod
    def opened(generation: Generation, store: Store, log: Log) -> tuple["Kept", list[str]]:
        """From the newest checkpoint that is whole, and what is wrong with newer ones; or from nothing."""
        plan = generation.plan(1)
        engine = LocalEngine(plan.kernels, store, plan.stages[0])
        engine.remembered = replace(engine.remembered, horizons={})
        problems = engine.resume()
        number, horizons = engine.remembered.version, engine.remembered.horizons
        kept = Kept(generation, plan, engine, log.resumed(horizons) if number else log.start(), _saved=number)
        kept._know_of(log)
        return kept, problems

    def widen(self, log: Log) -> None:
        """Goes on from this log, which may have more streams."""
        known = {s: horizon for s, horizon in self.horizons.items() if s in self.position.horizons}
        self.position = log.resumed(known) if self.version else log.start()
        self._know_of(log)

    def _know_of(self, log: Log) -> None:
        """Horizons are of all streams, used or not: what was read of one that is not used is not read again."""
        horizons = {**dict.fromkeys(log.streams, NOTHING), **self.horizons}
        self.engine.remembered = replace(self.engine.remembered, horizons=horizons)

    def smaller(self, generation: Generation, store: Store) -> "Kept":
        """The same with fewer views, from where it is."""
        plan, now = generation.plan(1), self.engine.remembered
        work = plan.stages[0]
        engine = LocalEngine(plan.kernels, store, work)
        engine.remembered = Remembered(now.version, now.horizons, {name: now.states[name] for name in work.shapes})
        return Kept(generation, plan, engine, self.position, _saved=-1)

    # ── advancing ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def work(self) -> Work:
        return self.plan.stages[0]

    @property
    def version(self) -> int:
        return self.engine.remembered.version

    @property
    def horizons(self) -> Horizons:
        return self.engine.remembered.horizons

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Those whose events it needs."""
        return self.work.streams

    def advance(self, frame: Frame, position: Position) -> Horizons:
        """Takes a frame in that ends at this position; gives the horizons before."""
        before = self.horizons
        mine = {stream: batch for stream, batch in frame.events.items() if stream in self.streams}
        batch = self.engine.advance(Frame(mine, frame.horizons))
        self.changes = dict(self.work.told(0, Made(self.engine.remembered.states, batch.changes)))
        self.position = position
        self._events += sum(events.num_rows for events in mine.values())
        return before

    @property
    def inputs(self) -> dict[str, Input]:
        """What its views look like."""
        return {view: self.plan.kernels.inputs[view] for view in self.generation.wanted}

    def rows(self, view: str) -> Changes:
        return self.engine.rows(view)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.engine.tables.values())

    # ── checkpoints ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_new(self) -> bool:
        """Whether there is anything that the last checkpoint has not."""
        return self.version != self._saved

    @property
    def mark(self) -> Mark:
        return Mark.of(self.version, self.horizons)

    def is_due(self, now: float) -> bool:
        if self._saved_at is None:
            self._saved_at = now
        late = now - self._saved_at >= limits.checkpoint_s_max
        return self.is_new and (late or self._events >= limits.checkpoint_events_max)

    def save(self, now: float) -> int:
        """A soft checkpoint; gives the bytes it took. Should it fail, it is not tried again at once."""
        self._saved_at, self._events = now, 0
        written = self.engine.checkpoint()
        self._saved = self.version
        return written
