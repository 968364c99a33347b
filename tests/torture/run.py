"""One run: a crowd of publishers and subscribers, and a broker that is killed under them. All of it is drawn by a seed."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from smile.errors import SmileError
from tests.torture import floor, publishers, subscribers
from tests.torture.checker import problems
from tests.torture.process import Victim
from tests.torture.publishers import World
from tests.torture.truth import Recorded
from tests.torture.witness import Witness


@dataclass
class Torture:
    """A broker is killed after so much `work`, in events that are acknowledged, or after `alive_s` seconds. From the
    last publication until the last subscriber knows of it, it may take `end_s_max`."""

    folder: Path
    seed: int
    kills: int
    engine: str = "local"
    planted: str | None = None
    work: int = 200
    alive_s: float = 10.0
    end_s_max: float = 120.0
    options: Sequence[str] = ()
    witness: Witness = field(default_factory=Witness)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        data = self.folder / "data"
        data.mkdir()
        program = floor.written(self.folder)
        self.victim = Victim(program, data, self.options, engine=self.engine, planted=self.planted)
        self.world = World(f"127.0.0.1:{self.victim.port}", self.witness)

    def run(self) -> list[str]:
        """What was broken."""
        asyncio.run(self._run())
        if "Traceback" in self.victim.log_text:
            self.witness.wrong(f"the broker's log has a traceback: {self.victim.log_text[-3000:]}")
        return problems(self.witness, Recorded(self.victim.data / "log", floor.compiled()), self.random)

    async def _run(self) -> None:
        await asyncio.to_thread(self.victim.start)
        told = subscribers.crowd(self.world, self.random)
        async with asyncio.TaskGroup() as group:
            listening = [group.create_task(one.run()) for one in told]
            publishing = [group.create_task(one.run()) for one in publishers.crowd(self.world, self.random)]
            try:
                await self._killed()
                await self._worked(self.work)
                self.world.stopping.set()
                await self._in_time(publishing, "publishers are not answered")
                for one in told:
                    one.wanted = self.witness.last_ticks()
                await self._in_time(listening, "subscribers do not reach the truth")
            finally:
                for task in [*publishing, *listening]:
                    task.cancel()
                await asyncio.to_thread(self._end)

    async def _in_time(self, tasks: Sequence["asyncio.Task[None]"], what: str) -> None:
        _, late = await asyncio.wait(tasks, timeout=self.end_s_max)
        if late:
            self.witness.wrong(f"{len(late)} {what}")

    async def _killed(self) -> None:
        """Some time after it listens; now and then also while it starts."""
        left = self.kills
        while left:
            if self.engine == "spark" and self.random.random() < 0.5:
                await asyncio.to_thread(self.victim.wait_until_ready)
            await self._worked(self.random.randint(1, self.work) if self.random.random() < 0.7 else 0)
            await asyncio.to_thread(self.victim.murder)
            left -= 1
            while left and self.random.random() < 0.2:
                await self._killed_while_it_starts()
                left -= 1
            self.victim = self.victim.again()
            await asyncio.to_thread(self.victim.start)

    async def _worked(self, events: int) -> None:
        """Until so many more have been acknowledged, and a moment longer; or for a time, if it takes that long."""
        goal = self.witness.counts.get("acknowledged", 0) + events
        end = time.monotonic() + self.alive_s
        while self.witness.counts.get("acknowledged", 0) < goal and time.monotonic() < end:
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.random.uniform(0.0, 0.3))

    async def _killed_while_it_starts(self) -> None:
        victim = self.victim = self.victim.again()
        starting = asyncio.create_task(asyncio.to_thread(victim.start))
        await asyncio.sleep(self.random.uniform(0.2, 2.5))
        await asyncio.to_thread(victim.murder)
        with suppress(SmileError):
            await starting

    def _end(self) -> None:
        """In order, as far as it can be."""
        if self.victim.popen.poll() is None and (code := self.victim.stop()) != 0:
            self.witness.wrong(f"the broker ended with {code}: {self.victim.log_text[-2000:]}")
