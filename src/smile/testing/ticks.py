"""Ticks as test files write them: `@17`, `@1h30m`, `@7m-1`, `@end`. docs/test-files.md describes them."""

import re

from smile.algebra.types import INT_MAX, TICKS_PER_MICROSECOND

UNITS = {
    "h": 3_600_000_000 * TICKS_PER_MICROSECOND,
    "m": 60_000_000 * TICKS_PER_MICROSECOND,
    "s": 1_000_000 * TICKS_PER_MICROSECOND,
    "ms": 1_000 * TICKS_PER_MICROSECOND,
}
"""Ticks of each unit, the largest first."""

_AMOUNT = r"(?:end|(?:\d+(?:ms|h|m|s))+|\d+)"
TICK = rf"@-?{_AMOUNT}(?:[+-]{_AMOUNT})*"
"""A regular expression for a tick."""

REST_MAX = 1000
"""A tick that is at most so far from a whole number of milliseconds is written in units and this distance."""
HOURS_MAX = 1000
"""A tick beyond so many hours is written as a number."""


def parse_tick(text: str) -> int:
    """ValueError if the text is not a tick."""
    if not re.fullmatch(TICK, text):
        raise ValueError(f"{text!r} is not a tick; write for example @17, @1h30m, @7m-1 or @end")
    return sum(_amount(term) for term in re.findall(rf"[+-]?{_AMOUNT}", text[1:]))


def _amount(term: str) -> int:
    sign, digits = (-1 if term.startswith("-") else 1), term.lstrip("+-")
    if digits == "end":
        return sign * INT_MAX
    if digits.isdigit():
        return sign * int(digits)
    return sign * sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", digits))


def print_tick(tick: int) -> str:
    if 0 <= INT_MAX - tick <= REST_MAX:
        return "@end" + (f"-{INT_MAX - tick}" if tick < INT_MAX else "")
    milliseconds = round(tick / UNITS["ms"])
    rest = tick - milliseconds * UNITS["ms"]
    if milliseconds <= 0 or abs(rest) > REST_MAX or tick > HOURS_MAX * UNITS["h"]:
        return f"@{tick}"
    whole, text = tick - rest, "@"
    for unit, size in UNITS.items():
        if whole >= size:
            text += f"{whole // size}{unit}"
            whole %= size
    return text + (f"{rest:+}" if rest else "")
