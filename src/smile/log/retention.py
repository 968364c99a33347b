"""What a log no longer needs: its oldest commits, each whole, and never one that has a tick above what is given.

What was cut away is remembered, of each stream and origin up to which tick. Whoever reads above that reads what was
there before; whoever reads below is told so.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from smile.log.database import checksum
from smile.log.input_batch import END, HORIZON_MIN
from smile.log.piece_log import PieceEntry

TRUNCATE_COMMITS_MAX = 500
TRUNCATE_BYTES_MAX = 2**24
"""Of one transaction, since nothing is appended meanwhile."""

PAUSE_S = 0.002
"""Between two of them: whoever waits to append goes first."""

CommitEntries = tuple[int, Sequence[PieceEntry]]


def removable_commits(commits: Iterable[CommitEntries], horizons: Mapping[str, int], last: int) -> list[CommitEntries]:
    """The commits that may go, as many as one transaction may remove: the first ones, up to `last` at most, as long as
    all that they have lies at or below the horizons.

    The last of them has something of a stream whose horizon is not the end. So whoever has read that stream up to its
    horizon has passed that commit, although others, of streams that nobody reads, may follow it."""
    has_needed_stream = any(tick != END for tick in horizons.values())
    removable, pending, size = list[CommitEntries](), list[CommitEntries](), 0
    for seq, entries in commits:
        if seq > last or any(entry.hi > horizons.get(entry.stream, HORIZON_MIN) for entry in entries):
            break
        pending.append((seq, entries))
        size += sum(entry.bytes for entry in entries)
        if not has_needed_stream or any(horizons[entry.stream] != END for entry in entries):
            removable.extend(pending)
            pending.clear()
            if len(removable) >= TRUNCATE_COMMITS_MAX or size >= TRUNCATE_BYTES_MAX:
                break
    return removable


def remove_commits(db: sqlite3.Connection, commits: Sequence[CommitEntries]) -> None:
    """Within a transaction: the oldest commits that there are. The last of them stays, without its pieces. What
    producers' numbers stood for is not forgotten yet."""
    last_commit = commits[-1][0]
    truncated_ticks: dict[tuple[str, str], int] = {}
    for _, entries in commits:
        for entry in entries:
            truncated_ticks[entry.stream, entry.origin] = max(
                truncated_ticks.get((entry.stream, entry.origin), HORIZON_MIN), entry.hi
            )
    for origin_key, tick in truncated_ticks.items():
        origin_row = db.execute(
            "SELECT stream, origin, seq, lo FROM origins WHERE stream = ? AND origin = ?", origin_key
        ).fetchone()
        row = (*origin_row, tick)
        db.execute(
            "UPDATE origins SET cut = ?, crc = ? WHERE stream = ? AND origin = ?", (tick, checksum(*row), *origin_key)
        )
    ((last_piece,),) = db.execute("SELECT last_piece FROM commits WHERE seq = ?", (last_commit,))
    db.execute("DELETE FROM pieces WHERE id <= ?", (last_piece,))
    db.execute("DELETE FROM commits WHERE seq < ?", (last_commit,))
