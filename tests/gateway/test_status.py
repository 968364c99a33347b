"""How the broker fares, in three ways."""

import re
from pathlib import Path

from tests.brokers import InProcessBroker, bid


def test_status_health_and_metrics(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as served, served.http() as http, served.websocket() as talk:
        assert http.get("/health").json() == {"health": "ok"}
        tick = http.post("/streams/Bids/events", json=[bid("a"), bid("b")]).json()["ticks"][-1]
        talk.ask({"subscribe": "Totals", "id": 1, "after": {"Bids": tick}})
        talk.receive()
        told = http.get("/status").json()
        assert told["views"]["Totals"]["rows"] == 2
        assert told["gateway"]["events"] == 2
        assert told["gateway"]["subscriptions"] == 1
        assert told["gateway"]["connections"] == 2
        http.get("/views/Nope")
        metrics = http.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = metrics.text.splitlines()
        assert 'smile_view_rows{view="Totals"} 2' in lines
        assert 'smile_gateway_refused{code="E021"} 1' in lines
        names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
        assert len(names) == len(set(names))
        sample = re.compile(r'[a-z_A-Z0-9]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?[0-9.e+-]+')
        assert [line for line in lines if not line.startswith("#") and not sample.fullmatch(line)] == []
        assert http.get("/status?x=1").json()["error"]["code"] == "E093"
        assert http.head("/health").text == ""
