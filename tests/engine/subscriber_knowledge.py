"""Compares messages: later messages may only narrow what earlier ones said, and the final rows are within all of them."""

import re
from collections import Counter
from fractions import Fraction
from typing import Any

from smile.knowledge.values.json import Json
from tests.messages import key_text


class SubscriberKnowledge:
    """The last message about every row that a subscriber received."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], Json] = {}

    def receive(self, message: Json) -> list[str]:
        """What an earlier message said and this one takes back."""
        key = (message["view"], key_text(message))
        before = self.last.get(key)
        self.last[key] = message
        return [] if before is None else [f"{p}: {before}\n    then {message}" for p in broken_by(before, message)]

    def shown(self) -> list[Json]:
        return [m for m in self.last.values() if "deleted" not in m]


def broken_by(before: Json, after: Json) -> list[str]:
    if before["final"]:
        same = {k: v for k, v in before.items() if k != "steps"} == {k: v for k, v in after.items() if k != "steps"}
        return [] if same else ["a final row changed"]
    if "deleted" in before:
        return []
    if "deleted" in after:
        return ["a row that was to stay is gone"] if before.get("stays") else []
    problems = [
        f"{column} is known less than before"
        for column, knowledge in before["knowledge"].items()
        if not _column_narrows(column, knowledge, before, after)
    ]
    if before.get("stays") and not (after.get("stays") or after["final"]):
        problems.append("a row that was to stay no longer is")
    return problems


def _column_narrows(column: str, knowledge: Json, before: Json, after: Json) -> bool:
    later = after["knowledge"].get(column, {"exactly": after["row"][column]})
    if "rows" in knowledge:
        return _rows_narrow(knowledge, before["row"][column], later, after["row"][column])
    return narrows(knowledge, later)


def _rows_narrow(before: Json, rows: list[Json], after: Json, later_rows: list[Json] | None) -> bool:
    """Final rows stay, rows that stay do not get fewer, and a relation that is closed has the same number of rows."""
    if later_rows is None or "unknown" in after:
        return False
    states = after.get("rows", ["final"] * len(later_rows))
    if not before["open"] and (after.get("open") or len(later_rows) != len(rows)):
        return False
    stay = sum(state != "shown" for state in before["rows"])
    return _final_rows(before["rows"], rows) <= _final_rows(states, later_rows) and stay <= sum(
        state != "shown" for state in states
    )


def _final_rows(states: list[str], rows: list[Json]) -> Counter[str]:
    return Counter(str(row) for row, state in zip(rows, states, strict=True) if state == "final")


def narrows(before: Json, after: Json) -> bool:
    """Whether all that is possible after was possible before."""
    if "unknown" in before:
        return True
    if "exactly" in before:
        return after == before
    if "latest" in before:
        return "exactly" in after or after == before or ("latest" in after and _time(before) < _time(after))
    lo, hi = _ends(before)
    # What bounds the values of a column bounds its latest values too.
    later_lo, later_hi = (_value(after["latest"]),) * 2 if "latest" in after else _ends(after)
    if "unknown" in after or ("exactly" in after and after["exactly"] is None):
        return False
    return (lo is None or (later_lo is not None and later_lo >= lo)) and (
        hi is None or (later_hi is not None and later_hi <= hi)
    )


def _time(latest: Json) -> tuple[int, int]:
    """Of two sources at one tick the greater is the later."""
    return int(latest["at"]), latest.get("source", 0)


def _ends(knowledge: Json) -> tuple[Any, Any]:
    if "between" in knowledge:
        return _value(knowledge["between"][0]), _value(knowledge["between"][1])
    if "exactly" in knowledge:
        return _value(knowledge["exactly"]), _value(knowledge["exactly"])
    return _value(knowledge.get("at_least")), _value(knowledge.get("at_most"))


def _value(knowledge: Any) -> Any:
    """Numbers beyond a float travel as text, and are compared as numbers all the same."""
    if isinstance(knowledge, str) and re.fullmatch(r"-?\d+(\.\d+)?", knowledge):
        return Fraction(knowledge)
    if isinstance(knowledge, list):  # an array
        return [(element is None, 0 if element is None else _value(element)) for element in knowledge]
    return knowledge


def unsafe(now: dict[str, Json], end: dict[str, Json]) -> list[str]:
    """What the rows of a view say now that is not true of its rows in the end."""
    problems = []
    for key, message in now.items():
        last = end.get(key)
        if last is None:
            if message["final"] or message.get("stays"):
                problems.append(f"{message} is gone in the end")
            continue
        if message["final"] and message["row"] != last["row"]:
            problems.append(f"{message} was final, and is {last} in the end")
        for column, knowledge in message["knowledge"].items():
            value = last["row"][column]
            if "rows" in knowledge:
                is_allowed = _rows_narrow(knowledge, message["row"][column], {"exactly": value}, value)
            else:
                is_allowed = _allows(knowledge, value)
            if not is_allowed:
                problems.append(f"{column} of {message} is {value} in the end")
    return problems


def _allows(knowledge: Json, value: Any) -> bool:
    if "unknown" in knowledge or "latest" in knowledge:
        return True
    if "exactly" in knowledge:
        return bool(knowledge["exactly"] == value)
    lo, hi = _ends(knowledge)
    value = _value(value)
    return value is not None and (lo is None or value >= lo) and (hi is None or value <= hi)
