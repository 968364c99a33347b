"""`smile registry`: what a broker says of its global streams, over HTTP and as text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import InProcessBroker
from tests.processes import invoke_smile, wait_until

NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'
PRODUCERS = NTP + (
    "ADVERTISE ntp WHERE \"from\" = 'hw' AND tool = 'ping' AS S1; ADVERTISE ntp WHERE \"from\" = 'ral' AS S2;\n"
)
VIEW = "CREATE VIEW v AS SELECT * FROM ntp WHERE \"from\" = 'hw'; SUBSCRIBE v;\n"
REPUBLISHERS = (
    "CREATE REPUBLISHER R1 AS SELECT * FROM ntp WHERE \"from\" = 'hw'; CREATE REPUBLISHER R3 AS SELECT * FROM ntp;\n"
)


def smile(broker: InProcessBroker, *words: str) -> str:
    result = invoke_smile(*words, "--url", broker.url)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def report_of(broker: InProcessBroker) -> dict[str, Any]:
    with broker.http() as client:
        report: dict[str, Any] = client.get("/registry").json()
        return report


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """A broker with producers, republishers and a view."""
    folder = tmp_path_factory.mktemp("planning")
    with InProcessBroker(folder, PRODUCERS + REPUBLISHERS + VIEW, broker_name="hw", origin=2) as broker:
        plans = ["R1", "R3", "ntp.global"]

        def has_plans() -> bool:
            found = report_of(broker)["plans"]
            return all(plan["sources"] for plan in found) and len(found) == len(plans)

        wait_until(has_plans, "there are no plans")
        yield broker


def test_a_broker_with_producers_only_shows_them(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PRODUCERS, broker_name="hw", origin=2) as broker:
        wait_until(lambda: report_of(broker)["global_streams"][0]["publishers"], "no publisher is known")
        report = report_of(broker)
        (stream,) = report["global_streams"]
        assert (stream["stream"], stream["channel"]) == ("ntp", ["tool", "from"])
        assert [(p["name"], p["broker"], p["role"], p["problem"]) for p in stream["publishers"]] == [
            ("S1", "hw", "producer", None),
            ("S2", "hw", "producer", None),
        ]
        assert report["plans"] == []
        assert smile(broker, "registry").splitlines() == [
            "ntp (tool: string, from: string, latency: int, t: time), channel tool, from, "
            f"registrations {stream['registrations']}",
            "  producer S1 at hw where from = 'hw' AND tool = 'ping'",
            "  producer S2 at hw where from = 'ral'",
        ]
        smile(broker, "advertise", "ntp", "--as", "S3", "--where", "tool = 'udp'")
        wait_until(lambda: len(report_of(broker)["global_streams"][0]["publishers"]) == 3, "S3 is not known")
        assert report_of(broker)["global_streams"][0]["registrations"] != stream["registrations"]


def test_a_program_without_global_streams(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        assert report_of(broker) == {"global_streams": [], "plans": []}
        assert smile(broker, "registry") == "the program has no global streams\n"


def plan_name(broker: InProcessBroker) -> str:
    return next(str(p["name"]) for p in report_of(broker)["plans"] if p["views"] == ["v"])


def test_plans(planning: InProcessBroker) -> None:
    lines = smile(planning, "registry").splitlines()
    assert "  republisher R1 at hw where from = 'hw'" in lines
    start = lines.index("republisher R3: ntp where TRUE, meta plan ({{R1@hw}}, {S2@hw})")
    assert lines[start + 1 : start + 3] == [
        "  from R1 at hw",
        "  from ntp at hw where from IS DISTINCT FROM 'hw'",
    ]
    (query,) = (line for line in lines if line.startswith("query"))
    assert query == f"query {plan_name(planning)} of v: ntp where from = 'hw', meta plan ({{{{R1@hw, R3@hw}}}}, ∅)"
    reasons = dict(line.split(maxsplit=1) for line in lines[start + 3 : start + 7])
    assert reasons == {
        "R1@hw": "in: maximal",
        "R3@hw": "out: not strongly relevant, since the republisher does not strictly subsume it",
        "S1@hw": "out: subsumed by R1@hw",
        "S2@hw": "in: no republisher of the plan has all of its channels",
    }


def test_json_has_the_same_content(planning: InProcessBroker) -> None:
    report = json.loads(smile(planning, "registry", "--as", "json"))
    assert [plan["name"] for plan in report["plans"]] == [plan["name"] for plan in report["explanation"]["plans"]]
    (view,) = (plan for plan in report["explanation"]["plans"] if plan["name"].startswith("ntp.global"))
    assert view["plan"] == ["σ[from = 'hw'](R1@hw)"]
    assert view["meta_plan"] == "({{R1@hw, R3@hw}}, ∅)"
    assert view["publishers"]["R3@hw"] == "out: equivalent to R1@hw, which was chosen"


def test_diagrams_of_the_hierarchy(planning: InProcessBroker) -> None:
    dot = smile(planning, "registry", "--as", "graphviz").splitlines()
    assert dot[0] == "digraph republishers {"
    assert [line.strip() for line in dot if "->" in line] == [
        '"S1@hw" -> "R1@hw";',
        '"R1@hw" -> "R3@hw";',
        '"S2@hw" -> "R3@hw";',
    ]
    mermaid = smile(planning, "registry", "--as", "mermaid").splitlines()
    assert mermaid[0] == "flowchart BT"
    assert "  p0[\"S1@hw: from = 'hw' AND tool = 'ping'\"]" in mermaid
    assert [line.strip() for line in mermaid if "-->" in line] == ["p0 --> p2", "p2 --> p3", "p1 --> p3"]
