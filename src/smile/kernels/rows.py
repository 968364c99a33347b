"""Transforms of each row by itself: none remembers anything, and none of them looks at another row."""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra import mmpl
from smile.algebra.types import INT, INT_MAX, TICKS_PER_MICROSECOND, TIMESTAMP
from smile.columns import masks, values as v
from smile.columns.knowledge import Column, Masks, exactly_as, now_of, points_of
from smile.columns.masks import Codes
from smile.columns.values import Bools, Values
from smile.kernels.changes import Changes, Extended, Picked, Version, concat
from smile.kernels.expressions import compile_expression
from smile.kernels.layout import Evolving, Layout
from smile.kernels.seals import Moved, later
from smile.kernels.transform import Input, Output, RowWise, State, Transform, X


class Restrict(RowWise):
    """A row's mask is its own and the predicate's, to which NULL is false."""

    def __init__(self, rel: mmpl.Restrict, source: Input, output: Output) -> None:
        super().__init__(source)
        self.predicate = compile_expression(rel.predicate, source.layout, source.bottoms)
        own = source.layout
        decided = self.predicate.kind == "exact" and not output.heeded
        self.layout = Layout(own.key, own.fixed, own.evolving, own.certain and decided, output.heeded)

    def apply(self, changes: Changes) -> Changes:
        if self.predicate.kind == "exact":
            found = self.predicate(changes.fixed, {}, len(changes))
            assert isinstance(found, Values)
            holds = found.data if found.valid is None else found.data & found.valid
            if holds.all():
                return changes
            if not self.layout.heeded:
                return changes.take(np.flatnonzero(holds))
            codes = np.where(holds, np.uint8(masks.T), np.uint8(masks.F))
            return Changes(changes.fixed, _masked(changes.old, codes), _masked_version(changes.new, codes))
        old = None if changes.old is None else self._restricted(changes.fixed, changes.old)
        return Changes(changes.fixed, old, self._restricted(changes.fixed, changes.new))

    def masks_of(self, changes: Changes) -> Codes:
        """Of the rows as they are now, those that are hidden for good among them."""
        return self._restricted(changes.fixed, changes.new).mask

    def _restricted(self, fixed: Mapping[str, Values], version: Version) -> Version:
        found = self.predicate(fixed, version.columns, len(version))
        assert isinstance(found, Masks)
        return _masked_version(version, filtered(found))


def filtered(found: Masks) -> Codes:
    """A Boolean as a restriction sees it: NULL is false."""
    possible, now = found.possible, found.now
    cannot = (possible & 6) != 0
    return masks.of((possible & 1) != 0, cannot, now == 1)


def _masked(version: Version | None, codes: Codes) -> Version | None:
    return None if version is None else _masked_version(version, codes)


def _masked_version(version: Version, codes: Codes) -> Version:
    found = masks.all_of(version.mask, codes)
    absent = version.mask == masks.ABSENT
    if absent.any():
        found = np.where(absent, np.uint8(masks.ABSENT), found)
    return Version(version.columns, found, version.steps)


class Extend(RowWise):
    """New columns: exact where all that they are made of is."""

    def __init__(self, rel: mmpl.Extend, source: Input, output: Output) -> None:
        super().__init__(source)
        own = source.layout
        fixed, evolving = dict(own.fixed), dict(own.evolving)
        self.copied = {}
        self.computed = {}
        for name, expr in rel.assignments:
            if isinstance(expr, mmpl.Column):
                self.copied[name] = expr.name
                if expr.name in own.fixed:
                    fixed[name] = own.fixed[expr.name]
                else:
                    evolving[name] = own.evolving[expr.name]
                continue
            found = self.computed[name] = compile_expression(expr, own, source.bottoms)
            if found.kind == "exact":
                fixed[name] = found.data
            else:
                evolving[name] = Evolving(found.kind, found.data)
        self.layout = Layout(own.key, fixed, evolving, own.certain, output.heeded)

    def apply(self, changes: Changes) -> Changes:
        count = len(changes)
        added = {}
        for name, source in self.copied.items():
            if name in self.layout.fixed:
                added[name] = changes.fixed[source]
        for name, expression in self.computed.items():
            if expression.kind == "exact":
                found = expression(changes.fixed, {}, count)
                assert isinstance(found, Values)
                added[name] = found
        fixed = Extended(changes.fixed, added) if added else changes.fixed
        old = None if changes.old is None else self._extended(changes.fixed, changes.old)
        return Changes(fixed, old, self._extended(changes.fixed, changes.new))

    def _extended(self, fixed: Mapping[str, Values], version: Version) -> Version:
        added: dict[str, Column] = {}
        for name, source in self.copied.items():
            if name in self.layout.evolving:
                added[name] = version.columns[source]
        for name, expression in self.computed.items():
            if expression.kind != "exact":
                added[name] = expression(fixed, version.columns, len(version))
        return Version(Extended(version.columns, added), version.mask, version.steps) if added else version


