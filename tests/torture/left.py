"""Directories as brokers leave them: by an end in order, or by a crash with everything flushed. What was published is
known, so that whatever is made of such a directory can be held against it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from smile import limits
from smile.broker.broker import Broker
from smile.broker.publishing.publication import ProducerSequence, Publication, PublishResult
from smile.gateway.frames import row_messages
from smile.log.clock import Clock, wall_clock
from smile.source import Source
from tests.brokers import open_broker
from tests.processes import WAIT_S, wait_until
from tests.torture import floor
from tests.torture.checker import is_same
from tests.torture.floor import Event
from tests.torture.truth import Recorded, Truth
from tests.torture.witness import Horizons, Json, key_of

SOURCE = Source("floor.smile", floor.PROGRAM)


def publish(broker: Broker, stream: str, events: list[Event], seq: int | None = None) -> PublishResult:
    columns = list(broker.decoder.schema(stream).published_types)
    rows = [tuple(event[column] for column in columns) for event in events]
    numbered = None if seq is None else ProducerSequence("local", str(events[0]["who"]), seq)
    return broker.publish(Publication(stream, rows, numbered)).result(WAIT_S)


@contextmanager
def opened(folder: Path, clock: Clock = wall_clock) -> Iterator[Broker]:
    with open_broker(folder, SOURCE, clock) as broker:
        yield broker


def has_come_to(broker: Broker, horizons: dict[str, int]) -> bool:
    return all(view.is_reached(horizons) for view in broker.views.values())


@dataclass
class Left:
    """`crashed` is as it is when a broker is killed, `stopped` as it ends in order."""

    crashed: Path
    stopped: Path
    events: dict[str, list[Event]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    """The last tick of each stream."""

    @property
    def count(self) -> int:
        return sum(map(len, self.events.values()))

    def copied(self, which: Path, to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(which, to)
        return to


def left(folder: Path, random: Random, batches: int = 30) -> Left:
    """Several checkpoints are there, and what came after the last of them."""
    directories = Left(folder / "crashed", folder / "stopped")
    before, limits.checkpoint_s_max = limits.checkpoint_s_max, 0.0  # type: ignore[misc]
    try:
        with opened(directories.stopped) as broker:
            for n in range(batches):
                if n == batches - 3:
                    limits.checkpoint_s_max = 1000.0  # type: ignore[misc]
                bids = [floor.bid(random, "w", 1 + 5 * n + i) for i in range(5)]
                ticks = publish(broker, "Bids", bids, bids[0]["n"]).ticks
                matches = [floor.match(random, "m", n, random.choice(ticks))]
                readings = [floor.reading(random, "r", n, n + 1)]
                ticks_by_stream = {"Bids": ticks, "Matches": publish(broker, "Matches", matches).ticks}
                ticks_by_stream["Readings"] = publish(broker, "Readings", readings).ticks
                for stream, events in {"Bids": bids, "Matches": matches, "Readings": readings}.items():
                    directories.events.setdefault(stream, []).extend(events)
                    directories.last[stream] = ticks_by_stream[stream][-1]
                wait_until(lambda: has_come_to(broker, directories.last), "views do not come so far")
            shutil.copytree(directories.stopped, directories.crashed)
    finally:
        limits.checkpoint_s_max = before  # type: ignore[misc]
    return directories


Shown = dict[str, tuple[Horizons, dict[str, Json]]]


def shown(broker: Broker) -> Shown:
    """What each view shows, and at which horizons."""
    rows_by_view = {}
    for name, view in broker.views.items():
        snapshot = view.snapshot(view.condition({}))
        rows_by_view[name] = snapshot.horizons, {key_of(row): row for row in map(json.loads, row_messages(snapshot))}
    return rows_by_view


def false_views(shown_views: Shown, recorded: Recorded) -> list[str]:
    """Views that show something else than the log says up to their horizons."""
    problems = []
    for view, (horizons, rows) in shown_views.items():
        if any(tick > recorded.horizons[stream] for stream, tick in horizons.items()):
            problems.append(f"{view} is ahead of the log")
        elif not is_same(rows, Truth(recorded).at(horizons)[view]):
            problems.append(f"{view} is false")
    return problems
