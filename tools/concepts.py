"""Draws the pictures of concepts in docs/pictures: `make reference` writes them, and a test compares them. Each is of
what a program of SMILE shows: nothing in them is made up.
"""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from tests.processes import invoke_smile

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = ROOT / "docs" / "pictures"
TICKS_PER_SECOND: Final = 1_024_000_000

THROWS: Final = """
CREATE STREAM Throws (t: time -> player: string NOT NULL, points: int NOT NULL CHECK (points BETWEEN 0 AND 10));
CREATE VIEW Best AS
  SELECT window_end, player, MAX(points) AS best FROM TUMBLE(Throws, t, INTERVAL '1' MINUTE)
  GROUP BY window_end, player;
SUBSCRIBE Best;
"""
EVENTS: Final = ((8, 3), (15, 6), (24, 5), (33, 8), (45, 9))
"""Second and points."""
SILENCE_S: Final = (52, 60, 66)
PLACES: Final = {"matches": (0, 1), "buys": (1, 0), "sells": (1, 2), "floor": (2, 1)}
"""Column and row of each broker."""
FONT: Final = 'font-family="Helvetica, Arial, sans-serif" font-size="13"'
BLUE, LIGHT, GREEN, GREY = "#1f5fbf", "#c9dcf7", "#1b8a4b", "#777777"


@dataclass(frozen=True)
class Known:
    """What is known of the value when everything up to `second` is known."""

    second: float
    lowest: int
    highest: int
    is_final: bool


def replayed() -> list[Known]:
    """What a subscriber of `Best` receives."""
    lines = [
        json.dumps({"stream": "Throws", "at": s * TICKS_PER_SECOND, "event": {"player": "Ann", "points": points}})
        for s, points in EVENTS
    ] + [json.dumps({"stream": "Throws", "silence_to": s * TICKS_PER_SECOND}) for s in SILENCE_S]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "throws.smile").write_text(THROWS)
        (Path(folder) / "throws.events").write_text("\n".join(lines) + "\n")
        words = [
            "replay",
            "throws.smile",
            "--events",
            "throws.events",
            "--changes",
            "--batch",
            "1",
            "--engine",
            "local",
        ]
        done = invoke_smile(*words, cwd=Path(folder))
    assert done.exit_code == 0, done.stderr
    known, newest = list[Known](), None
    for line in map(json.loads, done.stdout.splitlines()):
        if "view" in line:
            newest = line
        elif newest is not None:
            best = newest["knowledge"]["best"]
            lowest, highest = best["between"] if "between" in best else (best["exactly"], best["exactly"])
            known.append(Known(line["progress"]["Throws"] / TICKS_PER_SECOND, lowest, highest, newest["final"]))
    return known


def narrowing() -> str:
    """The bounds of a value, by the horizon: they narrow with every event, and meet when the window is over."""
    known = replayed()
    left, bottom, width, height, end_s = 60, 290, 600, 240, 70

    def x(second: float) -> float:
        return round(left + width * second / end_s, 1)

    def y(points: float) -> float:
        return round(bottom - height * points / 10, 1)

    parts = [f'<line x1="{left}" y1="{bottom}" x2="{left + width}" y2="{bottom}" stroke="{GREY}"/>']
    parts += [_text(left - 12, y(p) + 4, str(p), "end") for p in (0, 5, 10)]
    parts += [_text(x(s), bottom + 20, f"{s} s") for s in range(0, end_s + 1, 10)]
    parts.append(_text(left + width / 2, bottom + 42, "everything up to here is known (the horizon)"))
    ends = [*(k.second for k in known[1:]), float(end_s)]
    for k, until in zip(known, ends, strict=True):
        color = GREEN if k.is_final else LIGHT
        top, size = y(k.highest), max(4.0, round(y(k.lowest) - y(k.highest), 1))
        shift = 2 if k.is_final else 0
        parts.append(
            f'<rect x="{x(k.second)}" y="{top - shift}" width="{round(x(until) - x(k.second), 1)}" height="{size}" '
            f'fill="{color}"/>'
        )
        if not k.is_final:
            parts.append(_line(x(k.second), y(k.lowest), x(until), y(k.lowest), BLUE, 3))
            parts.append(_line(x(k.second), y(k.highest), x(until), y(k.highest), BLUE, 1))
    parts += [
        f'<circle cx="{x(s)}" cy="{y(p)}" r="5" fill="white" stroke="{BLUE}" stroke-width="2"/>' for s, p in EVENTS
    ]
    parts.append(f'<line x1="{x(60)}" y1="30" x2="{x(60)}" y2="{bottom}" stroke="{GREY}" stroke-dasharray="4 4"/>')
    parts.append(_text(x(60), 22, "the window ends"))
    shown = {(k.lowest, k.highest): k for k in reversed(known)}
    for k in shown.values():
        label = f"={k.lowest}" if k.is_final else f"[{k.lowest}..{k.highest}]"
        parts.append(_text(x(k.second) + 4, y(k.highest) - 8, label, "start", GREEN if k.is_final else BLUE))
    return _svg(700, 350, "The bounds of a value narrow with every event, and meet when its window is over", parts)