class Project(RowWise):
    """Fewer columns; those of the key stay."""

    def __init__(self, source: Input, output: Output) -> None:
        super().__init__(source)
        kept, own = output.type.heading.columns, source.layout
        fixed = {c: own.fixed[c] for c in kept if c in own.fixed}
        evolving = {c: own.evolving[c] for c in kept if c in own.evolving}
        self.layout = Layout(output.type.heading.key, fixed, evolving, own.certain, output.heeded)

        self.fixed, self.evolving = {c: c for c in fixed}, {c: c for c in evolving}

    def apply(self, changes: Changes) -> Changes:
        old = None if changes.old is None else self._projected(changes.old)
        return Changes(Picked(changes.fixed, self.fixed), old, self._projected(changes.new))

    def _projected(self, version: Version) -> Version:
        return Version(Picked(version.columns, self.evolving), version.mask, version.steps)


class Rename(RowWise):
    def __init__(self, rel: mmpl.Rename, source: Input, output: Output) -> None:
        super().__init__(source)
        own = source.layout
        self.new = {c: c for c in own.types} | dict(rel.pairs)
        fixed = {self.new[c]: t for c, t in own.fixed.items()}
        evolving = {self.new[c]: e for c, e in own.evolving.items()}
        self.layout = Layout(tuple(self.new[c] for c in own.key), fixed, evolving, own.certain, output.heeded)
        self.fixed = {self.new[c]: c for c in own.fixed}
        self.evolving = {self.new[c]: c for c in own.evolving}

    def apply(self, changes: Changes) -> Changes:
        old = None if changes.old is None else self._renamed(changes.old)
        return Changes(Picked(changes.fixed, self.fixed), old, self._renamed(changes.new))

    def _renamed(self, version: Version) -> Version:
        return Version(Picked(version.columns, self.evolving), version.mask, version.steps)

    def key_of_source(self, key: Mapping[str, X]) -> Mapping[str, X]:
        old = {new: c for c, new in self.new.items()}
        return {old[c]: column for c, column in key.items()}


class Same(RowWise):
    """A view that is another relation by a name of its own."""

    def __init__(self, source: Input, output: Output) -> None:
        super().__init__(source)
        own = source.layout
        self.layout = Layout(own.key, own.fixed, own.evolving, own.certain, output.heeded)

    def apply(self, changes: Changes) -> Changes:
        return changes


