"""The JavaScript client, in Node and in Chromium, against real brokers."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given, settings, strategies as st
from playwright.sync_api import Browser

from smile.client.knowledge import Knowledge
from smile.client.values import ViewColumn
from smile.gateway.access import Grant
from tests.brokers import BrokerProcess, InProcessBroker, bid
from tests.browser import NodeDriver, PageDriver, needs_chromium, needs_node, open_browser, open_page
from tests.processes import wait_until
from tests.repeatable import scaled

PROGRAM = """
CREATE STREAM Events (t: time -> n: int, issue: string);
CREATE VIEW Counts AS SELECT issue, COUNT(*) AS events, SUM(n) AS total, MAX(n) AS top FROM Events GROUP BY issue;
SUBSCRIBE Counts;
"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


class Driver(Protocol):
    def run(self, **command: Any) -> Any: ...


MakeDriver = Callable[[str], Driver]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(params=[pytest.param("node", marks=needs_node), pytest.param("chromium", marks=needs_chromium)])
def make_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeDriver]:
    """Makes a driver that is connected to the broker at a URL."""
    with ExitStack() as stack:

        def make(url: str) -> Driver:
            driver: Driver
            if request.param == "node":
                driver = NodeDriver(tmp_path)
                stack.callback(driver.close)
            else:
                browser: Browser = request.getfixturevalue("browser")
                page = stack.enter_context(open_page(browser, allowed="Failed to load|WebSocket|ERR_"))
                driver = PageDriver(page, url)
            assert driver.run(do="connect", url=url)
            return driver

        yield make


