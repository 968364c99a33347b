"""A clock that steps back, by an hour, under a running broker and across a restart: ticks rise all the same, horizons
never fall, and subscribers are told everything."""

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
        told = client.receive()
        session.entries += [Reset()] if told.get("reset") else []
        session.entries += told["rows"]
        if "progress" in told:
            self.progress = {stream: int(tick) for stream, tick in told["progress"].items()}
            session.entries.append(Progress(self.progress))
            self.witness.hear(self.progress)
            self.resume = told["resume"]


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
        found = Floor(broker, clock, seed)
        for step in (0, -HOUR_US, -2 * HOUR_US, -HOUR_US // 2):
            found.step(step)
            found.publish(8)
            found.listen()
        broker.kill()
        found.step(-3 * HOUR_US)
        broker.start()
        found.listen()
        found.publish(8)
        found.listen()
        broker.stop()
    broken = problems(found.witness, Recorded(broker.data_path / "log", floor.compiled()), Random(seed))
    repeat = f"SMILE_SEEDS={seed} .venv/bin/python -m pytest tests/torture/test_clock.py"
    assert not broken, report(broken, repeat)
    ticks = [tick for _, tick in found.witness.acknowledged.values()]
    assert ticks == sorted(ticks)
    assert ticks[-1] - ticks[8] < HOUR_US * 1024, "the clock has stepped back, and ticks are not its own"
