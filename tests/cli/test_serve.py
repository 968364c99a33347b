"""`smile serve` as a process: how it starts, goes on and ends, and that no secret is left behind by it."""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidHandshake
from websockets.sync.client import connect

from smile.settings import SETTINGS
from tests.served import SMILE, START_S_MAX, STOP_S_MAX, Served, clean_environment, smile

pytestmark = pytest.mark.slow  # every test starts processes

PROGRAM = """
CREATE STREAM Bids (bid: time -> issue: string, price: int);
CREATE VIEW Highest AS SELECT issue, MAX(price) AS price FROM Bids GROUP BY issue;
SUBSCRIBE Highest;
"""
OTHER = PROGRAM.replace(
    "SUBSCRIBE Highest",
    "CREATE VIEW Number AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;\nSUBSCRIBE Highest, Number",
)


@pytest.fixture
def floor(tmp_path: Path) -> Path:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    return tmp_path


def publish(broker: Served, *events: dict[str, Any]) -> list[Any]:
    answer = httpx.post(f"{broker.url}/streams/Bids/events", json=list(events), timeout=30)
    assert answer.status_code == 200, answer.text
    ticks = answer.json()["ticks"]
    assert len(ticks) == len(events)
    return list(ticks)


def highest(broker: Served, after: Any, view: str = "Highest", column: str = "price") -> dict[str, int]:
    """What the view shows once it knows of this tick."""
    query = {"after.Bids": str(after), "wait_ms": "30000"}
    answer = httpx.get(f"{broker.url}/views/{view}", params=query, timeout=60)
    assert answer.status_code == 200, answer.text
    return {row["key"]["issue"]: row["row"][column] for row in answer.json()["rows"]}


def refused(*words: str, cwd: Path, **variables: str) -> tuple[int, str]:
    told = smile("serve", *words, cwd=cwd, **variables)
    assert "Traceback" not in told.stderr
    return told.returncode, told.stderr


def test_every_setting_has_a_flag_with_its_meaning(tmp_path: Path) -> None:
    told = " ".join(smile("serve", "--help", cwd=tmp_path).stdout.split())
    for setting in SETTINGS.values():
        assert setting.flag in told
        assert setting.meaning.removesuffix(".") in told, setting.name
    assert "--config FILE" in told


def test_it_says_what_it_serves_and_where_and_when_it_is_ready(floor: Path) -> None:
    with Served("floor.smile", cwd=floor) as broker:
        broker.line("ready")
        assert broker.said[0] == "serving floor.smile: Highest; kept in this process, data in smile-data"
        assert re.fullmatch(r"listening on http://127\.0\.0\.1:\d+", broker.said[1])
        (tick,) = publish(broker, {"issue": "IBM", "price": 7})
        assert highest(broker, tick) == {"IBM": 7}
        assert broker.stop() == 0
        log = [json.loads(line) for line in broker.errors.read_text().splitlines()]
        assert all({"at", "level", "logger", "message"} <= set(line) for line in log)
        assert [line["code"] for line in log if line["logger"] == "smile.program"] == ["W001"]


def test_it_goes_on_where_it_was_killed_and_needs_no_program_then(floor: Path) -> None:
    with Served("floor.smile", cwd=floor) as broker:
        publish(broker, {"issue": "IBM", "price": 7}, {"issue": "SUN", "price": 3})
        broker.kill()
    with Served(cwd=floor) as broker:
        (tick,) = publish(broker, {"issue": "IBM", "price": 9})
        assert highest(broker, tick) == {"IBM": 9, "SUN": 3}
        assert broker.stop(signal.SIGINT) == 0
    with Served("floor.smile", cwd=floor) as broker:
        (tick,) = publish(broker, {"issue": "SUN", "price": 4})
        assert highest(broker, tick) == {"IBM": 9, "SUN": 4}
        assert broker.stop() == 0


def test_a_program_that_changed_is_applied(floor: Path) -> None:
    with Served("floor.smile", cwd=floor) as broker:
        publish(broker, {"issue": "IBM", "price": 7})
        assert broker.stop() == 0
    (floor / "floor.smile").write_text(OTHER)
    with Served("floor.smile", cwd=floor) as broker:
        (tick,) = publish(broker, {"issue": "IBM", "price": 5})
        assert highest(broker, tick) == {"IBM": 7}
        assert highest(broker, tick, "Number", "n") == {"IBM": 2}


