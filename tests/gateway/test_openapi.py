"""The description of the interface holds: whatever is sent according to it, or against it, is answered as it says."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from starlette.routing import Route

from smile.gateway.http.bodies import FailureBody, ProgramBody, SnapshotBody
from smile.gateway.http.operations import document
from tests.brokers import InProcessBroker, bid
from tests.processes import WAIT_S

UNCONDITIONAL = ("/program", "/status", "/metrics", "/live", "/ready", "/health", "/openapi.json")
"""What is right elsewhere depends on the program: its streams, its columns, what can be added to it."""

ENDLESS = "/views/{view}/changes"
"""A stream of events has no end to wait for; tests/gateway/test_views.py reads it."""
ENDLESS_EVENTS = "events"
"""As `ENDLESS`, by its operation; tests/gateway/test_durable.py reads it."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("openapi")) as broker, broker.http() as http:
        http.post("/streams/Bids/events", json=[bid("a"), bid("b")])
        yield broker


@pytest.fixture(scope="module")
def described(served: InProcessBroker) -> Any:  # schemathesis has no name for it
    return schemathesis.openapi.from_url(f"{served.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("described").exclude(path=ENDLESS).exclude(operation_id=ENDLESS_EVENTS)


GENERATED: dict[str, Any] = {
    "deadline": None,
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": list(HealthCheck),
}


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=8, **GENERATED)
def test_whatever_is_sent_is_answered_as_described(case: Case[Any]) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.nightly
@schema.parametrize()
@settings(max_examples=100, **GENERATED)
def test_much_that_is_sent_is_answered_as_described(case: Case[Any]) -> None:
    check(case)


def check(case: Case[Any]) -> None:
    # Names that exist, now and then; nothing is dropped.
    parameters = case.path_parameters
    if parameters and case.method != "DELETE" and len(str(parameters)) % 2:
        existing = {"stream": "Bids", "view": "Totals", "subscription": "billing", "relation": "Bids", "link": "desk"}
        existing |= {"asset": "smile-client.js", "query": "query_0", "letter": "1"}
        parameters.update({name: existing[name] for name in parameters})
    excluded: list[Any] = [] if case.path in UNCONDITIONAL and case.method == "GET" else [positive_data_acceptance]
    if case.path == "/program/check":  # any text is checked, and most of it is no program
        excluded.append(negative_data_rejection)
    case.call_and_validate(timeout=WAIT_S, excluded_checks=excluded)


def test_the_broker_works_afterwards(served: InProcessBroker) -> None:
    with served.http() as http:
        tick = http.post("/streams/Bids/events", json=bid("after", 5)).json()["ticks"][0]
        rows = http.get("/views/Totals", params={"after.Bids": tick, "where.issue": "after"}).json()["rows"]
        assert rows[0]["row"] == {"total": 5, "bids": 1}


def test_every_route_is_described(served: InProcessBroker) -> None:
    described = {(path, m.upper()) for path, methods in document()["paths"].items() for m in methods} - PARAMETERS
    application: Any = served.server._application
    routes = [(r.path, m) for r in application.routes if isinstance(r, Route) for m in (r.methods or ()) if m != "HEAD"]
    assert sorted(routes) == sorted(described)


PARAMETERS = {(path, "PARAMETERS") for path in document()["paths"]}


def test_messages_have_the_described_types(served: InProcessBroker) -> None:
    """Rows are encoded without their types, so they are decoded with them here."""
    with served.http() as http:
        http.post("/streams/Bids/events", json=[bid("typed", 500)])
        for path in ("/views/Totals", "/views/Dear"):
            content = http.get(path).content
            decoded = msgspec.json.decode(content, type=SnapshotBody)
            assert msgspec.to_builtins(decoded) == json.loads(content)
            assert decoded.rows
        program = http.get("/program?format=json").content
        assert msgspec.json.decode(program, type=ProgramBody).views["Dear"].subscribed
        failure = msgspec.json.decode(http.get("/views/Nope").content, type=FailureBody)
        assert failure.error.code == "E021"


@pytest.mark.parametrize(
    ("tick", "is_valid"),
    [(0, True), (5, True), ("9223372036854775807", True), (-1, False), ("-1", False), ("x", False), (1.5, False)],
)
def test_ticks_are_numbers_or_text(tick: object, is_valid: bool) -> None:
    schema = document()["components"]["schemas"]["SilentBody"]
    assert jsonschema_rs.is_valid(schema, {"silent": tick}) is is_valid
