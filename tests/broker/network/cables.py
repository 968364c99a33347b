"""Several brokers in one process, connected by cables in memory that may lose, repeat and reorder messages."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

from smile.broker.broker import Broker
from smile.broker.publishing.publication import Publication
from smile.broker.views.condition import ViewCondition
from smile.errors import SmileError, error
from smile.gateway.frames import row_messages
from smile.links.link import Link
from smile.log.clock import Clock, wall_clock
from smile.settings import Settings
from smile.source import Source
from tests.processes import WAIT_S

Json = dict[str, Any]


@dataclass
class CableFaults:
    """How likely each fault is, for each message."""

    lost: float = 0.0
    repeated: float = 0.0
    swapped: float = 0.0


@dataclass(eq=False)
class Cable:
    """A connection: the first broker has called the second one."""

    brokers: tuple[Broker, Broker]
    links: tuple[Link, Link]
    faults: CableFaults
    is_cut: bool = False
    bytes: int = 0


@dataclass
class BrokerNetwork:
    """Brokers by name, and the cables between them. Nothing arrives except while one of its methods is called."""

    folder: Path
    random: Random = field(default_factory=lambda: Random(1))
    brokers: dict[str, Broker] = field(default_factory=dict)
    cables: list[Cable] = field(default_factory=list)
    problems: list[SmileError] = field(default_factory=list)
    """With which connections have ended."""
    _woken: Event = field(default_factory=Event)

    def start(self, name: str, program: str | None, clock: Clock = wall_clock, **settings: Any) -> Broker:
        """Starts a broker; without a program, with the one that it had."""
        source = None if program is None else Source(f"{name}.smile", program)
        given: Json = {
            "name": name,
            "data": str(self.folder / name),
            "engine": "local",
            "idle_ms": 20,
            "silence_ms": 10,
        }
        chosen = Settings(**{**given, **settings})
        self.brokers[name] = Broker.open(Path(chosen.data), source, chosen, clock, self.fetch_description)
        return self.brokers[name]

    def stop(self, name: str) -> None:
        broker = self.brokers.pop(name)
        for cable in list(self.cables):
            if broker in cable.brokers:
                self.cut(cable)
        broker.stop()

    def fetch_description(self, broker: str, relation: str) -> str:
        if broker not in self.brokers:
            raise error("E103", f"{broker} cannot be reached")
        return json.dumps(self.brokers[broker].describe_export(relation))

    def apply(self, name: str, program: str) -> None:
        """Changes the program of a broker, while messages arrive."""
        done = self.run_in_background(lambda: self.brokers[name].apply(Source(f"{name}.smile", program)))
        self.run_until(done.is_set, f"{name} does not change its program")

    def run_in_background(self, action: Callable[[], Any]) -> Event:
        done = Event()

        def run() -> None:
            try:
                action()
            except SmileError as problem:
                self.problems.append(problem)
            finally:
                done.set()

        Thread(target=run, daemon=True).start()
        return done

    # ── cables ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, caller: str, called: str, faults: CableFaults | None = None) -> Cable:
        now, brokers = time.monotonic(), (self.brokers[caller], self.brokers[called])
        links = (
            brokers[0].network.connect(called, called, now, self._woken.set),
            brokers[1].network.connect(None, caller, now, self._woken.set),
        )
        self.cables.append(Cable(brokers, links, faults or CableFaults()))
        return self.cables[-1]

    def cut(self, cable: Cable, problem: SmileError | None = None) -> None:
        self.cables.remove(cable)
        cable.is_cut = True
        for broker, link in zip(cable.brokers, cable.links, strict=True):
            broker.network.disconnect(link, problem, time.monotonic())

    def run_until(self, condition: Callable[[], Any], what: str, seconds: float = WAIT_S) -> None:
        """Lets messages arrive until the condition is true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"after {seconds:.0f} s: {what}; {self.status()}"
            self.step()
            self._woken.wait(0.005)
            self._woken.clear()

    def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self.run_until(lambda: time.monotonic() >= deadline, "time stands still")

    def step(self) -> None:
        for cable in list(self.cables):
            try:
                self._step(cable)
            except SmileError as problem:
                self.problems.append(problem)
                self.cut(cable, problem)

    def _step(self, cable: Cable) -> None:
        for side in (0, 1):
            link, now = cable.links[side], time.monotonic()
            link.poll(now)
            packets = link.take_packets()
            for packet in self._with_faults(packets, cable.faults):
                cable.bytes += len(packet)
                cable.links[1 - side].receive(packet, now)

    def _with_faults(self, packets: list[bytes], faults: CableFaults) -> Iterator[bytes]:
        random = self.random
        if len(packets) > 1 and random.random() < faults.swapped:
            random.shuffle(packets)
        for packet in packets:
            if random.random() >= faults.lost:
                yield packet
            if random.random() < faults.repeated:
                yield packet

    # ── what is seen ────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> Json:
        return {name: broker.network.status(time.monotonic()) for name, broker in self.brokers.items()}

    def import_status(self, broker: str, name: str) -> Json:
        status: Json = self.status()[broker]["imports"][name]
        return status

    def wait_for_state(self, broker: str, name: str, state: str) -> Json:
        self.run_until(
            lambda: self.import_status(broker, name)["state"] == state, f"{name} at {broker} does not become {state}"
        )
        return self.import_status(broker, name)

    def wait_for_rows(self, broker: str, view: str, expected: Any) -> None:
        """`expected` are the rows by their keys, as `rows_of` returns them."""
        shown: list[Any] = []

        def is_reached() -> bool:
            shown[:] = [rows_of(self.brokers[broker], view)]
            return bool(shown[0] == expected)

        try:
            self.run_until(is_reached, f"{view} at {broker} does not become {expected}")
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {shown}") from None

    def wait_for_tick(self, broker: str, view: str, horizons: dict[str, int]) -> None:
        self.run_until(
            lambda: self.brokers[broker].view(view).is_reached(horizons),
            f"{view} at {broker} does not reach {horizons}: {self.brokers[broker].view(view).horizons}",
        )


def publish(broker: Broker, stream: str, *rows: tuple[Any, ...]) -> list[int]:
    """The ticks of the events."""
    return list(broker.publish(Publication(stream, rows)).result(WAIT_S).ticks)


def messages_of(broker: Broker, view: str) -> list[Json]:
    frame = broker.view(view).snapshot(ViewCondition())
    messages = [json.loads(message) for message in row_messages(frame)]
    return [message for message in messages if not message.get("deleted")]


def rows_of(broker: Broker, view: str) -> dict[Any, Any]:
    """The values of the shown rows, by their keys. Single values are not in tuples."""

    def single(values: list[Any]) -> Any:
        return values[0] if len(values) == 1 else tuple(values)

    return {single(list(m["key"].values())): single(list(m["row"].values())) for m in messages_of(broker, view)}


@contextmanager
def network_in(folder: Path, seed: int = 1) -> Iterator[BrokerNetwork]:
    network = BrokerNetwork(folder, Random(seed))
    try:
        yield network
    finally:
        for name in list(network.brokers):
            network.stop(name)
