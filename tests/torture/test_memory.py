"""A broker whose memory is limited: what does not fit is refused or paused, and everything else goes on."""

from pathlib import Path
from typing import Any

import pytest

from tests.broker.test_memory import PROGRAM
from tests.brokers import BrokerProcess
from tests.processes import wait_until

MEMORY = 700_000_000

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.nightly)])
def test_a_view_that_exceeds_the_memory_of_its_process_is_paused_alone(tmp_path: Path, engine: str) -> None:
    """100 kB of text in 10,000 windows are a gigabyte."""
    (tmp_path / "floor.smile").write_text(PROGRAM.text)
    broker = BrokerProcess(tmp_path, engine=engine, options=["--memory-max", str(MEMORY)])
    with broker, broker.http() as http:

        def views() -> dict[str, Any]:
            shown: dict[str, Any] = http.get("/status").json()["views"]
            return shown

        (tick,) = broker.publish("A", {"name": "a", "v": 1})
        assert len(broker.rows("Named", A=tick)) == 10_000
        broker.publish("A", {"name": "x" * 100_000, "v": 2})
        wait_until(lambda: views()["Named"]["paused"], "it is not paused")
        (tick,) = broker.publish("A", {"name": "b", "v": 3})
        assert broker.rows("Counts", A=tick)[0]["row"] == {"n": 3}
        assert max(row["row"]["n"] for row in broker.rows("Windows", A=tick)) == 3
        pause = views()["Named"]["paused"]
        assert (pause["code"], pause["is_temporary"]) == ("E053", True)
        assert [name for name, view in views().items() if view["paused"]] == ["Named"]
        assert broker.memory_bytes < MEMORY
        assert broker.stop() == 0
    assert "Traceback" not in broker.log_text
