"""Durable subscriptions over Arrow Flight: every event until it is acknowledged, in batches."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from smile import limits
from smile.gateway.access import AccessDatabase, Grant
from tests.gateway.test_flight import Floor, bids, floor, refused

Json = dict[str, Any]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Floor]:
    with floor(tmp_path) as made:
        yield made


def publish(here: Floor, *pairs: tuple[str, int]) -> list[int]:
    (answer,) = here.publish(bids(*pairs))
    return [int(tick) for tick in answer["ticks"]]


def read(reader: flight.FlightStreamReader) -> tuple[list[Json], str]:
    """The next batch, and the token that acknowledges it."""
    chunk = reader.read_chunk()
    metadata = json.loads(chunk.app_metadata.to_pybytes())
    assert metadata.keys() == {"n", "resume"}
    return chunk.data.to_pylist(), metadata["resume"]


def acknowledge(here: Floor, resume: str, name: str = "billing", token: str | None = None) -> str:
    body = json.dumps({"name": name, "resume": resume}).encode()
    (result,) = here.client.do_action(flight.Action("acknowledge", body), here.options(token))
    acknowledged: str = json.loads(result.body.to_pybytes())["acknowledged"]
    return acknowledged


def test_events_are_delivered_until_they_are_acknowledged(here: Floor) -> None:
    ticks = publish(here, ("IBM", 3), ("HAL", 5))
    first = here.get(events="Bids", name="billing")
    expected = [
        {"issue": "IBM", "price": 3, "at": ticks[0], "origin": "0"},
        {"issue": "HAL", "price": 5, "at": ticks[1], "origin": "0"},
    ]
    assert read(first)[0] == expected
    first.cancel()
    again = here.get(events="Bids", name="billing")
    events, resume = read(again)
    assert events == expected
    assert acknowledge(here, resume) == resume
    (tick,) = publish(here, ("SUN", 7))
    assert read(again)[0] == [{"issue": "SUN", "price": 7, "at": tick, "origin": "0"}]
    again.cancel()
    later = here.get(events="Bids", name="billing")
    assert [event["at"] for event in read(later)[0]] == [tick]
    later.cancel()


def test_selections_conditions_and_filters(here: Floor) -> None:
    publish(here, ("IBM", 90), ("IBM", 110), ("HAL", 120), ("IBM", 130))
    for asked, prices in (
        ({"events": "Dear"}, [110, 120, 130]),
        ({"events": "Dear", "where": {"issue": "IBM"}}, [110, 130]),
        ({"events": "Bids", "filter": "price > 100 AND issue <> 'IBM'"}, [120]),
    ):
        reader = here.get(name=f"n{len(prices)}", **asked)
        assert [event["price"] for event in read(reader)[0]] == prices
        reader.cancel()


def test_no_more_than_the_window_is_sent(here: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are cut by their size as well, and nothing is left out between two of them."""
    monkeypatch.setattr(limits, "flight_rows_max", 4)
    publish(here, *(("IBM", price) for price in range(20)))
    reader = here.get(events="Bids", name="billing", window=6)
    received, sizes = list[int](), list[int]()
    while len(received) < 20:
        events, resume = read(reader)
        sizes.append(len(events))
        received += [event["price"] for event in events]
        if sum(sizes) % 6 == 0:
            acknowledge(here, resume)
    assert received == list(range(20))
    assert sizes == [4, 2, 4, 2, 4, 2, 2]
    reader.cancel()


def test_another_subscriber_takes_the_name_over(here: Floor) -> None:
    publish(here, ("IBM", 3))
    first = here.get(events="Bids", name="billing")
    assert len(read(first)[0]) == 1
    second = here.get(events="Bids", name="billing")
    assert len(read(second)[0]) == 1
    with refused("E140"):
        read(first)
    second.cancel()


def test_what_is_wrong_is_refused(here: Floor) -> None:
    publish(here, ("IBM", 3))
    for code, asked in (
        ("E093", {"events": "Bids"}),
        ("E093", {"events": "Bids", "name": "a b"}),
        ("E093", {"events": "Bids", "name": "a", "start": "never"}),
        ("E093", {"events": "Bids", "name": "a", "window": 0}),
        ("E021", {"events": "Nothing", "name": "a"}),
    ):
        with refused(code):
            read(here.get(**asked))
    with refused("E093"):
        list(here.client.do_action(flight.Action("acknowledge", b"{}"), here.options()))
    reader = here.get(events="Bids", name="billing")
    _, resume = read(reader)
    reader.cancel()
    other = here.get(events="Dear", name="dear")
    with refused("E094"):
        acknowledge(here, resume, "dear")
    other.cancel()


def test_only_those_with_the_right_receive_events_and_until_it_is_revoked(tmp_path: Path) -> None:
    with floor(tmp_path, auth=True) as here:
        accounts = AccessDatabase(here.accounts)
        anna, bert = (accounts.add_token(name) for name in ("anna", "bert"))
        subscribe = Grant("SUBSCRIBE", "Bids", "anna")
        accounts.grant(Grant("PUBLISH", "Bids", "anna"))
        accounts.grant(subscribe)
        here.access._refreshed_at = -limits.access_age_s_max
        here.publish(bids(("IBM", 1)), token=anna)
        with refused("E090", "bert may not subscribe to Bids"):
            read(here.get(bert, events="Bids", name="billing"))
        reader = here.get(anna, events="Bids", name="billing")
        _, resume = read(reader)
        with refused("E143"):
            acknowledge(here, resume, token=bert)  # names belong to their principal
        accounts.revoke(subscribe)
        with refused("E090", "anna may not subscribe to Bids"):
            read(reader)
