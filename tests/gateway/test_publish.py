"""Publishing over HTTP: ticks for what is logged, a reason for what is not."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from smile import limits
from smile.gateway.access import Grant
from smile.horizons import END
from tests.brokers import InProcessBroker, bid

TIMED = """
CREATE STREAM Clock (at: time -> n: int) WITH (TICKS = PUBLISHER);
CREATE VIEW Sums AS SELECT n, COUNT(*) AS seen FROM Clock GROUP BY n;
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("publish")) as broker:
        yield broker


@pytest.fixture
def http(served: InProcessBroker) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def rows(client: httpx.Client, view: str, after: dict[str, str | int], **where: str) -> list[dict[str, object]]:
    query = {f"after.{stream}": str(tick) for stream, tick in after.items()}
    answer = client.get(f"/views/{view}", params={**query, **where})
    assert answer.status_code == 200, answer.text
    rows_now: list[dict[str, object]] = answer.json()["rows"]
    return rows_now


def test_one_event_and_many(http: httpx.Client) -> None:
    one = http.post("/streams/Bids/events", json=bid("one"))
    assert one.status_code == 200
    assert one.json().keys() == {"ticks", "repeated"}
    many = http.post("/streams/Bids/events", json=[bid("many", 200), bid("many", 201)])
    ticks = [*one.json()["ticks"], *many.json()["ticks"]]
    assert [int(t) for t in ticks] == sorted({int(t) for t in ticks})
    assert len(ticks) == 3
    shown = rows(http, "Dear", {"Bids": ticks[-1]}, **{"where.issue": "many"})
    assert [row["key"] for row in shown] == [{"bidid": t} for t in ticks[1:]]


def test_absent_columns_are_warned_of(http: httpx.Client) -> None:
    answer = http.post("/streams/Bids/events", json=[{"issue": "absent"}, bid("absent")]).json()
    assert [(w["column"], w["events"]) for w in answer["warnings"]] == [("price", 1), ("big", 1), ("weight", 1)]
    assert answer["warnings"][0]["message"] == "1 event had no price, which is NULL there"
    numbered = {"smile-producer": "absent", "smile-sequence": "0"}
    first, again = (
        http.post("/streams/Bids/events", json={"issue": "a", "price": 1}, headers=numbered) for _ in range(2)
    )
    assert first.json()["warnings"] == again.json()["warnings"]
    assert again.json()["repeated"] == 1


def test_lines_and_arrow(http: httpx.Client) -> None:
    lines = b'{"issue":"lines","price":300}\n\n{"price":301,"issue":"lines"}\n'
    response = http.post("/streams/Bids/events", content=lines, headers={"content-type": "application/x-ndjson"})
    assert response.status_code == 200, response.text
    batch = pa.record_batch({"price": [400, 401], "issue": ["arrow", "arrow"], "big": [True, None], "weight": [1.5, 2]})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    kind = {"content-type": "application/vnd.apache.arrow.stream"}
    response = http.post("/streams/Bids/events", content=out.getvalue(), headers=kind)
    assert response.status_code == 200, response.text
    after = {"Bids": response.json()["ticks"][-1]}
    assert len(rows(http, "Dear", after, **{"where.issue": "lines"})) == 2
    assert len(rows(http, "Dear", after, **{"where.issue": "arrow"})) == 2
    assert len(rows(http, "Dear", after, **{"where.big": "true"})) == 1
    assert len(rows(http, "Dear", after, **{"where.weight": "1.5"})) == 1


