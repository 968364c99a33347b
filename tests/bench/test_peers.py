"""Peers get the recorded events, and a figure counts only if the peer's final Matchable is right."""

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from bench.peers import build, postgres, run
from bench.peers.prepare import SCHEMA, expected_matchable, write_event_files
from bench.peers.protocol import PeerArguments, canonical_lines, digest, print_result
from bench.peers.run import (
    EventFileCache,
    EventFiles,
    PeerError,
    PeerOutput,
    PeerResult,
    PeerSetting,
    describe_difference,
    measure_setting,
    output,
    parse_output,
)
from bench.workload import MATCH, tradefloor_blocks
from tests.reference.postgres import Connection

SEED = 7
EVENTS = 1_500
ROWS = [("S002", 10000, 5120, 300, 2048, 100), ("S001", 10025, 1024, 200, 3072, 500)]
LINES = ["S001,10025,1024,200,3072,500", "S002,10000,5120,300,2048,100"]


@pytest.fixture(scope="module")
def blocks() -> list[pa.RecordBatch]:
    return list(tradefloor_blocks(EVENTS, SEED))


@pytest.fixture(scope="module")
def folder(blocks: list[pa.RecordBatch], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_event_files(blocks, folder, 600)
    return folder


# ── the canonical form ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_canonical_form_is_sorted_lines_whatever_the_order_of_rows() -> None:
    assert canonical_lines(ROWS) == canonical_lines(reversed(ROWS)) == LINES
    assert canonical_lines([list(map(str, row)) for row in ROWS]) == LINES


def test_the_digest_is_that_of_the_lines() -> None:
    assert digest(LINES) == hashlib.sha256(("\n".join(LINES) + "\n").encode()).hexdigest()
    assert digest(LINES) != digest(LINES[:1])


def test_the_expected_matchable_is_the_join_of_open_bids(blocks: list[pa.RecordBatch]) -> None:
    table = pa.Table.from_batches(blocks)
    bids: list[dict[int, list[Any]]] = [{}, {}]
    for stream, tick, one, other, shares in zip(*(c.to_pylist() for c in table.columns), strict=True):
        if stream == MATCH:
            bids[0][one][2] -= shares
            bids[1][other][2] -= shares
        else:
            bids[stream][tick] = [f"S{one:03}", other, shares]
    pairs = [
        f"{issue},{price},{buy},{buy_remaining},{sell},{sell_remaining}"
        for buy, (issue, price, buy_remaining) in bids[0].items()
        for sell, (*level, sell_remaining) in bids[1].items()
        if level == [issue, price] and buy_remaining > 0 and sell_remaining > 0
    ]
    assert expected_matchable(blocks) == sorted(pairs) != []


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_form_of_the_events_has_them_all_in_order(blocks: list[pa.RecordBatch], folder: Path) -> None:
    table = pa.Table.from_batches(blocks)
    expected = [
        (kind, "", 0, one, other, shares)
        if kind == MATCH
        else (kind, f"S{one:03}", other, *((tick, 0) if kind == 0 else (0, tick)), shares)
        for kind, tick, one, other, shares in zip(*(c.to_pylist() for c in table.columns), strict=True)
    ]
    types = pcsv.ConvertOptions(column_types=SCHEMA)
    plain = pcsv.read_csv(folder / "plain" / "events.csv", pcsv.ReadOptions(column_names=SCHEMA.names), None, types)
    headed = pcsv.read_csv(folder / "headed" / "events.csv", convert_options=types)
    paths = sorted((folder / "parquet").iterdir())
    assert all(a.stat().st_mtime < b.stat().st_mtime for a, b in pairwise(paths))  # Spark reads them in this order
    parts = [pq.read_table(path) for path in paths]
    assert [part.num_rows for part in parts] == [600, 600, 300]
    for events in (plain, headed, pa.concat_tables(parts)):
        assert list(zip(*(c.to_pylist() for c in events.columns), strict=True)) == expected


def test_fewer_events_are_the_beginning_of_more(blocks: list[pa.RecordBatch], tmp_path: Path) -> None:
    recordings = EventFileCache(blocks, tmp_path)
    fewer = recordings.first_events(500)
    assert recordings.first_events(500) is fewer
    assert (
        fewer.matchable
        == expected_matchable(list(tradefloor_blocks(500, SEED)))
        != recordings.first_events(EVENTS).matchable
    )
    assert pq.read_table(fewer.folder / "parquet").num_rows == 500


# ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_result_of_a_peer_is_read_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "lines"
    print_result("Peer 1.0", PeerArguments("fast", tmp_path, 1000, path), 0.5, 2.0, iter(ROWS))
    assert parse_output("a library's greeting\n" + capsys.readouterr().out) == PeerOutput(
        "Peer 1.0", 1000, 2.0, 0.5, digest(LINES)
    )
    assert path.read_text().splitlines() == LINES


@pytest.mark.parametrize("printed", ["", "Killed", "[]", '{"peer": "Peer 1.0"}', "17"])
def test_anything_else_is_a_failure(printed: str) -> None:
    with pytest.raises(PeerError, match="printed no result"):
        parse_output(printed)


def test_rates_are_with_and_without_start_up() -> None:
    result = PeerResult("Peer", "fast", 1000, 2.0, 3.0)
    assert (result.rate, result.rate_with_startup) == (500.0, 200.0)


def test_a_difference_names_a_row_of_each_kind() -> None:
    assert (
        describe_difference([LINES[0], "x"], LINES)
        == f"Matchable is wrong: 1 rows too many, 1 too few; it has x and lacks {LINES[1]}"
    )
    assert "1 rows too many, 0 too few" in describe_difference([*LINES, LINES[0]], LINES)


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_peer_that_fails_is_quoted() -> None:
    with pytest.raises(PeerError, match="failed with 3: out of luck"):
        output([sys.executable, "-c", "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"])


@pytest.mark.slow
def test_a_peer_that_takes_too_long_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    # The outer process ends on SIGTERM; the inner one ignores it.
    started = tmp_path / "started"
    inner = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(started)!r}, 'w'); time.sleep(60)"
    outer = f"import subprocess, sys; subprocess.call([sys.executable, '-ISc', {inner!r}])"
    begin = time.monotonic()
    with pytest.raises(PeerError, match=r"not done within 1\.5 s"):
        output([sys.executable, "-ISc", outer], 1.5)
    assert started.exists()
    assert time.monotonic() - begin < run.STOP_S_MAX
    time.sleep(0.1)  # killed processes disappear a moment later
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(started).encode() in _read(path)] == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Peers:
    """Simulated peers, which return a given Matchable and record their commands."""

    def __init__(self, matchable: list[str]) -> None:
        self.matchable = matchable
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str | Path]) -> str:
        self.commands.append(list(map(str, command)))
        checked = "--matchable" in self.commands[-1]
        if checked:
            Path(command[-1]).write_text("".join(f"{line}\n" for line in self.matchable))
        line = {"peer": "Peer 1.0", "events": int(self.commands[-1][5]), "seconds": 2.0, "startup_seconds": 3.0}
        return json.dumps(line | {"matchable": digest(self.matchable) if checked else None})


