"""A small Trade-Floor history in frames: what faults are tried on."""

from functools import cache
from pathlib import Path
from random import Random

from smile.algebra import mmpl
from smile.log.input_batch import InputBatch
from smile.program import compile_program, read_source
from smile.reference.history import History, RecordedLine
from tests.kernels.harness import input_batch_between

ROOT = Path(__file__).parents[3]
FRAMES = 12
ISSUES = ("IBM", "GE", "XYZ")


@cache
def program() -> mmpl.Program:
    return compile_program(read_source(str(ROOT / "programs" / "tradefloor.smile"))).rewritten


def events(seed: int, count: int) -> list[RecordedLine]:
    """Bids of random sizes; matches of random ones of them, now and then for more than is left."""
    random = Random(seed)
    bids: dict[str, list[int]] = {"BuyBids": [], "SellBids": []}
    lines: list[RecordedLine] = []
    for tick in range(1, count + 1):
        if all(bids.values()) and random.random() < 0.4:
            one = {"buyid": random.choice(bids["BuyBids"]), "sellid": random.choice(bids["SellBids"])}
            lines.append({"stream": "Matches", "at": tick, "event": {**one, "#traded": random.randint(1, 5) * 50}})
        else:
            stream = random.choice(list(bids))
            bids[stream].append(tick)
            bid = {"issue": random.choice(ISSUES), "price": random.randint(1, 2), "#bid": random.randint(1, 6) * 100}
            lines.append({"stream": stream, "at": tick, "event": bid})
    return lines


def frames(seed: int = 1, count: int = FRAMES * 10) -> list[InputBatch]:
    lines = events(seed, count)
    size = count // FRAMES
    batches, before = [], History.from_lines(program())
    for stop in range(size, count + 1, size):
        after = History.from_lines(program(), [*lines[:stop], {"silence_to": stop}])
        batches.append(input_batch_between(program(), before, after))
        before = after
    return batches
