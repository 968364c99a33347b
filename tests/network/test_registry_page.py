"""What docs/registry.md says of a query at a broker that runs, done as it says."""

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.docs import ROOT
from tests.processes import WAIT_S, clean_environment, wait_until

PAGE = (ROOT / "docs" / "registry.md").read_text()
PROGRAMS = dict(re.findall(r"^```sql file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
OTHER = "CREATE STREAM Other (t: time -> v: int);\n"
SECTION = PAGE.partition("\n## Plans of a broker that runs")[2].partition("\n## ")[0]
((COMMAND, SHOWN),) = re.findall(
    r"^```text\nsmile (explain .*?) --url \S+\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL
)


@pytest.mark.slow
def test_a_query_at_a_broker_that_runs(tmp_path: Path) -> None:
    def run(command: str) -> str:
        words = f'"{sys.executable}" -m smile.cli.main {command} --url {lab.url}'
        done = subprocess.run(
            words, shell=True, env=clean_environment(), capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        return done.stdout + done.stderr

    with ExitStack() as stack:
        brokers: dict[str, BrokerProcess] = {}
        for number, name in enumerate(("hw", "ral", "lab"), 2):
            folder = tmp_path / name
            folder.mkdir()
            (folder / f"{name}.smile").write_text(PROGRAMS[f"{name}.smile"] + OTHER)
            variables = {"SMILE_NAME": name, "SMILE_ORIGIN": str(number)}
            for other, broker in brokers.items() if name == "lab" else ():
                variables[f"SMILE_BROKERS_{other.upper()}_URL"] = broker.url
            broker = brokers[name] = BrokerProcess(folder, f"{name}.smile", variables=variables)
            broker.start()
            stack.callback(broker.kill)
        lab = brokers["lab"]
        wait_until(lambda: run(COMMAND) == SHOWN, "not the plan of the page", 3 * WAIT_S)
        same = run("""explain "SELECT psize FROM ntp WHERE \\"from\\" = 'hw' AND psize >= 1024" --as plan""")
        assert same.startswith("QUERY OF ntp, received for large\n")
        assert "E178: the query reads no global stream" in run("explain 'SELECT * FROM Other' --as plan")
        assert "E021: there is no stream or view Nope" in run("explain 'SELECT * FROM Nope' --as plan")
