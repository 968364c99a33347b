"""What users publish: single events, lists, iterators and data frames. Each event is published once, in order."""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
import polars as pl
import pyarrow as pa
import pytest

import smile
from smile import limits
from smile.client import Client, SmileError, connect, connect_async
from tests.client.fake import Fake


@pytest.fixture
def client(fake: Fake) -> Iterator[Client]:
    with connect(fake.url) as connected:
        yield connected


@pytest.fixture
def few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "client_publication_events", 3)


KEYS = [f"k{i}" for i in range(8)]

FRAMES: dict[str, Callable[[list[str]], Any]] = {
    "pandas": lambda keys: pd.DataFrame({"k": keys}),
    "pandas with an index": lambda keys: pd.DataFrame({"k": keys}, index=[f"row {k}" for k in keys]),
    "polars": lambda keys: pl.DataFrame({"k": keys}),
    "arrow": lambda keys: pa.table({"k": keys}),
    "iterator": lambda keys: ({"k": key} for key in keys),
}


@pytest.mark.usefixtures("few_events")
@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_is_published_in_parts(client: Client, fake: Fake, kind: str) -> None:
    counts = list[int]()
    published = client.publish("S", FRAMES[kind](KEYS), progress=counts.append)
    assert counts == [3, 6, 8]
    assert [k for _, k in fake.store.events] == KEYS
    assert list(published) == [tick for tick, _ in fake.store.events]
    assert fake.publications == [3, 3, 2]


@pytest.mark.usefixtures("few_events")
def test_a_list_is_one_publication(client: Client, fake: Fake) -> None:
    client.publish("S", [{"k": k} for k in KEYS])
    assert fake.publications == [8]


@pytest.mark.usefixtures("few_events")
def test_a_refused_row_has_its_number_in_the_frame(client: Client, fake: Fake) -> None:
    rows: list[dict[str, Any]] = [{"k": k} for k in KEYS]
    rows[4]["k"] = 7
    with pytest.raises(SmileError, match=r"^event 5: S\.k.*; 3 events are published") as problem:
        client.publish("S", iter(rows))
    hint = "Write text. Continue with event 4: those before are published."
    assert (problem.value.code, problem.value.hint, problem.value.published) == ("E078", hint, 3)
    assert problem.value.index == 4
    assert [k for _, k in fake.store.events] == KEYS[:3]
    frame = pd.DataFrame({"k": KEYS[3:]})
    client.publish("S", frame)
    assert [k for _, k in fake.store.events] == KEYS
    with pytest.raises(SmileError) as problem:
        client.publish("S", rows)
    assert problem.value.published == 0 and "published" not in str(problem.value)


UNREADABLE: list[tuple[Any, str, str]] = [
    (pd.DataFrame({"k": ["a", "b", 3, "c"]}), "E078", r"event 3: the data frame cannot be read: .*column k"),
    (pd.DataFrame([["a", "b"]], columns=["k", "k"]), "E075", "the column k is given twice"),
    (pa.table([["a"], ["b"]], names=["k", "k"]), "E075", "the column k is given twice"),
    (pd.Series(["a"], name="k"), "E078", "the Series is a row or a column, and no events"),
    (pl.Series("k", ["a"]), "E078", "the Series is a row or a column, and no events"),
    (pa.table({"k": pa.array([1], pa.timestamp("ns"))}), "E078", "k: a time has nanoseconds"),
    (pl.DataFrame({"k": ["a"], "x": [float("nan")]}), "E078", "event 1: x: nan is not a value"),
    ([{"k": "a"}, {"k": "b", "x": float("-inf")}], "E078", "event 2: x: -inf is not a value"),
    ([{"k": "a", "x": pd.NaT}], "E078", "event 1: x: NaT is not a value"),
    (pd.DataFrame({"k": ["a"]}).iterrows(), "E078", "event 1: the tuple is a row of a data frame"),
    ([row for _, row in pd.DataFrame({"k": ["a"]}).iterrows()], "E078", "event 1: the Series is a row of a data frame"),
    ("b.csv", "E073", "this is not JSON"),
    ([{"k": "a"}, {"k": "b", "x": object()}], "E078", "event 2: x: the event cannot be written as JSON: object"),
]


@pytest.mark.parametrize(("events", "code", "message"), UNREADABLE)
def test_what_is_no_events_is_an_error(client: Client, fake: Fake, events: Any, code: str, message: str) -> None:
    with pytest.raises(SmileError, match=message) as problem:
        client.publish("S", events)
    assert problem.value.code == code and problem.value.hint
    number = re.match(r"event (\d+)", message)
    assert problem.value.index == (int(number[1]) - 1 if number else None)
    assert not fake.store.events


def test_a_lazy_frame_is_collected(client: Client, fake: Fake) -> None:
    client.publish("S", pl.LazyFrame({"k": KEYS}).filter(pl.col("k") < "k2"))
    assert [k for _, k in fake.store.events] == KEYS[:2]


@pytest.mark.usefixtures("few_events")
def test_asyncio_takes_frames_too(fake: Fake) -> None:
    async def publish() -> int:
        async with connect_async(fake.url) as client:
            return len(await client.publish("S", pl.DataFrame({"k": KEYS})))

    assert asyncio.run(publish()) == 8
    assert [k for _, k in fake.store.events] == KEYS


def test_a_silence_is_up_to_a_tick_or_a_time(client: Client) -> None:
    wrong: Any = "2024-05-31"
    with pytest.raises(SmileError, match="'2024-05-31' is not a tick"):
        client.silence("S", wrong)
    client.silence("S", pd.Timestamp("2024-05-31", tz="UTC"))


def test_no_events_have_no_tick(client: Client) -> None:
    with pytest.raises(SmileError, match="no event was published"):
        _ = client.publish("S", []).tick


def test_nothing_else_is_taken_for_events(client: Client) -> None:
    wrong: Any = 7
    with pytest.raises(SmileError, match="int is not an event"):
        client.publish("S", wrong)


def test_the_package_has_the_names_of_the_client() -> None:
    assert smile.connect is connect and smile.SmileError is SmileError
    with pytest.raises(AttributeError, match="conect"):
        _ = smile.conect
