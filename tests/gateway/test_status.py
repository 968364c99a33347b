"""How the broker fares, in three ways."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from smile.gateway.http.status import gateway_status
from smile.gateway.metrics import BROKER_METRICS, MetricDefinition, StatusCollector
from tests.brokers import InProcessBroker, bid


def test_status_health_and_metrics(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as served, served.http() as http, served.websocket() as connection:
        assert http.get("/ready").json() == {"health": "ok", "troubles": []}
        tick = http.post("/streams/Bids/events", json=[bid("a"), bid("b")]).json()["ticks"][-1]
        connection.ask({"subscribe": "Totals", "id": 1, "after": {"Bids": tick}})
        connection.receive()
        status = http.get("/status").json()
        assert status["views"]["Totals"]["rows"] == 2
        assert status["gateway"]["events"] == 2
        assert status["gateway"]["subscriptions"] == 1
        assert status["gateway"]["connections"] == 2
        http.get("/views/Nope")
        metrics = http.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = metrics.text.splitlines()
        assert 'smile_view_rows{view="Totals"} 2.0' in lines
        assert 'smile_gateway_refused_total{code="E021"} 1.0' in lines
        names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
        assert len(names) == len(set(names))
        sample = re.compile(r'[a-z_A-Z0-9]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?[0-9.e+-]+')
        assert [line for line in lines if not line.startswith("#") and not sample.fullmatch(line)] == []
        assert http.get("/status?x=1").json()["error"]["code"] == "E093"
        assert http.head("/health").text == ""


def number_paths(node: Any, path: str = "") -> Iterator[str]:
    """The path of every number of a status."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from number_paths(value, f"{path}.{key}" if path else key)
    elif isinstance(node, int | float):
        yield path


def test_every_number_of_the_status_is_one_metric(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as served, served.http() as http:
        http.post("/streams/Bids/events", json=[bid("a"), bid("b")])
        http.get("/views/Nope")
        assert served.server.gateway is not None
        status = gateway_status(served.server.gateway)
    paths = list(number_paths(status))
    assert {p: [m.name for m in BROKER_METRICS if fnmatchcase(p, m.path)] for p in paths} == {
        p: [next(m.name for m in BROKER_METRICS if fnmatchcase(p, m.path))] for p in paths
    }
    families = list(
        text_string_to_metric_families(generate_latest(StatusCollector(BROKER_METRICS, lambda: status)).decode())
    )
    *families, troubles = families
    assert (troubles.name, troubles.samples) == ("smile_trouble_since", [])
    assert [(f.name, f.type, f.documentation) for f in families] == [
        (m.name, m.family("x", "").type, m.help) for m in BROKER_METRICS
    ]
    assert sum(len(f.samples) for f in families) == len(paths)


def test_labels_are_escaped() -> None:
    name = 'a\\b"c\nd'
    definitions = [MetricDefinition(BROKER_METRICS[0].family, "smile_x", "views.*", "Help.", ("view",))]
    text = generate_latest(StatusCollector(definitions, lambda: {"views": {name: 7}})).decode()
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"view": name}, 7)


def test_delays_are_histograms(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as served, served.http() as http, served.websocket() as client:
        client.ask({"subscribe": "Totals", "id": 1})
        client.receive_until(lambda message: "progress" in message)
        http.post("/streams/Bids/events", json=[bid("a"), bid("b")])
        client.receive_until(lambda message: bool(message.get("rows")))
        client.receive_until(lambda message: "progress" in message)
        text = http.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name in ("smile_publish_delay_seconds", "smile_delivery_delay_seconds"):
        family = families[name]
        values = {sample.name.removeprefix(name): sample.value for sample in family.samples}
        assert (family.type, bool(family.documentation)) == ("histogram", True)
        assert values["_count"] >= 1 and 0 <= values["_sum"] < 30 * values["_count"], values
