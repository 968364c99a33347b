"""Who is let in: hosts, origins, tokens, rights, rates and numbers. What was revoked ends by itself."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus

from smile.errors import SmileError
from smile.gateway.access import Grant
from smile.gateway.http.response import HttpError
from smile.gateway.origins import OriginPolicy
from smile.gateway.rate_limiter import RateLimiter
from smile.settings import Settings
from tests.brokers import InProcessBroker, WebSocketClient, bid
from tests.processes import wait_until

PAGE = "https://floor.example.org"


def checked(settings: Settings, host: str, origin: str | None = None) -> str | bool | None:
    origins = OriginPolicy(settings)
    try:
        origins.check_host(host)
        return None if origin is None else origins.check_origin(origin, "http", host)
    except SmileError as problem:
        return problem.diagnostics[0].code


@pytest.mark.parametrize(
    ("settings", "host", "origin", "expected"),
    [
        ({}, "127.0.0.1:7400", None, None),
        ({}, "localhost:7400", None, None),
        ({}, "LOCALHOST", None, None),
        ({}, "[::1]:7400", None, None),
        ({}, "10.1.2.3", None, None),
        ({}, "evil.example.org", None, "E104"),
        ({}, "evil.example.org:7400", None, "E104"),
        ({}, "localhost.evil.example.org", None, "E104"),
        ({}, "localhost@evil", None, "E104"),
        ({}, "", None, "E104"),
        ({"hosts": ("floor",)}, "floor:1", None, None),
        ({"hosts": ("floor",), "auth": True}, "other:1", None, "E104"),
        ({"auth": True}, "other:1", None, None),
        ({}, "localhost:7400", "http://localhost:7400", False),
        ({}, "localhost:7400", "http://localhost:7401", "E104"),
        ({}, "localhost:7400", "https://localhost:7400", "E104"),
        ({}, "localhost:7400", "null", "E104"),
        ({}, "localhost:7400", PAGE, "E104"),
        ({"origins": (PAGE,)}, "localhost:7400", PAGE, True),
        ({"origins": (PAGE,)}, "localhost:7400", PAGE + ".evil", "E104"),
    ],
)
def test_hosts_and_origins(settings: dict[str, Any], host: str, origin: str | None, expected: object) -> None:
    assert checked(Settings(**settings), host, origin) == expected


def test_an_origin_that_is_refused_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with InProcessBroker(tmp_path) as served, served.http() as http:
        for _ in range(3):
            http.get("/health", headers={"origin": PAGE})
    hint = f"If its pages may call this broker, start it with --origins {PAGE}"
    logged = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert logged == [f"refused: pages of '{PAGE}' may not call this broker. {hint}"]


def test_origins_are_checked_on_every_entry(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, origins=(PAGE,)) as served, served.http() as http:
        for path in ("/health", "/views/Totals", "/nowhere", "/openapi.json"):
            response = http.get(path, headers={"origin": "https://evil.example.org"})
            assert (response.status_code, response.json()["error"]["code"]) == (403, "E104")
            assert response.headers["access-control-allow-origin"] == "https://evil.example.org"
            assert "--origins https://evil.example.org" in response.json()["error"]["hint"]
            response = http.get(path, headers={"host": "evil.example.org"})
            assert (response.status_code, response.json()["error"]["code"]) == (403, "E104")
        response = http.get("/views/Totals", headers={"origin": PAGE})
        assert response.headers["access-control-allow-origin"] == PAGE
        response = http.options(
            "/streams/Bids/events", headers={"origin": PAGE, "access-control-request-method": "POST"}
        )
        assert response.status_code == 204
        assert "authorization" in response.headers["access-control-allow-headers"]
        assert "access-control-allow-origin" not in http.get("/health").headers
        refused = http.post("/streams/Bids/events", json=bid(), headers={"origin": "https://evil.example.org"})
        assert (refused.status_code, http.get("/views/Dear").json()["rows"]) == (403, [])
        for protocols in (None, ["smile"]):
            with served.websocket(origin="https://evil.example.org", subprotocols=protocols) as connection:
                with pytest.raises(ConnectionClosed) as closed:
                    connection.ask({"publish": "Bids", "events": bid(), "id": 1})
                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, closed.value.rcvd.reason[:5]) == (1008, "E104:")
        assert http.get("/views/Dear").json()["rows"] == []
        with served.websocket(origin=PAGE) as connection:
            assert connection.ask({"ping": 1}) == {"pong": 1}


def test_every_entry_asks_for_a_token_and_a_right(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, auth=True) as served:
        accounts = served.accounts()
        token = accounts.add_token("ann")
        entries = [
            ("POST", "/streams/Bids/events", "PUBLISH"),
            ("POST", "/streams/Bids/silence", "PUBLISH"),
            ("POST", "/streams/Nope/events", "PUBLISH"),
            ("GET", "/views/Totals", "SUBSCRIBE"),
            ("GET", "/views/Nope", "SUBSCRIBE"),
            ("GET", "/views/Totals/changes", "SUBSCRIBE"),
            ("GET", "/program", "ADMIN"),
            ("PUT", "/program", "ADMIN"),
            ("POST", "/views", "ADMIN"),
            ("DELETE", "/views/Totals", "ADMIN"),
            ("GET", "/status", "ADMIN"),
            ("GET", "/metrics", "ADMIN"),
        ]
        with served.http() as nobody, served.http("smile_wrong") as wrong, served.http(token) as ann:
            for method, path, right in entries:
                body = b'{"to":5}' if path.endswith("silence") else b"{}"
                for client, status, code in ((nobody, 401, "E091"), (wrong, 401, "E091"), (ann, 403, "E090")):
                    response = client.request(method, path, content=body)
                    assert (response.status_code, response.json()["error"]["code"]) == (status, code), (method, path)
                    assert "www-authenticate" in response.headers or status != 401
                assert right in response.json()["error"]["hint"]
            for path in ("/health", "/openapi.json"):
                assert nobody.get(path).status_code == 200
            for headers in ({"authorization": "Basic x"}, {"authorization": "Bearer"}, {"authorization": ""}):
                assert nobody.get("/views/Totals", headers=headers).status_code == 401
        with pytest.raises(InvalidStatus) as refused, served.websocket():
            pass
        assert refused.value.response.status_code == 401
        with served.websocket(subprotocols=[f"smile.token.{token}"]) as connection:
            assert connection.ask({"publish": "Bids", "events": {}, "id": 1})["error"]["code"] == "E090"
            assert connection.ask({"silence": "Bids", "to": 1})["error"]["code"] == "E090"
            assert connection.ask({"subscribe": "Totals", "id": 1})["error"]["code"] == "E090"
        accounts.close()


@pytest.mark.slow
def test_what_is_revoked_ends(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, auth=True) as served:
        accounts = served.accounts()
        token = accounts.add_token("ann")
        grants = [Grant("SUBSCRIBE", "*", "ann"), Grant("PUBLISH", "Bids", "ann"), Grant("SUBSCRIBE", "Dear", "ann")]
        for grant in grants:
            accounts.grant(grant)
        with served.http(token) as http, served.websocket(token) as connection:
            wait_until(lambda: http.get("/views/Totals").status_code == 200, "the grant is not seen")
            connection.ask({"subscribe": "Totals", "id": 1})
            connection.ask({"subscribe": "Dear", "id": 2})
            with http.stream("GET", "/views/Totals/changes") as events:
                accounts.revoke(grants[0])
                ended = connection.receive_until(lambda m: "ended" in m)
                assert (ended["id"], ended["ended"]["code"]) == (1, "E090")
                lines = "\n".join(events.iter_lines())
                assert lines.rstrip().splitlines()[-2] == "event: end"
                assert "E090" in lines.rstrip().splitlines()[-1]
            assert "published" in connection.ask({"publish": "Bids", "events": bid(), "id": 3})
            accounts.revoke_tokens("ann")
            ended = connection.receive_until(lambda m: "ended" in m)
            assert (ended["id"], ended["ended"]["code"]) == (2, "E091")
            assert closed_with(connection) == 1008
            assert http.get("/views/Dear").status_code == 401
        accounts.close()


def test_an_idle_connection_ends_with_its_token(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, auth=True) as served:
        accounts = served.accounts()
        tokens = [accounts.add_token(name) for name in ("ann", "bob")]
        served.access._refreshed_at = float("-inf")
        with served.websocket(tokens[0]) as ann, served.websocket(tokens[1]) as bob:
            assert ann.ask({"ping": 1}) == {"pong": 1}
            accounts.revoke_tokens("ann")
            assert ann.receive()["error"]["code"] == "E091"
            assert closed_with(ann) == 1008
            assert bob.ask({"ping": 1}) == {"pong": 1}
        accounts.close()


def test_a_message_after_the_token_was_revoked(tmp_path: Path) -> None:
    """Also of those who subscribe to nothing; the last word on the connection says why it is closed."""
    with InProcessBroker(tmp_path, auth=True) as served:
        accounts = served.accounts()
        token = accounts.add_token("ann")
        accounts.grant(Grant("PUBLISH", "Bids", "ann"))
        with served.websocket(token) as connection:

            def refusal() -> dict[str, Any] | None:
                answer = connection.ask({"publish": "Bids", "events": bid(), "id": 3})
                return answer if "error" in answer else None

            assert refusal() is None
            accounts.revoke_tokens("ann")
            # A broker looks at the file twice a second; until then the token is good.
            refused = wait_until(refusal, "the token can still be used")
            assert refused is not None
            assert (refused["id"], refused["error"]["code"]) == (3, "E091")
            assert closed_with(connection) == 1008
        accounts.close()


def closed_with(connection: WebSocketClient) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        connection.receive()
    assert closed.value.rcvd is not None
    return int(closed.value.rcvd.code)


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 3, allow_nan=False), st.integers(1, 30)), max_size=60),
)
def test_no_rate_is_exceeded_by_more_than_a_seconds_worth_and_a_batch(
    rate: int, steps: list[tuple[float, int]]
) -> None:
    now = 100.0
    rates = RateLimiter(rate, "events", lambda: now)
    spent = 0
    for number, (wait, count) in enumerate(steps):
        now += wait
        with suppress(HttpError):
            rates.spend("ann", count)
            spent += count
            assert spent <= rate + (now - 100.0) * rate + count + 1e-6
        rates.spend(f"other{number}", 1)


def test_rates_are_of_each_principal(tmp_path: Path) -> None:
    with (
        InProcessBroker(tmp_path, events_per_second_max=10) as served,
        served.http() as http,
        served.websocket() as connection,
    ):
        assert http.post("/streams/Bids/events", json=[bid()] * 5_000).status_code == 200
        response = http.post("/streams/Bids/events", json=bid())
        assert (response.status_code, response.json()["error"]["code"]) == (429, "E092")
        assert "retry-after" in response.headers
        assert connection.ask({"publish": "Bids", "events": bid()})["error"]["code"] == "E092"
        assert http.get("/views/Totals").status_code == 200


def test_numbers_are_bounded(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"connections_max": 3, "subscriptions_max": 3, "subscriptions_per_connection_max": 2}
    with InProcessBroker(tmp_path, **limits) as served:
        with served.websocket() as one, served.websocket() as two:
            for i in range(2):
                assert "subscribed" in one.ask({"subscribe": "Totals", "id": i})
            assert one.ask({"subscribe": "Totals", "id": 9})["error"]["code"] == "E092"
            assert "subscribed" in two.ask({"subscribe": "Totals", "id": 1})
            assert two.ask({"subscribe": "Totals", "id": 2})["error"]["code"] == "E092"
            one.ask({"unsubscribe": 0})
            assert "subscribed" in two.ask({"subscribe": "Totals", "id": 2})
            with served.raw_socket(), served.raw_socket() as fourth:
                fourth.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert _all(fourth).startswith(b"HTTP/1.1 503")
        with served.http() as http:
            wait_until(lambda: http.get("/health").status_code == 200, "closed connections are still counted")


def _all(raw: socket.socket) -> bytes:
    data = b""
    while part := raw.recv(65_536):
        data += part
    return data
