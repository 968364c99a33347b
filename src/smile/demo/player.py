"""Plays a story on a broker: publishes its events when they are due, round after round, and is the subscriber that goes
away and comes back.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from smile.client import AsyncClient
from smile.demo.story import Absence, Step, Story, TimedEvent
from smile.errors import SmileError

PAUSE_S = 0.02
"""How long the player waits for the next event at most, so that events are published together."""
SUBSCRIBER = "visitor"
"""The name of the subscriber that goes away."""
FRAME_S = 1.0
TIMED_OUT = "E108"


@dataclass
class Player:
    """`events` counts what was published. `absence_text` says what the subscriber has missed and was sent."""

    story: Story
    client: AsyncClient
    random: Random
    events: int = 0
    round_number: int = 0
    absence_text: str = ""
    started_at: float = field(default_factory=time.monotonic)
    _round_at: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """The time since the start of the round."""
        return time.monotonic() - self._round_at

    @property
    def step(self) -> tuple[int, Step]:
        return self.story.step_at(self.seconds)

    async def run(self) -> None:
        for self.round_number in count():
            self._round_at, self.absence_text = time.monotonic(), ""
            events = self.story.make_events(self.round_number, self.random)
            parts = [self._publish(events)]
            if self.story.absence is not None:
                parts.append(self._go_away(self.story.absence))
            await asyncio.gather(*parts)
            await self._sleep_until(self.story.seconds)

    async def _publish(self, events: Sequence[TimedEvent]) -> None:
        waiting = list(events)
        while waiting:
            await self._sleep_until(waiting[0].at_s)
            due = [event for event in waiting if event.at_s <= self.seconds + PAUSE_S]
            waiting = waiting[len(due) :]
            for stream in dict.fromkeys(event.stream for event in due):
                await self.client.publish(stream, [dict(event.event) for event in due if event.stream == stream])
            self.events += len(due)

    async def _go_away(self, absence: Absence) -> None:
        """The broker remembers by the subscriber's name where it was."""
        await self._sleep_until(absence.leaves_at_s - FRAME_S)
        async with await self.client.subscribe(absence.view, name=SUBSCRIBER) as subscription:
            while self.seconds < absence.leaves_at_s:
                try:
                    await subscription.frame(FRAME_S)
                    await subscription.ack()
                except SmileError as problem:
                    if problem.diagnostics[0].code != TIMED_OUT:
                        raise
        changed_before = await self._changed_rows(absence.view)
        self.absence_text = f"A subscriber of {absence.view} is away."
        await self._sleep_until(absence.returns_at_s)
        rows = 0
        async with await self.client.subscribe(absence.view, name=SUBSCRIBER) as subscription:
            frame = await subscription.frame()
            rows += len(frame.changes)
            while frame.progress is None:
                frame = await subscription.frame()
                rows += len(frame.changes)
            await subscription.ack()
        missed = await self._changed_rows(absence.view) - changed_before
        self.absence_text = (
            f"It is back: rows of {absence.view} changed {missed:,} times meanwhile, it was sent {rows:,}."
        )

    async def _changed_rows(self, view: str) -> int:
        """How many times rows of the view have changed so far."""
        status = await self.client.status()
        changed: int = status["views"][view]["changed"]
        return changed

    async def _sleep_until(self, at_s: float) -> None:
        while (remaining := at_s - self.seconds) > 0:
            await asyncio.sleep(remaining)
