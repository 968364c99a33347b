"""Ad-hoc queries over HTTP and WebSocket: temporary views with limits, a right of their own and an end."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from smile import limits
from smile.gateway.access import Grant
from tests.brokers import InProcessBroker, Json, apply_frame, bid
from tests.processes import wait_until


@pytest.fixture
def served(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path) as broker:
        yield broker


def rows_of(http: httpx.Client, text: str) -> list[dict[str, object]]:
    opened = http.post("/queries", content=text)
    assert opened.status_code == 201, opened.text
    after = {f"after.{stream}": tick for stream, tick in opened.json()["progress"].items()}
    answer = http.get(f"/views/{opened.json()['view']}", params=after)
    assert answer.status_code == 200, answer.text
    return [row["key"] | row["row"] for row in answer.json()["rows"]]


def test_a_query_over_streams_and_views_with_or_without_a_subscription(served: InProcessBroker) -> None:
    served.publish("Bids", bid("IBM", 120), bid("IBM", 30), bid("SUN", 7))
    with served.http() as http:
        program = http.get("/program").text
        assert rows_of(http, "SELECT issue, MAX(price) AS highest FROM Bids GROUP BY issue;") == [
            {"issue": "IBM", "highest": 120}, {"issue": "SUN", "highest": 7},
        ]  # fmt: skip
        assert rows_of(http, "SELECT issue, total FROM Totals WHERE total > 100") == [{"issue": "IBM", "total": 150}]
        assert rows_of(http, "SELECT n FROM Inner1 WHERE issue = 'IBM'") == [{"issue": "IBM", "n": 2}]
        # Who shows the rows is told their order.
        best = http.post(
            "/queries", content="SELECT issue, total FROM Totals ORDER BY total DESC, issue LIMIT 3"
        ).json()
        assert best["order"] == [{"column": "total", "descending": True}, {"column": "issue", "descending": False}]
        # It is not part of the program.
        assert http.get("/program").text == program
        assert all("query" not in view["name"] for view in http.get("/views").json()["views"])


def test_the_rows_as_they_were_at_a_tick(served: InProcessBroker) -> None:
    first, second = map(int, served.publish("Bids", bid("IBM", 120), bid("IBM", 30)))

    def ask(as_of: object, text: str = "SELECT issue, total FROM Totals") -> httpx.Response:
        return http.post("/queries", params={"as_of": str(as_of)}, content=text)

    with served.http() as http:
        wait_until(lambda: ask(second).status_code == 201, "the tick does not become known")
        for tick, total in ((first, 120), (second, 150)):
            opened = ask(tick)
            view = http.get(f"/views/{opened.json()['view']}").json()
            assert [row["key"] | row["row"] for row in view["rows"]] == [{"issue": "IBM", "total": total}]
            assert int(view["progress"]["Bids"]) == int(opened.json()["progress"]["Bids"]) == tick
        before = ask(first - 1)
        assert http.get(f"/views/{before.json()['view']}").json()["rows"] == []
        unknown, wrong = ask(second + 10**15), ask("yesterday")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (409, "E205")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "E093")


def test_subscribers_follow_it_until_it_is_closed(served: InProcessBroker) -> None:
    with served.http() as http, served.websocket() as connection:
        view = http.post("/queries", content="SELECT COUNT(*) AS n FROM Bids").json()["view"]
        connection.ask({"subscribe": view, "id": 1})
        rows: Json = {}

        def has_both(frame: Json) -> bool:
            apply_frame(rows, frame)
            return [row["row"] for row in rows.values()] == [{"n": 2}]

        served.publish("Bids", bid(), bid())
        connection.receive_until(has_both)
        assert http.get(f"/views/{view}/finality").json()["final"] is False
        assert http.delete(f"/queries/{view}").status_code == 204
        ended = connection.receive_until(lambda m: "ended" in m)
        assert ended["ended"]["code"] == "E193"
        assert http.get(f"/views/{view}").status_code == 404
        assert http.delete(f"/queries/{view}").status_code == 410


def test_it_ends_when_nobody_uses_it(served: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "query_lease_s", 0.5)
    with served.http() as http:
        with served.websocket() as connection:
            view = http.post("/queries", content="SELECT issue FROM Bids").json()["view"]
            connection.ask({"subscribe": view, "id": 1})
            wait_until(lambda: served.broker.queries.status()[0]["used_s_ago"] < 0.5, "it is not used")  # type: ignore[operator]  # a number
            assert len(served.broker.queries) == 1
        wait_until(lambda: len(served.broker.queries) == 0, "it does not end")
        folder = served.broker._directory.state_path / "queries"
        wait_until(lambda: not list(folder.iterdir()), "its state is not deleted")


def test_what_is_no_query_is_refused_with_its_position(served: InProcessBroker) -> None:
    with served.http() as http:
        wrong = http.post("/queries", content="SELECT issue,\n  prize FROM Bids")
        (problem,) = wrong.json()["errors"]
        assert (wrong.status_code, problem["line"], problem["col"], problem["length"]) == (400, 2, 3, 5)
        for text in (
            "",
            "DROP VIEW Totals",
            "SELECT issue FROM Bids; CREATE VIEW v AS SELECT issue FROM Bids",
            "SELECT",
        ):
            assert http.post("/queries", content=text).status_code == 400, text
        assert http.post("/queries", content="SELECT x FROM Nothing").status_code == 400
        assert len(served.broker.queries) == 0


def test_the_number_and_the_state_of_queries_are_limited(
    served: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "queries_each_max", 2)
    with served.http() as http:
        views = [http.post("/queries", content="SELECT issue FROM Bids").json()["view"] for _ in range(2)]
        refused = http.post("/queries", content="SELECT issue FROM Bids")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "E192")
        http.delete(f"/queries/{views[0]}")
        monkeypatch.setattr(limits, "query_bytes_max", 10)
        monkeypatch.setattr(limits, "view_size_check_s", 0.0)
        served.publish("Bids", *(bid(f"i{i}") for i in range(200)))
        with served.websocket() as connection:
            view = http.post("/queries", content="SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue").json()["view"]
            answer = connection.ask({"subscribe": view, "id": 1})
            ended = (
                answer if "ended" in answer or "error" in answer else connection.receive_until(lambda m: "ended" in m)
            )
            assert (ended.get("ended") or ended["error"])["code"] in ("E053", "E021")
        wait_until(lambda: len(served.broker.queries) == 1, "the query that is too large does not end")


def test_it_needs_a_right_of_its_own_and_those_on_what_it_reads(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, auth=True) as served:
        accounts = served.accounts()
        ann, bob = accounts.add_token("ann"), accounts.add_token("bob")
        for grant in (
            Grant("QUERY", "program", "ann"),
            Grant("SUBSCRIBE", "Totals", "ann"),
            Grant("SUBSCRIBE", "*", "bob"),
        ):
            accounts.grant(grant)
        with served.http(ann) as http, served.http(bob) as other:
            wait_until(lambda: http.get("/views/Totals").status_code == 200, "the grant is not seen")
            opened = http.post("/queries", content="SELECT issue FROM totals")
            assert opened.status_code == 201
            view = opened.json()["view"]
            assert http.get(f"/views/{view}").status_code == 200
            assert other.get(f"/views/{view}").status_code == 403
            assert other.delete(f"/queries/{view}").status_code == 403
            assert other.post("/queries", content="SELECT issue FROM Totals").json()["error"]["code"] == "E090"
            for hidden in ("Bids", "Nothing", "Dear"):
                for text in (
                    f"SELECT nothing FROM {hidden}",
                    f"SELECT t.issue FROM Totals t JOIN {hidden} d USING (issue)",
                ):
                    refused = http.post("/queries", content=text)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "E090"), text
            window = "SELECT COUNT(*) AS n FROM TUMBLE(Bids, bidid, INTERVAL '1' MINUTE) GROUP BY window_end"
            assert http.post("/queries", content=window).status_code == 403
            shadow = "WITH Bids AS (SELECT issue FROM Bids) SELECT issue FROM Bids"
            assert http.post("/queries", content=shadow).status_code in (400, 403)
            accounts.revoke(Grant("SUBSCRIBE", "Totals", "ann"))
            wait_until(lambda: http.get(f"/views/{view}").status_code == 403, "the query outlives the right")
        accounts.close()


NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'
ADVERTISED = NTP + "ADVERTISE ntp WHERE \"from\" = 'hw' AS S;\n"
HIGH = "CREATE VIEW High AS SELECT tool, MAX(latency) AS highest FROM ntp WHERE \"from\" = 'hw' GROUP BY tool; SUBSCRIBE High;"


def test_a_query_over_a_global_stream_reads_what_a_view_receives(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, ADVERTISED + HIGH, broker_name="hw", origin=2) as served, served.http() as http:
        event = {"tool": "ping", "from": "hw", "latency": 7}
        assert http.post("/streams/ntp/events", json=[event, {**event, "latency": 3}]).status_code == 200
        wait_until(lambda: served.rows("High"), "the view does not receive the events")
        counted = "SELECT tool, COUNT(*) AS n FROM ntp WHERE \"from\" = 'hw' GROUP BY tool"
        opened = http.post("/queries", content=counted)
        assert opened.status_code == 201, opened.text
        view = opened.json()["view"]
        wait_until(lambda: [row["row"]["n"] for row in served.rows(view)] == [2], "the query has no rows")


def test_a_query_over_what_nobody_receives_is_refused(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, ADVERTISED + HIGH, broker_name="hw", origin=2) as served, served.http() as http:
        refused = http.post("/queries", content="SELECT * FROM ntp WHERE tool = 'ping'").json()["error"]
        assert refused["code"] == "E196"
        assert refused["message"] == "no view of the program receives ntp where tool = 'ping'"
        assert refused["hint"] == (
            "Add a view of it to the program. These are received: ntp where from = 'hw', for High."
        )
    with InProcessBroker(tmp_path / "other", ADVERTISED, broker_name="hw", origin=2) as served, served.http() as http:
        refused = http.post("/queries", content="SELECT * FROM ntp").json()["error"]
        assert (refused["code"], refused["hint"]) == ("E196", "Add a view of it to the program.")
