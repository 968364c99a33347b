"""Tables: immutable relations of rows by key, as runs of which a newer one hides what older ones say of its keys.

A table with changes is a new table that shares the old one's runs, so any number of versions stand side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from smile.columns.hashing import hashes
from smile.columns.values import Array, Bools, Indices, Values, places_of
from smile.log.frame import END
from smile.state.gathered import Gathered, Part
from smile.state.hiding import Hiding
from smile.state.run import Marks, Rows, Run, Shape, find, is_equal, make, matched, merge

_NONE = np.zeros(0, np.int64)

RUNS_MAX = 4
"""Runs of about one size before they are merged: more make finding slower, fewer make changing so."""

RUNS_LIMIT = 3 * RUNS_MAX
"""So many runs are merged on the spot, if nobody else has come to do it."""

SMALL = 20_000
"""Rows that are merged on the spot, in a few milliseconds."""

GROWTH = 4
"""A run is merged with the next older one unless that is so many times its size."""


@dataclass(frozen=True)
class Table:
    """`runs` are newest first. `hiding` says of each what newer ones hide of it; it follows from the runs."""

    shape: Shape
    runs: tuple[Run, ...] = ()
    hiding: tuple[Hiding, ...] | None = field(default=None, compare=False, repr=False)
    version: int = field(default=0, compare=False)

    # ── finding ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, key: Sequence[Values]) -> tuple[Bools, Gathered]:
        """For each of these keys, whether there is a row, and the row; where there is none its columns are NULL."""
        count = len(key[0]) if key else 1
        marks = hashes(key, count)
        if count == 1 or bool((marks[:-1] <= marks[1:]).all()):
            run_of, place = self._find(marks, key)
        else:
            order = marks.argsort(kind="stable")
            run_of, place = np.empty(count, np.int64), np.empty(count, np.int64)
            run_of[order], place[order] = self._find(marks[order], [c.take(order) for c in key])
        return run_of >= 0, Gathered(self, run_of, place)

    def _find(self, marks: Array, key: Sequence[Values]) -> tuple[Array, Indices]:
        count = len(marks)
        run_of, place = np.full(count, -1), np.zeros(count, np.int64)
        if count == 1:
            run_of[0], place[0] = self._find_one(marks[0], key)
            return run_of, place
        open_: Indices | None = None
        for number, run in enumerate(self.runs):
            if not _may_have(run, marks):
                continue
            if open_ is None:
                found, at = find(run, marks, key, self.shape)
                hits = places_of(found)
            else:
                found, at = find(run, marks[open_], [c.take(open_) for c in key], self.shape)
                hits = open_[found]
            if not len(hits):
                continue
            here = at[found]
            run_of[hits], place[hits] = number, here
            if run.gone is not None:
                run_of[hits[run.gone[here]]] = -2
            open_ = places_of(~found) if open_ is None else open_[~found]
            if not len(open_):
                break
        return run_of, place

    def _find_one(self, mark: Any, key: Sequence[Values]) -> tuple[int, int]:
        for number, run in enumerate(self.runs):
            at = int(run.hashes.searchsorted(mark))
            while at < len(run) and run.hashes[at] == mark:
                if is_equal([run.rows[c] for c in self.shape.key], at, key):
                    return (number, at) if run.gone is None or not run.gone[at] else (-2, at)
                at += 1
        return -1, 0

    def match(
        self, on: tuple[str, ...], asked: Sequence[Values], ordered: bool = True, marks: Array | None = None
    ) -> tuple[Indices, Gathered]:
        """All rows whose columns `on` equal these values (NULL equals nothing): pairs of the number of the values and
        the row; if `ordered`, in the order of the numbers. `marks` are the hashes of the values, if they are known."""
        usable: Indices | None = None
        if any(c.valid is not None for c in asked):
            usable = places_of(np.logical_and.reduce([c.there() for c in asked]))
            asked, marks = [c.take(usable) for c in asked], None
        if marks is None:
            marks = hashes(asked, len(asked[0]) if asked else 1)
        # Hashes in order are looked for side by side, which memory likes better.
        order = marks.argsort(kind="stable") if len(marks) > 16 else None
        if order is not None:
            marks, asked = marks[order], [c.take(order) for c in asked]
            usable = order if usable is None else usable[order]
        numbers, parts = [], []
        for number, run in enumerate(self.runs):
            index = run.indexes[on]
            if not len(index.marks):
                continue
            who, places = matched(index, [run.rows[name] for name in on], marks, asked)
            if len(who):
                hidden = self.hidden[number].hides(self.version, places)
                if hidden is not None:
                    shown = ~hidden
                    who, places = who[shown], places[shown]
            if len(who):
                numbers.append(who)
                parts.append((number, places))
        found = Gathered.of(self, parts)
        who = numbers[0] if len(numbers) == 1 else np.concatenate([_NONE, *numbers])
        if usable is not None:
            who = usable[who]
        if ordered and (len(parts) > 1 or order is not None):
            back = who.argsort(kind="stable")
            who, found = who[back], found.take(back)
        return who, found

    def between(self, order: str, after: int, upto: int) -> Gathered:
        """All rows whose tick in the column `order` is above `after` and not above `upto`."""
        if upto >= END:
            found = self.scan()
            return found.take(places_of(found[order].data > after))
        parts = []
        for number, run in enumerate(self.runs):
            index = run.orders[order]
            first, last = index.marks.searchsorted([after, upto], side="right")
            if first < last:
                parts.append((number, index.places[first:last]))
        return self._current(parts)

    def scan(self) -> Gathered:
        """All rows."""
        return self._current([(number, np.arange(len(run))) for number, run in enumerate(self.runs)])

    def _current(self, parts: Sequence[Part]) -> Gathered:
        """Of places in runs those that are not hidden and not gone."""
        kept = []
        for number, places in parts:
            shown = self._shown(number, places)
            kept.append((number, places if shown is None else places[shown]))
        return Gathered.of(self, [(number, places) for number, places in kept if len(places)])

    def _shown(self, number: int, places: Indices) -> Bools | None:
        """None if all are."""
        hidden = self.hidden[number].hides(self.version, places)
        gone = self.runs[number].gone
        if gone is not None:
            hidden = gone[places] if hidden is None else hidden | gone[places]
        return None if hidden is None else ~hidden

    @property
    def hidden(self) -> tuple[Hiding, ...]:
        if self.hiding is None:
            # Its runs were read from somewhere: each hides its keys in those that are older.
            table = Table(self.shape, (), (), 0).caught_up(self.runs)
            object.__setattr__(self, "hiding", table.hiding)
            object.__setattr__(self, "version", table.version)
        assert self.hiding is not None
        return self.hiding

    def caught_up(self, runs: tuple[Run, ...]) -> "Table":
        """The table that has these runs, of which the older ones may be the same as here: what is hidden in those is
        known but for what newer runs hide."""
        same = 0
        while same < min(len(runs), len(self.runs)) and runs[-1 - same] is self.runs[-1 - same]:
            same += 1
        if same == len(runs) == len(self.runs):
            return self
        table = Table(
            self.shape, self.runs[len(self.runs) - same :], self.hidden[len(self.runs) - same :], self.version
        )
        for run in reversed(runs[: len(runs) - same]):
            table = table._with(run, *table._find(run.hashes, [run.rows[c] for c in self.shape.key]))
        return table

    def nothing(self) -> Gathered:
        """No rows."""
        return Gathered(self, _NONE, _NONE)

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def updated(self, rows: Rows, gone: Bools | None = None, had: Gathered | None = None) -> "Table":
        """With these rows in the place of those that have their keys; those that are `gone` are no more. `had` are all
        that the table has of these keys, where that is known."""
        return self.parted(rows, gone, None, had)[1]

    def parted(
        self, rows: Rows, gone: Bools | None = None, marks: Marks | None = None, had: Gathered | None = None
    ) -> tuple["Table", "Table"]:
        """The rows that stay as they are, and all rows when it is updated. `marks` are hashes that are known."""
        if not len(next(iter(rows.values()))):
            return self, self
        run = make(self.shape, {n: rows[n] for n in self.shape.columns if n in rows}, gone, None, marks)
        if had is not None:
            run_of, place = had.run_of, had.place
        elif self.runs:
            run_of, place = self._find(run.hashes, [run.rows[c] for c in self.shape.key])
        else:
            run_of, place = _NONE, _NONE
        table = self._with(run, run_of, place)
        assert table.hiding is not None
        return Table(self.shape, table.runs[1:], table.hiding[1:], table.version), table.compacted()

    def without(self, found: Gathered) -> "Table":
        """Without these of its rows."""
        if not len(found):
            return self
        rows = {name: found[name] for name in self.shape.key}
        run = make(self.shape, rows, np.ones(len(found), bool))
        return self._with(run, found.run_of, found.place).compacted()

    def _with(self, run: Run, run_of: Array, place: Indices) -> "Table":
        """With a newer run, which hides these places."""
        hidden = self.hidden
        hiding = [Hiding.nothing(len(run), self.version + 1)]
        some = bool((run_of >= 0).any())
        for number, old in enumerate(hidden):
            hiding.append(old.after(self.version, place[run_of == number] if some else None))
        return Table(self.shape, (run, *self.runs), tuple(hiding), self.version + 1)

    def compacted(self) -> "Table":
        """The same rows in fewer runs, once there are many of about one size. A large merge is left to whoever asks for
        `merging`, unless nobody does."""
        count, size = self._due()
        if not count or (size > SMALL and len(self.runs) < RUNS_LIMIT):
            return self
        merging = self._merging(count)
        return self.with_merged(merging, merging.run())

    def merging(self) -> "Merging | None":
        """The large merge that is due, if one is."""
        count, size = self._due()
        return self._merging(count) if count and size > SMALL else None

    def _due(self) -> tuple[int, int]:
        """How many of the newest runs are to be one, and how many rows that takes."""
        runs = self.runs
        if len(runs) <= RUNS_MAX:
            return 0, 0
        count, size = 1, len(runs[0])
        while count < len(runs) and len(runs[count]) <= size * GROWTH:
            size += len(runs[count])
            count += 1
        return (count, size) if count > RUNS_MAX else (0, 0)

    def _merging(self, count: int) -> "Merging":
        live = tuple(h.live(self.version) for h in self.hidden[:count])
        return Merging(self.shape, self.runs[:count], live, count == len(self.runs))

    def with_merged(self, merging: "Merging", merged: Run) -> "Table":
        """With one run in the place of those it was merged from; the same table if they are no longer there."""
        before, count = self.runs, len(merging.runs)
        at = next((n for n, run in enumerate(before) if run is merging.runs[0]), len(before))
        if at + count > len(before) or any(a is not b for a, b in zip(before[at:], merging.runs, strict=False)):
            return self
        newer, older = before[:at], before[at + count :]
        if not len(merged):
            return Table(self.shape, newer + older, self.hidden[:at] + self.hidden[at + count :], self.version)
        hiding = Hiding.nothing(len(merged), self.version)
        for run in newer:
            found, places = find(merged, run.hashes, [run.rows[c] for c in self.shape.key], self.shape)
            hiding.hide(places[found], self.version)
        hidden = (*self.hidden[:at], hiding, *self.hidden[at + count :])
        return Table(self.shape, (*newer, merged, *older), hidden, self.version)

    @property
    def bytes(self) -> int:
        """What its runs take, indexes and all."""
        return sum(run.bytes for run in self.runs)

    @cached_property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.scan())


def _may_have(run: Run, marks: Array) -> bool:
    """Ticks that only grow are beyond all that came before."""
    return bool(len(run) and len(marks) and run.hashes[0] <= marks[-1] and marks[0] <= run.hashes[-1])


@dataclass(frozen=True)
class Merging:
    """Runs of a table that follow one another, newest first, and which of their rows newer ones did not hide."""

    shape: Shape
    runs: tuple[Run, ...]
    live: tuple[Bools | None, ...]
    is_oldest: bool

    def run(self) -> Run:
        """All of them in one. It takes its time, and may do so beside everything else."""
        return merge(self.shape, self.runs, self.live, self.is_oldest)
