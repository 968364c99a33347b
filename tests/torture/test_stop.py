"""A broker that is stopped while it is busy ends within its grace period, and goes on where it was."""

import signal
import time
from pathlib import Path

import pytest

from smile import limits
from tests.broker.test_memory import PROGRAM
from tests.brokers import BrokerProcess, descendants
from tests.gateway.test_health import is_java, signal_process
from tests.processes import wait_until

pytestmark = pytest.mark.slow


def test_it_does_not_wait_for_a_large_batch(tmp_path: Path) -> None:
    """These events are in ten thousand windows each, which takes much longer than the grace period."""
    (tmp_path / "floor.smile").write_text(PROGRAM.text)
    broker = BrokerProcess(tmp_path)
    with broker:
        for _ in range(5):
            broker.publish("A", *[{"name": "a", "v": n} for n in range(1_500)])
        begun = time.monotonic()
        assert broker.stop() == 0, broker.log_text
        assert time.monotonic() - begun < limits.exit_s_max
        assert "Traceback" not in broker.log_text
    with broker, broker.http() as http:
        assert http.get("/views/Counts").status_code == 200


def test_it_does_not_wait_for_a_java_process_that_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM.text)
    broker = BrokerProcess(tmp_path, engine="spark")
    with broker:
        broker.wait_until_ready()
        started = descendants(broker.popen.pid)
        (java,) = filter(is_java, started)
        signal_process(java, signal.SIGSTOP)
        (tick,) = broker.publish("A", {"name": "a", "v": 1})
        begun = time.monotonic()
        assert broker.stop() == 0, broker.log_text
        assert time.monotonic() - begun < limits.exit_s_max
        wait_until(lambda: not Path(f"/proc/{java}").exists(), "Java outlives its broker")
    assert tick
