"""Batches of changes, without Spark: a copy that applies them by key equals the view after every batch, through lost
connections, brokers that forget tokens, repeated batches and restarts. Random cases; SMILE_SEEDS=17 repeats one."""

import os
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from smile.client.changes import Change, Frame, Schema
from smile.client.values import ViewColumn
from smile.errors import SmileError, error
from smile.spark.change_queue import ChangeBatch, ChangeOffset, ChangeQueue

SEEDS = [int(seed) for seed in os.environ.get("SMILE_SEEDS", "").split(",") if seed] or range(60)
SCHEMA = Schema("V", ("k",), {"k": ViewColumn("k", "int"), "n": ViewColumn("n", "int")}, ("S",))
SESSION: Any = SimpleNamespace(consume_frame=lambda _: None)


@dataclass
class Server:
    """A view as the broker has it: the number of the last change of each row, and of each deletion that it remembers."""

    random: random.Random
    tick: int = 0
    rows: dict[int, int] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)
    forgotten: int = 0
    """Tokens below this are not known any more."""

    def change(self) -> None:
        self.tick += 1
        key = self.random.randrange(6)
        if key in self.rows and self.random.random() < 0.4:
            del self.rows[key]
        else:
            self.rows[key] = self.tick
        self.changed[key] = self.tick

    def forget(self) -> None:
        self.forgotten = self.tick + 1
        self.changed = {key: tick for key, tick in self.changed.items() if key in self.rows}

    def send(self, queue: ChangeQueue, resume: str | None) -> str | None:
        """Frames from the token on, as many as come before the connection is lost. Returns the last token."""
        after = -1 if resume is None or int(resume) < self.forgotten else int(resume)
        is_reset = after < 0
        keys = [key for key, tick in sorted(self.changed.items(), key=lambda item: item[1]) if tick > after]
        keys = [key for key in keys if not is_reset or key in self.rows]
        while keys or is_reset:
            part, keys = keys[:2], keys[2:]
            changes = [self.row(key) for key in part]
            progress = None if keys else {"S": self.tick}
            queue.deliver_frame(Frame(changes, progress, None if keys else str(self.tick), reset=is_reset))
            is_reset = False
            if keys and self.random.random() < 0.2:
                queue.abort_snapshot()
                return resume
        return str(self.tick)

    def row(self, key: int) -> Change:
        if key in self.rows:
            return Change(SCHEMA, {"k": key}, {"n": self.rows[key]})
        return Change(SCHEMA, {"k": key}, deleted=True)


def apply(copy: dict[int, int], batch: ChangeBatch) -> None:
    rows = batch.rows()
    assert len({row.change.id for row in rows if row.change}) == sum(row.change is not None for row in rows)
    for row in rows:
        if row.kind == "reset":
            copy.clear()
        elif row.change is not None and row.kind == "row":
            copy[row.change.key["k"]] = row.change.row["n"]
        elif row.change is not None:
            copy.pop(row.change.key["k"], None)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_equals_the_view_after_every_batch(seed: int) -> None:
    chance = random.Random(seed)
    server, copy, feed = Server(chance), dict[int, int](), SimpleNamespace(error=None)
    committed, queue, sent = ChangeOffset(), ChangeQueue(ChangeOffset()), None
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            server.change()
        if chance.random() < 0.05:
            server.forget()
        if chance.random() < 0.1:  # the query is started again, from what was committed
            queue, sent = ChangeQueue(committed), committed.resume
        sent = server.send(queue, sent)
        batch = queue.take_batch(SESSION, feed, 0)  # type: ignore[arg-type]  # what it needs of a feed
        if batch is None:
            continue
        apply(copy, batch)
        assert batch.end.horizons["S"] <= server.tick
        if batch.end.horizons["S"] == server.tick:
            assert copy == server.rows, f"SMILE_SEEDS={seed} .venv/bin/python -m pytest {__file__}"
        if chance.random() < 0.8:  # otherwise Spark has not committed it, and may repeat it
            committed = batch.end
    for _ in range(50):
        sent = server.send(queue, sent)
        while (batch := queue.take_batch(SESSION, feed, 0)) is not None:  # type: ignore[arg-type]
            apply(copy, batch)
    assert copy == server.rows, f"SMILE_SEEDS={seed} .venv/bin/python -m pytest {__file__}"


def test_an_error_ends_the_batches_after_what_has_arrived() -> None:
    queue, feed = ChangeQueue(ChangeOffset()), SimpleNamespace(error=error("E095", "the view V was changed"))
    queue.deliver_frame(Frame([Change(SCHEMA, {"k": 1}, {"n": 1})], {"S": 1}, "1", reset=True))
    batch = queue.take_batch(SESSION, feed, 0)  # type: ignore[arg-type]
    assert batch is not None and len(batch.changes) == 1
    with pytest.raises(SmileError, match="the view V was changed"):
        queue.take_batch(SESSION, feed, 0)  # type: ignore[arg-type]


def test_offsets_survive_json() -> None:
    for offset in (ChangeOffset(), ChangeOffset("a.b", {"S": 2**62})):
        assert ChangeOffset.from_json(offset.to_json()) == offset
