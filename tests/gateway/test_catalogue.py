"""The catalogue over HTTP: streams, views, the graph of the program, checks of programs; and who sees what."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from smile.gateway.access import Grant
from smile.gateway.http.catalogue_bodies import (
    FinalityBody,
    GraphBody,
    ProgramCheckBody,
    StreamDescriptionBody,
    StreamsBody,
    ViewDescriptionBody,
    ViewsBody,
)
from tests.brokers import InProcessBroker
from tests.processes import wait_until

PROGRAM = """
CREATE STREAM Bids (bidid: time -> issue: string, price: int CHECK (price BETWEEN 0 AND 1000), code: string UNIQUE);
CREATE STREAM Ends (t: time -> issue: string);
CREATE VIEW Totals AS SELECT issue, SUM(price) AS total, COUNT(*) AS bids FROM Bids GROUP BY issue;
CREATE VIEW Large AS SELECT issue, total FROM Totals JOIN Ends USING (issue) WHERE total > 100;
CREATE VIEW Unused AS SELECT issue FROM Ends;
SUBSCRIBE Totals, Large;
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("catalogue"), PROGRAM) as broker:
        yield broker


def test_streams_have_their_columns_figures_and_newest_events(served: InProcessBroker) -> None:
    with served.http() as http:
        events = [{"issue": "IBM", "price": i, "code": f"c{i}"} for i in range(30)]
        ticks = http.post("/streams/Bids/events", json=events).json()["ticks"]
        wait_until(lambda: http.get("/streams/Bids").json()["events"] >= 30, "the events are not counted")
        content = http.get("/streams").content
        bids, ends = msgspec.json.decode(content, type=StreamsBody).streams
        assert (bids.name, bids.source, bids.publishable, bids.readers) == (
            "Bids",
            "program",
            True,
            ["Totals", "Large"],
        )
        assert [(c.name, c.type, c.role) for c in bids.columns] == [
            ("bidid", "time", "tick"), ("issue", "string", "value"), ("price", "int", "value"), ("code", "string", "key"),
        ]  # fmt: skip
        assert bids.columns[2].range == [0, 1000]
        assert (len(bids.checks), bids.unique, ends.events) == (2, [["code"]], 0)
        assert int(bids.horizon or 0) >= int(ticks[-1])
        later = [{"issue": "IBM", "price": 1, "code": f"later{i}"} for i in range(30)]
        ticks += http.post("/streams/Bids/events", json=later).json()["ticks"]
        wait_until(lambda: http.get("/streams/Bids").json()["rate"] > 0, "there is no rate")
        shown = msgspec.json.decode(http.get("/streams/Bids?newest=3").content, type=StreamDescriptionBody).newest
        assert shown is not None
        assert [(e.at, e.event) for e in shown] == [(t, e) for t, e in zip(ticks, [*events, *later], strict=True)][
            :-4:-1
        ]
        assert len(http.get("/streams/Bids").json()["newest"]) == 20
        assert http.get("/streams/Bids?newest=0").json()["newest"] == []
        assert http.get("/streams/Ends").json()["newest"] == []
        unknown = http.get("/streams/Bid")
        assert (unknown.status_code, unknown.json()["error"]["hint"]) == (404, "Did you mean Bids?")
        assert http.get("/streams/Bids?newest=x").status_code == 400


def test_views_have_their_columns_figures_and_definition(served: InProcessBroker) -> None:
    with served.http() as http:
        content = http.get("/views").content
        views = {view.name: view for view in msgspec.json.decode(content, type=ViewsBody).views}
        assert {name: view.state for name, view in views.items()} == {
            "Totals": "live", "Large": "live", "Unused": "unsubscribed",
        }  # fmt: skip
        total = next(c for c in views["Totals"].columns if c.name == "total")
        assert (total.evolves, total.direction, views["Totals"].key) == (True, "up", ["issue"])
        assert (views["Unused"].rows, views["Unused"].changes_per_s) == (None, None)
        described = msgspec.json.decode(http.get("/views/Large/description").content, type=ViewDescriptionBody)
        assert described.sql == (
            "CREATE VIEW Large AS SELECT issue, total FROM Totals JOIN Ends USING (issue) WHERE total > 100"
        )
        assert described.reads == ["Ends", "Totals"]
        assert "Large" in (described.mmpl or "")
        assert described.remembers
        assert http.get("/views/Nope/description").status_code == 404


