"""The grid: what its consumer has received is compared with the logs of the producers, and who asks whom is drawn."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from smile.algebra import mmpl
from smile.analysis.global_streams import global_import
from smile.cli.grid_demo import REPUBLISHERS
from smile.cli.grid_display import GridBroker, GridDisplay
from smile.cli.log_comparison import compare_logs
from smile.cli.view_display import ViewDisplay
from smile.client import Rows
from smile.client.changes import Schema
from smile.decoding.stream_schema import StreamSchema
from smile.demo.broker_network import GRID, NetworkLink
from smile.demo.grid import RELATION, SENSORS
from smile.horizons import HORIZON_MIN
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from smile.program import compile_program
from smile.source import Source

NTP = compile_program(Source("hw.smile", GRID.programs["hw"].read_text())).original.streams[0]
CONDITION = "from = 'hw' AND psize >= 1024"


def event(tick: int, site: str, size: int = 64) -> list[Any]:
    return [tick, site, "cern", "ping", size, float(tick)]


def write_log(path: Path, stream: mmpl.StreamDef, events: dict[str, list[list[Any]]]) -> Path:
    """A log with these events of each origin."""
    log, schema = DurableLog.open_or_create(str(path), [NTP, stream] if stream != NTP else [NTP]), StreamSchema(stream)
    pieces = []
    for origin, rows in events.items():
        lo = HORIZON_MIN
        for row in rows:
            pieces.append(StreamPiece(stream.name, origin, lo, row[0], schema.record_batch(row)))
            lo = row[0]
    log.append(pieces)
    log.close()
    return path


def test_logs_are_compared_event_by_event(tmp_path: Path) -> None:
    import_ = global_import(NTP, "ntp.global")
    assert import_.stream is not None
    published = {site: [event(10 * n + i, site, 1024 * i) for i in (1, 2, 3)] for n, site in enumerate(SENSORS, 1)}
    producers = [write_log(tmp_path / site, NTP, {"0": rows}) for site, rows in published.items()]
    received = {str(n): rows for n, rows in enumerate(published.values(), 2)}
    plans = [{"name": "ntp.global", "where": where} for where in ("TRUE", CONDITION)]
    complete = write_log(tmp_path / "complete", import_.stream, received)
    first, second = compare_logs(RELATION, producers, complete, plans)
    assert (first.published, first.lost, first.doubled) == (9, 0, 0)
    assert (second.published, second.lost, second.doubled) == (3, 0, 6), "what it did not ask for counts as well"
    assert str(first) == "9 events in all: lost 0, doubled 0"
    changed = {**received, "2": [received["2"][0], event(14, "hw", 7), event(15, "hw", 7)]}
    (third,) = compare_logs(RELATION, producers, write_log(tmp_path / "changed", import_.stream, changed), plans[:1])
    assert (third.lost, third.doubled) == (2, 2)


def test_later_brokers_call_those_that_run() -> None:
    """The republishers join the others while the demo runs."""
    running = [name for name in GRID.programs if name not in REPUBLISHERS]
    for name in REPUBLISHERS:
        assert {link.called for link in GRID.links if link.caller == name} <= {*running}
        running.append(name)
    assert NetworkLink("r3", "desk") in GRID.links


def plan(name: str, where: str, *sources: tuple[str, str, str], ending: tuple[tuple[str, str, str], ...] = ()) -> Any:
    reports = [[{"stream": s, "broker": b, "where": w} for s, b, w in part] for part in (sources, ending)]
    is_republisher = "global" not in name
    return {
        "name": name, "where": where, "republisher": is_republisher,
        "sources": reports[0], "ending": reports[1], "absent": [],
    }  # fmt: skip


def linked(*neighbours: str) -> Any:
    return {"links": [{"neighbour": n, "state": "open", "received": {"rows_per_s": 12.0}} for n in neighbours]}


BROKERS = [
    GridBroker("r1", "1", {"plans": [plan("R1", "from = 'hw'", ("ntp", "hw", "from = 'hw'"))]}, linked("hw")),
    GridBroker("r2", "2", None, None),
    GridBroker("r3", "3", None, None, killed_for_s=4.2),
    GridBroker(
        "desk",
        "",
        {
            "plans": [
                plan(
                    "ntp.global", "TRUE",
                    ("R1", "r1", ""), ("ntp", "cern", "from IS DISTINCT FROM 'hw' AND from IS DISTINCT FROM 'ral'"),
                    ending=(("R3", "r3", ""),),
                ),
                plan("ntp.global.ab", CONDITION, ("R1", "r1", CONDITION)),
            ]
        },
        linked("r1", "cern"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("width", [80, 140])
def test_who_asks_whom_is_drawn(width: int) -> None:
    rows = Rows()
    rows.set_schema(Schema("Channels", (), {}, ()))
    console = Console(file=StringIO(), width=width)
    display = GridDisplay(ViewDisplay(rows, lambda: True, lambda: 0.0))
    console.print(display.render(BROKERS, ["the end"], (width, 24)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = text.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines) and len(lines) <= 24
    for pattern in (
        r"^1 +R1@r1 +ntp@hw +from = 'hw' +12 +up",
        r"^2 +r2 +starting",
        r"^3 +r3 +KILLED 4 s",
        r"^ +desk +R1@r1 +everything +12 +up",
        r"^ +ntp@cern +from ≠ 'hw' AND from ≠ 'ral' +12",
        r"^ +R3@r3 +everything \(ending\)",
        r"^ +R1@r1 +from = 'hw' AND psize >= 1024 *$",
    ):
        assert re.search(pattern, text, re.MULTILINE), (pattern, text)


def test_what_a_broker_asks_by_query() -> None:
    assert BROKERS[3].asked == {"TRUE": ["R1@r1", "ntp@cern"], CONDITION: ["R1@r1"]}