def test_publishes_and_subscribes(make_driver: MakeDriver, tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        driver = make_driver(broker.url)
        schema = driver.run(do="subscribe", view="Totals")
        assert schema == {"key": ["issue"], "columns": {"issue": "string", "total": "decimal", "bids": "int"}}
        published = driver.run(do="publish", stream="Bids", events=[bid("IBM", 120), bid("IBM", 30), bid("HP", 7)])
        assert len(published["ticks"]) == 3
        assert int(published["ticks"][0]) > 2**53
        assert published["repeated"] == 0
        assert published["warnings"] == []
        wait_until(lambda: len(driver.run(do="rows", view="Totals")) == 2, "two rows")
        wait_until(lambda: _texts(driver, "Totals")["IBM"]["bids"] == "≥2", "both bids for IBM")
        assert _texts(driver, "Totals")["IBM"]["total"] == "≥150"
        snapshot = driver.run(do="snapshot", view="Totals", where={"issue": "HP"})
        assert [row["texts"] for row in snapshot] == [{"issue": "HP", "total": "≥7", "bids": "≥1"}]
        assert driver.run(do="iterate", view="Totals", frames=1) == 1
        incomplete = driver.run(do="publish", stream="Bids", events=[{"issue": "HP", "price": 1, "big": True}])
        assert [(w["column"], w["events"]) for w in incomplete["warnings"]] == [("weight", 1)]
        refused = driver.run(do="publish", stream="Bids", events=bid("HP", -1))
        assert refused["error"] == "E080"
        assert driver.run(do="publish", stream="Nothing", events={})["error"] == "E076"
        assert driver.run(do="subscribe", view="Nothing")["error"] == "E021"


def _texts(driver: Driver, view: str) -> dict[str, dict[str, str]]:
    return {row["key"]["issue"]: row["texts"] for row in driver.run(do="rows", view=view)}


def test_a_client_resumes_where_another_ended(make_driver: MakeDriver, tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        broker.publish("Bids", bid("IBM", 5), bid("HP", 5))
        driver = make_driver(broker.url)
        driver.run(do="subscribe", view="Totals")
        wait_until(lambda: len(driver.run(do="rows", view="Totals")) == 2, "two rows")
        token = driver.run(do="table", view="Totals")["resume"]
        assert token
        driver.run(do="close")
        broker.publish("Bids", bid("HP", 6))
        driver.run(do="connect", url=broker.url)
        driver.run(do="subscribe", view="Totals", resume=token)
        # Only what has changed comes again, so IBM does not.
        wait_until(lambda: _texts(driver, "Totals").get("HP", {}).get("bids") == "≥2", "the new bid")
        assert "IBM" not in _texts(driver, "Totals")


def test_final_rows_come_once_also_of_a_changed_view(make_driver: MakeDriver, tmp_path: Path) -> None:
    program = "CREATE STREAM E (t: time -> host: string); "
    program += "CREATE VIEW Alarm AS SELECT host FROM E GROUP BY host HAVING COUNT(*) >= 3; SUBSCRIBE Alarm;"
    with InProcessBroker(tmp_path, program) as broker:
        port = broker.port
        driver = make_driver(broker.url)
        broker.publish("E", *({"host": host} for host in "aaabbc"))
        driver.run(do="subscribe", view="Alarm", final=True)
        wait_until(lambda: driver.run(do="delivered", view="Alarm") == ['["a"]'], "the first alarm")
    with InProcessBroker(tmp_path, None, listen=f"127.0.0.1:{port}") as broker:
        broker.publish("E", *({"host": host} for host in "aab"))
        wait_until(lambda: driver.run(do="delivered", view="Alarm") == ['["a"]', '["b"]'], "the second alarm")
        with broker.http() as http:
            assert http.put("/program", content=program.replace("3", "1")).status_code == 200
            wait_until(lambda: len(driver.run(do="delivered", view="Alarm")) == 5, "all rows by the new definition")
            assert len(driver.run(do="rows", view="Alarm")) == 3
            assert driver.run(do="table", view="Alarm")["ended"] is None
            changed = program.replace("SELECT host", "SELECT host, COUNT(*) AS n")
            assert http.put("/program", content=changed).status_code == 200
            wait_until(lambda: driver.run(do="table", view="Alarm")["ended"] == "E095", "the end")


def test_a_wrong_token_ends_the_client(make_driver: MakeDriver, tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, auth=True) as broker:
        accounts = broker.accounts()
        token = accounts.add_token("reader")
        accounts.grant(Grant("SUBSCRIBE", "*", "reader"))
        accounts.close()
        driver = make_driver(broker.url)
        wait_until(lambda: ["E091", True] in driver.run(do="state")["states"], "the refusal")
        assert driver.run(do="publish", stream="Bids", events=bid())["error"] == "E091"
        driver.run(do="connect", url=broker.url, token=token)
        wait_until(lambda: driver.run(do="state")["connected"], "the connection")
        driver.run(do="subscribe", view="Totals")
        assert driver.run(do="publish", stream="Bids", events=bid())["error"] == "E090"


@pytest.mark.parametrize(
    "make_driver",
    [
        pytest.param("node", marks=needs_node),
        pytest.param("chromium", marks=[needs_chromium, pytest.mark.nightly]),
    ],
    indirect=True,
)
def test_kills_of_the_broker(make_driver: MakeDriver, tmp_path: Path) -> None:
    """Every event is logged once, and what the subscriber sees only evolves."""
    count = 90
    (tmp_path / "floor.smile").write_text(PROGRAM)
    with BrokerProcess(tmp_path) as broker:
        driver = make_driver(broker.url)
        driver.run(do="subscribe", view="Counts")
        driver.run(do="publishMany", stream="Events", count=count)
        for part in (1, 2):
            wait_until(partial(_has_published, driver, part * count // 3), "publications")
            broker.kill()
            broker.start()
        wait_until(lambda: driver.run(do="publishedCount") == count, "all publications")
        ticks = [int(tick) for tick in driver.run(do="publishedTicks")]
        assert ticks == sorted(set(ticks))
        totals = {f"I{i}": sum(range(i, count, 3)) for i in range(3)}

        def is_complete() -> bool:
            rows = driver.run(do="rows", view="Counts")
            return {row["key"]["issue"]: row["row"]["total"] for row in rows} == totals

        wait_until(is_complete, "all events in the view")
        events = {row["key"]["issue"]: row["row"]["events"] for row in driver.run(do="rows", view="Counts")}
        assert events == dict.fromkeys(totals, count // 3)
        table = driver.run(do="table", view="Counts")
        assert table["retreats"] == 0
        assert table["ended"] is None
        assert None in driver.run(do="state")["states"]


def _has_published(driver: Driver, count: int) -> bool:
    published: int = driver.run(do="publishedCount")
    return published >= count


# ── the same texts as the Python client ─────────────────────────────────────────────────────────────────────────────

INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64).filter(lambda x: x == 0 or 1e-290 < abs(x) < 1e290)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": INTS,
    "decimal(38, 0)": st.integers(-(10**37), 10**37),
    "float": FLOATS
    | st.builds(lambda n, power: float(f"{n}e{power}"), st.integers(-(10**8), 10**8), st.integers(-9, 9)),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "time": st.integers(0, 2**50 - 1),  # later ones are times of the day
    "interval": INTS,
    "bool": st.booleans(),
}
ORDERED = ("int", "decimal(38, 0)", "float", "time", "interval")


@st.composite
def encoded_knowledge(draw: st.DrawFn) -> dict[str, Any]:
    type_ = draw(st.sampled_from(list(VALUES)))
    values = VALUES[type_]
    kinds = ["exactly", "latest", "unknown", *(["at_least", "at_most", "between"] if type_ in ORDERED else [])]
    kind = draw(st.sampled_from(kinds))
    column = ViewColumn.from_type("x", type_)

    def encode(value: Any) -> Any:
        return None if value is None else column.encode(value)

    low, value, high = sorted([draw(values), draw(values), draw(values)])
    if kind in ("at_least", "latest", "exactly", "between") and draw(st.booleans()):
        value = low
    if kind in ("at_most", "between") and draw(st.booleans()):
        value = high
    now = None if kind in ("unknown", "latest") and draw(st.booleans()) else value
    match kind:
        case "exactly":
            known, now = {"exactly": encode(value)}, value
        case "at_least":
            known = {"at_least": encode(low)}
        case "at_most":
            known = {"at_most": encode(high)}
        case "between":
            known = {"between": [encode(low), encode(high)]}
        case "latest":
            known = {"latest": encode(low), "at": draw(st.integers(0, 2**50 - 1))}
            known |= {"source": draw(st.integers(0, 9))} if draw(st.booleans()) else {}
        case _:
            known = {"unknown": True}
    return {"knowledge": known, "value": encode(now), "type": type_}


@needs_node
def test_texts_are_those_of_the_python_client(tmp_path_factory: pytest.TempPathFactory) -> None:
    driver = NodeDriver(tmp_path_factory.mktemp("client"))
    try:

        @settings(max_examples=scaled(20))
        @given(st.lists(encoded_knowledge(), min_size=20, max_size=40))
        def compare(cases: list[dict[str, Any]]) -> None:
            # As the broker sends them: through JSON, where long integers have all of their digits.
            answers = driver.run(do="format", cases=json.dumps(cases))
            for case, answer in zip(cases, answers, strict=True):
                column = ViewColumn.from_type("x", case["type"])
                value = None if case["value"] is None else column.decode(case["value"])
                known = Knowledge.from_json(case["knowledge"], value, column)
                assert (answer["text"], answer["final"]) == (known.text(column), known.is_final), json.dumps(case)

        compare()
    finally:
        driver.close()