def test_what_curl_sends_by_default_is_json(http: httpx.Client) -> None:
    """`curl -d '{…}'` says that any body is a form."""
    kind = {"content-type": "application/x-www-form-urlencoded"}
    response = http.post("/streams/Bids/events", content=b'{"issue":"curl","price":300}', headers=kind)
    assert response.status_code == 200, response.text
    assert len(rows(http, "Dear", {"Bids": response.json()["ticks"][0]}, **{"where.issue": "curl"})) == 1
    form = http.post("/streams/Bids/events", content=b"issue=curl&price=300", headers=kind)
    assert (form.status_code, form.json()["error"]["code"]) == (400, "E073")


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b"issue,price\nHP,5\n", "Content-Type: text/csv"),
        (b"issue,price", "Content-Type: text/csv"),
        (b'{"issue":"HP"}\n{"issue":"IBM"}\n', "Content-Type: application/x-ndjson"),
        (b'{"issue":"HP"', "Write an event as an object"),
        (b"", "Write an event as an object"),
    ],
)
def test_another_format_needs_its_content_type(http: httpx.Client, body: bytes, hint: str) -> None:
    for headers in ({}, {"content-type": "application/x-www-form-urlencoded"}):
        response = http.post("/streams/Bids/events", content=body, headers=headers)
        assert response.status_code == 400 and hint in response.json()["error"]["hint"]


def test_events_are_not_published_at_the_stream_itself(http: httpx.Client) -> None:
    response = http.post("/streams/Bids", content=b"{}")
    assert (response.status_code, response.json()["error"]["hint"]) == (
        405,
        "Publish events with POST /streams/Bids/events.",
    )
    assert "/events" not in http.request("PUT", "/streams/Bids").json()["error"]["hint"]


def test_a_table_in_csv(http: httpx.Client) -> None:
    table = b"issue,price,big,weight\ncsv,300,true,1.5\ncsv,301,,2\n"
    response = http.post("/streams/Bids/events", content=table, headers={"content-type": "text/csv; charset=utf-8"})
    assert response.status_code == 200, response.text
    after = {"Bids": response.json()["ticks"][-1]}
    assert len(rows(http, "Dear", after, **{"where.issue": "csv"})) == 2
    assert len(rows(http, "Dear", after, **{"where.issue": "csv", "where.big": "true"})) == 1


