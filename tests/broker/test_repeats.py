"""Whatever is published again, in whole or in part, in any order: it is answered as a plain model says, and is there once."""

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile.broker.publishing.publication import ProducerSequence, Publication, SilencePublication
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from tests.broker.publishing import answer, as_batch, content, numbered, publisher_at, taken
from tests.processes import WAIT_S
from tests.repeatable import scaled

PAST = 10**15


class Model:
    """What should be answered, by dictionaries alone. Ticks of the broker's are learnt from its answers."""

    def __init__(self) -> None:
        self.events: dict[str, dict[int, tuple[Any, ...]]] = {"R": {}, "S": {}, "T": {}}
        self.numbers: dict[str, dict[int, tuple[str, int]]] = {}
        self.silent = HORIZON_MIN

    def check(self, order: Publication | SilencePublication, result: tuple[list[int], int] | str) -> None:
        if isinstance(order, SilencePublication):
            self.silent = max(self.silent, order.to)
            assert result == ([], 0)
            return
        rows, stream = list(order.rows), order.stream
        repeated, expected = self._repeated(order)
        if expected is None and stream == "T":
            repeated, expected = self._ticks(rows, repeated)
        if expected is not None:
            assert result == expected
            return
        assert not isinstance(result, str), result
        ticks, again = result
        assert again == len(repeated)
        assert ticks[:again] == repeated
        assert len(ticks) == len(rows)
        for number, (tick, row) in enumerate(zip(ticks, rows, strict=True)):
            if number >= again:
                assert tick > max(self.events[stream], default=HORIZON_MIN)
                self.events[stream][tick] = row[1:] if stream == "T" else row
                if stream == "T":
                    assert tick == row[0]
                    self.silent = tick
            if order.sequence is not None:
                of = self.numbers.setdefault(order.sequence.producer, {})
                of.setdefault(order.sequence.seq + number, (stream, tick))

    def _repeated(self, order: Publication) -> tuple[list[int], str | None]:
        """Ticks of what a producer's numbers say was there, or the code of the error."""
        ticks = list[int]()
        if order.sequence is None:
            return ticks, None
        used = self.numbers.get(order.sequence.producer, {})
        last = max(used, default=-1)
        for number, row in enumerate(order.rows, order.sequence.seq):
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
        if any(row[0] not in known for row in again):
            return repeated, "E081"
        if any(known[row[0]] != row[1:] for row in again):
            return repeated, "E082"
        return repeated + [row[0] for row in again], None


def some_orders(random: Random, sent: list[Publication], tick: list[int]) -> Iterator[Publication | SilencePublication]:
    for _ in range(random.randrange(1, 25)):
        stream = random.choice("RST")
        if sent and random.random() < 0.4:
            yield spoilt(random, random.choice(sent[-60:]))
            continue
        if stream == "T" and random.random() < 0.2:
            tick[0] += random.randrange(20)
            yield SilencePublication("T", tick[0] - random.randrange(10) if tick[0] > 10 else tick[0])
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
                (s.sequence.seq + len(s.rows) for s in sent if s.sequence and s.sequence.producer == producer),
                default=0,
            )
            who = ProducerSequence("anna", producer, max(0, last + random.choice([0, 0, 0, 0, 3, -2])))
        made = Publication(stream, rows, who)
        sent.append(made)
        yield made


def spoilt(random: Random, before: Publication) -> Publication:
    """One that was sent, again: as it was, a part of it, longer, or with something changed."""
    rows, who = list(before.rows), before.sequence
    kind = random.randrange(8)
    if kind == 1 and len(rows) > 1:
        cut = random.randrange(1, len(rows))
        rows, who = rows[cut:], who and ProducerSequence("anna", who.producer, who.seq + cut)
    elif kind == 2:
        rows = rows[: random.randrange(1, len(rows) + 1)]
    elif kind == 3 and before.stream != "T":
        rows = [*rows, (7, "more")]
    elif kind == 4:
        at = random.randrange(len(rows))
        rows[at] = (*rows[at][:-1], "changed")
    elif kind == 5 and len(rows) > 2:
        del rows[random.randrange(1, len(rows) - 1)]
    elif kind == 6:
        who = ProducerSequence("anna", random.choice(["p", "q", "r", "s"]), random.randrange(60))
    return Publication(before.stream, rows, who)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(12)))
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


def test_known_events_are_told_by_their_ticks_whatever_lies_between_them(tmp_path: Path) -> None:
    with publisher_at(tmp_path / "log") as publisher:
        rows = [(tick, tick, "a") for tick in (1, 2, 3)]
        taken(publisher, Publication("T", rows))
        one, _, three = rows
        for given, expected in [
            ([one, three], ([1, 3], 2)),
            ([one, three, (4, 4, "a")], ([1, 3, 4], 2)),
            ([one, (4, 4, "a"), (5, 5, "a")], ([1, 4, 5], 2)),
        ]:
            assert answer(publisher.submit(Publication("T", given))) == expected
        with pytest.raises(SmileError, match="T has another event at tick 3"):
            taken(publisher, Publication("T", [one, (3, 3, "b"), (5, 0, "b")]))
    assert list(content(tmp_path / "log", "T")) == [1, 2, 3, 4, 5]


