"""The tutorial of docs/network.md, done as it says: two brokers in two terminals, a subscriber, and a restart."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs import ROOT
from tests.processes import WAIT_S, clean_environment, free_port, wait_until
from tests.test_readme_broker import terminal, wait_for

TEXT = (ROOT / "docs" / "network.md").read_text()


@pytest.mark.slow
def test_two_brokers(tmp_path: Path) -> None:
    text = TEXT.replace("7400", str(free_port())).replace("7500", str(free_port()))
    for name, body in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(body)
    tutorial = text.partition("\n## Concepts")[0]
    commands = re.findall(r"^```sh\n(.*?)^```$", tutorial, re.MULTILINE | re.DOTALL)
    serve_desk, serve_office, subscribe, publish, status = commands
    env = clean_environment()
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=env, check=True, capture_output=True, text=True, timeout=WAIT_S
        )
        return done.stdout

    def import_line() -> str:
        (line,) = [line for line in run(status).splitlines() if line.startswith("import Totals")]
        return line

    def totals(seen: Path) -> list[int]:
        messages = [json.loads(line) for line in seen.read_text().splitlines() if '"Large"' in line]
        return [message["row"]["total"] for message in messages if message["key"] == {"issue": "IBM"}]

    with ExitStack() as stack:
        # In any order: office waits for desk.
        stack.enter_context(terminal(serve_office, tmp_path, env, "office"))
        wait_for(tmp_path / "office", "waiting for the description of Totals from desk: desk cannot be reached")
        desk = stack.enter_context(terminal(serve_desk, tmp_path, env, "desk"))
        wait_for(tmp_path / "desk", "listening on")
        wait_for(tmp_path / "office", "ready")
        stack.enter_context(terminal(subscribe, tmp_path, env, "subscriber"))
        wait_for(tmp_path / "subscriber", '"progress"')
        run(publish)
        wait_until(lambda: totals(tmp_path / "subscriber")[-1:] == [130], "the total does not arrive")
        assert '"total":{"at_least":130}' in (tmp_path / "subscriber").read_text()
        assert "view Totals of desk: live" in import_line()
        assert any(line.startswith("link desk") and "open for" in line for line in run(status).splitlines())

        os.killpg(desk.pid, signal.SIGINT)
        desk.wait(WAIT_S)
        wait_until(lambda: "view Totals of desk: waiting" in import_line(), "the import does not wait")
        with terminal(serve_desk, tmp_path, env, "desk"):
            wait_for(tmp_path / "desk", "listening on", times=2)
            run(publish)
            wait_until(lambda: totals(tmp_path / "subscriber")[-1:] == [260], "the new total does not arrive")
            assert "view Totals of desk: live" in import_line()
