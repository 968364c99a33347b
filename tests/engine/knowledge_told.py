"""Messages held against each other: later ones only narrow what earlier ones said, and the end is within all of them."""

import re
from fractions import Fraction
from typing import Any

from smile.knowledge.values.json import Json


class Told:
    """What a subscriber has been told of every row."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], Json] = {}

    def hear(self, message: Json) -> list[str]:
        """What an earlier message said and this one takes back."""
        key = (message["view"], str(message["key"]))
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
    found = [
        f"{column} is known less than before"
        for column, knowledge in before["knowledge"].items()
        if not narrows(knowledge, after["knowledge"].get(column, {"exactly": after["row"][column]}))
    ]
    if before.get("stays") and not (after.get("stays") or after["final"]):
        found.append("a row that was to stay no longer is")
    return found


def narrows(before: Json, after: Json) -> bool:
    """Whether all that is possible after was possible before."""
    if "unknown" in before:
        return True
    if "exactly" in before:
        return after == before
    if "latest" in before:
        # Of two sources at one tick the greater is the later, and messages do not name it.
        return "exactly" in after or ("latest" in after and int(before["at"]) <= int(after["at"]))
    lo, hi = _ends(before)
    later_lo, later_hi = _ends(after)
    if "unknown" in after or ("exactly" in after and after["exactly"] is None):
        return False
    return (lo is None or (later_lo is not None and later_lo >= lo)) and (
        hi is None or (later_hi is not None and later_hi <= hi)
    )


def _ends(knowledge: Json) -> tuple[Any, Any]:
    if "between" in knowledge:
        return _value(knowledge["between"][0]), _value(knowledge["between"][1])
    if "exactly" in knowledge:
        return _value(knowledge["exactly"]), _value(knowledge["exactly"])
    return _value(knowledge.get("at_least")), _value(knowledge.get("at_most"))


def _value(told: Any) -> Any:
    """Numbers beyond a float travel as text, and are compared as numbers all the same."""
    if isinstance(told, str) and re.fullmatch(r"-?\d+(\.\d+)?", told):
        return Fraction(told)
    return told


def unsafe(now: dict[str, Json], end: dict[str, Json]) -> list[str]:
    """What is told now and is not so in the end; both are the rows of one view."""
    found = []
    for key, message in now.items():
        last = end.get(key)
        if last is None:
            if message["final"] or message.get("stays"):
                found.append(f"{message} is gone in the end")
            continue
        if message["final"] and message["row"] != last["row"]:
            found.append(f"{message} was final, and is {last} in the end")
        for column, knowledge in message["knowledge"].items():
            value = last["row"][column]
            if not _allows(knowledge, value):
                found.append(f"{column} of {message} is {value} in the end")
    return found


def _allows(knowledge: Json, value: Any) -> bool:
    if "unknown" in knowledge or "latest" in knowledge:
        return True
    if "exactly" in knowledge:
        return bool(knowledge["exactly"] == value)
    lo, hi = _ends(knowledge)
    value = _value(value)
    return value is not None and (lo is None or value >= lo) and (hi is None or value <= hi)
