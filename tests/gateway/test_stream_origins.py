"""The origins of a stream over HTTP, in the client and on the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smile.cli.status import broker_text
from smile.client import connect
from smile.errors import SmileError
from smile.horizons import END
from tests.brokers import InProcessBroker
from tests.processes import run_smile, wait_until

PROGRAM = """
CREATE STREAM Bids (t: time -> shares: int) WITH (ORIGINS = MANY);
CREATE STREAM Asks (t: time -> shares: int) WITH (ORIGINS = MANY, HOME = elsewhere);
CREATE STREAM Plain (t: time -> shares: int);
CREATE VIEW Counts AS SELECT COUNT(*) AS n FROM Bids;
SUBSCRIBE Counts;
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, PROGRAM) as broker:
        yield broker


def test_over_http(served: InProcessBroker) -> None:
    with served.http() as http:
        (tick,) = served.publish("Bids", {"shares": 1})
        assert int(tick) % 1024 == 1  # the number of the home
        report = http.get("/streams/Bids/origins").json()
        (member,) = report["origins"]
        assert (report["origin"], member["origin"], member["state"], member["end"]) == ("1", "1", "member", None)
        assert not member["holds_back"]
        assert http.get("/streams/Asks/origins").json()["origins"] == []
        refused = http.post("/streams/Asks/events", json={"shares": 1})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "E135")
        assert "elsewhere" in refused.json()["error"]["hint"]
        assert http.get("/streams/Plain/origins").status_code == 404
        fenced = http.delete("/streams/Bids/origins/1", params={"fence": "true", "at": "5"})
        assert (fenced.status_code, fenced.json()["error"]["code"]) == (409, "E137")
        unknown = http.delete("/streams/Bids/origins/7", params={"fence": "true", "at": "5"})
        assert "has no origin 7" in unknown.json()["error"]["message"]
        assert http.delete("/streams/Bids/origins/1", params={"fence": "maybe"}).status_code == 400
        assert http.delete("/streams/Asks/origins/1", params={"fence": "true", "at": "5"}).status_code == 409
        assert http.delete("/streams/Bids/origins/2").json()["error"]["code"] == "E135"
        assert http.post("/streams/Bids/origins").json()["error"]["code"] == "E135"
        assert http.post("/streams/Asks/origins").status_code == 202
        left = http.delete("/streams/Bids/origins/1").json()["origins"][0]
        assert (left["state"], left["horizon"]) == ("left", str(END))
        assert int(left["end"]) >= int(tick)
        assert http.post("/streams/Bids/events", json={"shares": 1}).json()["error"]["code"] == "E135"
        wait_until(lambda: http.get("/views/Counts").json()["rows"][0]["final"], "it does not become final")


def test_in_the_client_and_on_the_command_line(served: InProcessBroker, tmp_path: Path) -> None:
    with connect(served.url) as client:
        assert client.origins("Bids")["home"] == client.origins("Bids")["origins"][0]["broker"]
        with pytest.raises(SmileError, match="no stream Nothing with many origins"):
            client.origins("Nothing")
        assert "host of Asks" in broker_text(client.status())
    shown = run_smile("origins", "Bids", "--url", served.url, cwd=tmp_path).stdout
    assert "this broker is origin 1" in shown
    assert '"origin": "1"' in run_smile("origins", "Bids", "--json", "--url", served.url, cwd=tmp_path).stdout
    assert "E137" in run_smile("origin", "fence", "Bids", "1", "--url", served.url, cwd=tmp_path).stderr
    assert "E135" in run_smile("origin", "join", "Bids", "--url", served.url, cwd=tmp_path).stderr
    assert "left at tick" in run_smile("origin", "leave", "Bids", "1", "--url", served.url, cwd=tmp_path).stdout
