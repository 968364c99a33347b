"""One run: a crowd of publishers and subscribers, and a broker that is killed under them. All of it is drawn by a seed."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.brokers import BrokerProcess
from tests.processes import WAIT_S, free_port
from tests.torture import floor, publishers, subscribers
from tests.torture.checker import problems
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
    end_s_max: float = 180.0
    options: Sequence[str] = ()
    witness: Witness = field(default_factory=Witness)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        floor.write_program(self.folder)
        module = ("smile.cli.main",) if self.planted is None else ("tests.torture.launched", self.planted)
        flight_address = f"127.0.0.1:{free_port()}"
        options = [*self.options, "--flight", flight_address]
        self.broker = BrokerProcess(self.folder, options=options, engine=self.engine, module=module)
        self.world = World(f"127.0.0.1:{self.broker.port}", self.witness, flight_address=flight_address)

    def run(self) -> list[str]:
        """What was broken."""
        asyncio.run(self._run())
        log = self.broker.log_path.read_text(errors="replace")
        if "Traceback" in log:
            self.witness.wrong(f"the broker's log has a traceback: {log[-3000:]}")
        return problems(self.witness, Recorded(self.broker.data_path / "log", floor.compiled()), self.random)

    async def _run(self) -> None:
        await asyncio.to_thread(self.broker.start)
        followers = subscribers.crowd(self.world, self.random)
        async with asyncio.TaskGroup() as group:
            listening = [group.create_task(one.run()) for one in followers]
            publishing = [group.create_task(one.run()) for one in publishers.crowd(self.world, self.random)]
            try:
                await self._killed()
                await self._worked(self.work, WAIT_S)
                self.world.stopping.set()
                await self._in_time(publishing, "publishers are not answered")
                ticks = self.witness.last_ticks()
                for one in followers:
                    one.wanted = {stream: tick for stream, tick in ticks.items() if stream in floor.STREAMS[one.view]}
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
                await asyncio.to_thread(self.broker.wait_until_ready)
            await self._worked(self.random.randint(1, self.work) if self.random.random() < 0.7 else 0)
            await asyncio.to_thread(self.broker.kill)
            left -= 1
            while left and self.random.random() < 0.2:
                await self._killed_while_it_starts()
                left -= 1
            await asyncio.to_thread(self.broker.start)

    async def _worked(self, events: int, seconds: float | None = None) -> None:
        """Waits until so many more events have been acknowledged, and a moment longer; but no longer than `seconds`."""
        goal = self.witness.counts.get("acknowledged", 0) + events
        end = time.monotonic() + (self.alive_s if seconds is None else seconds)
        while self.witness.counts.get("acknowledged", 0) < goal and time.monotonic() < end:
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.random.uniform(0.0, 0.3))

    async def _killed_while_it_starts(self) -> None:
        self.broker.launch()
        await asyncio.sleep(self.random.uniform(0.2, 2.5))
        await asyncio.to_thread(self.broker.kill)

    def _end(self) -> None:
        """In order, as far as it can be."""
        if self.broker.is_running and (code := self.broker.stop()) != 0:
            self.witness.wrong(f"the broker ended with {code}: {self.broker.log_text[-2000:]}")
