"""`/live` and `/ready`: red whenever publishers or subscribers do not get what they want, and green again afterwards."""

import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from smile.broker.maintenance.local_executor import LocalExecutor
from smile.errors import error
from smile.kernels.groups.summarize import MultiMemberGroups
from smile.log.storage import database
from tests.brokers import PROGRAM, BrokerProcess, InProcessBroker, bid, descendants
from tests.processes import wait_until
from tests.torture.room import small_disk


def wait_for(http: httpx.Client, status: int, *troubles: str) -> None:
    """Until /ready answers with this status, and has at least these kinds of troubles; none if none are given."""

    shown: list[dict[str, Any]] = []

    def answered() -> bool:
        answer = http.get("/ready")
        kinds = set(answer.json()["troubles"])
        shown[:] = http.get("/status").json()["troubles"]
        is_shown = {*troubles} <= {trouble["kind"] for trouble in shown}  # it may have changed meanwhile
        return answer.status_code == status and is_shown and ({*troubles} <= kinds if troubles else not kinds)

    wait_until(answered, f"/ready is not {status} {troubles}")
    assert all(0 <= time.time() - trouble["since"] < 600 and trouble["message"] for trouble in shown)


def test_a_broker_without_troubles(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as served, served.http() as http:
        assert (http.get("/live").status_code, http.get("/live").json()) == (200, {"live": True})
        for path in ("/ready", "/health"):
            assert (http.get(path).status_code, http.get(path).json()) == (200, {"health": "ok", "troubles": []})
        lag_s = http.get("/status").json()["views"]["Totals"]["lag_s"]
        assert 0 <= lag_s < 10


def test_views_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = MultiMemberGroups.step

    def failing(self: MultiMemberGroups, *arguments: Any) -> Any:
        if arguments[1][0] is not None and "total" in self.layout.types:
            raise MemoryError
        return step(self, *arguments)

    monkeypatch.setattr(MultiMemberGroups, "step", failing)
    with InProcessBroker(tmp_path) as served, served.http() as http:
        served.publish("Bids", bid())
        wait_for(http, 200, "view_paused")
        assert http.get("/ready").json()["health"] == "degraded"
        metrics = http.get("/metrics").text
        assert 'smile_view_paused_since{view="Totals"}' in metrics
        assert 'smile_trouble_since{kind="view_paused",subject="Totals"}' in metrics
    only_one = PROGRAM.replace("SUBSCRIBE Totals, Dear", "SUBSCRIBE Totals")
    with InProcessBroker(tmp_path / "other", only_one) as served, served.http() as http:
        served.publish("Bids", bid())
        wait_for(http, 503, "view_paused")


def test_views_that_do_not_advance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason is, and though events are accepted."""
    with InProcessBroker(tmp_path, lag_s_max=1) as served, served.http() as http:
        wait_for(http, 200)
        with monkeypatch.context() as broken:

            def fails(*_: object) -> bool:
                raise error("E064", "no space left on device")

            broken.setattr(LocalExecutor, "advance", fails)
            served.publish("Bids", bid())
            wait_for(http, 503, "engine", "view_behind")
            served.publish("Bids", bid())
        wait_for(http, 200)


def test_a_log_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself refuses to write, as if the file system were read-only."""
    open_for_writing = database.open_for_writing

    def open_read_only(*arguments: Any) -> sqlite3.Connection:
        connection = open_for_writing(*arguments)
        connection.execute("PRAGMA query_only = ON")
        return connection

    with InProcessBroker(tmp_path) as served, served.http() as http:
        wait_for(http, 200)
        with monkeypatch.context() as broken:
            broken.setattr(database, "open_for_writing", open_read_only)
            served.broker.log.close()  # it is opened again for the next commit
            wait_for(http, 503, "log")  # without any publication
            assert "readonly" in http.get("/status").json()["troubles"][0]["message"]
            assert http.post("/streams/Bids/events", json=bid()).status_code == 503
            assert http.get("/live").status_code == 200  # a restart would not help
        wait_for(http, 200)
        served.publish("Bids", bid())


def test_a_thread_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with InProcessBroker(tmp_path) as served, served.http() as http:
        with monkeypatch.context() as broken:
            broken.setattr(type(served.broker._publisher), "is_alive", False)
            assert (http.get("/live").status_code, http.get("/live").json()) == (503, {"live": False})
            wait_for(http, 503, "log")
        assert http.get("/live").status_code == 200


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    data = tmp_path / "smile-data"
    data.mkdir()
    with small_disk(data) as disk:
        if disk is None:
            pytest.skip("nobody may mount a file system here")
        # A process that enters another file system loses its working directory.
        program, options = str(tmp_path / "floor.smile"), ["--disk-free-min", "1000000"]
        broker = BrokerProcess(tmp_path, program, data=str(data), prefix=disk.prefix, options=options)
        with broker, broker.http() as http:
            wait_for(http, 200)
            disk.fill(broker)
            wait_for(http, 503, "disk")
            disk.free(broker)
            wait_for(http, 200)
            broker.publish("Bids", bid())


@pytest.mark.slow
def test_a_java_process_that_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    broker = BrokerProcess(tmp_path, engine="spark", options=["--lag-s-max", "3"])
    with broker, broker.http() as http:
        assert http.get("/ready").json()["health"] == "starting"
        assert http.get("/live").status_code == 200
        broker.wait_until_ready()
        wait_for(http, 200)
        (java,) = [pid for pid in descendants(broker.popen.pid) if is_java(pid)]
        signal_process(java, signal.SIGSTOP)
        wait_for(http, 503, "java", "view_behind")
        broker.publish("Bids", bid())
        signal_process(java, signal.SIGCONT)
        wait_for(http, 200)
        assert re.search("is stopped", broker.log_text)


def is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def signal_process(pid: int, number: int) -> None:
    subprocess.run(["kill", f"-{number}", str(pid)], check=True)
