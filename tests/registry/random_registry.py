"""Random conditions, publishers and queries over a small global stream, and every row that it can have."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Final

from smile.algebra.types import INT, STRING, Value
from smile.registry.conditions import Condition, parse_condition
from smile.registry.publishers import StreamPublisher
from smile.registry.schema import GlobalSchema

NTP: Final = GlobalSchema("ntp", "t", (("site", STRING), ("tool", STRING), ("psize", INT)), (("latency", INT),))
SITES: Final = ("hw", "ha", "ral", "x", None)
TOOLS: Final = ("ping", "udp", "x", None)
SIZES: Final = (0, 1, 2, 3, 4, None)
LATENCIES: Final = (5, 10, 20, None)

CHANNELS: Final[tuple[dict[str, Value], ...]] = tuple(
    {"site": s, "tool": t, "psize": p} for s, t, p in product(SITES, TOOLS, SIZES)
)
ROWS: Final[tuple[dict[str, Value], ...]] = tuple(
    {**channel, "latency": latency, "t": 0} for channel in CHANNELS for latency in LATENCIES
)
"""The random conditions compare with a few constants. Between and beside these there is a value of each column here, so
conditions that agree on these rows agree on all."""


OPAQUE_RATE: Final = 0.02
"""How often a part of a publisher's condition is no union of boxes. A solver takes long for them."""


def condition(text: str) -> Condition:
    return parse_condition(NTP, text)


def random_key_atom(random: Random) -> str:
    return random.choice(
        [
            f"site = '{random.choice(['hw', 'ral'])}'",
            f"tool = '{random.choice(['ping', 'udp'])}'",
            f"psize {random.choice(['<', '<=', '=', '>=', '>', '<>'])} {random.choice([1, 2, 3])}",
            "psize >= 1 AND psize <= 2",
            "(site = 'hw' OR site = 'ral')",
            "site IS NULL",
            "site IS NOT NULL",
            "psize = NULL int",
            "site LIKE 'h%'",
            "tool IS DISTINCT FROM 'ping'",
            "(site = 'hw' OR site = 'x' OR site = 'ral')",
            "(site = 'hw' AND psize = 1 OR site = 'hw' AND psize = 3)",
            "NOT (tool = 'ping' OR tool = 'udp')",
        ]
    )


def random_opaque_atom(random: Random) -> str:
    """A condition that is no union of boxes: a solver decides about it, or nobody."""
    return random.choice(
        [
            "site = tool",
            "site <> tool",
            "site > tool",
            "site LIKE '%w'",
            "site LIKE '_a%'",
            "upper(tool) = 'PING'",
            "lower(site) = 'ral'",
            "length(site) = 2",
            "psize * 2 > 4",
            "psize % 2 = 0",
        ]
    )


def random_key_text(random: Random, opaque_rate: float = 0, depth: int = 2) -> str:
    """Mostly conjunctions, with some OR and NOT."""
    match random.choice(["true", "atom", "atom", "and", "and", "or", "not"] if depth else ["atom"]):
        case "true":
            return "TRUE"
        case "and" | "or" as word:
            parts = (random_key_text(random, opaque_rate, depth - 1) for _ in range(2))
            return f"({f' {word.upper()} '.join(parts)})"
        case "not":
            return f"NOT ({random_key_text(random, opaque_rate, depth - 1)})"
    atom = random_opaque_atom if random.random() < opaque_rate else random_key_atom
    return f"({atom(random)})"


def random_query_text(random: Random, opaque_rate: float = 0) -> str:
    """A condition on key attributes, and perhaps one on the measurement."""
    key = random_key_text(random, opaque_rate)
    return (
        f"{key} AND {random.choice(['latency < 20', 'latency = 10', 'latency IS NOT NULL'])}"
        if random.random() < 0.4
        else key
    )


def random_producer(random: Random, name: str) -> StreamPublisher:
    return StreamPublisher(name, "producer", "broker", condition(random_key_text(random, OPAQUE_RATE)))


def random_republisher(random: Random, name: str) -> StreamPublisher:
    text = random_query_text(random, OPAQUE_RATE)
    return StreamPublisher(name, "republisher", "broker", condition(text), cost=random.choice([0, 1, 2]))


def with_other_condition(random: Random, publisher: StreamPublisher) -> StreamPublisher:
    """The publisher after it has changed its condition: it is narrower, or quite another one."""
    if random.random() < 0.5:
        return replace(publisher, condition=condition(f"({publisher.condition}) AND {random_key_text(random)}"))
    draw = random_producer if publisher.is_producer else random_republisher
    return draw(random, publisher.name)