def test_refused_ticks_are_shown_as_times_too(tmp_path: Path) -> None:
    noon = 1_717_156_800_000_000 * 1024
    with publisher_at(tmp_path / "log") as publisher:
        taken(publisher, Publication("T", [(noon, 1, "a")]))
        for rows, code, text in [
            ([(noon, 2, "a")], "E082", f"at tick 2024-05-31 12:00:00 ({noon})"),
            ([(noon - 1024, 2, "a")], "E081", f"at tick 2024-05-31 11:59:59.999999 ({noon - 1024}), and is complete"),
            ([(noon + 2, 2, "a"), (noon + 1, 2, "a")], "E079", f"has tick 2024-05-31 12:00:00 ({noon + 1}) after tick"),
            ([(noon + 2, 2, "a"), (noon + 2, 2, "a")], "E079", f"after tick 2024-05-31 12:00:00 ({noon + 2})"),
        ]:
            with pytest.raises(SmileError) as failure:
                taken(publisher, Publication("T", rows))
            (diagnostic,) = failure.value.diagnostics
            assert diagnostic.code == code and text in diagnostic.message
            assert "docs/notebooks.md" in str(diagnostic.hint)


def test_a_number_that_stood_for_a_known_event_stands_for_no_other(tmp_path: Path) -> None:
    rows = [(tick, tick, "a") for tick in range(1, 10)]
    for turn in range(3):  # each time the publisher is another, on the same log
        with publisher_at(tmp_path / "log", silence_ms=600_000) as publisher:
            assert answer(publisher.submit(Publication("T", rows)))[0] == list(range(1, 10))
            for producer, known in [("q", rows[:1]), ("r", rows[::3]), ("s", [*rows[1:4], *rows[6:8]])]:
                ticks = [row[0] for row in known]
                for _ in range(2):
                    assert answer(publisher.submit(numbered("T", known, 7, producer))) == (ticks, len(ticks))
                for place, tick in enumerate(ticks):
                    for other in ((20 + turn, 0, "new"), (tick % 9 + 1, tick % 9 + 1, "a")):
                        again = numbered("T", [other], 7 + place, producer)
                        with pytest.raises(SmileError, match=f"(?m)something else as number {7 + place}$") as failure:
                            taken(publisher, again)
                        assert failure.value.diagnostics[0].code == "E096"
                assert answer(publisher.submit(numbered("T", known[-1:], 6 + len(ticks), producer))) == (ticks[-1:], 1)
            assert publisher.horizons["T"] == 9
    assert list(content(tmp_path / "log", "T")) == list(range(1, 10))


def test_numbers_of_events_that_were_known_stay_when_others_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with publisher_at(path, silence_ms=600_000) as publisher:
        for n in range(6):
            taken(publisher, numbered("T", [(n, n, "a")], n, "p"))
        taken(publisher, numbered("T", [(1, 1, "a"), (3, 3, "a"), (5, 5, "a")], 0, "q"))
        taken(publisher, numbered("T", [(6, 6, "a")], 6, "p"))
        publisher._log.truncate({"R": END, "S": END, "T": 3})
        expected = ([1, 3, 5], 3)
        assert answer(publisher.submit(numbered("T", [(1, 1, "a"), (3, 3, "a"), (5, 5, "a")], 0, "q"))) == expected
        assert answer(publisher.submit(numbered("T", [(1, 1, "a"), (3, 3, "a"), (5, 5, "b")], 0, "q"))) == "E096"
        assert answer(publisher.submit(numbered("T", [(1, 1, "a"), (4, 4, "a")], 0, "q"))) == "E096"
        assert answer(publisher.submit(numbered("T", [(7, 7, "a")], 2, "q"))) == "E096"
        assert answer(publisher.submit(Publication("T", [(1, 1, "a")]))) == "E097"


def in_some_form(random: Random, order: Publication | SilencePublication) -> Publication | SilencePublication:
    if isinstance(order, SilencePublication) or random.random() < 0.5:
        return order
    return Publication(order.stream, as_batch(list(order.rows), order.stream), order.sequence)


def test_many_threads_publish_at_once(tmp_path: Path) -> None:
    rows_by_tick: dict[int, tuple[int, str]] = {}
    with publisher_at(tmp_path / "log") as publisher:

        def run(thread: int) -> None:
            for n in range(40):
                row = (n, str(thread))
                first = publisher.submit(numbered("R", [row], n, f"p{thread}"))
                again = publisher.submit(numbered("R", [row], n, f"p{thread}"))
                assert list(first.result(WAIT_S).ticks) == list(again.result(WAIT_S).ticks)
                rows_by_tick[first.result().ticks[0]] = row

        threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert publisher.status()["repeated"] == 240
    assert len(rows_by_tick) == 240
    assert content(tmp_path / "log", "R") == rows_by_tick