def test_the_graph_has_the_plan(served: InProcessBroker) -> None:
    with served.http() as http:
        wait_until(lambda: http.get("/views").json()["views"][0]["changes_per_s"] is not None, "nothing is measured")
        graph = msgspec.json.decode(http.get("/program/graph").content, type=GraphBody)
    kinds = {node.id: node.kind for node in graph.nodes}
    assert (kinds["Bids"], kinds["Ends"], kinds["Totals"], kinds["Large"]) == ("stream", "stream", "view", "view")
    assert {edge.from_ for edge in graph.edges} | {edge.to for edge in graph.edges} <= set(kinds)
    above = {"Large"}
    for _ in graph.nodes:
        above |= {edge.from_ for edge in graph.edges if edge.to in above}
    assert {"Bids", "Ends", "Totals"} <= above
    stages = {stage.number for stage in graph.stages}
    assert any(node.kind == "transform" for node in graph.nodes)
    # Only what is counted has a rate: streams, and views with a subscription.
    measured = {node.id for node in graph.nodes if node.rate is not None}
    assert measured == {"Bids", "Ends", "Totals", "Large"}
    assert all(node.stage in stages for node in graph.nodes if node.kind in ("view", "transform"))


def test_a_program_is_checked_as_it_is_written(served: InProcessBroker) -> None:
    with served.http() as http:
        ok = msgspec.json.decode(http.post("/program/check", content=PROGRAM).content, type=ProgramCheckBody)
        assert ok.ok
        assert {d.severity for d in ok.diagnostics} <= {"warning"}
        wrong = PROGRAM.replace("FROM Ends;", "FROM Endz;").replace("SUM(price)", "SUM(prize)")
        checked = msgspec.json.decode(http.post("/program/check", content=wrong).content, type=ProgramCheckBody)
        assert not checked.ok
        lines = wrong.splitlines()
        marked = set()
        for d in checked.diagnostics:
            assert isinstance(d.line, int)
            assert isinstance(d.col, int)
            assert isinstance(d.length, int)
            marked.add(lines[d.line - 1][d.col - 1 : d.col - 1 + d.length])
        assert marked == {"prize", "Endz"}
        assert http.get("/program").text == PROGRAM


def test_callers_see_what_they_have_rights_on(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM, auth=True) as served:
        accounts = served.accounts()
        token, root = accounts.add_token("ann"), accounts.add_token("root")
        for grant in (
            Grant("PUBLISH", "Bids", "ann"),
            Grant("SUBSCRIBE", "Large", "ann"),
            Grant("ADMIN", "program", "root"),
        ):
            accounts.grant(grant)
        with served.http(token) as ann, served.http(root) as admin, served.http() as nobody:
            wait_until(lambda: ann.get("/views").json()["views"] != [], "the grant is not seen")
            (bids,) = ann.get("/streams").json()["streams"]
            assert (bids["name"], bids["publishable"], bids["readers"]) == ("Bids", True, ["Large"])
            assert ann.get("/streams/Bids").json()["newest"] is None
            for hidden in ("/streams/Ends", "/streams/Nope", "/views/Totals/description", "/views/Nope/description"):
                response = ann.get(hidden)
                assert (response.status_code, response.json()["error"]["code"]) == (403, "E090")
            (large,) = ann.get("/views").json()["views"]
            assert large["name"] == "Large"
            described = ann.get("/views/Large/description").json()
            assert (described["sql"], described["mmpl"], described["reads"]) == (None, None, None)
            assert ann.get("/program/graph").status_code == 403
            assert ann.post("/program/check", content=PROGRAM).status_code == 403
            assert [view["name"] for view in admin.get("/views").json()["views"]] == ["Totals", "Large", "Unused"]
            assert [stream["publishable"] for stream in admin.get("/streams").json()["streams"]] == [False, False]
            assert admin.get("/views/Large/description").json()["sql"].startswith("CREATE VIEW Large")
            assert nobody.get("/streams").status_code == 401
        accounts.close()


def test_it_says_why_a_row_is_not_final(served: InProcessBroker) -> None:
    with served.http() as http:
        tick = http.post("/streams/Bids/events", json={"issue": "ACME", "price": 5}).json()["ticks"][0]
        http.get(f"/views/Totals?after.Bids={tick}")
        content = http.get("/views/Totals/finality", params={"key": '{"issue":"ACME"}'}).content
        answer = msgspec.json.decode(content, type=FinalityBody)
        assert (answer.final, answer.earliest, list(answer.cells)) == (False, None, ["total", "bids"])
        assert [(w.kind, w.stream, w.needs_tick) for w in answer.waits_for] == [("end", "Bids", None)]
        assert answer.cells["total"].knowledge.at_least == 5
        one = http.get("/views/Totals/finality", params={"key": '{"issue":"ACME"}', "column": "bids"}).json()
        assert list(one["cells"]) == ["bids"]
        missing = http.get("/views/Totals/finality", params={"key": '{"issue":"nobody"}'})
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "E190")
        for wrong in ({"key": "IBM"}, {"key": "{}"}, {"key": '{"issue":"ACME"}', "column": "totl"}, {"row": "1"}):
            assert http.get("/views/Totals/finality", params=wrong).status_code == 400