class Windows(RowWise):
    """A row once for each window it is in, and in none if its time is NULL. TUMBLE is a HOP that slides by its size."""

    def __init__(self, rel: mmpl.Window, source: Input, output: Output) -> None:
        super().__init__(source)
        own = source.layout
        self.on, data = rel.on, own.types[rel.on]
        unit = TICKS_PER_MICROSECOND if data == TIMESTAMP else 1
        self.size, self.slide = rel.size // unit, (rel.slide or rel.size) // unit
        fixed = {**own.fixed, "window_start": data, "window_end": data}
        self.layout = Layout(output.type.heading.key, fixed, own.evolving, own.certain, output.heeded)

    def apply(self, changes: Changes) -> Changes:
        if self.on in changes.fixed:
            moment = changes.fixed[self.on]
        else:
            moment, changes = self._settled(changes)
        if moment.valid is not None:
            changes, moment = changes.take(np.flatnonzero(moment.valid)), moment.take(np.flatnonzero(moment.valid))
        first = moment.data // self.slide * self.slide
        parts = []
        for back in range(0, self.size, self.slide):
            start = first - back
            inside = np.flatnonzero(moment.data - start < self.size)
            part = changes if len(inside) == len(changes) else changes.take(inside)
            starts = start[inside]
            # A window that begins before time itself is one that no row is in, and its end cannot be beyond time's.
            ends = {"window_start": Values(starts), "window_end": Values(np.minimum(later(starts, self.size), INT_MAX))}
            parts.append(Changes(Extended(part.fixed, ends), part.old, part.new))
        return concat(self.layout, parts)

    def _settled(self, changes: Changes) -> tuple[Values, Changes]:
        """An aggregate of a group's one member: it has its value for good once that is shown, and is in no window until
        then."""
        new, there = _windowed(changes.new, self.on)
        if changes.old is None:
            return Values(now_of(new.columns[self.on]).data, there), Changes(changes.fixed, None, new)
        old, was = _windowed(changes.old, self.on)
        moment = v.where(there, now_of(new.columns[self.on]), now_of(old.columns[self.on]))
        return Values(moment.data, there | was), Changes(changes.fixed, old, new)


def _windowed(version: Version, on: str) -> tuple[Version, Bools]:
    there = now_of(version.columns[on]).there() & masks.heard(version.mask)
    return Version(version.columns, np.where(there, version.mask, np.uint8(masks.ABSENT)), version.steps), there


class Together(Transform):
    """MERGE and UNION ALL: all rows of all inputs, each with its input's position."""

    def __init__(self, rel: mmpl.Merge | mmpl.Union, sources: tuple[Input, ...], output: Output) -> None:
        self.position = "source" if isinstance(rel, mmpl.Merge) else "branch"
        heading = output.type.heading
        evolving: dict[str, Evolving] = {}
        for source in sources:
            for name, found in source.layout.evolving.items():
                if name in heading.columns:
                    # Points of two domains in one column have no kind in common.
                    alike = evolving.setdefault(name, found).kind == found.kind
                    evolving[name] = found if alike else Evolving("object", found.data)
        fixed = {c: t for c, t in heading.columns.items() if c not in evolving}
        certain = all(s.layout.certain for s in sources)
        self.layout = Layout(heading.key, fixed, evolving, certain, output.heeded)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        parts = [self._placed(n, changes) for n, changes in enumerate(inputs, 1) if changes is not None]
        return state, concat(self.layout, parts) if parts else None

    def is_woken(self, moved: Moved) -> bool:
        return False

    def _placed(self, number: int, changes: Changes) -> Changes:
        count = len(changes)
        fixed = {}
        for name, data in self.layout.fixed.items():
            if name == self.position:
                fixed[name] = v.constant(number, INT, count)
            else:
                fixed[name] = changes.fixed[name] if name in changes.fixed else v.nulls(data, count)
        old = None if changes.old is None else self._version(changes.fixed, changes.old)
        return Changes(fixed, old, self._version(changes.fixed, changes.new))

    def _version(self, fixed: Mapping[str, Values], version: Version) -> Version:
        return Version(lifted(self.layout, fixed, version), version.mask, version.steps)


def lifted(layout: Layout, fixed: Mapping[str, Values], version: Version) -> Mapping[str, Column]:
    """The evolving columns of a layout, of rows some of whose columns are exact, or missing and so NULL."""
    columns: dict[str, Column] = {}
    for name, evolving in layout.evolving.items():
        if name in version.columns:
            found = version.columns[name]
            columns[name] = points_of(found, evolving.data) if evolving.kind == "object" else found
        else:
            exact = fixed[name] if name in fixed else v.nulls(evolving.data, len(version))
            columns[name] = exactly_as(exact, evolving.kind, evolving.data)
    return columns
