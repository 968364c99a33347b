"""`smile status`: what a pipeline has noted of itself, for people, for programs and for Prometheus."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from smile.cli.status import broker_text
from tests.client.fake import Fake
from tests.processes import invoke_smile

RECORDED: dict[str, Any] = {
    "at": time.time() - 3,
    "views": ["Sums", "Count"],
    "partitions": 2,
    "number": 1234,
    "horizons": {"S": 17, "T": -1},
    "waiting_events": 4321,
    "waiting_bytes": 5_600_000,
    "ui": "http://127.0.0.1:4040",
    "events": 7_000_000,
    "changed_rows": 800,
    "batches": 1234,
    "events_per_second": 54321.5,
    "changed_rows_per_second": 30.0,
    "batches_per_second": 9.5,
    "state_bytes": 25_000_000,
    "written_bytes": 700,
    "batch_ms": {"total": 120, "planning": 11, "job": 93, "kernels": 42.0, "commit": 13},
    "stage_ms": {"1": {"read": 1.5, "kernels": 40.0, "save": 5.25, "pack": 0.5}},
}
"""As a pipeline writes it."""


def status(folder: Path, *form: str) -> Result:
    return invoke_smile("status", str(folder), *form)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "status.json").write_text(json.dumps(RECORDED))
    return tmp_path


def test_for_people(state: Path) -> None:
    result = status(state)
    assert result.exit_code == 0, result.stderr
    lines = {re.split(r"  +", line)[0]: re.split(r"  +", line)[1] for line in result.stdout.splitlines()}
    assert lines["views"] == "Sums, Count"
    assert re.fullmatch(r"\d+\.\d s ago, batch 1,234", lines["as of"])
    assert lines["events/s"] == "54,321.5"
    assert lines["processed"] == "7,000,000 events in 1,234 batches"
    assert lines["waiting"] == "4,321 events, 5.6 MB"
    assert lines["state"] == "25.0 MB in 2 partitions"
    assert lines["last batch"].startswith("120 ms: planning 11, job 93, kernels 42, commit 13")
    assert lines["stage 1"] == "read 1.5 ms, kernels 40.0 ms, save 5.2 ms, pack 0.5 ms"
    assert lines["Spark"] == "http://127.0.0.1:4040"


def test_for_programs(state: Path) -> None:
    assert json.loads(status(state, "--as", "json").stdout) == RECORDED


def test_for_prometheus(state: Path) -> None:
    output = status(state, "--as", "prometheus").stdout
    samples = dict(line.rsplit(" ", 1) for line in output.splitlines() if line and not line.startswith("#"))
    assert float(samples["smile_events_total"]) == 7_000_000
    assert float(samples["smile_state_bytes"]) == 25_000_000
    assert float(samples["smile_waiting_events"]) == 4321
    assert float(samples['smile_batch_seconds{part="commit"}']) == 0.013
    assert float(samples['smile_stage_seconds{part="save",stage="1"}']) == 0.00525
    assert float(samples['smile_horizon_tick{stream="S"}']) == 17
    for name in samples:
        metric = name.partition("{")[0]
        assert f"# HELP {metric} " in output
        assert re.search(f"^# TYPE {metric} (counter|gauge)$", output, re.MULTILINE)


def test_there_is_none(tmp_path: Path) -> None:
    result = status(tmp_path)
    assert result.exit_code == 1
    assert result.stderr == f"smile: there is no status of a pipeline in {tmp_path}: No such file or directory\n"


@pytest.mark.parametrize("text", ["", "[1]", '{"at": 1}', '{"at": "yesterday"}', '"at"', '{"at'])
@pytest.mark.parametrize("form", ["text", "prometheus"])
def test_it_is_damaged(tmp_path: Path, text: str, form: str) -> None:
    (tmp_path / "status.json").write_text(text)
    result = status(tmp_path, "--as", form)
    assert result.exit_code == 1
    assert result.stderr == f"smile: there is no status of a pipeline in {tmp_path}: it is damaged\n"


def test_misuse(state: Path) -> None:
    assert status(state, "--as", "xml").exit_code == 2


# ── of a broker ─────────────────────────────────────────────────────────────────────────────────────────────────────

BROKER: dict[str, Any] = {
    "at": 1_700_000_000.0,
    "since": 1_699_999_000.0,
    "health": "ok",
    "engine": "local",
    "program": "floor.smile",
    "streams": {
        "Bids": {"horizon": str(1_699_999_998 * 1_024_000_000)},
        "Timed": {"horizon": 17},
        "New": {"horizon": None},
    },
    "views": {
        "Open": {
            "rows": 1234,
            "changed": 99,
            "subscribers": 2,
            "horizons": {"Bids": str(1_699_999_998 * 1_024_000_000)},
        }
    },
    "publisher": {"events": 4321, "commit_ms": 2.5},
    "keeper": {"state": "running", "stage_ms": {"1": {}}},
    "troubles": [
        {"kind": "view_paused", "subject": "Dear", "code": "E053", "message": "no memory", "since": 1_699_999_930.0}
    ],
    "warnings": [{"at": 1_699_999_940.0, "what": "Spark was lost"}],
}


def test_a_broker_for_people() -> None:
    lines = [re.split(r"  +", line.strip()) for line in broker_text(BROKER).splitlines()]
    assert lines == [
        ["health", "ok"],
        ["program", "floor.smile"],
        ["engine", "local"],
        ["running for", "1,000 s"],
        ["stream Bids", "known up to 2.0 s ago"],
        ["stream Timed", "known up to tick 17 of Timed"],
        ["view Open", "1,234 rows, 99 changed, 2 subscribers, known up to 2.0 s ago"],
        ["publisher", "events 4,321, commit_ms 2.5"],
        ["maintainer", "state running"],
        ["trouble", "view_paused Dear for 70 s: E053: no memory"],
        ["warning", "60 s ago: Spark was lost"],
    ]


def test_links_and_imports_for_people() -> None:
    flow = {"bytes_per_s": 1500.0, "rows_per_s": 20.0}
    link = {
        "name": "buys",
        "address": "http://buys:7400",
        "state": "open",
        "for_s": 61.2,
        "delay_ms": 2.25,
        "sent": flow,
        "received": flow,
        "curious": {"Sums": {"missing": "gap", "for_s": 3.4}},
        "questions_asked": 4,
        "questions_answered": 1_000,
    }
    problem = {"code": "E121", "message": "it does not answer"}
    absent = {"name": "sells", "address": None, "state": "absent", "for_s": 5.0, "opened": 3, "problem": problem}
    imported = {
        "kind": "view",
        "relation": "Sums",
        "brokers": ["buys", "relay"],
        "state": "live",
        "for_s": 60.0,
        "links": 2,
        "horizons": {"Bids": 1_699_999_998 * 1_024_000_000, "Asks": 1_699_999_990 * 1_024_000_000},
        "gaps": 1,
        "origins": [],
        "problem": None,
    }
    status = {"at": BROKER["at"], "links": [link, absent], "imports": {"Sums": imported}}
    assert " ".join(broker_text(status).split()) == (
        "link buys open for 61 s, called at http://buys:7400, delay 2.2 ms; sends 20 rows/s, 1.5 kB/s; "
        "receives 20 rows/s, 1.5 kB/s; 4 questions asked, 1,000 answered; curious about Sums for 3 s (gap) "
        "link sells absent for 5 s, has called, opened 3 times: E121: it does not answer "
        "import Sums view Sums of buys, relay: live for 60 s, 2 links, known up to 10.0 s ago "
        "(Bids 2.0 s ago, Asks 10.0 s ago), 1 gap"
    )


def test_a_broker_is_asked() -> None:
    fake = Fake()
    try:
        result = invoke_smile("status", "--as", "json", SMILE_URL=fake.url)
        assert (result.exit_code, json.loads(result.stdout)) == (0, {"program": "ok"})
        assert invoke_smile("status", "--url", fake.url).stdout.split() == ["program", "ok"]
        assert invoke_smile("status", "--as", "prometheus", "--url", fake.url).exit_code == 1
    finally:
        fake.close()
    gone = invoke_smile("status", "--url", fake.url)
    assert (gone.exit_code, gone.stderr.startswith(f"smile: error E103: {fake.url}: Connection refused\n")) == (1, True)
    assert invoke_smile("status", "somewhere", "--url", fake.url).exit_code == 2
