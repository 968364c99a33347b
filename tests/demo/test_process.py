"""A broker in a process of its own never outlives its owner."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from smile.demo import broker_process
from smile.errors import SmileError
from tests.processes import wait_until

BROKER = """
from smile.demo.broker_process import BrokerProcess, example_program

process = BrokerProcess(example_program("tradefloor.smile"), Path(sys.argv[1]), ["--listen", "127.0.0.1:0", "--flight", ""])
process.start()
print(process.popen.pid, sys.argv[1], flush=True)
"""
POSTGRES = """
from contextlib import ExitStack
from smile.demo.postgres_server import initialized_server

stack = ExitStack()
server = stack.enter_context(initialized_server("-c listen_addresses=''"))
stack.enter_context(server.running())
print((server.data / "postmaster.pid").read_text().split()[0], server.folder, flush=True)
"""


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


@pytest.mark.slow
@pytest.mark.parametrize("child", [BROKER, POSTGRES], ids=["broker", "postgres"])
def test_a_server_ends_with_an_owner_that_is_killed(child: str, tmp_path: Path) -> None:
    command = f"import sys\nfrom pathlib import Path\n{child}\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", command, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        number, folder = owner.stdout.readline().split()
        pid = int(number)
        try:
            assert is_running(pid)
            owner.kill()
            wait_until(lambda: not is_running(pid), "the server has outlived its owner")
        finally:
            shutil.rmtree(folder)


def is_running(pid: int) -> bool:
    """A process that has ended may wait for its parent, as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")
