"""`smile demo network`: four brokers, of which two are cut off from each other, with a terminal and without."""

import re
import signal
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from smile.cli.network_display import LinkView, NetworkDisplay, broker_horizons, import_behind_s, views_behind_s
from smile.cli.view_display import ViewDisplay
from smile.client import Rows
from smile.client.changes import Schema
from smile.client.ticks import TICKS_PER_SECOND
from smile.demo.broker_network import TRADE_FLOOR
from tests.processes import Terminal, run_smile

SUMMARY = (
    r"floor ← buys was cut for (\S+) s: floor was up to (\S+) s behind, and ([\d,]+) rows of Matchable changed meanwhile;"
    r" it had caught up \S+ s after it was healed"
)


@pytest.mark.slow
def test_a_link_is_cut_and_healed_without_a_terminal(tmp_path: Any) -> None:
    done = run_smile("demo", "network", "--seconds", "12", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    events = [line.split(maxsplit=2)[2] for line in lines if re.search(r" s  (cut|healed|floor ←)", line)]
    assert events == ["cut floor ← buys", "healed floor ← buys", "floor ← buys has caught up"]
    summary = re.fullmatch(SUMMARY, lines[-1])
    assert summary, lines[-1]
    assert float(summary[1]) >= 4 and float(summary[2]) > 2
    assert int(summary[3].replace(",", "")) > 0, "the other links do not wait"


@pytest.mark.slow
def test_keys_cut_and_heal_a_link() -> None:
    with Terminal("demo", "network", columns=100, lines=30) as terminal:
        try:
            terminal.read_until(r"keys: 1-4 cut or heal a link, q ends")
            terminal.read_until(r"3 +floor ← buys +RemainingBuy +open")
            terminal.type(b"3")
            terminal.read_until(r"floor +Matchable .* [3-9]\.\d s \| [01]\.\d s\n")  # Matches: by buys, and by sells
            terminal.read_until(r"3 +floor ← buys +RemainingBuy +CUT \d+ s, open .* [3-9]\.\d s\n")
            terminal.type(b"3")
            terminal.read_until(r"3 +floor ← buys +RemainingBuy +open .* [01]\.\d s\n")
            terminal.type(b"q")
            terminal.read_until(SUMMARY.replace(" ", r"\s+"))
        except BaseException:
            terminal.process.send_signal(signal.SIGINT)  # it stops its brokers
            terminal.wait()
            raise
        assert terminal.wait() == (0, "")


# ── what is drawn ───────────────────────────────────────────────────────────────────────────────────────────────────

NOW = 1_700_000_000.0


def tick(age_s: float) -> str:
    return str(int((NOW - age_s) * TICKS_PER_SECOND))


def status(views: dict[str, Any], imports: dict[str, Any], links: list[Any], **streams: str) -> dict[str, Any]:
    return {
        "at": NOW,
        "views": {name: {"rows": 5, "horizons": horizons} for name, horizons in views.items()},
        "streams": {name: {"horizon": horizon} for name, horizon in streams.items()},
        "imports": imports,
        "links": links,
    }


def open_link(neighbour: str) -> dict[str, Any]:
    received = {"rows_per_s": 12.0, "bytes_per_s": 3400.0}
    return {"neighbour": neighbour, "state": "open", "received": received, "delay_ms": 0.5, "questions_asked": 2}


FLOOR_HORIZONS = {
    "RemainingBuy/BuyBids": tick(7),
    "RemainingBuy/Matches": tick(7),
    "RemainingSell/SellBids": tick(0.1),
    "RemainingSell/Matches": tick(0.1),
}
STATUSES = {
    "matches": status({}, {}, [open_link("buys"), open_link("sells")], Matches=tick(0.1)),
    "buys": status(
        {"RemainingBuy": {"BuyBids": tick(0.1), "Matches": "-1"}},
        {"Matches": {"broker": "matches", "behind_s": None}},
        [open_link("matches"), open_link("floor")],
    ),
    "sells": status(
        {"RemainingSell": {"SellBids": tick(0.1), "Matches": tick(0.2)}},
        {"Matches": {"broker": "matches", "behind_s": 0.2}},
        [open_link("matches"), open_link("floor")],
    ),
    "floor": status(
        {"Matchable": FLOOR_HORIZONS},
        {
            "RemainingBuy": {"broker": "buys", "behind_s": 7.0},
            "RemainingSell": {"broker": "sells", "behind_s": 0.1},
        },
        [{"neighbour": "buys", "state": "absent"}, open_link("sells")],
    ),
}


def test_the_horizons_of_a_broker_say_on_which_way_a_stream_comes() -> None:
    horizons = broker_horizons(STATUSES["floor"])
    assert {stream: list(ways) for stream, ways in horizons.items()} == {
        "BuyBids": ["RemainingBuy"],
        "SellBids": ["RemainingSell"],
        "Matches": ["RemainingBuy", "RemainingSell"],
    }
    assert broker_horizons(STATUSES["matches"]) == {"Matches": {"": int(tick(0.1))}}
    assert import_behind_s(STATUSES["floor"], "buys") == 7.0
    assert views_behind_s(STATUSES["floor"], "buys") == pytest.approx(7.0)
    assert views_behind_s(STATUSES["sells"], "matches") == pytest.approx(0.2)
    assert views_behind_s(STATUSES["buys"], "matches") is None
    assert import_behind_s(STATUSES["buys"], "matches") is None


@pytest.mark.parametrize("width", [80, 140])
def test_a_network_fits_a_terminal(width: int) -> None:
    rows = Rows()
    rows.set_schema(Schema("Matchable", (), {}, ()))
    display = NetworkDisplay(("BuyBids", "SellBids", "Matches"), ViewDisplay(rows, lambda: True, lambda: NOW))
    links = [LinkView(link, 9.0 if link.called == "buys" else None) for link in TRADE_FLOOR.links]
    console = Console(file=StringIO(), width=width)
    console.print(display.render(STATUSES, links, ["the end"], (width, 24)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = text.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines) and len(lines) <= 24
    assert re.search(r"^floor +Matchable +5 +7\.0 s +0\.1 s +7\.0 s \| 0\.1 s", text, re.MULTILINE)
    assert re.search(r"^buys +RemainingBuy +5 +0\.1 s +nothing", text, re.MULTILINE)
    assert re.search(r"^3 +floor ← buys +RemainingBuy +CUT 9 s, absent .* 7\.0 s", text, re.MULTILINE)
    assert re.search(r"^4 +floor ← sells +RemainingSell +open +12 +3\.4", text, re.MULTILINE)
