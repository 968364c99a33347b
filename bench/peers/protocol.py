"""The interface of a peer: its arguments are a setting and recorded events, its result is a line of JSON at the end.

This module imports only the standard library, because it is used in the environment of every peer.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORES = 2
MATCHABLE_COLUMNS = ("issue", "price", "buyid", "buyremaining", "sellid", "sellremaining")
BUY, SELL, MATCH = range(3)

_STARTED = time.perf_counter()


@dataclass(frozen=True)
class PeerArguments:
    """`events` is a folder written by `prepare`. `matchable` is the file for the final Matchable, if requested."""

    setting: str
    events: Path
    count: int
    matchable: Path | None


def read_arguments(settings: Iterable[str]) -> PeerArguments:
    """Reads the command line, and limits this process and its children to two cores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("setting", choices=list(settings))
    parser.add_argument("events", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--matchable", type=Path)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    # A peer that runs out of time must still stop the servers it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    return PeerArguments(**vars(parser.parse_args()))


def seconds_since_start() -> float:
    """Seconds since the peer's program began. Before the first event they are its start-up time."""
    return time.perf_counter() - _STARTED


def print_result(
    peer: str, arguments: PeerArguments, startup_s: float, seconds: float, rows: Iterable[Sequence[Any]] | None
) -> None:
    """`rows` are the final rows of Matchable, if this run has them."""
    matchable = None
    if rows is not None:
        lines = canonical_lines(rows)
        matchable = digest(lines)
        if arguments.matchable:
            arguments.matchable.write_text("".join(f"{line}\n" for line in lines))
    result = {"peer": peer, "events": arguments.count, "seconds": seconds, "startup_seconds": startup_s}
    print(json.dumps(result | {"matchable": matchable}), flush=True)


def canonical_lines(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Rows with MATCHABLE_COLUMNS as sorted lines. Equal sets of rows give equal lines."""
    return sorted(",".join(map(str, row)) for row in rows)


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
