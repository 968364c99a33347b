"""docs/interface.md: its commands do what it says, and it names every path that there is."""

import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.docs import ROOT
from tests.served import Served

PAGE = (ROOT / "docs" / "interface.md").read_text()
(COMMANDS,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_page_is_true(tmp_path: Path) -> None:
    with Served(str(ROOT / "programs" / "tradefloor.smile"), "--data", "data", cwd=tmp_path) as broker:
        commands = COMMANDS.replace("localhost:7400", broker.url.removeprefix("http://"))
        told = subprocess.run(
            ["bash", "-euc", commands], env=os.environ, check=True, capture_output=True, text=True, timeout=60
        ).stdout
        head, row = told.splitlines()
        assert head == '"buyid","issue","price","buyremaining"'
        assert row.endswith(',"IBM",10000,300')
        paths = httpx.get(f"{broker.url}/openapi.json").raise_for_status().json()["paths"]
        for path in [*paths, "/ws"]:
            shown = path.replace("{name}", "{view}" if "views" in path else "{stream}")
            assert shown in PAGE or path == "/openapi.json", path
