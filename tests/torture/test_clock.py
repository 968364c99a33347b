"""A clock that steps back by an hour, under a running broker and across a restart: ticks still rise, horizons never
fall, and subscribers receive everything."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.brokers import BrokerProcess, WebSocketClient
from tests.random_programs import SEED_ID, seeds
from tests.torture import floor
from tests.torture.checker import problems, report
from tests.torture.launched import CLOCK
from tests.torture.truth import Recorded
from tests.torture.witness import Progress, Reset, Session, Table, Witness

pytestmark = pytest.mark.slow

HOUR_US = 3_600_000_000


class Floor:
    """A publisher and a subscriber of a broker whose clock they turn."""

    def __init__(self, broker: BrokerProcess, clock: Path, seed: int) -> None:
        self.broker, self.clock, self.random, self.number = broker, clock, Random(seed), 0
        self.witness = Witness()
        self.resume: str | None = None
        self.progress: dict[str, int] = {}

    def step(self, us: int) -> None:
        aside = self.clock.with_suffix(".new")
        aside.write_text(str(us))
        aside.replace(self.clock)

    def publish(self, count: int) -> None:
        with self.broker.http() as client:
            for _ in range(count):
                self.number += 1
                events = [floor.bid(self.random, "p", self.number)]
                self.witness.sending("Bids", events)
                heard = self.witness.heard.get("Bids")
                answer = client.post("/streams/Bids/events", json=events)
                assert answer.status_code == 200, answer.text
                ticks = [int(tick) for tick in answer.json()["ticks"]]
                self.witness.answered("Bids", events, ticks, 0, heard)

    def listen(self) -> None:
        """From where it was until it knows all that was published."""
        before = self.witness.sessions[-1] if self.witness.sessions else None
        base = {} if before is None else _table(before)
        session = Session("the subscriber", "Totals", {}, base, self.progress or None)
        self.witness.sessions.append(session)
        with self.broker.websocket(compression=None) as client:
            message: dict[str, Any] = {"subscribe": "Totals", "id": 1}
            assert "subscribed" in client.ask(message | ({"resume": self.resume} if self.resume else {}))
            while self.progress.get("Bids", -1) < self.witness.last_ticks()["Bids"]:
                self._hear(client, session)

    def _hear(self, client: WebSocketClient, session: Session) -> None:
        message = client.receive()
        session.entries += [Reset()] if message.get("reset") else []
        session.entries += message["rows"]
        if "progress" in message:
            self.progress = {stream: int(tick) for stream, tick in message["progress"].items()}
            session.entries.append(Progress(self.progress))
            self.witness.hear(self.progress)
            self.resume = message["resume"]


def _table(session: Session) -> dict[str, Any]:
    table = Table(session.base)
    for entry in session.entries:
        table.take(entry)
    return table.rows


@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
def test_nothing_goes_back_with_the_clock(tmp_path: Path, seed: int) -> None:
    floor.write_program(tmp_path)
    clock = tmp_path / "clock"
    clock.write_text("0")
    module, variables = ("tests.torture.launched", ""), {CLOCK: str(clock)}
    with BrokerProcess(tmp_path, module=module, variables=variables) as broker:
        trading_floor = Floor(broker, clock, seed)
        for step in (0, -HOUR_US, -2 * HOUR_US, -HOUR_US // 2):
            trading_floor.step(step)
            trading_floor.publish(8)
            trading_floor.listen()
        broker.kill()
        trading_floor.step(-3 * HOUR_US)
        broker.start()
        trading_floor.listen()
        trading_floor.publish(8)
        trading_floor.listen()
        broker.stop()
    broken = problems(trading_floor.witness, Recorded(broker.data_path / "log", floor.compiled()), Random(seed))
    repeat = f"SMILE_SEEDS={seed} .venv/bin/python -m pytest tests/torture/test_clock.py"
    assert not broken, report(broken, repeat)
    ticks = [tick for _, tick in trading_floor.witness.acknowledged.values()]
    assert ticks == sorted(ticks)
    assert ticks[-1] - ticks[8] < HOUR_US * 1024, "the clock has stepped back, and ticks are not its own"
