"""`smile serve`: how it starts, goes on and ends, and that no secret is left behind by it."""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner
from websockets.exceptions import InvalidHandshake

from smile.cli.main import app
from smile.gateway.serve import GatewayServer
from smile.settings import SETTINGS
from tests.brokers import Broker, BrokerProcess, InProcessBroker
from tests.processes import free_port, invoke_smile, make_certificate, run_smile, wait_until

PROGRAM = """
CREATE STREAM Bids (bid: time -> issue: string, price: int);
CREATE VIEW Highest AS SELECT issue, MAX(price) AS price FROM Bids GROUP BY issue;
SUBSCRIBE Highest;
"""
OTHER = PROGRAM.replace(
    "SUBSCRIBE Highest",
    "CREATE VIEW Number AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;\nSUBSCRIBE Highest, Number",
)
LOCAL = ("--engine", "local", "--flight", "")


@pytest.fixture
def floor(tmp_path: Path) -> Path:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    return tmp_path


def highest(broker: Broker, after: object, view: str = "Highest", column: str = "price") -> dict[str, int]:
    """What the view shows once it includes this tick."""
    return {row["key"]["issue"]: row["row"][column] for row in broker.rows(view, Bids=after)}


@pytest.fixture
def refused(floor: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Runs `smile serve` in this process, and returns its exit code and what it says. A command that is not refused fails
    the test instead of serving."""

    def serves(*_: object, **__: object) -> None:
        raise AssertionError("it was not refused")

    monkeypatch.setattr(GatewayServer, "run", serves)

    def run(*words: str, **variables: str) -> tuple[int, str]:
        result = invoke_smile("serve", *words, cwd=floor, **variables)
        return result.exit_code, result.stderr

    return run


def test_every_setting_has_a_flag_with_its_meaning() -> None:
    shown = " ".join(invoke_smile("serve", "--help").stdout.split())
    for setting in SETTINGS.values():
        assert setting.flag in shown
        assert setting.meaning.removesuffix(".") in shown, setting.name
    assert "--config FILE" in shown


@pytest.mark.slow
def test_it_says_what_it_serves_and_where_and_when_it_is_ready(floor: Path) -> None:
    with BrokerProcess(floor) as broker:
        broker.wait_until_ready()
        assert broker.lines[0] == "serving floor.smile: Highest; maintained in this process, data in smile-data"
        assert re.fullmatch(r"listening on http://127\.0\.0\.1:\d+", broker.lines[1])
        assert broker.lines[2] == f"the console is at {broker.url}/"
        (tick,) = broker.publish("Bids", {"issue": "IBM", "price": 7})
        assert highest(broker, tick) == {"IBM": 7}
        assert broker.stop() == 0
        log = [json.loads(line) for line in broker.log_text.splitlines()]
        assert all({"at", "level", "logger", "message"} <= set(line) for line in log)
        assert [line["code"] for line in log if line["logger"] == "smile.program"] == ["W001"]


@pytest.mark.slow
def test_it_goes_on_where_it_was_killed_and_needs_no_program_then(floor: Path) -> None:
    with BrokerProcess(floor) as broker:
        broker.publish("Bids", {"issue": "IBM", "price": 7}, {"issue": "SUN", "price": 3})
        broker.kill()
        broker.program = None
        broker.start()
        (tick,) = broker.publish("Bids", {"issue": "IBM", "price": 9})
        assert highest(broker, tick) == {"IBM": 9, "SUN": 3}
        assert broker.stop(signal.SIGINT) == 0
    with InProcessBroker(floor, PROGRAM) as again:
        (tick,) = again.publish("Bids", {"issue": "SUN", "price": 4})
        assert highest(again, tick) == {"IBM": 9, "SUN": 4}


def test_a_program_that_changed_is_applied(floor: Path) -> None:
    with InProcessBroker(floor, PROGRAM) as broker:
        broker.publish("Bids", {"issue": "IBM", "price": 7})
    with InProcessBroker(floor, OTHER) as broker:
        (tick,) = broker.publish("Bids", {"issue": "IBM", "price": 5})
        assert highest(broker, tick) == {"IBM": 7}
        assert highest(broker, tick, "Number", "n") == {"IBM": 2}


@pytest.mark.slow
def test_the_second_broker_of_a_directory_is_refused(floor: Path) -> None:
    with InProcessBroker(floor, PROGRAM) as broker:
        second = run_smile("serve", "floor.smile", *LOCAL, "--listen", "127.0.0.1:0", cwd=floor)
        assert (second.returncode, "E101" in second.stderr) == (1, True), second.stderr
        assert "Traceback" not in second.stderr
        broker.publish("Bids", {"issue": "IBM", "price": 7})


def test_a_port_in_use(refused: Callable[..., tuple[int, str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, errors = refused("floor.smile", *LOCAL, "--listen", listen)
    assert (code, f"E106: cannot listen on {listen}" in errors) == (1, True), errors


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 1, "E105: smile-data has no program"),
        (["nothing.smile"], 1, "E001: nothing.smile cannot be read: No such file or directory"),
        (["wrong.smile"], 1, "wrong.smile:1:1: error E010"),
        (["floor.smile", "--listen", "7400"], 2, 'E100: --listen: "7400" is not HOST:PORT'),
        (["floor.smile", "--listen", "0.0.0.0:0"], 2, "E107: 0.0.0.0:0 is not a loopback address, and there is no TLS"),
        (["floor.smile", "--config", "smile.toml"], 2, "E100: smile.toml, partition: there is no such setting"),
        (["floor.smile", "--tls-cert", "a", "--tls-key", "b"], 2, "E100: tls_cert and tls_key cannot be used"),
        (["floor.smile", "--data", "floor.smile"], 1, "E105: floor.smile"),
        (["floor.smile", "--port", "1"], 2, "write --listen 127.0.0.1:1"),
        (["floor.smile", "--prot", "1"], 2, "No such option: --prot"),
    ],
)
def test_what_cannot_be_served(
    floor: Path, refused: Callable[..., tuple[int, str]], words: list[str], code: int, message: str
) -> None:
    (floor / "wrong.smile").write_text("nonsense;")
    (floor / "smile.toml").write_text("partition = 1")
    listen = [] if "--listen" in words else ["--listen", "127.0.0.1:0"]
    result = refused(*words, *listen, *LOCAL)
    assert (result[0], message in result[1]) == (code, True), result


def test_a_variable_that_is_wrong(refused: Callable[..., tuple[int, str]]) -> None:
    code, errors = refused("floor.smile", SMILE_ENGINE="sprk")
    assert (code, "environment, SMILE_ENGINE" in errors, "Did you mean spark?" in errors) == (2, True, True), errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "engine"),
    [
        ("debug", "local"),
        pytest.param("info", "local", marks=pytest.mark.nightly),
        pytest.param("debug", "spark", marks=[pytest.mark.nightly, pytest.mark.xdist_group("spark")]),
    ],
)
def test_no_secret_is_ever_written(
    floor: Path, refused: Callable[..., tuple[int, str]], level: str, engine: str
) -> None:
    """Tokens that are good, wrong, or in the wrong place, sent in every way there is; then everything is searched that the
    broker has written anywhere."""
    make_certificate(floor)
    good = invoke_smile("token", "alice", cwd=floor).stdout.strip()
    for grant in ("PUBLISH ON Bids TO alice", "SUBSCRIBE ON Highest TO alice"):
        assert invoke_smile("grant", *grant.split(), cwd=floor).exit_code == 0
    planted = {
        name: f"smile_{name}" + "Sx7" * 12 for name in ("header", "query", "protocol", "basic", "path", "body", "toml")
    }
    foreign = "hunter2hunter2hunter2"
    key = (floor / "key.pem").read_text().splitlines()[1]
    options = ["--auth", "--log-level", level, "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    variables = {"SMILE_TOKEN": planted["toml"]}
    with BrokerProcess(floor, options=options, engine=engine, variables=variables) as broker:
        broker.wait_until_ready()
        trust = ssl.create_default_context(cafile=str(floor / "cert.pem"))
        allowed = {"Authorization": f"Bearer {good}"}
        with broker.http(verify=trust) as http:
            answer = http.post("/streams/Bids/events", json={"issue": "IBM", "price": 7}, headers=allowed)
            assert answer.status_code == 200, answer.text
            wait_until(lambda: http.get("/views/Highest", headers=allowed).json()["rows"], "the view stays empty")
            for value in (
                f"Bearer {planted['header']}",
                f"Bearer {foreign}",
                f"Basic {planted['basic']}",
                planted["header"],
            ):
                assert http.get("/views/Highest", headers={"Authorization": value}).status_code == 401
            http.get("/views/Highest", params={"token": planted["query"], "access_token": foreign})
            http.get(f"/views/{planted['path']}", headers=allowed)
            http.put("/program", content=planted["body"], headers=allowed)
            http.post("/streams/Bids/events", json={planted["body"]: 1}, headers=allowed)
        for token in (good, planted["protocol"]):
            with (
                contextlib.suppress(InvalidHandshake, OSError),
                broker.websocket(ssl=trust, subprotocols=[f"smile.token.{token}"]) as client,
            ):
                client.ask({"publish": planted["body"], "events": [], "id": 1})
        with (
            contextlib.suppress(InvalidHandshake, OSError),
            broker.websocket(path=f"/ws?token={planted['query']}", ssl=trust),
        ):
            pass
        assert broker.stop() == 0
        written = "\n".join([*broker.lines, broker.log_text])
    for setting in (f'token = "{planted["toml"]}"', f"listen = {planted['toml']}"):
        (floor / "token.toml").write_text(setting)
        code, errors = refused("floor.smile", "--config", "token.toml")
        assert code == 2
        written += errors
    assert ('"status":401' in written) == (level == "debug")
    assert (floor / "smile-data" / "spark.log").exists() == (engine == "spark")
    stored = b"".join(path.read_bytes() for path in (floor / "smile-data").rglob("*") if path.is_file())
    for name, secret in {**planted, "good": good, "foreign": foreign, "key": key}.items():
        assert secret not in written, name
        assert secret.removeprefix("smile_") not in written, name
        assert secret.encode() not in stored, name


@pytest.mark.slow
def test_grants_are_seen_by_a_running_broker(floor: Path) -> None:
    with InProcessBroker(floor, PROGRAM, auth=True) as broker:
        token = invoke_smile("token", "alice", cwd=floor).stdout.strip()
        with broker.http(token) as http:

            def becomes(status: int) -> None:
                wait_until(lambda: http.get("/views/Highest").status_code == status, f"it is not {status}")

            becomes(403)
            invoke_smile("grant", "SUBSCRIBE", "ON", "Highest", "TO", "alice", cwd=floor)
            becomes(200)
            invoke_smile("revoke", "SUBSCRIBE", "ON", "Highest", "FROM", "alice", cwd=floor)
            becomes(403)
            invoke_smile("token", "alice", "--revoke", cwd=floor)
            becomes(401)


def test_a_damaged_file_of_grants(floor: Path, refused: Callable[..., tuple[int, str]]) -> None:
    (floor / "smile-data").mkdir()
    (floor / "smile-data" / "access.db").write_bytes(os.urandom(5000))
    code, errors = refused("floor.smile", "--auth", *LOCAL, "--listen", "127.0.0.1:0")
    assert (code, "E105: smile-data/access.db is damaged" in errors) == (1, True), errors


@pytest.mark.slow
def test_it_can_be_stopped_before_it_listens(tmp_path: Path) -> None:
    """Whenever the signal comes there is no traceback, and the directory can be served from again."""
    moments: dict[str, Callable[[BrokerProcess], bool]] = {
        "soon": lambda _: True,
        "directory": lambda broker: broker.data_path.exists(),
        "log": lambda broker: (broker.data_path / "log").exists(),
        "program": lambda broker: bool(broker.lines),
    }
    brokers = {}
    for moment in moments:
        folder = tmp_path / moment
        folder.mkdir()
        (folder / "floor.smile").write_text(PROGRAM)
        brokers[moment] = BrokerProcess(folder)
        brokers[moment].launch()
    time.sleep(0.5)  # so that "soon" is while Python imports, mostly
    for moment, broker in brokers.items():
        wait_until(lambda b=broker, m=moment: moments[m](b) or not b.is_running, moment)  # type: ignore[misc]
        broker.popen.terminate()
    for moment, broker in brokers.items():
        code = broker.wait()
        assert "Traceback" not in broker.log_text, moment
        # Until it has begun with anything, the signal just ends it. Python says that it ended by SIGINT if it was
        # interrupted while it compiled something, though the interrupt was handled.
        assert code in (0, -signal.SIGTERM, -signal.SIGINT), (moment, broker.log_text)
        with InProcessBroker(broker.folder, PROGRAM) as restarted:
            restarted.publish("Bids", {"issue": "IBM", "price": 7})


def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    """Whatever the umask is, and also if an earlier broker has left files that others can read."""
    (tmp_path / "floor.smile").write_text(PROGRAM)
    data = tmp_path / "smile-data"
    (data / "state" / "old").mkdir(parents=True)
    (data / "spark.log").touch(0o666)
    command = ("sh", "-c", 'umask 0 && chmod -R 777 smile-data && exec "$0" "$@"')
    with BrokerProcess(tmp_path, prefix=command) as broker:
        broker.publish("Bids", {"issue": "IBM", "price": 1})
        assert broker.stop() == 0  # which writes a checkpoint
    modes = {path: path.stat().st_mode & 0o777 for path in data.rglob("*")}
    assert {path.name for path in modes} >= {"log", "broker.json", "lock", "state", "old", "spark.log"}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_temporary_folders_of_killed_brokers_are_removed(tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    temporary = tmp_path / "t"
    temporary.mkdir()
    (temporary / "smile-notes").mkdir()  # not a folder of a broker
    options = ["--flight", f"127.0.0.1:{free_port()}"]
    broker = BrokerProcess(tmp_path, options=options, variables={"TMPDIR": str(temporary)})
    with broker:
        broker.wait_for_line("Arrow Flight on ")
        (left,) = [path for path in temporary.iterdir() if path.name != "smile-notes"]
        with BrokerProcess(tmp_path, data="other", variables={"TMPDIR": str(temporary)}) as other:
            assert left.exists()  # its broker still runs
            assert other.stop() == 0
        broker.kill()
        assert left.exists()
        broker.start()
        broker.wait_for_line("Arrow Flight on ")
        assert not left.exists()
        assert broker.stop() == 0
    assert [path.name for path in temporary.iterdir()] == ["smile-notes"]


def test_a_port_alone_leads_to_the_setting_listen() -> None:
    result = CliRunner().invoke(app, ["serve", "--port", "8000"])
    assert result.exit_code == 2
    assert "write --listen 127.0.0.1:8000" in result.output
    assert "--port" not in CliRunner().invoke(app, ["serve", "--help"]).output