def network(folder: Path, places: Mapping[str, tuple[int, int]]) -> str:
    """The brokers of a network, with what each program imports from which other."""
    parts, boxes = list[str](), list[str]()
    width, height = 150, 54
    for path in sorted(folder.glob("*.smile")):
        column, row = places[path.stem]
        left, top = 40 + 250 * column, 30 + 110 * row
        text = path.read_text()
        imports: dict[str, list[str]] = {}
        for names, broker in re.findall(r"^IMPORT ([\w, ]+?) FROM (\w+)", text, re.MULTILINE):
            imports.setdefault(broker, []).append(names)
        for broker, names in imports.items():
            from_column, from_row = places[broker]
            x1, y1 = 40 + 250 * from_column + width, 30 + 110 * from_row + height / 2
            x2, y2 = left - 8, top + height / 2
            y2 += 12 if y1 > y2 else -12  # arrows to one broker end beside each other
            parts.append(
                f'<line x1="{x1}" y1="{y1}" x2="{x2 - 6}" y2="{y2}" stroke="{BLUE}" stroke-width="2" '
                'marker-end="url(#end)"/>'
            )
            parts.append(_text((x1 + x2) / 2, (y1 + y2) / 2 + 4, ", ".join(names), color=BLUE, halo=True))
        views = ", ".join(re.findall(r"^SUBSCRIBE ([\w, ]+);", text, re.MULTILINE))
        boxes.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="{LIGHT}"/>')
        boxes.append(_text(left + width / 2, top + 22, path.stem, color="black", weight="bold"))
        boxes.append(_text(left + width / 2, top + 42, views))
    marker = (
        '<defs><marker id="end" markerWidth="8" markerHeight="8" refX="2" refY="4" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{BLUE}"/></marker></defs>'
    )
    columns, rows = max(c for c, _ in places.values()), max(r for _, r in places.values())
    size = 80 + 250 * columns + width, 60 + 110 * rows + height
    return _svg(*size, "Brokers, and what they import from each other", [marker, *parts, *boxes])


def _line(x1: float, y1: float, x2: float, y2: float, color: str, width: int) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-width="{width}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    anchor: str = "middle",
    color: str = GREY,
    weight: str = "normal",
    halo: bool = False,
) -> str:
    around = ' stroke="white" stroke-width="6" paint-order="stroke"' if halo else ""
    return (
        f'<text x="{round(x, 1)}" y="{round(y, 1)}" text-anchor="{anchor}" fill="{color}" '
        f'font-weight="{weight}"{around} {FONT}>'
        f"{escape(text)}</text>"
    )


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", background, *parts, "</svg>", ""])


def concept_pictures() -> dict[Path, str]:
    floor = ROOT / "programs" / "network" / "tradefloor"
    return {
        PICTURES / "knowledge-narrows.svg": narrowing(),
        PICTURES / "network-tradefloor.svg": network(floor, PLACES),
    }
