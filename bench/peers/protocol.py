"""What every peer is told and tells: it is given a setting and recorded events, and prints one line of JSON at its end.

Only the standard library is imported here, because every peer's environment imports this.
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
    """`events` is a folder as `prepare` writes it, `matchable` where the final Matchable goes if it is asked for."""

    setting: str
    events: Path
    count: int
    matchable: Path | None


def read_arguments(settings: Iterable[str]) -> PeerArguments:
    """Reads the command line, and keeps this process and those it starts to two cores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("setting", choices=list(settings))
    parser.add_argument("events", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--matchable", type=Path)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    # Whoever runs out of time still stops the servers it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    return PeerArguments(**vars(parser.parse_args()))


def seconds_since_start() -> float:
    """Seconds since the peer's own program began: its start-up, when nothing has been given to it yet."""
    return time.perf_counter() - _STARTED


def print_result(
    peer: str, arguments: PeerArguments, startup_s: float, seconds: float, rows: Iterable[Sequence[Any]] | None
) -> None:
    """`rows` are those of the final Matchable, if this run has them."""
    matchable = None
    if rows is not None:
        lines = canonical_lines(rows)
        matchable = digest(lines)
        if arguments.matchable:
            arguments.matchable.write_text("".join(f"{line}\n" for line in lines))
    result = {"peer": peer, "events": arguments.count, "seconds": seconds, "startup_seconds": startup_s}
    print(json.dumps(result | {"matchable": matchable}), flush=True)


def canonical_lines(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Rows of Matchable, their columns in the order of MATCHABLE, as lines that are equal if the rows are."""
    return sorted(",".join(map(str, row)) for row in rows)


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
