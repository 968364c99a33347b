"""Tokens and grants over HTTP: who may see and change them, what is never shown, and that somebody stays who may."""

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from smile.gateway.access import Grant, token_hash
from smile.gateway.http.access_bodies import AccessBody, TokenBody
from tests.brokers import InProcessBroker
from tests.processes import wait_until

CHANGES = [
    ("POST", "/tokens", {"principal": "ann"}),
    ("DELETE", "/tokens/ann", None),
    ("POST", "/grants", {"right": "ADMIN", "name": "program", "principal": "ann"}),
    ("DELETE", "/grants?right=ADMIN&name=program&principal=root", None),
]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, auth=True) as broker:
        yield broker


@pytest.fixture
def root(served: InProcessBroker) -> Iterator[httpx.Client]:
    """An administrator, the only one."""
    accounts = served.accounts()
    token = accounts.add_token("root")
    accounts.grant(Grant("ADMIN", "program", "root"))
    accounts.close()
    with served.http(token) as http:
        wait_until(lambda: http.get("/access").status_code == 200, "the grant is not seen")
        yield http


def test_who_may_not_sees_and_changes_nothing(served: InProcessBroker, root: httpx.Client) -> None:
    ann = root.post("/tokens", json={"principal": "ann"}).json()["token"]
    root.post("/grants", json={"right": "SUBSCRIBE", "name": "*", "principal": "ann"}).raise_for_status()
    before = root.get("/access").json()
    for token, status in ((ann, 403), (None, 401), ("smile_wrong", 401)):
        with served.http(token) as http:
            for method, path, body in [("GET", "/access", None), *CHANGES]:
                answer = http.request(method, path, json=body)
                assert answer.status_code == status, (method, path)
                assert "root" not in answer.text
    assert root.get("/access").json() == before


def test_a_token_is_shown_once(served: InProcessBroker, root: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="smile"):
        answer = root.post("/tokens", json={"principal": "ann"})
        created = msgspec.json.decode(answer.content, type=TokenBody)
        assert (answer.status_code, created.principal, answer.headers["cache-control"]) == (201, "ann", "no-store")
        listed = root.get("/access").text
    assert "a token was created" in caplog.text
    told = listed + caplog.text + "".join(str(vars(record)) for record in caplog.records)
    for secret in (created.token, created.token[10:30], token_hash(created.token)[:12]):
        assert secret not in told
    access = msgspec.json.decode(listed, type=AccessBody)
    assert (access.tokens_required, access.caller) == (True, "root")
    assert [(p.name, p.tokens, p.grants) for p in access.principals if p.name == "ann"] == [("ann", 1, [])]
    with served.http(created.token) as ann:
        assert ann.get("/streams").status_code == 200


def test_rights_are_given_and_taken_at_once(served: InProcessBroker, root: httpx.Client) -> None:
    token = root.post("/tokens", json={"principal": "ann"}).json()["token"]
    right = {"right": "SUBSCRIBE", "name": "Totals", "principal": "ann"}
    with served.http(token) as ann:
        assert ann.get("/views/Totals").status_code == 403
        assert root.post("/grants", json=right).json() == {**right, "changed": True}
        assert root.post("/grants", json=right).json()["changed"] is False
        assert ann.get("/views/Totals").status_code == 200
        assert root.delete("/grants", params=right).json() == {**right, "changed": True}
        assert root.delete("/grants", params=right).json()["changed"] is False
        assert ann.get("/views/Totals").status_code == 403
        assert root.delete("/tokens/ann").json() == {"principal": "ann", "revoked": 1}
        assert ann.get("/views/Totals").status_code == 401


@pytest.mark.parametrize("change", ["/tokens/root", "/grants?right=ADMIN&name=program&principal=root"])
def test_the_last_administrator_stays_unless_forced(root: httpx.Client, change: str) -> None:
    # Another principal with ADMIN but without a token cannot help.
    root.post("/grants", json={"right": "ADMIN", "name": "program", "principal": "carol"}).raise_for_status()
    before = root.get("/access").json()
    refused = root.delete(change)
    assert (refused.status_code, "force=true" in refused.json()["error"]["hint"]) == (409, True)
    assert root.get("/access").json() == before
    forced = root.delete(change + ("&" if "?" in change else "?") + "force=true")
    assert forced.status_code == 200
    assert root.get("/access").status_code in (401, 403)


def test_two_administrators_cannot_remove_each_other(served: InProcessBroker, root: httpx.Client) -> None:
    token = root.post("/tokens", json={"principal": "carol"}).json()["token"]
    root.post("/grants", json={"right": "ADMIN", "name": "program", "principal": "carol"}).raise_for_status()
    with served.http(token) as carol:
        start = threading.Barrier(2)

        def revoke(http: httpx.Client, other: str) -> None:
            start.wait()
            http.delete(f"/tokens/{other}")

        threads = [threading.Thread(target=revoke, args=pair) for pair in ((root, "carol"), (carol, "root"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(http.get("/access").status_code for http in (root, carol)) == [200, 401]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/tokens", {"principal": "a b"}),
        ("POST", "/tokens", {"principal": ""}),
        ("POST", "/tokens", {"principal": "ann", "token": "smile_chosen"}),
        ("POST", "/grants", {"right": "OWN", "name": "Bids", "principal": "ann"}),
        ("POST", "/grants", {"right": "ADMIN", "name": "Bids", "principal": "ann"}),
        ("DELETE", "/grants?right=OWN&name=Bids&principal=ann", None),
        ("DELETE", "/grants?right=READ&name=Bids", None),
        ("DELETE", "/tokens/ann?force=yes", None),
    ],
)
def test_wrong_requests_are_refused(root: httpx.Client, method: str, path: str, body: object) -> None:
    answer = root.request(method, path, content=json.dumps(body) if body else None)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "E093")


def test_a_broker_without_tokens_says_so(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as served, served.http() as http:
        assert http.get("/access").json() == {"tokens_required": False, "caller": "local", "principals": []}
        assert http.post("/tokens", json={"principal": "ann"}).status_code == 409
        assert not (served.data / "access.db").exists()
