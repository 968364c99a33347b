"""The description of the interface holds: whatever is sent according to it, or against it, is answered as it says."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.routing import Route

from smile.gateway.http.app import Resource
from smile.gateway.http.openapi import document
from tests.brokers import InProcessBroker, bid
from tests.processes import WAIT_S

UNCONDITIONAL = ("/program", "/status", "/metrics", "/health", "/openapi.json")
"""What is right elsewhere depends on the program: its streams, its columns, what can be added to it."""

ENDLESS = "/views/{view}/changes"
"""A stream of events has no end to wait for; tests/gateway/test_views.py reads it."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("openapi")) as found, found.http() as http:
        http.post("/streams/Bids/events", json=[bid("a"), bid("b")])
        yield found


@pytest.fixture(scope="module")
def described(served: InProcessBroker) -> Any:  # schemathesis has no name for it
    return schemathesis.openapi.from_url(f"{served.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("described").exclude(path=ENDLESS)


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
        parameters.update({"stream": "Bids"} if "stream" in parameters else {"view": "Totals"})
    excluded: list[Any] = [] if case.path in UNCONDITIONAL and case.method == "GET" else [positive_data_acceptance]
    case.call_and_validate(timeout=WAIT_S, excluded_checks=excluded)


def test_the_broker_works_afterwards(served: InProcessBroker) -> None:
    with served.http() as http:
        tick = http.post("/streams/Bids/events", json=bid("after", 5)).json()["ticks"][0]
        rows = http.get("/views/Totals", params={"after.Bids": tick, "where.issue": "after"}).json()["rows"]
        assert rows[0]["row"] == {"total": 5, "bids": 1}


def test_every_route_is_described(served: InProcessBroker) -> None:
    described = {
        path.replace("{stream}", "{name}").replace("{view}", "{name}"): {m.upper() for m in methods} - {"PARAMETERS"}
        for path, methods in document()["paths"].items()
    }
    application: Any = served.server._application
    routes: dict[str, set[str]] = {
        r.path: set(_resource(r)._handlers) - {"HEAD"} for r in application._router.routes if isinstance(r, Route)
    }
    assert routes == described


def _resource(route: Route) -> Resource:
    assert isinstance(route.endpoint, Resource)
    return route.endpoint
