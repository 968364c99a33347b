"""docs/connectors.md: its files, commands and output are those of a broker with these settings."""

import re
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from smile.connectors.sinks.webhook import signature
from tests.brokers import PROGRAM, BrokerProcess, InProcessBroker
from tests.docs import BLOCK, ROOT
from tests.processes import invoke_smile, wait_until

PAGE = (ROOT / "docs" / "connectors.md").read_text()
FILES = {title.partition("file=")[2]: body for _, title, body in BLOCK.findall(PAGE) if "file=" in title}
(SHOWN_TABLE,) = re.findall(r"^```\n(item .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(SHOWN_LETTERS,) = re.findall(r"^```\n\$ smile dead-letters\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    for name in ("shop.smile", "shop.toml"):
        (tmp_path / name).write_text(FILES[name])
    (tmp_path / "incoming").mkdir()
    return BrokerProcess(tmp_path, "shop.smile", ["--config", "shop.toml"])


def run_in(folder: Path, command: str) -> None:
    subprocess.run(["bash", "-euc", command], cwd=folder, check=True, timeout=60)


def table(broker: BrokerProcess) -> list[dict[str, Any]]:
    path = broker.folder / "tables" / "totals.parquet"
    # The file is replaced while it is read: `read_table` would open it twice.
    rows: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist() if path.exists() else []
    return sorted(rows, key=lambda row: row["item"])


def shown_table() -> list[dict[str, str]]:
    head, *lines = SHOWN_TABLE.splitlines()
    return [dict(zip(head.split(), line.split(), strict=True)) for line in lines]


@pytest.mark.slow
def test_the_walkthrough(broker: BrokerProcess) -> None:
    with broker:
        run_in(broker.folder, FILES["monday"])
        wait_until(lambda: [row["orders"] for row in table(broker)] == [2, 1], "the table has all events")
        assert [{name: str(value) for name, value in row.items()} for row in table(broker)] == shown_table()

        assert FILES["letters"] == "smile dead-letters\n"
        listed = invoke_smile("dead-letters", SMILE_URL=broker.url)
        assert re.sub(r"\d+ s ago", "4 s ago", listed.stdout) == SHOWN_LETTERS
        status = invoke_smile("status", SMILE_URL=broker.url).stdout
        assert re.search(r"source orders +stream Orders, 3 events, 1 refused: working for .*, 1 dead letters", status)
        assert re.search(r"sink totals +view Totals, \d+ changed rows in \d+ writes: working for .* up to date", status)

        refused = invoke_smile("dead-letters", "--retry", "1", SMILE_URL=broker.url)
        assert (refused.exit_code, "E080" in refused.stderr) == (1, True)
        with broker.http() as http:
            (letter,) = http.get("/dead-letters").json()["letters"]
            assert (letter["body"], letter["format"]) == ("item,n\nnail,-1", "csv")
            assert http.get(f"/dead-letters?after={letter['id']}").json() == {"letters": [], "next": None}
            assert http.delete("/dead-letters/99").status_code == 404
        dropped = invoke_smile("dead-letters", "--drop", "1", SMILE_URL=broker.url)
        assert dropped.stdout == "dropped 1\n"
        assert invoke_smile("dead-letters", SMILE_URL=broker.url).stdout == "there are no dead letters\n"
        kept = set(re.findall(r"^\| `([\w.-]+)/?` \|", (ROOT / "docs" / "running.md").read_text(), re.MULTILINE))
        names = {path.name for path in (broker.folder / broker.data).iterdir()}
        assert {re.sub(r"-(wal|shm)$", "", name) for name in names} <= kept
        metrics = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in read_metrics(broker)}
        assert metrics['smile_source_events_total{source="orders"}'] == "3.0"
        assert metrics['smile_sink_dead_letters{sink="totals"}'] == "0.0"


def read_metrics(broker: BrokerProcess) -> list[str]:
    with broker.http() as http:
        return http.get("/metrics").text.splitlines()


def test_only_administrators_see_and_change_dead_letters(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM, auth=True) as broker:
        with closing(broker.accounts()) as accounts:
            token = accounts.add_token("ann")
        with broker.http(token) as http:
            answers = [http.get("/dead-letters"), http.delete("/dead-letters/1"), http.post("/dead-letters/1/retry")]
        assert [answer.status_code for answer in answers] == [403, 403, 403]


def test_a_broker_without_connectors_has_no_dead_letters(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM) as broker, broker.http() as http:
        assert http.get("/dead-letters").json() == {"letters": [], "next": None}
        answer = http.post("/dead-letters/1/retry")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "E208")


def test_the_receivers_check_of_a_signature() -> None:
    """The function of the page accepts what the webhook signs, and nothing else."""
    names: dict[str, Any] = {}
    (text,) = re.findall(r"^```python\n(import base64.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(text, "connectors.md", "exec"), names)
    for secret in ("key", "whsec_a2V5"):
        headers = {"webhook-id": "m1", "webhook-timestamp": "17"}
        headers["webhook-signature"] = signature(secret, "m1", "17", '{"a":1}')
        assert names["is_genuine"](secret, headers, b'{"a":1}')
        assert not names["is_genuine"](secret, headers, b'{"a":2}')
