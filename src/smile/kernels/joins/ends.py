"""Ends: when all streams that can still affect a row in some way have gone by, kept beside the row in a table."""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.columns.values import Array, Bools, Values
from smile.kernels.seals import Horizons, Moved, Seals
from smile.log.frame import END
from smile.state.gathered import Gathered
from smile.state.table import Table


class Ends:
    """`orders` are, by stream, the columns of the ticks; none if there is a stream without such a tick, which only its
    end ends."""

    def __init__(self, seals: Seals, name: str) -> None:
        self.seals = seals
        sealed = not any(s.is_never for s in seals.by_stream.values())
        self.orders: dict[str, str] = {s: f"{name} {s}" for s in seals.by_stream} if sealed else {}
        self.named = {c for seal in seals.by_stream.values() for c, _ in seal.at if c in seals.types}
        """The columns that say when."""

    def ticks(self, fixed: Mapping[str, Values], count: int) -> dict[str, Values]:
        """What stands beside rows."""
        return {order: Values(self.seals.ticks(s, fixed, count)) for s, order in self.orders.items()}

    def reached(self, fixed: Mapping[str, Values], count: int, horizons: Horizons) -> Bools:
        if not self.orders and not self.all_over(horizons):
            return np.zeros(count, bool)
        return self.seals.reached(horizons, fixed, count)

    def all_over(self, horizons: Horizons) -> bool:
        """Whether all its streams are finished."""
        return all(horizons[s] >= END for s in self.seals.by_stream)

    def wakes(self, moved: Moved) -> bool:
        """Whether a horizon has moved that can end a row."""
        if not self.orders:
            return self.all_over(moved.after) and not self.all_over(moved.before)
        return any(moved.before[s] < moved.after[s] for s in self.orders)

    def now(self, table: Table, moved: Moved) -> Gathered:
        """Rows of the table that the horizons end in this frame."""
        if not self.wakes(moved):
            return nothing(table)
        if not self.orders:
            return table.scan()
        before, after = moved.before, moved.after
        parts = []
        earlier: list[str] = []
        for stream, order in self.orders.items():
            if before[stream] < after[stream]:
                parts.append(self._ended(table.between(order, before[stream], after[stream]), earlier, moved))
            earlier.append(stream)
        return together(table, parts)

    def _ended(self, found: Gathered, earlier: Sequence[str], moved: Moved) -> Gathered:
        """Those that no stream can affect any more, without those found by one of the `earlier` streams."""
        keep: Array = np.ones(len(found), bool)
        for stream, order in self.orders.items():
            if moved.after[stream] < END:
                keep &= found[order].data <= moved.after[stream]
            if stream in earlier and moved.before[stream] < END:
                keep &= found[order].data <= moved.before[stream]
        return found if keep.all() else found.take(np.flatnonzero(keep))


def nothing(table: Table) -> Gathered:
    none = np.zeros(0, np.int64)
    return Gathered(table, none, none)


def together(table: Table, parts: Sequence[Gathered]) -> Gathered:
    """Rows found in one table, none of them twice."""
    parts = [p for p in parts if len(p)]
    if len(parts) == 1:
        return parts[0]
    none = np.zeros(0, np.int64)
    run_of = np.concatenate([none, *(p.run_of for p in parts)])
    return Gathered(table, run_of, np.concatenate([none, *(p.place for p in parts)]))
