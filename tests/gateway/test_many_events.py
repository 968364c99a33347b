"""A body with hundreds of thousands of tiny events: other clients do not wait for it."""

import threading
import time
from pathlib import Path

import pytest

from tests.brokers import InProcessBroker

PROGRAM = """
CREATE STREAM A (t TIME KEY, x int);
CREATE VIEW V AS SELECT x, COUNT(*) AS n FROM A GROUP BY x;
SUBSCRIBE V;
"""
EVENTS = 300_000
DELAY_S_MAX = 1.0


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 4])
def test_others_do_not_wait_for_a_body_of_many_events(tmp_path: Path, clients: int) -> None:
    body = b"[" + b",".join([b"{}"] * EVENTS) + b"]"
    with InProcessBroker(tmp_path, PROGRAM) as broker:
        answers = list[int]()

        def publish() -> None:
            with broker.http() as http:
                answers.append(http.post("/streams/A/events", content=body).status_code)

        threads = [threading.Thread(target=publish) for _ in range(clients)]
        delays = list[float]()
        with broker.http() as http:
            http.get("/live")
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                start_s = time.perf_counter()
                assert http.get("/live").status_code == 200
                delays.append(time.perf_counter() - start_s)
                time.sleep(0.005)
        assert answers == [200] * clients
        assert max(delays) < DELAY_S_MAX, sorted(delays)[-5:]
