"""Generates the events of the Nexmark benchmark: people register, open auctions, and bid. Of 50 events, one is a
person, three are auctions and 46 are bids. The same seed gives the same events, and fewer events are a prefix of more.

As in the original generator, most bids are for few hot auctions and by few hot bidders, prices are spread evenly over
the orders of magnitude, and half of the bids come from four named channels. The ticks of all events differ.
"""

from collections.abc import Iterator, Mapping
from itertools import count, islice
from random import Random
from typing import Any

from smile.algebra.types import TICKS_PER_MICROSECOND

FIRST_TICK = 1_700_000_000_000_000 * TICKS_PER_MICROSECOND
"""In November 2023."""

_EVENTS_PER_ROUND = 50
_AUCTIONS_PER_ROUND = 3
_FIRST_AUCTION = 1_000
_FIRST_PERSON = 1_000
_HOT_SHARE = 0.5
_ACTIVE_PEOPLE = 1_000
_OPEN_AUCTIONS = 100
_CHANNELS = 10_000
_NAMED_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Event = Mapping[str, Any]
"""A recorded line: the stream, the tick and the columns."""


def nexmark_events(events: int, seed: int = 1, gap_us: int = 100) -> Iterator[Event]:
    """The ticks of two events are `gap_us` microseconds apart."""
    return islice(_all_events(Random(seed), gap_us), events)


def _all_events(random: Random, gap_us: int) -> Iterator[Event]:
    people = auctions = 0
    for number in count():
        tick = FIRST_TICK + number * gap_us * TICKS_PER_MICROSECOND
        place = number % _EVENTS_PER_ROUND
        if place == 0:
            yield {"stream": "Person", "at": tick, "event": _person(random, _FIRST_PERSON + people)}
            people += 1
        elif place <= _AUCTIONS_PER_ROUND:
            auction = _auction(random, _FIRST_AUCTION + auctions, people, tick, gap_us)
            yield {"stream": "Auction", "at": tick, "event": auction}
            auctions += 1
        else:
            yield {"stream": "Bid", "at": tick, "event": _bid(random, auctions, people)}


def _person(random: Random, id_: int) -> dict[str, Any]:
    return {
        "id": id_,
        "name": f"{random.choice(_FIRST_NAMES)} {random.choice(_LAST_NAMES)}",
        "emailAddress": f"{_text(random, 7)}@{_text(random, 5)}.com",
        "creditCard": " ".join(f"{random.randrange(10_000):04}" for _ in range(4)),
        "city": random.choice(_CITIES),
        "state": random.choice(_STATES),
        "extra": _text(random, 20),
    }


def _auction(random: Random, id_: int, people: int, tick: int, gap_us: int) -> dict[str, Any]:
    initial = _price(random)
    open_us = random.randint(1, 2 * _OPEN_AUCTIONS * _EVENTS_PER_ROUND * gap_us // _AUCTIONS_PER_ROUND)
    return {
        "id": id_,
        "itemName": _text(random, 20),
        "description": _text(random, 50),
        "initialBid": initial,
        "reserve": initial + _price(random),
        "expires": tick + open_us * TICKS_PER_MICROSECOND,
        "seller": _member(random, _FIRST_PERSON, people, _ACTIVE_PEOPLE, hot_every=4),
        "category": 10 + random.randrange(5),
        "extra": _text(random, 20),
    }


def _bid(random: Random, auctions: int, people: int) -> dict[str, Any]:
    if random.random() < _HOT_SHARE:
        channel = random.choice(_NAMED_CHANNELS)
        url = f"https://www.nexmark.com/{_text(random, 5)}/{_text(random, 5)}/{_text(random, 5)}/item.htm?query=1"
    else:
        number = random.randrange(_CHANNELS)
        channel = f"channel-{number}"
        url = f"https://www.nexmark.com/{_text(random, 5)}/{_text(random, 5)}/{_text(random, 5)}/item.htm?query=1"
        url += f"&channel_id={number}" * (number % 10 != 0)
    return {
        "auction": _member(random, _FIRST_AUCTION, auctions, _OPEN_AUCTIONS, hot_every=100),
        "bidder": _member(random, _FIRST_PERSON, people, _ACTIVE_PEOPLE, hot_every=100),
        "price": _price(random),
        "channel": channel,
        "url": url,
        "extra": _text(random, 20),
    }


def _member(random: Random, first: int, existing: int, active: int, hot_every: int) -> int:
    """One of the newest, of which every `hot_every`-th is hot."""
    newest = first + existing - 1
    if random.random() < _HOT_SHARE:
        return max(first, newest // hot_every * hot_every)
    return newest - random.randrange(min(existing, active))


def _price(random: Random) -> int:
    return round(10 ** (random.random() * 6) * 100)


def _text(random: Random, length: int) -> str:
    return "".join(random.choices(_LETTERS, k=length))
