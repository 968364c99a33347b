"""The client against a real broker, also one that is killed and started again."""

from pathlib import Path
from random import Random

import pytest

from smile.client import Change, SmileError, connect
from smile.client.ticks import tick_text
from tests.brokers import BrokerProcess, InProcessBroker
from tests.processes import WAIT_S, invoke_smile, wait_until

PROGRAM = """\
CREATE STREAM Bids (t: time -> issue: string, price: int, size: decimal(10, 2), at: timestamp);
CREATE VIEW Totals AS SELECT issue, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS top, LATEST(price) AS last,
  SUM(size) AS volume FROM Bids GROUP BY issue;
CREATE VIEW Dear AS SELECT t, issue, price, at FROM Bids WHERE price > 90;
SUBSCRIBE Totals, Dear;
"""
BID = {"issue": "IBM", "price": 1, "size": 1, "at": None}


def test_publish_and_subscribe(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM) as broker, connect(broker.url, timeout=WAIT_S) as client:
        totals, dear = client.table("Totals"), client.table("Dear", where={"issue": "IBM"})
        bids = [
            {"issue": i, "price": p, "size": "0.10", "at": "2024-05-31 12:00:00.5"}
            for i in ("IBM", "HP")
            for p in (90, 95)
        ]
        published = client.publish("Bids", bids)
        row = totals.wait_for(published, WAIT_S)["IBM"]
        assert {name: str(row[name]) for name in ("n", "total", "top")} == {"n": "≥2", "total": "185~", "top": "≥95"}
        assert row.row["total"] == 185
        assert str(row["last"]) == f"95@{tick_text(published[1])}"
        assert row["n"] >= 2
        assert [r.row["price"] for r in dear.wait_for(published, WAIT_S)] == [95]
        assert str(totals.to_arrow().schema.field("volume").type) == "decimal128(38, 2)"
        assert str(dear.to_arrow().schema.field("at").type) == "timestamp[us]"
        assert "Totals" in client.program()
        assert (repr(totals), repr(client)) == ("<Table Totals: 2 rows, 0 final>", f"<Client {broker.url}, connected>")
        assert "<th>views</th><td>Dear, Totals</td>" in client._repr_html_().replace("Totals, Dear", "Dear, Totals")
        with client.subscribe("Dear") as subscription:
            assert repr(subscription) == "<Subscription to Dear>"
        assert set(client.status()["views"]) == {"Totals", "Dear"}
        assert len(client.snapshot("Dear", after=published)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_killed_brokers_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    (tmp_path / "floor.smile").write_text(PROGRAM)
    with BrokerProcess(tmp_path) as broker, connect(broker.url, timeout=WAIT_S) as client:
        table, subscription = client.table("Totals"), client.subscribe("Totals")
        futures = []
        for i in range(400):
            event = {"issue": random.choice("abc"), "price": i, "size": i, "at": None}
            futures.append(client.submit("Bids", event))
            if i in (100, 250):
                futures[random.randrange(i)].result(timeout=WAIT_S)
                broker.kill()
                broker.start()
        ticks = [future.result(timeout=WAIT_S).tick for future in futures]
        assert len(set(ticks)) == 400
        assert ticks == sorted(ticks)
        table.wait_for({"Bids": ticks[-1]}, WAIT_S)
        assert sum(row.row["n"] for row in table) == 400
        assert sum(row.row["total"] for row in table) == sum(range(400))
        last: dict[str, Change] = {}
        while sum(change.row["n"] for change in last.values()) < 400:
            for change in subscription.frame(WAIT_S).changes:
                known = last.get(change.key["issue"])
                assert known is None or known["n"].evolves_to(change["n"])
                last[change.key["issue"]] = change
        assert {k: c.row for k, c in last.items()} == {row.key["issue"]: row.row for row in table}


@pytest.mark.slow
def test_tokens(tmp_path: Path) -> None:
    def smile(*words: str) -> str:
        done = invoke_smile(*words, cwd=tmp_path)
        assert done.exit_code == 0, done.stderr
        return done.stdout.strip()

    with InProcessBroker(tmp_path, PROGRAM, auth=True) as broker:
        token = smile("token", "alice")
        smile("grant", "SUBSCRIBE", "ON", "Totals", "TO", "alice")
        with pytest.raises(SmileError) as refused:
            connect(broker.url, timeout=WAIT_S)
        assert refused.value.diagnostics[0].code == "E091"
        with broker.http(token) as http:
            wait_until(lambda: http.get("/views/Totals").status_code == 200, "the grant is not known")
        with connect(broker.url, token=token, timeout=WAIT_S) as client:
            table = client.table("Totals")
            for forbidden in (lambda: client.publish("Bids", BID), lambda: client.table("Dear"), client.status):
                with pytest.raises(SmileError) as refused:
                    forbidden()
                assert refused.value.diagnostics[0].code == "E090"
            smile("token", "alice", "--revoke")
            with pytest.raises(SmileError) as refused:
                table.wait_for({"Bids": 2**62}, WAIT_S)
            assert refused.value.diagnostics[0].code in ("E090", "E091")