@pytest.fixture
def recordings(tmp_path: Path) -> EventFileCache:
    files = EventFileCache([], tmp_path)
    files.events = 100_000
    files.first_events = lambda events: EventFiles(tmp_path, events, LINES)  # type: ignore[assignment] # nothing is prepared
    return files


@pytest.mark.parametrize(
    ("setting", "events", "checked"),
    [
        (PeerSetting("postgres", "x", "Peer", "fast"), 100_000, [100_000]),
        (PeerSetting("postgres", "x", "Peer", "fast", 30_000), 30_000, [30_000]),
        (PeerSetting("postgres", "x", "Peer", "fast", check_separately=True), 100_000, [20_000]),
    ],
)
def test_every_setting_is_checked(
    setting: PeerSetting, events: int, checked: list[int], recordings: EventFileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = Peers(LINES)
    monkeypatch.setattr(run, "output", peers)
    assert measure_setting(setting, recordings) == PeerResult("Peer 1.0", "fast", events, 2.0, 3.0)
    assert [int(c[5]) for c in peers.commands if "--matchable" in c] == checked
    peers.matchable = LINES[:1]
    wrong = measure_setting(setting, recordings)
    assert (wrong.events, wrong.problem) == (0, f"Matchable is wrong: 0 rows too many, 1 too few; it lacks {LINES[1]}")


# ── environments ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_peer_counts_as_built_only_with_its_present_requirements(
    tmp_path: Path, recordings: EventFileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PEERS", tmp_path)
    setting = PeerSetting("flink", "mini-batch", "Flink SQL", "fast")
    assert measure_setting(setting, recordings) == PeerResult(
        "Flink SQL", "fast", problem="not built (make bench-peers)"
    )
    stamp = tmp_path / "flink" / "built-of.txt"
    stamp.parent.mkdir()
    stamp.write_text("apache-flink==1.0\n")
    assert not build.is_built("flink")
    stamp.write_text(build.requirements_path("flink").read_text())
    assert build.is_built("flink")


@pytest.mark.parametrize("peer", build.SEPARATE_PEERS)
def test_requirements_are_pinned_exactly(peer: str) -> None:
    lines = build.requirements_path(peer).read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    assert any(peer in line for line in lines)


def test_every_setting_has_a_module_and_a_line_of_its_own() -> None:
    for setting in run.SETTINGS:
        assert (Path(run.__file__).parent / f"{setting.module}.py").exists()
    assert len({(s.peer, s.text) for s in run.SETTINGS}) == len(run.SETTINGS)
    assert {s.name for s in run.SETTINGS if s.module == "postgres"} == set(postgres.SETTINGS)


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def floor() -> Iterator[Connection]:
    with postgres.open_database() as connection:
        yield connection


@pytest.mark.slow
@pytest.mark.parametrize("setting", [*postgres.SETTINGS, "7"])
def test_the_procedures_of_postgresql_give_the_expected_matchable(
    setting: str, blocks: list[pa.RecordBatch], folder: Path, floor: Connection
) -> None:
    """Batches of 7 match bids of earlier batches; the larger ones contain all these events."""
    take = postgres.SETTINGS.get(setting) or postgres.call_per_block("take_together", int(setting))
    floor.execute("TRUNCATE Remainingbuy, Remainingsell")
    take(floor, postgres.read_columns(folder, EVENTS))
    assert canonical_lines(postgres.matchable_rows(floor)) == expected_matchable(blocks)
