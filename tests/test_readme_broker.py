"""What the README says of the broker, done as it says: in three terminals, on Spark, with a kill."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs import ROOT

WAIT_S = 120.0
README = (ROOT / "README.md").read_text()
SERVE, SUBSCRIBE, PUBLISH, ASK = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
(PYTHON,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@contextmanager
def terminal(command: str, folder: Path, env: dict[str, str], out: str) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder / out).open("ab") as file:
        process = subprocess.Popen(
            command, shell=True, cwd=folder, env=env, stdout=file, stderr=subprocess.STDOUT, process_group=0
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def wait_for(path: Path, what: str, times: int = 1) -> list[str]:
    """The lines of what a terminal shows, once this is in so many of them."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        lines = path.read_text().splitlines() if path.exists() else []
        if sum(what in line for line in lines) >= times:
            return lines
        time.sleep(0.1)
    raise AssertionError(f"no {what} in {path.read_text()}")


def wait_for_pairs(path: Path, count: int) -> set[str]:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        told = [json.loads(line) for line in path.read_text().splitlines() if '"Matchable"' in line]
        pairs = {json.dumps(row["key"]) for row in told}
        if len(pairs) >= count:
            return pairs
        time.sleep(0.1)
    raise AssertionError(f"fewer than {count} pairs in {path.read_text()}")


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_three_terminals_and_a_kill(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "programs").symlink_to(ROOT / "programs")
    here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "SMILE_FLIGHT": ""}
    env = {**os.environ, **here, "SMILE_LISTEN": f"127.0.0.1:{port}", "SMILE_URL": f"http://127.0.0.1:{port}"}
    seen = tmp_path / "subscriber"
    with terminal(SERVE, tmp_path, env, "broker") as broker:
        wait_for(tmp_path / "broker", "listening on")
        with terminal(SUBSCRIBE, tmp_path, env, "subscriber"):
            wait_for(seen, '"progress"')
            subprocess.run(PUBLISH, shell=True, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=60)
            lines = wait_for(seen, '"Matchable"')
            (row,) = [json.loads(line) for line in lines if '"Matchable"' in line]
            assert row["knowledge"] == {"buyremaining": {"at_most": 300}, "sellremaining": {"at_most": 100}}
            said = subprocess.run(
                [sys.executable, "-c", PYTHON], env=env, check=True, capture_output=True, text=True, timeout=120
            ).stdout
            assert sorted(said.split("\n")) == ["", "≤300 ≤100", "≤50 ≤100"]
            os.killpg(broker.pid, signal.SIGKILL)
            broker.wait()
            with terminal(SERVE, tmp_path, env, "broker"):
                wait_for(tmp_path / "broker", "listening on", times=2)
                csv = subprocess.run(
                    ASK.replace("7400", str(port)), shell=True, env=env, check=True, capture_output=True, text=True
                ).stdout
                assert len(csv.splitlines()) == 3, "both pairs are there before Spark is"
                subprocess.run(PUBLISH, shell=True, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=60)
                # Three bids to buy, two to sell; the first pairs may be told once more.
                assert len(wait_for_pairs(seen, 6)) == 6
