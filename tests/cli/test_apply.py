"""`smile apply` against a broker that runs: what it shows, what it asks, what it changes, and what goes on untouched."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.brokers import Broker, BrokerProcess, InProcessBroker
from tests.processes import Terminal, invoke_smile, wait_until

PROGRAM = """CREATE STREAM Bids (bid: time -> issue: string, price: int);
CREATE VIEW Highest AS SELECT issue, MAX(price) AS price FROM Bids GROUP BY issue;
CREATE VIEW Lowest AS SELECT issue, MIN(price) AS price FROM Bids GROUP BY issue;
CREATE VIEW Number AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;
SUBSCRIBE Highest, Lowest, Number;
"""
CHANGED = """CREATE STREAM Bids (bid: time -> issue: string, price: int);
CREATE STREAM Asks (ask: time -> issue: string, price: int);
CREATE VIEW Highest AS SELECT issue, MAX(price) AS price FROM Bids GROUP BY issue;
CREATE VIEW Number AS SELECT issue, COUNT(*) AS n FROM Bids WHERE price > 1 GROUP BY issue;
CREATE VIEW Total AS SELECT issue, SUM(price) AS total FROM Bids GROUP BY issue;
SUBSCRIBE Highest, Number, Total;
"""


@pytest.fixture
def floor(tmp_path: Path) -> Path:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    (tmp_path / "changed.smile").write_text(CHANGED)
    return tmp_path


@pytest.fixture
def broker(floor: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(floor, PROGRAM) as running:
        yield running


def apply(broker: Broker, *words: str, cwd: Path, **variables: str) -> Result:
    return invoke_smile("apply", *words, cwd=cwd, SMILE_URL=broker.url, **variables)


def values(broker: Broker, view: str, column: str, after: object) -> dict[str, Any]:
    return {row["key"]["issue"]: row["row"][column] for row in broker.rows(view, Bids=after)}


EXPECTED = """
+ stream Asks: added
  stream Bids: unchanged
+ view Total: added
~ view Number: changed: computed anew; its subscriptions end
- view Lowest: dropped; its subscriptions end
  view Highest: unchanged
