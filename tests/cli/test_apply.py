"""`smile apply` against a broker that runs: what it shows, what it asks, what it changes, and what goes on untouched."""

import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.served import SMILE, Served, clean_environment, smile

pytestmark = pytest.mark.slow  # every test starts processes

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


def apply(broker: Served, *words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    told = smile("apply", *words, cwd=cwd, SMILE_URL=broker.url, **variables)
    assert "Traceback" not in told.stderr
    return told


def publish(broker: Served, stream: str, *events: dict[str, Any]) -> Any:
    answer = httpx.post(f"{broker.url}/streams/{stream}/events", json=list(events), timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()["ticks"][-1]


def shown(broker: Served, view: str, column: str, after: Any) -> dict[str, Any]:
    answer = httpx.get(f"{broker.url}/views/{view}", params={"after.Bids": str(after), "wait_ms": "30000"}, timeout=60)
    assert answer.status_code == 200, answer.text
    return {row["key"]["issue"]: row["row"][column] for row in answer.json()["rows"]}


def program(broker: Served) -> str:
    return httpx.get(f"{broker.url}/program", timeout=30).text


EXPECTED = """
+ stream Asks: added
  stream Bids: unchanged
+ view Total: added
~ view Number: changed: computed anew, its subscribers are told that it has ended
- view Lowest: dropped: its subscribers are told that it has ended
  view Highest: unchanged
"""


def test_the_difference_is_shown_and_then_made(floor: Path) -> None:
    with Served("floor.smile", cwd=floor) as broker:
        publish(broker, "Bids", {"issue": "IBM", "price": 1}, {"issue": "IBM", "price": 5})
        with connect(f"ws{broker.url[4:]}/ws", open_timeout=30) as socket:
            for number, view in enumerate(["Highest", "Number", "Lowest"]):
                socket.send(json.dumps({"subscribe": view, "id": number}))
            dry = apply(broker, "changed.smile", "--dry-run", cwd=floor)
            assert (dry.returncode, dry.stderr) == (0, "")
            assert dry.stdout.endswith(EXPECTED), dry.stdout
            assert "\n+CREATE STREAM Asks" in dry.stdout
            assert "\n-CREATE VIEW Lowest" in dry.stdout
            assert program(broker) == PROGRAM

            done = apply(broker, "changed.smile", "--yes", cwd=floor)
            assert (done.returncode, done.stdout, done.stderr) == (0, dry.stdout, "smile: applied\n")
            assert program(broker) == CHANGED
            tick = publish(broker, "Bids", {"issue": "IBM", "price": 7})
            publish(broker, "Asks", {"issue": "IBM", "price": 8})
            assert shown(broker, "Highest", "price", tick) == {"IBM": 7}
            assert shown(broker, "Number", "n", tick) == {"IBM": 2}
            assert shown(broker, "Total", "total", tick) == {"IBM": 13}

            # The subscriber of the view that is unchanged is told of the new bid; the others, that theirs have ended.
            ended, reached, resets = set[int](), False, 0
            end = time.monotonic() + 30
            while not (ended == {1, 2} and reached):
                message = json.loads(socket.recv(timeout=max(0.0, end - time.monotonic())))
                if "ended" in message:
                    assert message["ended"]["code"] == "E095"
                    ended.add(message["id"])
                if message.get("id") == 0:
                    resets += bool(message.get("reset"))
                    reached |= any(row["row"]["price"] == 7 for row in message.get("rows", []))
            assert resets <= 1
        again = apply(broker, "changed.smile", cwd=floor)
        assert (again.returncode, again.stdout) == (0, "The broker runs this program already: changed.smile\n")


def test_what_was_applied_goes_on_after_a_restart(floor: Path) -> None:
    with Served("floor.smile", cwd=floor) as broker:
        publish(broker, "Bids", {"issue": "IBM", "price": 5})
        assert apply(broker, "changed.smile", "--yes", cwd=floor).returncode == 0
        broker.kill()
    with Served("floor.smile", cwd=floor) as broker:
        assert program(broker) == CHANGED
        tick = publish(broker, "Bids", {"issue": "IBM", "price": 7})
        assert shown(broker, "Total", "total", tick) == {"IBM": 12}


def test_where_nobody_can_be_asked(floor: Path) -> None:
    with Served("floor.smile", cwd=floor) as broker:
        told = apply(broker, "changed.smile", cwd=floor)
        assert told.returncode == 2
        assert "there is nobody to ask" in told.stderr
        assert program(broker) == PROGRAM


def on_terminal(broker: Served, answer: str, cwd: Path) -> tuple[int, str]:
    """Somebody sits there, and answers; what the terminal shows."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [SMILE, "apply", "changed.smile"],
        cwd=cwd,
        env=clean_environment(SMILE_URL=broker.url, TERM="xterm"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    shown, answered, end = "", False, time.monotonic() + 60
    while time.monotonic() < end:
        ready, _, _ = select.select([leader], [], [], 1)
        try:
            shown += os.read(leader, 65536).decode(errors="replace") if ready else ""
        except OSError:
            break  # the other side has closed it
        if "Apply?" in shown and not answered:
            os.write(leader, answer.encode())
            answered = True
        if process.poll() is not None and not ready:
            break
    os.close(leader)
    return process.wait(30), shown


def test_on_a_terminal_it_asks(floor: Path) -> None:
    with Served("floor.smile", cwd=floor) as broker:
        publish(broker, "Bids", {"issue": "IBM", "price": 5})
        code, told = on_terminal(broker, "n\n", floor)
        assert (code, "nothing was changed" in told) == (0, True), told
        assert program(broker) == PROGRAM
        code, told = on_terminal(broker, "y\n", floor)
        assert (code, "applied" in told) == (0, True), told
        assert program(broker) == CHANGED


def test_errors_of_the_program_are_shown_as_by_check(floor: Path) -> None:
    (floor / "wrong.smile").write_text(PROGRAM.replace("MAX(price)", "MAX(prize)"))
    with Served("floor.smile", cwd=floor) as broker:
        told = apply(broker, "wrong.smile", "--yes", cwd=floor)
        assert (told.returncode, told.stdout) == (1, "")
        assert told.stderr == smile("check", "wrong.smile", cwd=floor).stderr
        assert re.match(r"wrong\.smile:2:\d+: error E022", told.stderr)
        assert program(broker) == PROGRAM


def test_a_stream_cannot_become_another(floor: Path) -> None:
    (floor / "wrong.smile").write_text(PROGRAM.replace("price: int", "price: string"))
    with Served("floor.smile", cwd=floor) as broker:
        told = apply(broker, "wrong.smile", "--yes", cwd=floor)
        assert (told.returncode, "E102" in told.stderr) == (1, True), told.stderr
        assert program(broker) == PROGRAM


def test_rights(floor: Path) -> None:
    with Served("floor.smile", "--auth", cwd=floor) as broker:
        without = apply(broker, "changed.smile", "--yes", cwd=floor)
        assert (without.returncode, "E091" in without.stderr) == (1, True), without.stderr
        token = smile("token", "carol", cwd=floor).stdout.strip()
        time.sleep(1)  # what the broker knows of tokens may be so old
        refused = apply(broker, "changed.smile", "--yes", cwd=floor, SMILE_TOKEN=token)
        assert (refused.returncode, "E090" in refused.stderr) == (1, True), refused.stderr
        assert token not in refused.stderr
        smile("grant", "ADMIN", "ON", "program", "TO", "carol", cwd=floor)
        time.sleep(1)
        assert apply(broker, "changed.smile", "--yes", cwd=floor, SMILE_TOKEN=token).returncode == 0


def test_no_broker(floor: Path) -> None:
    told = smile("apply", "changed.smile", cwd=floor, SMILE_URL="http://127.0.0.1:9")
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("smile: error E103: http://127.0.0.1:9: ")
