"""Cells of the tables in test files: a value, and what is known of it. What is printed here is read back as the same.

Values and knowledge are JSON values, as subscribers receive them. docs/test-files.md describes the notation.
"""

import json
import re
from typing import Any

from msgspec import Raw

from smile.algebra.coercions import parse_literal
from smile.algebra.types import STRING, DataType, array_type
from smile.knowledge.values.json import Json, plain_json, tick_json
from smile.testing.ticks import TICK, parse_tick, print_tick

QUOTED = r'"(?:[^"\\]|\\.)*"'
_BARE = r'[^\s|"@=≥≤?\[\]{}]+?'
_SIMPLE = re.compile(r'(?!NULL$)(?!.*\.\.)[^\s|"@=≥≤?\[\]{}]+')
"""Text that needs no quotes."""


def parse_cell(text: str, data: DataType, evolves: bool) -> tuple[Any, Json | None]:
    """The current value, and what is known of it if it evolves. ValueError says what is wrong."""
    if not text:
        raise ValueError('a cell is empty; write NULL, or "" for an empty text')
    if not evolves:
        return parse_value(text, data), None
    if data.name == "relation":
        return _parse_evolving_relation(text)
    if data.name == "array":
        return _parse_evolving_array(text)
    value = TICK + "|NULL" if data.name in ("time", "interval") else f"{QUOTED}|{_BARE}"
    match = re.fullmatch(
        rf"(?:(?P<now>{value})\s+)?"
        rf"(?:(?P<unknown>\?)|(?P<sign>[=≥≤])(?P<bound>{value})|\[(?P<low>{value})\.\.(?P<high>{value})\]"
        rf"|(?P<latest>{value})(?P<at>{TICK})(?:/(?P<source>\d+))?)",
        text,
    )
    if match is None:
        hint = "write for example =4, ≥3, ≤7, 5 [2..7], 80@17, ? or 5 ?; text with other signs than letters in quotes"
        raise ValueError(f"{text!r} does not say what is known of a value that evolves; {hint}")
    knowledge = _knowledge(match, data)
    if match["now"] is not None:
        if "exactly" in knowledge:
            raise ValueError(f"{text!r} gives a current value beside an exact one")
        return parse_value(match["now"], data), knowledge
    if "between" in knowledge:
        raise ValueError(f"{text!r} has no current value; write it before the bounds, for example 5 [2..7]")
    return _implied_value(knowledge), knowledge


def _knowledge(match: re.Match[str], data: DataType) -> Json:
    if match["unknown"]:
        return {"unknown": True}
    if match["sign"]:
        word = {"=": "exactly", "≥": "at_least", "≤": "at_most"}[match["sign"]]
        return {word: parse_value(match["bound"], data)}
    if match["low"] is not None:
        return {"between": [parse_value(match["low"], data), parse_value(match["high"], data)]}
    source = {"source": int(match["source"])} if match["source"] else {}
    return {"latest": parse_value(match["latest"], data), "at": tick_json(parse_tick(match["at"])), **source}


def _implied_value(knowledge: Json) -> Any:
    """The current value that a cell does not state: the one bound that is known, or NULL."""
    return next((knowledge[word] for word in ("exactly", "at_least", "at_most", "latest") if word in knowledge), None)


def _parse_evolving_relation(text: str) -> tuple[Any, Json]:
    if text.startswith("="):
        value = parse_json(text[1:])
        return value, {"exactly": value}
    if text.startswith("≥"):
        value = parse_json(text[1:])
        return value, {"rows": ["final"] * len(value), "open": True}
    if text.endswith("?"):
        return parse_json(text[:-1]) if text != "?" else None, {"unknown": True}
    match = re.fullmatch(r"(?P<rows>\[.*\])(?P<states>(?: (?:final|stays|shown))*) (?P<open>open|closed)", text)
    if match is None:
        hint = "write =[…], ≥[…], […] ?, or for example […] final shown open, with a state for each row"
        raise ValueError(f"{text!r} does not say what is known of a relation; {hint}")
    value, states = parse_json(match["rows"]), match["states"].split()
    if len(states) != len(value):
        raise ValueError(f"{text!r} has {len(value)} rows, and {len(states)} states")
    return value, {"rows": states, "open": match["open"] == "open"}