def test_the_second_broker_of_a_directory_is_refused(floor: Path) -> None:
    with Served("floor.smile", cwd=floor) as broker:
        code, told = refused("floor.smile", "--engine", "local", "--listen", "127.0.0.1:0", "--flight", "", cwd=floor)
        assert (code, "E101" in told) == (1, True), told
        publish(broker, {"issue": "IBM", "price": 7})


def test_a_port_in_use(floor: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, told = refused("floor.smile", "--engine", "local", "--listen", listen, "--flight", "", cwd=floor)
    assert (code, f"E106: cannot listen on {listen}" in told) == (1, True), told


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 1, "E105: smile-data has no program"),
        (["nothing.smile"], 1, "E001: nothing.smile cannot be read: No such file or directory"),
        (["wrong.smile"], 1, "wrong.smile:1:1: error E010"),
        (["floor.smile", "--listen", "7400"], 2, 'E100: --listen: "7400" is not HOST:PORT'),
        (["floor.smile", "--listen", "0.0.0.0:0"], 2, "E107: 0.0.0.0:0 is not a loopback address, and there is no TLS"),
        (["floor.smile", "--config", "smile.toml"], 2, "E100: smile.toml, partition: there is no such setting"),
        (["floor.smile", "--tls-cert", "a", "--tls-key", "b"], 2, "E100: tls_cert and tls_key cannot be used"),
        (["floor.smile", "--data", "floor.smile"], 1, "E105: floor.smile"),
        (["floor.smile", "--port", "1"], 2, "No such option: --port"),
    ],
)
def test_what_cannot_be_served(floor: Path, words: list[str], code: int, told: str) -> None:
    (floor / "wrong.smile").write_text("nonsense;")
    (floor / "smile.toml").write_text("partition = 1")
    at = [] if "--listen" in words else ["--listen", "127.0.0.1:0"]
    found = refused(*words, *at, "--engine", "local", "--flight", "", cwd=floor)
    assert (found[0], told in found[1]) == (code, True), found


def test_a_variable_that_is_wrong(floor: Path) -> None:
    code, told = refused("floor.smile", cwd=floor, SMILE_ENGINE="sprk")
    assert (code, "environment, SMILE_ENGINE" in told, "Did you mean spark?" in told) == (2, True, True), told


def certificate(folder: Path) -> None:
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    try:
        subprocess.run(
            [*command.split(), "-keyout", "key.pem", "-out", "cert.pem"],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=60,
        )
    except FileNotFoundError:
        pytest.skip("openssl is not here")


