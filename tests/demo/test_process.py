"""A broker in a process of its own never outlives its owner."""

from pathlib import Path

import pytest

from smile.demo import broker_process
from smile.errors import SmileError


def test_a_broker_that_is_too_slow_to_start_does_not_stay_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_process, "START_S_MAX", 0.0)
    process = broker_process.BrokerProcess(
        broker_process.example_program("tradefloor.smile"), tmp_path, ["--listen", "127.0.0.1:0", "--flight", ""]
    )
    with pytest.raises(SmileError) as problem:
        process.start()
    assert problem.value.diagnostics[0].code == "E103"
    assert process.popen.poll() is not None
