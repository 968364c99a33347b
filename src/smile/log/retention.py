"""What a log no longer needs: its oldest commits, each whole, and never one that has a tick above what is given.

What was cut away is remembered, of each stream and origin up to which tick. Whoever reads above that reads what was
there before; whoever reads below is told so.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from smile.log.database import checksum
from smile.log.frame import END, NOTHING
from smile.log.ranges import Entry

CUT_COMMITS_MAX = 500
CUT_BYTES_MAX = 2**24
"""Of one transaction, since nothing is appended meanwhile."""

PAUSE_S = 0.002
"""Between two of them: whoever waits to append goes first."""

Commit = tuple[int, Sequence[Entry]]


def oldest(commits: Iterable[Commit], horizons: Mapping[str, int], last: int) -> list[Commit]:
    """The commits that may go, as many as one transaction may remove: the first ones, up to `last` at most, as long as
    all that they have lies at or below the horizons.

    The last of them has something of a stream whose horizon is not the end. So whoever has read that stream up to its
    horizon has passed that commit, although others, of streams that nobody reads, may follow it."""
    matters = any(tick != END for tick in horizons.values())
    found, waiting, size = list[Commit](), list[Commit](), 0
    for seq, entries in commits:
        if seq > last or any(entry.hi > horizons.get(entry.stream, NOTHING) for entry in entries):
            break
        waiting.append((seq, entries))
        size += sum(entry.bytes for entry in entries)
        if not matters or any(horizons[entry.stream] != END for entry in entries):
            found.extend(waiting)
            waiting.clear()
            if len(found) >= CUT_COMMITS_MAX or size >= CUT_BYTES_MAX:
                break
    return found


def remove(db: sqlite3.Connection, commits: Sequence[Commit]) -> None:
    """Within a transaction: the oldest commits that there are. The last of them stays, without its pieces. What
    producers' numbers stood for is not forgotten yet."""
    last = commits[-1][0]
    cut: dict[tuple[str, str], int] = {}
    for _, entries in commits:
        for entry in entries:
            cut[entry.stream, entry.origin] = max(cut.get((entry.stream, entry.origin), NOTHING), entry.hi)
    for of, tick in cut.items():
        found = db.execute("SELECT stream, origin, seq, lo FROM origins WHERE stream = ? AND origin = ?", of).fetchone()
        row = (*found, tick)
        db.execute("UPDATE origins SET cut = ?, crc = ? WHERE stream = ? AND origin = ?", (tick, checksum(*row), *of))
    ((last_piece,),) = db.execute("SELECT last_piece FROM commits WHERE seq = ?", (last,))
    db.execute("DELETE FROM pieces WHERE id <= ?", (last_piece,))
    db.execute("DELETE FROM commits WHERE seq < ?", (last,))
