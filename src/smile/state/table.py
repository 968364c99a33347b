"""Tables: immutable relations of rows by key, as runs of which a newer one hides what older ones say of its keys.

A table with changes is a new table that shares the old one's runs, so any number of versions stand side by side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.hashing import hashes
from smile.columns.values import Array, Bools, Indices, Values, places_of
from smile.log.frame import END
from smile.state.hiding import Hiding
from smile.state.run import Marks, Rows, Run, Shape, find, is_equal, make, matched, merge

_NONE = np.zeros(0, np.int64)

RUNS_MAX = 4
"""Runs of about one size before they are merged: more make finding slower, fewer make changing so."""

GROWTH = 4
"""A run is merged with the next older one unless that is so many times its size."""


Part = tuple[int, Indices]
"""The number of a run, and places in it."""


@dataclass(frozen=True)
class Table:
    """`runs` are newest first. `hiding` says of each what newer ones hide of it; it follows from the runs."""

    shape: Shape
    runs: tuple[Run, ...] = ()
    hiding: tuple[Hiding, ...] | None = field(default=None, compare=False, repr=False)
    version: int = field(default=0, compare=False)

    # ── finding ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, key: Sequence[Values]) -> tuple[Bools, "Gathered"]:
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
    ) -> tuple[Indices, "Gathered"]:
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

    def between(self, order: str, after: int, upto: int) -> "Gathered":
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

    def scan(self) -> "Gathered":
        """All rows."""
        return self._current([(number, np.arange(len(run))) for number, run in enumerate(self.runs)])

    def _current(self, parts: Sequence[Part]) -> "Gathered":
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
            table = Table(self.shape, (), (), 0)
            for run in reversed(self.runs):
                key = [run.rows[c] for c in self.shape.key]
                table = table._with(run, *table._find(run.hashes, key))
            object.__setattr__(self, "hiding", table.hiding)
            object.__setattr__(self, "version", table.version)
        assert self.hiding is not None
        return self.hiding

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def updated(self, rows: Rows, gone: Bools | None = None) -> "Table":
        """With these rows in the place of those that have their keys; those that are `gone` are no more."""
        return self.parted(rows, gone)[1]

    def parted(self, rows: Rows, gone: Bools | None = None, marks: Marks | None = None) -> tuple["Table", "Table"]:
        """The rows that stay as they are, and all rows when it is updated. `marks` are hashes that are known."""
        if not len(next(iter(rows.values()))):
            return self, self
        run = make(self.shape, {n: rows[n] for n in self.shape.columns if n in rows}, gone, None, marks)
        key = [run.rows[c] for c in self.shape.key]
        run_of, place = self._find(run.hashes, key) if self.runs else (_NONE, _NONE)
        table = self._with(run, run_of, place)
        assert table.hiding is not None
        return Table(self.shape, table.runs[1:], table.hiding[1:], table.version), table.compacted()

    def without(self, found: "Gathered") -> "Table":
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
        """The same rows in fewer runs, once there are many of about one size."""
        runs = self.runs
        if len(runs) <= RUNS_MAX:
            return self
        count, size = 1, len(runs[0])
        while count < len(runs) and len(runs[count]) <= size * GROWTH:
            size += len(runs[count])
            count += 1
        if count <= RUNS_MAX:
            return self
        hidden = self.hidden
        live = [h.live(self.version) for h in hidden[:count]]
        merged = merge(self.shape, runs[:count], live, count == len(runs))
        if not len(merged):
            return Table(self.shape, runs[count:], hidden[count:], self.version)
        hiding = (Hiding.nothing(len(merged), self.version), *hidden[count:])
        return Table(self.shape, (merged, *runs[count:]), hiding, self.version)

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


class Gathered(Mapping[str, Values]):
    """Rows from several runs, a column fetched when it is asked for; NULL where a row is from no run."""

    def __init__(self, table: Table, run_of: Array, place: Indices) -> None:
        self.table, self.run_of, self.place = table, run_of, place
        self._fetched: dict[str, Values] = {}
        self._same: dict[tuple[int, ...], Values] = {}
        self._parts: list[tuple[Run, Indices, Indices]] | None = None
        self._ranged: list[tuple[Run, Indices]] | None = None
        """Places run by run, if the rows stand so."""

    @staticmethod
    def of(table: Table, parts: Sequence[Part]) -> "Gathered":
        """Rows that stand run by run."""
        if len(parts) == 1:
            number, place = parts[0]
            found = Gathered(table, np.full(len(place), number), place)
        else:
            run_of = np.repeat([number for number, _ in parts], [len(p) for _, p in parts]) if parts else _NONE
            found = Gathered(table, run_of, np.concatenate([_NONE, *(p for _, p in parts)]))
        found._ranged = [(table.runs[number], place) for number, place in parts]
        return found

    def __len__(self) -> int:
        """How many rows; a mapping of columns though it is."""
        return len(self.place)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.shape.columns)

    def __getitem__(self, name: str) -> Values:
        if name not in self._fetched:
            self._fetched[name] = self._fetch(name)
        return self._fetched[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The column, or `default` if no run that rows are from has it."""
        runs = [part[0] for part in self._ranged or self._split()]
        return self[name] if any(name in run.rows for run in runs) else default

    def take(self, at: Indices) -> "Gathered":
        return Gathered(self.table, self.run_of[at], self.place[at])

    def _split(self) -> list[tuple[Run, Indices, Indices]]:
        """The runs that rows are from, where those rows stand here, and where there."""
        if self._parts is None:
            self._parts = []
            for number, run in enumerate(self.table.runs):
                here = places_of(self.run_of == number)
                if len(here):
                    self._parts.append((run, here, self.place[here]))
        return self._parts

    def _fetch(self, name: str) -> Values:
        parts = self._ranged or self._split()
        columns = [part[0].rows.get(name) for part in parts]
        # A column by two names is fetched once.
        same = tuple(map(id, columns))
        if same not in self._same:
            some = next((c for c in columns if c is not None), None)
            if some is None:
                self._same[same] = blank(self.table.shape, name, len(self.place))
            elif self._ranged:
                self._same[same] = self._in_turn(columns, some)
            elif some.is_text:
                self._same[same] = self._scattered_text(columns, some)
            else:
                self._same[same] = self._scattered(columns)
        return self._same[same]

    def _in_turn(self, columns: Sequence[Values | None], some: Values) -> Values:
        assert self._ranged is not None
        ranged = zip(columns, self._ranged, strict=True)
        return v.concat([v.empty_like(some, len(at)) if c is None else c.take(at) for c, (_, at) in ranged])

    def _scattered(self, columns: Sequence[Values | None]) -> Values:
        parts, count = self._split(), len(self.place)
        there = [c for c in columns if c is not None]
        if len(parts) == 1 and len(parts[0][1]) == count:
            return there[0].take(self.place)
        whole = sum(len(part[1]) for part in parts) == count and len(there) == len(parts)
        kinds = {c.data.dtype for c in there}
        data = np.zeros(count, kinds.pop() if len(kinds) == 1 else object)
        valid = None if whole and all(c.valid is None for c in there) else np.zeros(count, bool)
        for column, (_, here, at) in zip(columns, parts, strict=True):
            if column is not None:
                data[here] = column.data[at]
                if valid is not None:
                    valid[here] = True if column.valid is None else column.valid[at]
        return Values(data, valid)

    def _scattered_text(self, columns: Sequence[Values | None], some: Values) -> Values:
        parts = self._split()
        pieces = [
            v.empty_like(some, len(at)) if c is None else c.take(at)
            for c, (_, _, at) in zip(columns, parts, strict=True)
        ]
        places = [here for _, here, _ in parts]
        missing = places_of(self.run_of < 0)
        if len(missing):
            pieces.append(v.empty_like(some, len(missing)))
            places.append(missing)
        back = np.empty(len(self.place), np.int64)
        back[np.concatenate(places)] = np.arange(len(self.place))
        return v.concat(pieces).take(back)


def blank(shape: Shape, name: str, count: int) -> Values:
    """NULLs of a column."""
    return v.empty_like(_like(shape.columns[name]), count)


@cache
def _like(kind: pa.DataType) -> Values:
    return v.from_arrow(pa.array([], kind))
