"""The program over HTTP: shown, changed as a whole, views added and dropped; what is unchanged goes on untouched."""

from collections.abc import Iterator

import httpx
import pytest

from smile import limits
from smile.gateway.http.program_edits import add_views, remove_view
from smile.program import compile_program
from smile.source import Source
from tests.brokers import PROGRAM, InProcessBroker, bid


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("program")) as broker:
        yield broker


@pytest.fixture
def http(served: InProcessBroker) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def test_shown(http: httpx.Client) -> None:
    assert http.get("/program").text == PROGRAM
    description = http.get("/program?format=json").json()
    assert description["program"] == PROGRAM
    assert description["streams"]["Bids"] == {
        "tick": "bidid",
        "columns": {"issue": "string", "price": "int", "big": "bool", "weight": "float"},
        "publisher_timed": False,
    }
    assert description["views"]["Totals"]["key"] == ["issue"]
    assert description["views"]["Totals"]["subscribed"]
    assert description["views"]["Totals"]["columns"]["bids"]["domain"] == "range"
    assert not description["views"]["Inner1"]["subscribed"]
    assert http.get("/program?format=xml").json()["error"]["code"] == "E093"


def test_a_change_goes_beside_what_is_unchanged(served: InProcessBroker, http: httpx.Client) -> None:
    tick = http.post("/streams/Bids/events", json=[bid("a", 5), bid("b", 500)]).json()["ticks"][-1]
    other = (
        PROGRAM.replace("price > 100", "price > 1000")
        + "CREATE VIEW Most AS SELECT issue, MAX(price) AS top FROM Bids GROUP BY issue; SUBSCRIBE Most;"
    )
    expected = {"added": ["Most"], "changed": ["Dear"], "dropped": [], "unchanged": ["Totals"]}
    response = http.put("/program?dry_run=true", content=other)
    assert expected.items() <= response.json().items()
    assert http.get("/program").text == PROGRAM
    with served.websocket() as connection:
        connection.ask({"subscribe": "Totals", "id": 1, "after": {"Bids": tick}})
        connection.receive()
        connection.ask({"subscribe": "Dear", "id": 2, "after": {"Bids": tick}})
        connection.receive_until(lambda m: m.get("id") == 2)
        response = http.put("/program", content=other)
        assert expected.items() <= response.json().items(), response.text
        ended = connection.receive_until(lambda m: "ended" in m)
        assert (ended["id"], ended["ended"]["code"]) == (2, "E095")
        assert ended["ended"]["hint"] == "Subscribe again: its columns and rows may be others now."
        connection.send({"publish": "Bids", "events": bid("a", 6)})
        frame = connection.receive_until(lambda m: m.get("id") == 1 and bool(m.get("rows")))
        assert frame["rows"][0]["row"] == {"total": 11, "bids": 2}
        connection.ask({"subscribe": "Dear", "id": 2})
    rows = http.get("/views/Most", params={"after.Bids": tick, "where.issue": "b"}).json()["rows"]
    assert [row["row"] for row in rows] == [{"top": 500}]
    assert http.get("/program").text == other


def test_a_view_is_added_and_dropped(http: httpx.Client) -> None:
    tick = http.post("/streams/Bids/events", json=bid("a", 5)).json()["ticks"][-1]
    response = http.post("/views", content="create view Cheap as select bidid, price from Bids where price < 10")
    assert (response.status_code, response.json()["added"]) == (201, ["Cheap"])
    assert len(http.get("/views/Cheap", params={"after.Bids": tick}).json()["rows"]) == 1
    response = http.delete("/views/Cheap")
    assert (response.status_code, response.json()["dropped"]) == (200, ["Cheap"])
    assert http.get("/views/Cheap").status_code == 404
    assert http.delete("/views/Cheap").status_code == 404
    assert PROGRAM.strip() in http.get("/program").text


def test_what_is_refused(http: httpx.Client) -> None:
    response = http.put("/program", content="CREATE VIEW V AS SELECT nope FROM Nowhere;")
    assert response.status_code == 400
    assert {"line": 1, "col": 35}.items() <= response.json()["errors"][0].items()
    assert response.json()["error"]["code"] == "E021"
    for text, code in [
        ("", "E004"),
        ("SELECT", "E010 E013"),
        ("CREATE STREAM S (t: time -> a: int);", "E093"),
        ("CREATE VIEW Totals AS SELECT issue FROM Bids;", "E020 E040"),
        ("CREATE VIEW X AS\n SELECT prise, bidid FROM Bids;", "E022"),
    ]:
        response = http.post("/views", content=text)
        assert (response.status_code, response.json()["error"]["code"] in code) == (400, True), response.text
    assert {"line": 2, "col": 9}.items() <= response.json()["error"].items()
    response = http.put("/program", content=PROGRAM.replace("weight: float", "weight: int"))
    assert (response.status_code, response.json()["error"]["code"]) == (409, "E102")
    response = http.put("/program", content=b"\xff")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "E002")
    response = http.put("/program", content=b" " * (limits.program_bytes_max + 1))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "E003")
    assert http.put("/program?dry_run=maybe", content=PROGRAM).json()["error"]["code"] == "E093"
    assert http.get("/program").text == PROGRAM


TWO = """-- kept
CREATE STREAM S (t: time -> a: int);
CREATE VIEW One AS SELECT a, COUNT(*) AS n FROM S GROUP BY a;
/* also kept */ CREATE VIEW "Two" AS SELECT a, SUM(a) AS n FROM S GROUP BY a ;
CREATE VIEW Three AS SELECT a, n FROM One WHERE n > 1;
"""


@pytest.mark.parametrize(
    ("program", "view", "gone", "left"),
    [
        (TWO, "Two", '"Two"', ("One", "Three")),
        (TWO + "SUBSCRIBE One, Two, Three;", "Two", '"Two"', ("One", "Three")),
        (TWO + "SUBSCRIBE One, Three, Two;", "Two", ", Two", ("One", "Three")),
        (TWO + "SUBSCRIBE Two; SUBSCRIBE One;", "Two", "Two", ("One",)),
        (TWO + "subscriptions Three, Two, One;", "Three", "Three", ("Two", "One")),
    ],
)
def test_dropping_leaves_the_rest_as_written(program: str, view: str, gone: str, left: tuple[str, ...]) -> None:
    made = remove_view(compile_program(Source("p.smile", program)), view)
    again = compile_program(made).original
    assert (again.subscriptions or tuple(v.name for v in again.views)) == left
    assert gone not in made.text
    assert "-- kept" in made.text
    assert "/* also kept */" in made.text


def test_dropping_what_others_need() -> None:
    compiled = compile_program(Source("p.smile", TWO))
    with pytest.raises(Exception, match="Three reads it"):
        remove_view(compiled, "One")
    only = compile_program(Source("p.smile", TWO + "SUBSCRIBE Three;"))
    with pytest.raises(Exception, match="last view"):
        remove_view(only, "Three")


def test_programs_in_mmpl_are_edited_in_mmpl() -> None:
    text = "STREAM S (t: time -> a: int);\nVIEW V := S PROJECT {t, a};\nSUBSCRIBE V;\n"
    more = add_views(compile_program(Source("p.mmpl", text)), "VIEW W := S WHERE a > 1 PROJECT {t, a};")
    compiled = compile_program(more)
    assert compiled.original.subscriptions == ("V", "W")
    assert compile_program(remove_view(compiled, "V")).original.subscriptions == ("W",)