@pytest.mark.parametrize(
    ("level", "engine"),
    [("debug", "local"), ("info", "local"), pytest.param("debug", "spark", marks=pytest.mark.xdist_group("spark"))],
)
def test_no_secret_is_ever_written(floor: Path, level: str, engine: str) -> None:
    """Tokens that are good, wrong, or in the wrong place, sent in every way there is; then everything is searched that the
    broker has written anywhere."""
    certificate(floor)
    good = smile("token", "alice", cwd=floor).stdout.strip()
    assert smile("grant", "PUBLISH", "ON", "Bids", "TO", "alice", cwd=floor).returncode == 0
    assert smile("grant", "SUBSCRIBE", "ON", "Highest", "TO", "alice", cwd=floor).returncode == 0
    planted = {
        name: f"smile_{name}" + "Sx7" * 12 for name in ("header", "query", "protocol", "basic", "path", "body", "toml")
    }
    foreign = "hunter2hunter2hunter2"
    key = (floor / "key.pem").read_text().splitlines()[3]
    words = ["--auth", "--log-level", level, "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--engine", engine]
    with Served("floor.smile", *words, cwd=floor, SMILE_TOKEN=planted["toml"]) as broker:
        broker.line("ready")
        trust = ssl.create_default_context(cafile=str(floor / "cert.pem"))
        with httpx.Client(verify=trust, base_url=broker.url, timeout=30) as http:
            allowed = http.post(
                "/streams/Bids/events", json={"issue": "IBM", "price": 7}, headers={"Authorization": f"Bearer {good}"}
            )
            assert allowed.status_code == 200, allowed.text
            end = time.monotonic() + START_S_MAX
            while not http.get("/views/Highest", headers={"Authorization": f"Bearer {good}"}).json()["rows"]:
                assert time.monotonic() < end
                time.sleep(0.2)
            for value in (
                f"Bearer {planted['header']}",
                f"Bearer {foreign}",
                f"Basic {planted['basic']}",
                planted["header"],
            ):
                assert http.get("/views/Highest", headers={"Authorization": value}).status_code == 401
            http.get("/views/Highest", params={"token": planted["query"], "access_token": foreign})
            http.get(f"/views/{planted['path']}", headers={"Authorization": f"Bearer {good}"})
            http.put("/program", content=planted["body"], headers={"Authorization": f"Bearer {good}"})
            http.post("/streams/Bids/events", json={planted["body"]: 1}, headers={"Authorization": f"Bearer {good}"})
        place = broker.url.replace("https", "wss") + "/ws"
        for token in (good, planted["protocol"]):
            with (
                contextlib.suppress(InvalidHandshake, OSError),
                connect(place, ssl=trust, subprotocols=[f"smile.token.{token}"], open_timeout=30) as socket_,  # type: ignore[list-item]
            ):
                socket_.send(json.dumps({"publish": planted["body"], "events": [], "id": 1}))
                socket_.recv(timeout=30)
        with (
            contextlib.suppress(InvalidHandshake, OSError),
            connect(f"{place}?token={planted['query']}", ssl=trust, open_timeout=30),
        ):
            pass
        assert broker.stop() == 0
        said = "\n".join(broker.said)
    (floor / "token.toml").write_text(f'token = "{planted["toml"]}"')
    said += refused("floor.smile", "--config", "token.toml", cwd=floor)[1]
    (floor / "token.toml").write_text(f"listen = {planted['toml']}")
    said += refused("floor.smile", "--config", "token.toml", cwd=floor)[1]
    said += "".join(path.read_text() for path in floor.glob("broker-*.err"))
    assert ('"status":401' in said) == (level == "debug")
    assert (floor / "smile-data" / "spark.log").exists() == (engine == "spark")
    stored = b"".join(path.read_bytes() for path in (floor / "smile-data").rglob("*") if path.is_file())
    for name, secret in {**planted, "good": good, "foreign": foreign, "key": key}.items():
        assert secret not in said, name
        assert secret.removeprefix("smile_") not in said, name
        assert secret.encode() not in stored, name


def test_grants_are_seen_by_a_running_broker(floor: Path) -> None:
    with Served("floor.smile", "--auth", cwd=floor) as broker:
        token = smile("token", "alice", cwd=floor).stdout.strip()

        def status() -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return httpx.get(f"{broker.url}/views/Highest", headers=headers, timeout=30).status_code

        def becomes(wanted: int) -> None:
            end = time.monotonic() + 1.5  # a second, and what a request takes here
            while (found := status()) != wanted:
                assert time.monotonic() < end, found
                time.sleep(0.05)

        becomes(403)
        smile("grant", "SUBSCRIBE", "ON", "Highest", "TO", "alice", cwd=floor)
        becomes(200)
        smile("revoke", "SUBSCRIBE", "ON", "Highest", "FROM", "alice", cwd=floor)
        becomes(403)
        smile("token", "alice", "--revoke", cwd=floor)
        becomes(401)


def test_a_damaged_file_of_grants(floor: Path) -> None:
    (floor / "smile-data").mkdir()
    (floor / "smile-data" / "access.db").write_bytes(os.urandom(5000))
    words = ["floor.smile", "--auth", "--engine", "local", "--listen", "127.0.0.1:0", "--flight", ""]
    code, told = refused(*words, cwd=floor)
    assert (code, "E105: smile-data/access.db is damaged" in told) == (1, True), told


@pytest.mark.parametrize("delay_s", [0.5, 0.8, 1.1, 1.4])
def test_it_can_be_stopped_before_it_listens(floor: Path, delay_s: float) -> None:
    """Whenever the signal comes there is no traceback, and the directory can be served from again."""
    words = [SMILE, "serve", "floor.smile", "--engine", "local", "--listen", "127.0.0.1:0", "--flight", ""]
    process = subprocess.Popen(
        words, cwd=floor, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(delay_s)
    process.terminate()
    _, errors = process.communicate(timeout=STOP_S_MAX)
    assert "Traceback" not in errors
    # Before it has begun with anything, the signal just ends it.
    assert process.returncode in (0, -signal.SIGTERM), errors
    with Served("floor.smile", cwd=floor) as broker:
        publish(broker, {"issue": "IBM", "price": 7})
