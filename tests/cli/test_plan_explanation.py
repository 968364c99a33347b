"""`smile explain --as plan`: the plans of programs of several brokers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smile.cli.main import app

NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'
PROGRAMS = {
    "hw": "ADVERTISE ntp WHERE \"from\" = 'hw' AS S1; CREATE REPUBLISHER R1 AS SELECT * FROM ntp WHERE \"from\" = 'hw';",
    "lab": "CREATE VIEW v AS SELECT * FROM ntp WHERE \"from\" = 'hw' AND tool = 'ping'; SUBSCRIBE v;",
}


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    paths = {name: tmp_path / f"{name}.smile" for name in PROGRAMS}
    for name, path in paths.items():
        path.write_text(NTP + PROGRAMS[name])
    return {name: str(path) for name, path in paths.items()}


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["explain", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_plan_of_a_view(paths: dict[str, str]) -> None:
    explained = json.loads(run(paths["lab"], "--as", "plan", "--network", paths["hw"], "--json"))
    assert list(explained) == ["VIEWS OF ntp"]
    plan = explained["VIEWS OF ntp"]
    assert plan["classes"] == [["R1@hw"]]
    assert [source["publisher"] for source in plan["plan"]] == ["R1@hw"]
    assert plan["publishers"] == {"R1@hw": "in: maximal", "S1@hw": "out: subsumed by R1@hw"}


def test_the_plan_of_a_republisher_and_the_hierarchy(paths: dict[str, str]) -> None:
    assert "REPUBLISHER R1\n" in run(paths["hw"], "--as", "plan")
    assert '"S1@hw" -> "R1@hw";' in run(paths["hw"], "--as", "plan", "--dot")
    assert "p0 --> p1" in run(paths["hw"], "--as", "plan", "--mermaid")


def test_a_program_without_queries_over_global_streams(tmp_path: Path, paths: dict[str, str]) -> None:
    path = tmp_path / "plain.smile"
    path.write_text("CREATE STREAM s (t: time -> a: int); CREATE VIEW v AS SELECT * FROM s; SUBSCRIBE v;")
    assert "E178" in run(str(path), "--as", "plan", "--network", paths["hw"], code=1)
    assert "--network is for --as plan" in run(paths["lab"], "--network", paths["hw"], code=2)
