"""Truncates a log: removes its oldest commits, only whole ones, and none with a tick above the given horizons.

The log records for each stream and origin up to which tick events were removed. Reading above that tick is not
affected; reading below it raises an error.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet

from smile.horizons import END, HORIZON_MIN, origin_name
from smile.log.storage import whole_commits
from smile.log.storage.database import checksum
from smile.log.storage.piece_log import PieceEntry

TRUNCATE_COMMITS_MAX = 500
TRUNCATE_BYTES_MAX = 2**24
"""The limits of one transaction, because nothing can be appended during it."""

PAUSE_S = 0.002
"""The pause between two transactions, so that a waiting writer goes first."""

CommitEntries = tuple[int, Sequence[PieceEntry]]


def removable_commits(
    commits: Iterable[CommitEntries], horizons: Mapping[str, int], many_origins: AbstractSet[str], last: int
) -> list[CommitEntries]:
    """The commits to remove in one transaction: the first ones, up to `last` at most, as long as all their ticks are at
    or below the horizons.

    The last of them has ticks of a stream whose horizon is not END, which were added last if it has replaced other
    commits. So a reader that has read this stream up to its horizon is past that commit, even if commits with only
    unneeded streams follow."""

    def horizon(entry: PieceEntry) -> int:
        """Up to where the origin of a piece is not needed."""
        if entry.stream in many_origins and horizons.get(entry.stream) != END:
            return horizons.get(origin_name(entry.stream, entry.origin), HORIZON_MIN)
        return horizons.get(entry.stream, HORIZON_MIN)

    has_needed_stream = any(tick != END for tick in horizons.values())
    removable, pending, size = list[CommitEntries](), list[CommitEntries](), 0
    for seq, entries in commits:
        if seq > last or any(entry.hi > horizon(entry) for entry in entries):
            break
        pending.append((seq, entries))
        size += sum(entry.bytes for entry in entries)
        if not has_needed_stream or any(horizons.get(entry.stream) != END and entry.commit == seq for entry in entries):
            removable.extend(pending)
            pending.clear()
            if len(removable) >= TRUNCATE_COMMITS_MAX or size >= TRUNCATE_BYTES_MAX:
                break
    return removable


def remove_commits(db: sqlite3.Connection, commits: Sequence[CommitEntries]) -> None:
    """Removes the oldest commits, within a transaction. The row of the last one stays, without its pieces. Producers'
    records are not removed here. Removes nothing if the last one was replaced meanwhile."""
    last_commit = commits[-1][0]
    last_piece = db.execute("SELECT last_piece FROM commits WHERE seq = ?", (last_commit,)).fetchone()
    if last_piece is None:
        return
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
    db.execute("DELETE FROM pieces WHERE id <= ?", last_piece)
    db.execute("DELETE FROM commits WHERE seq < ?", (last_commit,))
    whole_commits.delete_up_to(db, last_commit)