"""


def test_the_difference_is_shown_and_then_made(floor: Path, broker: InProcessBroker) -> None:
    broker.publish("Bids", {"issue": "IBM", "price": 1}, {"issue": "IBM", "price": 5})
    with broker.websocket() as client:
        for number, view in enumerate(["Highest", "Number", "Lowest"]):
            assert client.ask({"subscribe": view, "id": number})["subscribed"] == view
        dry = apply(broker, "changed.smile", "--dry-run", cwd=floor)
        assert dry.exit_code == 0
        # The warnings of views that are new or changed.
        assert re.findall(r"W001: (\w+) keeps", dry.stderr) == ["Number", "Total"]
        assert dry.stdout.endswith(EXPECTED), dry.stdout
        assert "\n+CREATE STREAM Asks" in dry.stdout
        assert "\n-CREATE VIEW Lowest" in dry.stdout
        assert broker.served_program() == PROGRAM

        done = apply(broker, "changed.smile", "--yes", cwd=floor)
        assert (done.exit_code, done.stdout, done.stderr) == (0, dry.stdout, f"{dry.stderr}smile: applied\n")
        assert broker.served_program() == CHANGED
        (tick,) = broker.publish("Bids", {"issue": "IBM", "price": 7})
        broker.publish("Asks", {"issue": "IBM", "price": 8})
        assert values(broker, "Highest", "price", tick) == {"IBM": 7}
        assert values(broker, "Number", "n", tick) == {"IBM": 2}
        assert values(broker, "Total", "total", tick) == {"IBM": 13}

        # The subscriber of the unchanged view receives the new bid; the others are told that their views have ended.
        ended, is_reached, resets = set[int](), False, 0
        while not (ended == {1, 2} and is_reached):
            message = client.receive()
            if "ended" in message:
                assert message["ended"]["code"] == "E095"
                ended.add(message["id"])
            if message.get("id") == 0:
                resets += bool(message.get("reset"))
                is_reached |= any(row["row"]["price"] == 7 for row in message.get("rows", []))
        assert resets <= 1
    again = apply(broker, "changed.smile", cwd=floor)
    assert (again.exit_code, again.stdout) == (0, "The broker runs this program already: changed.smile\n")


@pytest.mark.slow
def test_what_was_applied_goes_on_after_a_restart(floor: Path) -> None:
    with BrokerProcess(floor) as killed:
        killed.publish("Bids", {"issue": "IBM", "price": 5})
        assert apply(killed, "changed.smile", "--yes", cwd=floor).exit_code == 0
        killed.kill()
    with InProcessBroker(floor, PROGRAM) as broker:
        assert broker.served_program() == CHANGED
        (tick,) = broker.publish("Bids", {"issue": "IBM", "price": 7})
        assert values(broker, "Total", "total", tick) == {"IBM": 12}


def test_where_nobody_can_be_asked(floor: Path, broker: InProcessBroker) -> None:
    refused = apply(broker, "changed.smile", cwd=floor)
    assert refused.exit_code == 2
    assert "cannot ask for confirmation" in refused.stderr
    assert broker.served_program() == PROGRAM


@pytest.mark.slow
def test_on_a_terminal_it_asks(floor: Path, broker: InProcessBroker) -> None:
    broker.publish("Bids", {"issue": "IBM", "price": 5})
    for answer, message, expected in ((b"n\n", "nothing was changed", PROGRAM), (b"y\n", "applied", CHANGED)):
        with Terminal("apply", "changed.smile", with_errors=True, cwd=floor, SMILE_URL=broker.url) as terminal:
            terminal.read_until(r"Apply\?")
            terminal.type(answer)
            terminal.read_until(message)
            assert terminal.wait() == (0, "")
            assert broker.served_program() == expected


def test_errors_of_the_program_are_shown_as_by_check(floor: Path, broker: InProcessBroker) -> None:
    (floor / "wrong.smile").write_text(PROGRAM.replace("MAX(price)", "MAX(prize)"))
    refused = apply(broker, "wrong.smile", "--yes", cwd=floor)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == invoke_smile("check", "wrong.smile", cwd=floor).stderr
    assert re.match(r"wrong\.smile:2:\d+: error E022", refused.stderr)
    assert broker.served_program() == PROGRAM


def test_a_stream_cannot_become_another(floor: Path, broker: InProcessBroker) -> None:
    (floor / "wrong.smile").write_text(PROGRAM.replace("price: int", "price: string"))
    refused = apply(broker, "wrong.smile", "--yes", cwd=floor)
    assert (refused.exit_code, "E102" in refused.stderr) == (1, True), refused.stderr
    assert broker.served_program() == PROGRAM


def test_rights(floor: Path) -> None:
    with InProcessBroker(floor, PROGRAM, auth=True) as broker:
        without = apply(broker, "changed.smile", "--yes", cwd=floor)
        assert (without.exit_code, "E091" in without.stderr) == (1, True), without.stderr
        token = invoke_smile("token", "carol", cwd=floor).stdout.strip()

        def status() -> int:
            with broker.http(token) as http:
                return http.get("/program").status_code

        wait_until(lambda: status() == 403, "the token is not known")
        refused = apply(broker, "changed.smile", "--yes", cwd=floor, SMILE_TOKEN=token)
        assert (refused.exit_code, "E090" in refused.stderr) == (1, True), refused.stderr
        assert token not in refused.stderr
        assert invoke_smile("grant", "ADMIN", "ON", "program", "TO", "carol", cwd=floor).exit_code == 0
        wait_until(lambda: status() == 200, "the grant is not known")
        assert apply(broker, "changed.smile", "--yes", cwd=floor, SMILE_TOKEN=token).exit_code == 0


def test_no_broker(floor: Path) -> None:
    refused = invoke_smile("apply", "changed.smile", cwd=floor, SMILE_URL="http://127.0.0.1:9")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("smile: error E103: http://127.0.0.1:9: ")
