"""Random knowledge for property tests: a point, a later point that it evolves to, and a value that is possible in
both."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

from hypothesis import settings, strategies as st

from smile.algebra.arrays import encode_array
from smile.algebra.coercions import DATE_MAX, DATE_MIN, EXACT_CONTEXT, TIMESTAMP_MAX, TIMESTAMP_MIN
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS, Signature, resolve_signature
from smile.algebra.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT,
    INT,
    INT_MAX,
    INT_MIN,
    INTERVAL,
    JSON,
    STRING,
    TIME,
    TIMESTAMP,
    DataType,
    Value,
    array_type,
    decimal_type,
)
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.once import OnceValue
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range
from tests.repeatable import scaled

MONEY = decimal_type(6, 2)
WIDEST = decimal_type(38, 0)
SIMPLE = (BOOL, INT, FLOAT, STRING, JSON, TIME, INTERVAL, TIMESTAMP, DATE, BYTES, MONEY, WIDEST)
POOL = (*SIMPLE, array_type(INT), array_type(STRING))
RANDOMS = st.integers(0, 2**64 - 1).map(Random)
"""Much cheaper than drawing each value with Hypothesis. Thousands of cases find more errors; shrinking is not
needed."""
WORDS = ("", "a", "b", "ab", "ba", "aab", "%", "a%", "_b", "\\", "day", "hour", "week")


DOCUMENTS = (
    '{"a": 1, "b": [true, null]}',
    '{"a": "ab"}',
    '["a", 12345678901234567890.5]',
    '"a"',
    "3",
    "true",
    "null",
    "{}",
)


def repeatable(cases: int) -> settings:
    return settings(max_examples=scaled(cases))


def signatures_of(name: str) -> list[Signature]:
    """Every way to call the function with arguments that need no coercion."""
    least, greatest = SCALAR_FUNCTIONS[name].arity
    signatures = []
    for count in range(least, max(least, min(greatest or 3, 3)) + 1):
        for types in product(POOL, repeat=count):
            signature = resolve_signature(name, types)
            if signature is not None and signature.args == types:
                signatures.append(signature)
    return signatures


Draw = Callable[[Random, DataType], Any]


@dataclass(frozen=True)
class Chain:
    """`before` evolves to `after`; `value` is possible in both."""

    before: CellKnowledge
    after: CellKnowledge
    value: Value


def ordinary(random: Random, type: DataType) -> Any:
    match type.name:
        case "float":
            return random.choice([-20.0, -2.5, -1.0, -0.5, -0.0, 0.0, 1e-3, 0.1, 0.5, 1.0, 1.5, 3.0, 20.0])
        case "decimal":
            places = type.scale or 0
            return Decimal(random.randint(-20 * 10**places, 20 * 10**places)).scaleb(-places)
        case "string":
            return random.choice(WORDS)
        case "json":
            return random.choice(DOCUMENTS)
        case "bytes":
            return random.choice([b"", b"a", b"ab", b"b"])
        case "array":
            few = [None, *(ordinary(random, type.element) for _ in range(2))]
            return encode_array([random.choice(few) for _ in range(random.choice((0, 1, 1, 2, 3)))], type.element)
        case "timestamp":
            return random.randint(-(10**14), 10**14)
    return random.randint(-20, 20)


def extreme(random: Random, type: DataType) -> Any:
    """Values at which arithmetic overflows, and the sentinels that people use for "no end"."""
    match type.name:
        case "float":
            edge = random.choice([5e-324, 1e-200, 1.0, 1e155, 1.7976931348623157e308])
            return random.choice([-1, 0, 1]) * random.choice([edge, random.uniform(0, 10)])
        case "decimal":
            top = 10 ** (type.digits or 38) - 1
            units = random.choice([-top, -top + 1, -1, 0, 1, top - 1, top, random.randint(-top, top)])
            return Decimal(units).scaleb(-(type.scale or 0), EXACT_CONTEXT)
        case "string" | "bytes" | "array" | "json":
            return ordinary(random, type)
    least, greatest = {"timestamp": (TIMESTAMP_MIN, TIMESTAMP_MAX), "date": (DATE_MIN, DATE_MAX)}.get(
        type.name, (INT_MIN, INT_MAX)
    )
    return random.choice([least, least + 1, -1, 0, 1, greatest - 1, greatest, random.randint(least, greatest)])


def chain(random: Random, type: DataType, unbounded: bool = True, draw: Draw = ordinary) -> Chain:
    """With `unbounded`, the ranges may have no end."""
    if type == BOOL:
        return mask_chain(random)
    a, b, value, c, d = sorted(draw(random, type) for _ in range(5))
    if random.random() < 0.5:
        b = c = value
    before, after = [a, d], [b, c]
    for end in (0, 1):
        if unbounded and random.random() < 0.4:
            before[end] = None
            after[end] = None if b != c and random.random() < 0.5 else after[end]
    possible: list[Value] = [a, b, value, c, d]
    nulls_before = nulls_after = NEVER
    if random.random() < 0.25:
        nulls_before, possible = MAYBE, [*possible, None]
        nulls_after = random.choice([MAYBE, NEVER, ONLY])
    before_range = Range(before[0], before[1], nulls_before, random.choice(possible))
    after_range = Range(after[0], after[1], nulls_after, value)
    concrete = None if nulls_after is ONLY or (nulls_after is MAYBE and random.random() < 0.5) else value
    if unbounded and after_range.is_final and random.random() < 0.25:
        return Chain(*_other_domain(random, concrete), concrete)
    return Chain(before_range, after_range, concrete)


def _other_domain(random: Random, value: Value) -> tuple[CellKnowledge, CellKnowledge]:
    pairs: list[tuple[CellKnowledge, CellKnowledge]] = [
        (OnceValue.bottom(), OnceValue.exactly(value)),
        (LatestValue.at(value, 3, 1), LatestValue.exactly(value)),
        (LatestValue.at(None, 2), LatestValue.at(value, 3)),
    ]
    return random.choice(pairs)


def mask_chain(random: Random) -> Chain:
    truths = (True, False, None)
    value = random.choice(truths)
    after = {value} | {v for v in truths if random.random() < 0.4}
    before = after | {v for v in truths if random.random() < 0.5}
    nows = [random.choice(sorted(possible, key=str)) for possible in (before, after)]
    return Chain(Mask.from_truths(before, nows[0]), Mask.from_truths(after, nows[1]), value)


def contains(cell: CellKnowledge, value: Value) -> bool:
    """Whether the value is possible."""
    if isinstance(cell, Mask):
        return value in cell.possible
    if isinstance(cell, LatestValue):
        return cell.bounds.contains(value)
    assert isinstance(cell, Range | OnceValue)
    return (cell if isinstance(cell, Range) else cell.to_range()).contains(value)