def _parse_evolving_array(text: str) -> tuple[Any, Json]:
    data = array_type(STRING)  # elements are JSON, whatever their type
    if text[0] in "=≥≤":
        value = parse_value(text[1:], data)
        return value, {{"=": "exactly", "≥": "at_least", "≤": "at_most"}[text[0]]: value}
    if not text.endswith("?"):
        raise ValueError(f"{text!r} does not say what is known of an array; write =[…], ≥[…], ≤[…], […] ? or ?")
    return parse_value(text[:-1].strip(), data) if text != "?" else None, {"unknown": True}


def print_cell(value: Any, knowledge: Json | None, data: DataType) -> str:
    if knowledge is None:
        return print_value(value, data)
    if "between" in knowledge:
        low, high = (print_value(bound, data) for bound in knowledge["between"])
        shown = f"[{low}..{high}]"
    elif "latest" in knowledge:
        source = f"/{knowledge['source']}" if "source" in knowledge else ""
        shown = f"{print_value(knowledge['latest'], data)}{print_tick(int(knowledge['at']))}{source}"
    elif "rows" in knowledge:
        if knowledge["open"] and set(knowledge["rows"]) <= {"final"}:
            return "≥" + print_value(value, data)
        states = [*knowledge["rows"], "open" if knowledge["open"] else "closed"]
        return f"{print_value(value, data)} {' '.join(states)}"
    elif "unknown" in knowledge:
        shown = "?"
    else:
        [(word, bound)] = knowledge.items()
        shown = {"exactly": "=", "at_least": "≥", "at_most": "≤"}[word] + print_value(bound, data)
    is_implied = "between" not in knowledge and _implied_value(knowledge) == value
    return shown if is_implied else f"{print_value(value, data)} {shown}"


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def parse_value(text: str, data: DataType) -> Any:
    if text == "NULL":
        return None
    if data.name in ("relation", "array"):
        return parse_json(text)
    if data.name in ("time", "interval"):
        return tick_json(parse_tick(text))
    if text.startswith('"'):
        text = parse_json(text)
    elif not _SIMPLE.fullmatch(text):
        raise ValueError(f"{text!r} has to be in double quotes")
    return plain_json(parse_literal(text, data), data)


def print_value(value: Any, data: DataType) -> str:
    if value is None:
        return "NULL"
    if data.name == "relation":
        columns = dict(data.columns)
        rows = [", ".join(f"{json.dumps(c)}: {_print_json(v, columns[c])}" for c, v in row.items()) for row in value]
        return "[" + ", ".join(f"{{{row}}}" for row in rows) + "]"
    if data.name == "array":
        return "[" + ", ".join(_print_json(element, data.element) for element in value) + "]"
    if data.name in ("time", "interval"):
        return print_tick(int(value))
    if isinstance(value, bool):
        return str(value).lower()
    text = bytes(value).decode() if isinstance(value, Raw) else str(value)
    return text if _SIMPLE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _print_json(value: Any, data: DataType) -> str:
    if value is None or data.name not in ("relation", "array", "time", "interval"):
        return bytes(value).decode() if isinstance(value, Raw) else json.dumps(value, ensure_ascii=False)
    return print_value(value, data)


def parse_json(text: str) -> Any:
    """JSON in which ticks may stand for numbers."""
    try:
        return json.loads(plain_ticks(text))
    except json.JSONDecodeError as problem:
        raise ValueError(f"{text!r} is not JSON: {problem}") from None


def plain_ticks(text: str) -> str:
    """JSON with its ticks written as JSON numbers, or as text beyond 2^53."""

    def replace_tick(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else json.dumps(tick_json(parse_tick(match[0])))

    return re.sub(f"{QUOTED}|{TICK}", replace_tick, text)
