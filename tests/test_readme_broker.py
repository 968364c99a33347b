"""What the README says of the broker, done as it says: in three terminals, on Spark, with a kill."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs import ROOT
from tests.processes import WAIT_S, clean_environment, free_port, wait_until

SPARK_S_MAX = 3 * WAIT_S
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
            process.wait(WAIT_S)


def wait_for(path: Path, what: str, times: int = 1) -> list[str]:
    """The lines of what a terminal shows, once this is in so many of them."""

    def lines() -> list[str] | None:
        shown = path.read_text().splitlines()
        return shown if sum(what in line for line in shown) >= times else None

    matching_lines = wait_until(lines, f"no {what} in {path}", SPARK_S_MAX)
    assert matching_lines is not None
    return matching_lines


def wait_for_pairs(path: Path, count: int) -> set[str]:
    def pairs() -> set[str] | None:
        rows = [json.loads(line) for line in path.read_text().splitlines() if '"Matchable"' in line]
        keys = {json.dumps(row["key"]) for row in rows}
        return keys if len(keys) >= count else None

    matched_pairs = wait_until(pairs, f"fewer than {count} pairs in {path}", SPARK_S_MAX)
    assert matched_pairs is not None
    return matched_pairs


@pytest.mark.slow
def test_three_terminals_and_a_kill(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "programs").symlink_to(ROOT / "programs")
    address = f"127.0.0.1:{port}"
    env = clean_environment(SMILE_FLIGHT="", SMILE_LISTEN=address, SMILE_URL=f"http://{address}")
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    seen = tmp_path / "subscriber"
    with terminal(SERVE, tmp_path, env, "broker") as broker:
        wait_for(tmp_path / "broker", "listening on")
        with terminal(SUBSCRIBE, tmp_path, env, "subscriber"):
            wait_for(seen, '"progress"')
            subprocess.run(PUBLISH, shell=True, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=WAIT_S)
            lines = wait_for(seen, '"Matchable"')
            (row,) = [json.loads(line) for line in lines if '"Matchable"' in line]
            assert row["knowledge"] == {"buyremaining": {"at_most": 300}, "sellremaining": {"at_most": 100}}
            said = subprocess.run(
                [sys.executable, "-c", PYTHON], env=env, check=True, capture_output=True, text=True, timeout=WAIT_S
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
                subprocess.run(
                    PUBLISH, shell=True, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=WAIT_S
                )
                # Three bids to buy, two to sell; the first pairs may be told once more.
                assert len(wait_for_pairs(seen, 6)) == 6