def test_a_repeat_has_the_ticks_it_had(http: httpx.Client) -> None:
    def sent(price: int, seq: int) -> httpx.Response:
        headers = {"smile-producer": "p1", "smile-sequence": str(seq)}
        return http.post("/streams/Bids/events", json=bid("again", price), headers=headers)

    first, again = sent(500, 1), sent(500, 1)
    assert first.json()["ticks"] == again.json()["ticks"]
    assert (first.json()["repeated"], again.json()["repeated"]) == (0, 1)
    other = sent(501, 1)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "E096")


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", {}, 400, "E073"),
        (b"", {}, 400, "E073"),
        (b"[1]", {}, 400, "E074"),
        (b'{"isue":"x"}', {}, 400, "E077"),
        (b'{"bidid":5,"issue":"x"}', {}, 400, "E077"),
        (b'{"price":"dear"}', {}, 400, "E078"),
        (b'{"price":-1}', {}, 400, "E080"),
        (b"{}", {"content-type": "text/html"}, 415, "E093"),
        (b"{}", {"smile-producer": "p"}, 400, "E093"),
        (b"{}", {"smile-sequence": "1"}, 400, "E093"),
        (b"{}", {"smile-producer": "p", "smile-sequence": "-1"}, 400, "E093"),
        (b"{}", {"smile-producer": "p", "smile-sequence": "9" * 30}, 400, "E093"),
        (b"{}", {"smile-producer": "p" * 300, "smile-sequence": "1"}, 400, "E093"),
        (b"[" * 100_000, {}, 400, "E073"),
        (b"\xff\xfe", {}, 400, "E072"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_refused(
    http: httpx.Client, served: InProcessBroker, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    before = served.broker.status()["publisher"]["events"]
    response = http.post("/streams/Bids/events", content=body, headers={"content-type": "application/json", **headers})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert served.broker.status()["publisher"]["events"] == before


def test_an_unknown_stream(http: httpx.Client) -> None:
    response = http.post("/streams/Bidz/events", json=bid())
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "E076"
    assert "Bids" in response.json()["error"]["hint"]


def test_a_body_beyond_the_limit_is_not_read(served: InProcessBroker, http: httpx.Client) -> None:
    most = served.settings.message_bytes_max
    response = http.post("/streams/Bids/events", content=b" " * (most + 1))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "E092")
    pieces = (b" " * 65_536 for _ in range(most // 65_536 + 1))
    response = http.post("/streams/Bids/events", content=pieces)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "E092")
    assert http.post("/streams/Bids/events", json=bid()).status_code == 200


def test_silence_where_publishers_supply_the_ticks(
    served: InProcessBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with InProcessBroker(tmp_path_factory.mktemp("timed"), TIMED) as timed, timed.http() as http:
        assert http.post("/streams/Clock/events", json={"at": 5, "n": 1}).json()["ticks"] == [5]
        assert http.post("/streams/Clock/silence", json={"to": 9}).json() == {"silent": 9}
        response = http.get("/views/Sums", params={"after.Clock": 9})
        assert response.json()["progress"] == {"Clock": 9}
        late = http.post("/streams/Clock/events", json={"at": 7, "n": 1})
        assert (late.status_code, late.json()["error"]["code"]) == (409, "E081")
        wrong: Any
        for wrong in ({"to": -1}, {"to": "x"}, {}, {"to": 5, "more": 1}, {"to": True}, []):
            response = http.post("/streams/Clock/silence", json=wrong)
            assert (response.status_code, response.json()["error"]["code"]) == (400, "E093")
    with served.http() as http:
        response = http.post("/streams/Bids/silence", json={"to": 9})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "E079")


def test_silence_to_the_end(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, TIMED) as timed, timed.http() as http, timed.websocket() as connection:
        response = http.post("/streams/Clock/silence", json={"to": END - 1})
        assert response.json() == {"silent": str(END - 1)}
        assert connection.ask({"silence": "Clock", "to": str(END), "id": 1}) == {"id": 1, "silent": str(END)}
        assert http.post("/streams/Clock/silence", json={"to": END}).json() == {"silent": str(END)}
        assert http.post("/streams/Clock/silence", json={"to": END + 1}).json()["error"]["code"] == "E093"
        response = http.get("/views/Sums", params={"after.Clock": str(END)})
        assert response.json()["progress"] == {"Clock": str(END)}


def test_each_principal_has_producers_of_its_own(tmp_path: Path) -> None:
    """One principal cannot use up the numbers of another, on any interface."""
    with InProcessBroker(tmp_path, auth=True) as served:
        accounts = served.accounts()
        tokens = []
        for name in ("anna", "bert"):
            accounts.grant(Grant("PUBLISH", "Bids", name))
            tokens.append(accounts.add_token(name))
        accounts.close()
        served.access._refreshed_at = -limits.access_age_s_max
        anna, bert = tokens
        with served.http(anna) as client:
            numbered = {"smile-producer": "p", "smile-sequence": str(2**62)}
            first = client.post("/streams/Bids/events", json=bid("anna"), headers=numbered).json()
            again = client.post("/streams/Bids/events", json=bid("anna"), headers=numbered).json()
            assert again == {**first, "repeated": 1}
        with served.http(bert) as client:
            numbered = {"smile-producer": "p", "smile-sequence": "1"}
            assert client.post("/streams/Bids/events", json=bid("bert"), headers=numbered).json()["repeated"] == 0
        with served.websocket(bert) as connection:
            message = {"publish": "Bids", "events": bid("bert"), "producer": "p", "seq": 1}
            assert connection.ask(message)["repeated"] == 1
            assert connection.ask({**message, "events": bid("another")})["error"]["code"] == "E096"


@pytest.mark.parametrize(
    ("body", "code", "place"),
    [
        ([{"issue": "x"}, {"price": -1}], "E080", (2, "price")),
        ([{"price": "dear"}], "E078", (1, "price")),
        ([{}, {"isue": "x"}], "E077", (2, None)),
        ([{}, 5], "E074", (2, None)),
    ],
)
def test_a_refusal_names_the_event_and_its_column(http: httpx.Client, body: object, code: str, place: object) -> None:
    problem = http.post("/streams/Bids/events", json=body).json()["error"]
    assert (problem["code"], (problem.get("event"), problem.get("column"))) == (code, place)
