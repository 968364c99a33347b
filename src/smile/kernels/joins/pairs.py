"""Inner joins: all pairs of rows that match, each known exactly when both of its rows are heard of.

Of a frame's pairs each is met once: rows that changed with those of the other side that did not, and the rows that
changed on both sides with each other. So pairs need no netting.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.hashing import hashes
from smile.columns.masks import Codes
from smile.columns.values import Array, Bools, Indices, Values, places_of
from smile.kernels.changes import Changes, Version, concat, differing
from smile.kernels.joins.sides import Rows, Side, Sides
from smile.kernels.seals import Moved
from smile.kernels.transform import Input, Output, State, Transform
from smile.state.run import index_of, matched

LEFT, RIGHT = "left", "right"


class Pairs(Transform):
    """A pair is heard of while its two rows are, and as long as they may match."""

    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output) -> None:
        self.sides = sides = Sides(rel, left, right, output)
        self.decided = sides.when is None or sides.when.kind == "exact"
        certain = left.layout.certain and right.layout.certain and self.decided
        self.layout = sides.layout(output.type.heading.key, certain, output.heeded)
        self.shapes = {LEFT: sides.left.shape, RIGHT: sides.right.shape}
        self.origins = sides.origins

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        left, right = self.sides.left, self.sides.right
        lefts, rights = inputs
        of_left = None if lefts is None else left.marks(lefts.fixed, len(lefts))
        of_right = None if rights is None else right.marks(rights.fixed, len(rights))
        rest_left, left_table = left.parted(state[LEFT], lefts, done(left, lefts, moved), of_left)
        rest_right, right_table = right.parted(state[RIGHT], rights, done(right, rights, moved), of_right)
        parts = []
        if lefts is not None:
            who, found = right.matching(rest_right, left.asked(lefts.fixed), len(lefts), False, of_left)
            if len(who):
                some = lefts.take(who)
                parts.append(self.paired(some.fixed, some.old, some.new, found.fixed, found.version, found.version))
        if rights is not None:
            who, found = left.matching(rest_left, right.asked(rights.fixed), len(rights), False, of_right)
            if len(who):
                some = rights.take(who)
                parts.append(self.paired(found.fixed, found.version, found.version, some.fixed, some.old, some.new))
        if lefts is not None and rights is not None:
            one, other = meeting(
                left.asked(lefts.fixed), right.asked(rights.fixed), len(lefts), len(rights), of_left, of_right
            )
            if len(one):
                a, b = lefts.take(one), rights.take(other)
                parts.append(self.paired(a.fixed, a.old, a.new, b.fixed, b.old, b.new))
        tables = {LEFT: left.without_met(left_table, moved), RIGHT: right.without_met(right_table, moved)}
        parts = [p for p in parts if len(p)]
        return tables, differing(concat(self.layout, parts), self.layout.heeded) if parts else None

    def paired(
        self,
        left: Mapping[str, Values],
        left_old: Version | None,
        left_new: Version,
        right: Mapping[str, Values],
        right_old: Version | None,
        right_new: Version,
    ) -> Changes:
        """Rows of both sides that are equal where they are equated, put together."""
        if self.decided and self.sides.when is not None:
            codes = self.sides.holds(Rows(left, left_new), Rows(right, right_new))
            assert codes is not None
            at = places_of(codes == masks.T)
            if len(at) < len(codes):
                a, b = Changes(left, left_old, left_new).take(at), Changes(right, right_old, right_new).take(at)
                left, left_old, left_new, right, right_old, right_new = a.fixed, a.old, a.new, b.fixed, b.old, b.new
        old = None
        if left_old is not None and right_old is not None:
            old = self._version(Rows(left, left_old), Rows(right, right_old))
        new = self._version(Rows(left, left_new), Rows(right, right_new))
        return Changes(self.sides.fixed_of(self.layout, left, right), old, new)

    def _version(self, left: Rows, right: Rows) -> Version:
        a, b = left.version, right.version
        columns = self.sides.columns_of(self.layout, a.columns, b.columns)
        return Version(columns, pair_masks(self.sides, left, right, self.decided), a.steps + b.steps)


def pair_masks(sides: Sides, left: Rows, right: Rows, decided: bool) -> Codes:
    """A pair is there if both its rows are; one that cannot match any more is not heard of."""
    a, b = left.version.mask, right.version.mask
    both = masks.all_of(a, b)
    if not (sides.left.layout.certain and sides.right.layout.certain) or not (a.all() and b.all()):
        absent = (a == masks.ABSENT) | (b == masks.ABSENT)
        if absent.any():
            both[absent] = masks.ABSENT
    if decided:
        return both
    there = places_of(both)
    codes = sides.holds(left.take(there), right.take(there))
    assert codes is not None
    both[there] = np.where(codes == masks.F, np.uint8(masks.ABSENT), masks.all_of(both[there], codes))
    return both


def done(side: Side, changes: Changes | None, moved: Moved) -> Bools | None:
    """Which of the rows that changed need not be remembered: the other side has no more rows for them to meet."""
    if changes is None:
        return None
    met = side.is_met(changes.fixed, len(changes), moved.after)
    for column in side.asked(changes.fixed):
        if column.valid is not None:
            met = met | ~column.valid
    return met


def meeting(
    left: Sequence[Values],
    right: Sequence[Values],
    lefts: int,
    rights: int,
    of_left: Array | None = None,
    of_right: Array | None = None,
) -> tuple[Indices, Indices]:
    """Pairs of numbers of rows that are equal in all columns, none of them NULL. `of_left` and `of_right` are their
    hashes, if they are known."""
    if not left:
        return np.repeat(np.arange(lefts), rights), np.tile(np.arange(rights), lefts)
    if of_left is not None and of_right is not None:
        return matched(index_of(of_right), right, of_left, left)
    a, b = _there(left), _there(right)
    own, asked = [c if b is None else c.take(b) for c in right], [c if a is None else c.take(a) for c in left]
    index = index_of(hashes(own, len(own[0])))
    who, places = matched(index, own, hashes(asked, len(asked[0])), asked)
    return (who if a is None else a[who]), (places if b is None else b[places])


def _there(columns: Sequence[Values]) -> Indices | None:
    """Rows without NULL; None if those are all."""
    if all(c.valid is None for c in columns):
        return None
    return places_of(np.logical_and.reduce([c.there() for c in columns]))
