"""Whatever is published again, in whole or in part, in any order: it is answered as a plain model says, and is there once."""

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile.broker.publication import Numbered, Publication, Silence
from smile.log.frame import NOTHING
from tests.broker.publishing import WAIT_S, answer, as_batch, content, numbered, publisher_at

PAST = 10**15


class Model:
    """What should be answered, by dictionaries alone. Ticks of the broker's are learnt from its answers."""

    def __init__(self) -> None:
        self.events: dict[str, dict[int, tuple[Any, ...]]] = {"R": {}, "S": {}, "T": {}}
        self.numbers: dict[str, dict[int, tuple[str, int]]] = {}
        self.silent = NOTHING

    def check(self, order: Publication | Silence, found: tuple[list[int], int] | str) -> None:
        if isinstance(order, Silence):
            self.silent = max(self.silent, order.to)
            assert found == ([], 0)
            return
        rows, stream = list(order.rows), order.stream
        repeated, expected = self._repeated(order)
        if expected is None and stream == "T":
            repeated, expected = self._ticks(rows, repeated)
        if expected is not None:
            assert found == expected
            return
        assert not isinstance(found, str), found
        ticks, again = found
        assert again == len(repeated)
        assert ticks[:again] == repeated
        assert len(ticks) == len(rows)
        for number, (tick, row) in enumerate(zip(ticks, rows, strict=True)):
            if number >= again:
                assert tick > max(self.events[stream], default=NOTHING)
                self.events[stream][tick] = row[1:] if stream == "T" else row
                if stream == "T":
                    assert tick == row[0]
                    self.silent = tick
            # Numbers of a publication that has nothing new are not remembered: its ticks are.
            if order.numbered is not None and again < len(rows):
                of = self.numbers.setdefault(order.numbered.producer, {})
                of.setdefault(order.numbered.seq + number, (stream, tick))

    def _repeated(self, order: Publication) -> tuple[list[int], str | None]:
        """Ticks of what a producer's numbers say was there, or the code of the error."""
        ticks = list[int]()
        if order.numbered is None:
            return ticks, None
        used = self.numbers.get(order.numbered.producer, {})
        last = max(used, default=-1)
        for number, row in enumerate(order.rows, order.numbered.seq):
            if number > last:
                break
            if number not in used:
                return ticks, "E096"
            stream, tick = used[number]
            plain = row[1:] if order.stream == "T" else row
            if stream != order.stream or self.events[stream][tick] != plain or (stream == "T" and row[0] != tick):
                return ticks, "E096"
            ticks.append(tick)
        return ticks, None

    def _ticks(self, rows: list[tuple[Any, ...]], repeated: list[int]) -> tuple[list[int], str | None]:
        known = self.events["T"]
        again = [row for row in rows[len(repeated) :] if row[0] <= self.silent]
        if again:
            there = {tick: row for tick, row in known.items() if again[0][0] <= tick <= again[-1][0]}
            if there != {row[0]: row[1:] for row in again}:
                missing = any(row[0] not in there for row in again)
                return repeated, "E081" if missing else "E082"
        return repeated + [row[0] for row in again], None


def some_orders(random: Random, sent: list[Publication], tick: list[int]) -> Iterator[Publication | Silence]:
    for _ in range(random.randrange(1, 25)):
        stream = random.choice("RST")
        if sent and random.random() < 0.4:
            yield spoilt(random, random.choice(sent[-60:]))
            continue
        if stream == "T" and random.random() < 0.2:
            tick[0] += random.randrange(20)
            yield Silence("T", tick[0] - random.randrange(10) if tick[0] > 10 else tick[0])
            continue
        rows: list[tuple[Any, ...]] = [
            (random.randrange(10), random.choice(["a", None])) for _ in range(random.randrange(1, 6))
        ]
        if stream == "T":
            timed = []
            for row in rows:
                tick[0] += random.randrange(1, 4)
                timed.append((tick[0], *row))
            rows = timed
        who = None
        if random.random() < 0.8:
            producer = random.choice(["p", "q", "r"])
            last = max(
                (s.numbered.seq + len(s.rows) for s in sent if s.numbered and s.numbered.producer == producer),
                default=0,
            )
            who = Numbered(producer, max(0, last + random.choice([0, 0, 0, 0, 3, -2])))
        made = Publication(stream, rows, who)
        sent.append(made)
        yield made


def spoilt(random: Random, before: Publication) -> Publication:
    """One that was sent, again: as it was, a part of it, longer, or with something changed."""
    rows, who = list(before.rows), before.numbered
    kind = random.randrange(6)
    if kind == 1 and len(rows) > 1:
        cut = random.randrange(1, len(rows))
        rows, who = rows[cut:], who and Numbered(who.producer, who.seq + cut)
    elif kind == 2:
        rows = rows[: random.randrange(1, len(rows) + 1)]
    elif kind == 3 and before.stream != "T":
        rows = [*rows, (7, "more")]
    elif kind == 4:
        at = random.randrange(len(rows))
        rows[at] = (*rows[at][:-1], "changed")
    return Publication(before.stream, rows, who)


@pytest.mark.parametrize("seed", range(12))
def test_repeats_in_any_order_double_nothing_and_lose_nothing(tmp_path: Path, seed: int) -> None:
    random, model = Random(seed), Model()
    sent, tick, now = list[Publication](), [0], [PAST]

    def clock() -> int:
        now[0] += random.choice([0, 0, 3, 1000, -2000])
        return now[0]

    for _ in range(5):  # each time the publisher is another, on the same log
        with publisher_at(tmp_path / "log", clock, silence_ms=random.choice([0, 1, 1000])) as publisher:
            for _ in range(4):
                orders = list(some_orders(random, sent, tick))
                futures = [publisher.submit(in_some_form(random, order)) for order in orders]
                for order, future in zip(orders, futures, strict=True):
                    model.check(order, answer(future))
    for stream in "RST":
        assert content(tmp_path / "log", stream) == model.events[stream]


def in_some_form(random: Random, order: Publication | Silence) -> Publication | Silence:
    if isinstance(order, Silence) or random.random() < 0.5:
        return order
    return Publication(order.stream, as_batch(list(order.rows), order.stream), order.numbered)


def test_many_threads_publish_at_once(tmp_path: Path) -> None:
    told: dict[int, tuple[int, str]] = {}
    with publisher_at(tmp_path / "log") as publisher:

        def run(thread: int) -> None:
            for n in range(40):
                row = (n, str(thread))
                first = publisher.submit(numbered("R", [row], n, f"p{thread}"))
                again = publisher.submit(numbered("R", [row], n, f"p{thread}"))
                assert list(first.result(WAIT_S).ticks) == list(again.result(WAIT_S).ticks)
                told[first.result().ticks[0]] = row

        threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert publisher.status()["repeated"] == 240
    assert len(told) == 240
    assert content(tmp_path / "log", "R") == told
