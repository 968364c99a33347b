"""docs/interface.md: its commands do what it says, and it names every path that there is."""

import re
import subprocess
from pathlib import Path

from tests.brokers import InProcessBroker
from tests.docs import ROOT
from tests.processes import WAIT_S, clean_environment

PAGE = (ROOT / "docs" / "interface.md").read_text()
(COMMANDS,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_is_true(tmp_path: Path) -> None:
    program = (ROOT / "programs" / "tradefloor.smile").read_text()
    with InProcessBroker(tmp_path, program) as broker:
        commands = COMMANDS.replace("localhost:7400", broker.url.removeprefix("http://"))
        process = subprocess.run(
            ["bash", "-euc", commands],
            env=clean_environment(),
            check=True,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        ).stdout
        head, row = process.splitlines()
        assert head == '"buyid","issue","price","buyremaining"'
        assert row.endswith(',"IBM",10000,300')
        with broker.http() as http:
            paths = http.get("/openapi.json").raise_for_status().json()["paths"]
        for path in [*paths, "/ws"]:
            shown = path.replace("{name}", "{view}" if "views" in path else "{stream}")
            assert shown in PAGE or path == "/openapi.json", path
