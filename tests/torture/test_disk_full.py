"""A disk that is full: publications are refused, clearly; nothing acknowledged is lost; once there is room, all goes on."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from smile.errors import SmileError
from tests.random_programs import SEED_ID, seeds
from tests.torture import floor
from tests.torture.checker import is_same, logged
from tests.torture.process import Victim
from tests.torture.room import Room, SmallFiles, small_disk
from tests.torture.truth import Recorded, Truth
from tests.torture.witness import Json, Witness, key_of

pytestmark = pytest.mark.slow

WAIT_S = 60.0


@pytest.fixture(params=["a full disk", "files that may not grow"])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Room]:
    (tmp_path / "data").mkdir()
    if request.param == "files that may not grow":
        yield SmallFiles()
        return
    with small_disk(tmp_path / "data") as disk:
        if disk is None:
            pytest.skip("nobody may mount a file system here")
        yield disk


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
    data = tmp_path / "data"
    victim = Victim(floor.written(tmp_path), data, prefix=room.prefix)
    victim.start()
    publishing = Publishing(victim.url, seed)
    try:
        assert publishing.publish(publishing.batch(20)).status_code == 200
        room.fill(victim)
        events = refused(publishing)
        # Whoever only reads is served, and is told the truth.
        assert publishing.get("/views/Totals").status_code == 200
        assert publishing.publish(events).status_code == 503
        room.free(victim)
        answer = publishing.publish(events)
        assert answer.status_code == 200, answer.text
        assert publishing.publish(publishing.batch(5)).status_code == 200
        again_full(room, victim, publishing)
        victim = victim.again()
        victim.start()
        assert publishing.publish(publishing.batch(5)).status_code == 200
        after = publishing.witness.last_ticks()["Bids"]
        told = publishing.get("/views/Remaining", **{"after.Bids": str(after), "wait_ms": "20000"})
        assert told.status_code == 200, told.text
    finally:
        publishing.close()
        victim.murder()
    shutil.copytree(room.seen(data), tmp_path / "left")
    check(Recorded(tmp_path / "left" / "log", floor.compiled()), publishing.witness, told.json())


def again_full(room: Room, victim: Victim, publishing: Publishing) -> None:
    """And killed in that state; there is room again when it comes back."""
    room.fill(victim)
    refused(publishing)
    room.free(victim)
    victim.murder()


def check(recorded: Recorded, witness: Witness, told: Json) -> None:
    assert logged(witness, recorded) == []
    rows = {key_of(row): row for row in told["rows"]}
    horizons = {stream: int(tick) for stream, tick in told["progress"].items()}
    assert is_same(rows, Truth(recorded).at(horizons)["Remaining"])


def test_a_start_on_a_full_disk_is_refused_or_works(tmp_path: Path) -> None:
    """It says what is wrong, and nothing is lost by it."""
    data = tmp_path / "data"
    data.mkdir()
    with small_disk(data) as disk:
        if disk is None:
            pytest.skip("nobody may mount a file system here")
        victim = Victim(floor.written(tmp_path), data, prefix=disk.prefix)
        victim.start()
        publishing = Publishing(victim.url, 1)
        try:
            assert publishing.publish(publishing.batch(20)).status_code == 200
            disk.fill(victim)
            victim.murder()
            victim = victim.again()
            try:
                victim.start()
            except SmileError:
                assert victim.popen.wait() == 1
                assert "E084" in victim.log_text or "E105" in victim.log_text or "E063" in victim.log_text, (
                    victim.log_text
                )
            else:
                victim.murder()
            assert "Traceback" not in victim.log_text
            disk.free(victim)
            victim = victim.again()
            victim.start()
            assert publishing.publish(publishing.batch(5)).status_code == 200
        finally:
            publishing.close()
            victim.murder()
        shutil.copytree(disk.seen(data), tmp_path / "left")
    assert logged(publishing.witness, Recorded(tmp_path / "left" / "log", floor.compiled())) == []
