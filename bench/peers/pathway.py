"""Trade-Floor in Pathway: two worker threads, which read a CSV file and write to null sinks.

The remainder of a bid is one sum: its shares minus those traded. That was faster than the formulation in the paper,
which joins bids with an aggregate of matches.
"""

import os
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

from bench.peers.protocol import (
    BUY,
    CORES,
    MATCH,
    MATCHABLE_COLUMNS,
    SELL,
    PeerArguments,
    print_result,
    read_arguments,
    seconds_since_start,
)

os.environ["PATHWAY_THREADS"] = str(CORES)  # Pathway reads it on import

import pathway as pw  # type: ignore[import-not-found] # only in the peer's own environment

SETTINGS = ("commits", "static")
"""Events are committed every 200 ms, or all form one batch."""

COMMIT_MS = 200
PEER = f"Pathway {version('pathway')}"

Row = dict[str, Any]


def main() -> None:
    arguments = read_arguments(SETTINGS)
    events = _read_events(arguments)
    buys, sells = _remaining(events, "buy", BUY), _remaining(events, "sell", SELL)
    matchable = buys.join(sells, buys.issue == sells.issue, buys.price == sells.price).select(
        *(buys[name] for name in ("issue", "price", "buyid", "buyremaining")), sells.sellid, sells.sellremaining
    )
    pw.io.null.write(buys)
    pw.io.null.write(sells)
    final_rows = FinalRows() if arguments.matchable else None

    def end() -> None:
        seconds = time.perf_counter() - begin
        print_result(PEER, arguments, startup_s, seconds, final_rows.rows() if final_rows else None)

    # In streaming mode the folder is watched, so the run does not end by itself.
    end_detector = EndDetector(arguments.count, end) if arguments.setting == "commits" else None
    if end_detector:
        end_detector.watch_events(events)
        for view in (buys, sells, matchable):
            end_detector.watch(view)
    if final_rows:
        pw.io.subscribe(
            matchable,
            on_change=final_rows.apply_change,
            on_time_end=end_detector.add_sink() if end_detector else _ignore_time,
        )
    else:
        pw.io.null.write(matchable)
    startup_s = seconds_since_start()
    begin = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    end()


def _ignore_time(time: int) -> None:
    """For runs that end by themselves."""


def _read_events(arguments: PeerArguments) -> pw.Table:
    schema = pw.schema_from_types(kind=int, issue=str, price=int, buyid=int, sellid=int, shares=int)
    path = arguments.events / "headed"
    if arguments.setting == "static":
        return pw.io.csv.read(path, schema=schema, mode="static")
    return pw.io.csv.read(path, schema=schema, mode="streaming", autocommit_duration_ms=COMMIT_MS)


def _remaining(events: pw.Table, side: str, kind: int) -> pw.Table:
    key, name = f"{side}id", f"{side}remaining"
    bids = events.filter((events.kind == kind) | (events.kind == MATCH))
    delta = pw.if_else(bids.kind == MATCH, -bids.shares, bids.shares)
    deltas = bids.select(bids[key], bids.issue, bids.price, delta=delta)
    sums = deltas.groupby(deltas[key]).reduce(
        deltas[key],
        issue=pw.reducers.max(deltas.issue),
        price=pw.reducers.max(deltas.price),
        **{name: pw.reducers.sum(deltas.delta)},
    )
    return sums.filter((sums[name] > 0) & (sums.issue != ""))


class FinalRows:
    """The final rows of Matchable, from all its changes. The changes of one time arrive in any order."""

    def __init__(self) -> None:
        self.counts: dict[tuple[Any, ...], int] = {}

    def apply_change(self, key: pw.Pointer, row: Row, time: int, is_addition: bool) -> None:
        values = tuple(row[name] for name in MATCHABLE_COLUMNS)
        self.counts[values] = self.counts.get(values, 0) + (1 if is_addition else -1)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        assert all(count in (0, 1) for count in self.counts.values())
        return (row for row, count in self.counts.items() if count)


class EndDetector:
    """Calls `end` and exits when all events are read and every sink has finished the time of the last one.

    For each view it watches a sink for the number of its rows, which has few changes a commit.
    """

    def __init__(self, events: int, end: Callable[[], None]) -> None:
        self.events = events
        self.end = end
        self.last_time: int | None = None
        self.ended_times: list[int] = []

    def watch_events(self, events: pw.Table) -> None:
        count = events.reduce(count=pw.reducers.count())
        pw.io.subscribe(count, on_change=self._count_changed, on_time_end=self.add_sink())

    def watch(self, view: pw.Table) -> None:
        count = view.reduce(count=pw.reducers.count())
        pw.io.subscribe(count, on_change=lambda **_: None, on_time_end=self.add_sink())

    def _count_changed(self, key: pw.Pointer, row: Row, time: int, is_addition: bool) -> None:
        if is_addition and row["count"] == self.events:
            self.last_time = time

    def add_sink(self) -> Callable[[int], None]:
        """The callback that a new sink calls when it has finished a time."""
        number = len(self.ended_times)
        self.ended_times.append(-1)

        def time_end(time: int) -> None:
            self.ended_times[number] = time
            if self.last_time is not None and min(self.ended_times) >= self.last_time:
                self.end()
                os._exit(0)

        return time_end


if __name__ == "__main__":
    main()
