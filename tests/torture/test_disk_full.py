"""A disk that is full: publications are refused, clearly; nothing acknowledged is lost; once there is room, all goes on."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.brokers import BrokerProcess, DidNotStart
from tests.processes import WAIT_S
from tests.random_programs import SEED_ID, seeds
from tests.torture import floor
from tests.torture.checker import is_same, log_problems
from tests.torture.room import Room, SmallFiles, small_disk
from tests.torture.truth import Recorded, Truth
from tests.torture.witness import Json, Witness, key_of

pytestmark = pytest.mark.slow


@pytest.fixture(params=["files that may not grow", pytest.param("a full disk", marks=pytest.mark.nightly)])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Room]:
    (tmp_path / "smile-data").mkdir()
    if request.param == "files that may not grow":
        yield SmallFiles()
        return
    with small_disk(tmp_path / "smile-data") as disk:
        if disk is None:
            pytest.skip("nobody may mount a file system here")
        yield disk


def started(folder: Path, room: Room) -> BrokerProcess:
    floor.write_program(folder)
    # A process that enters another file system loses its working directory.
    program, data = str(folder / "floor.smile"), str(folder / "smile-data")
    return BrokerProcess(folder, program, data=data, prefix=room.prefix).start()


class Publishing:
    """Numbered publications, one after the other."""

    def __init__(self, url: str, seed: int) -> None:
        self.random, self.witness, self.number = Random(seed), Witness(), 0
        # The port stays the same when the broker is started again.
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=WAIT_S)

    def batch(self, size: int) -> list[floor.Event]:
        events = [floor.bid(self.random, "p", self.number + 1 + i) for i in range(size)]
        self.number += size
        return events

    def publish(self, events: list[floor.Event]) -> httpx.Response:
        headers = {"smile-producer": "p", "smile-sequence": str(events[0]["n"])}
        self.witness.sending("Bids", events)
        answer = self._client.post("/streams/Bids/events", json=events, headers=headers)
        if answer.status_code == 200:
            ticks = [int(tick) for tick in answer.json()["ticks"]]
            self.witness.answered("Bids", events, ticks, answer.json()["repeated"], None)
        return answer

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self._client.get(path, params=params)

    def close(self) -> None:
        self._client.close()


def refused(publishing: Publishing) -> list[floor.Event]:
    """Publishes until the disk takes no more; gives what was not taken."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        events = publishing.batch(publishing.random.randint(1, 50))
        answer = publishing.publish(events)
        if answer.status_code != 200:
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "E084", answer.text
            return events
    raise AssertionError("the disk is never full")


@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
def test_goes_on_once_there_is_room(tmp_path: Path, room: Room, seed: int) -> None:
    data = tmp_path / "smile-data"
    broker = started(tmp_path, room)
    publishing = Publishing(broker.url, seed)
    try:
        assert publishing.publish(publishing.batch(20)).status_code == 200
        room.fill(broker)
        events = refused(publishing)
        # Whoever only reads is served, and is told the truth.
        assert publishing.get("/views/Totals").status_code == 200
        assert publishing.publish(events).status_code == 503
        room.free(broker)
        answer = publishing.publish(events)
        assert answer.status_code == 200, answer.text
        assert publishing.publish(publishing.batch(5)).status_code == 200
        again_full(room, broker, publishing)
        broker.start()
        assert publishing.publish(publishing.batch(5)).status_code == 200
        after = publishing.witness.last_ticks()["Bids"]
        response = publishing.get("/views/Remaining", **{"after.Bids": str(after), "wait_ms": "60000"})
        assert response.status_code == 200, response.text
    finally:
        publishing.close()
        broker.kill()
    shutil.copytree(room.seen(data), tmp_path / "left")
    check(Recorded(tmp_path / "left" / "log", floor.compiled()), publishing.witness, response.json())


def again_full(room: Room, broker: BrokerProcess, publishing: Publishing) -> None:
    """And killed in that state; there is room again when it comes back."""
    room.fill(broker)
    refused(publishing)
    room.free(broker)
    broker.kill()


def check(recorded: Recorded, witness: Witness, snapshot: Json) -> None:
    assert log_problems(witness, recorded) == []
    rows = {key_of(row): row for row in snapshot["rows"]}
    horizons = {stream: int(tick) for stream, tick in snapshot["progress"].items()}
    assert is_same(rows, Truth(recorded).at(horizons)["Remaining"])


def test_a_start_on_a_full_disk_is_refused_or_works(tmp_path: Path) -> None:
    """It says what is wrong, and nothing is lost by it."""
    data = tmp_path / "smile-data"
    data.mkdir()
    with small_disk(data) as disk:
        if disk is None:
            pytest.skip("nobody may mount a file system here")
        broker = started(tmp_path, disk)
        publishing = Publishing(broker.url, 1)
        try:
            assert publishing.publish(publishing.batch(20)).status_code == 200
            disk.fill(broker)
            broker.kill()
            try:
                broker.start()
            except DidNotStart:
                assert broker.wait() == 1
                assert "E084" in broker.log_text or "E105" in broker.log_text or "E063" in broker.log_text, (
                    broker.log_text
                )
            else:
                broker.kill()
            assert "Traceback" not in broker.log_text
            disk.free(broker)
            broker.start()
            assert publishing.publish(publishing.batch(5)).status_code == 200
        finally:
            publishing.close()
            broker.kill()
        shutil.copytree(disk.seen(data), tmp_path / "left")
    assert log_problems(publishing.witness, Recorded(tmp_path / "left" / "log", floor.compiled())) == []
