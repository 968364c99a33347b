"""Outer joins of pairs: beside the pairs each row of a preserved side has one of its own, shown while it has no match.

Such a row has NULL for every column of the other side, in the key too. A pair whose other row has nothing but NULL in
its part of the key would share that key: of the two, the one that is shown is told.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks, values as v
from smile.columns.masks import Codes
from smile.columns.values import Indices, Values
from smile.kernels.changes import Changes, Groups, Version, concat, differing
from smile.kernels.joins.presence import Presence, Tested
from smile.kernels.joins.sides import Side, Sides
from smile.kernels.layout import Evolving, Layout
from smile.kernels.refused import Refused
from smile.kernels.rows import lifted
from smile.kernels.seals import Moved
from smile.kernels.transform import Input, Output, State, Transform

PAIRS = "pairs: "
PRESERVED: Mapping[str, tuple[str, ...]] = {"left": ("left",), "right": ("right",), "full": ("left", "right")}


class Outer(Transform):
    """`pairs` makes the pairs, as an inner join does."""

    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output, pairs: Transform) -> None:
        self.pairs = pairs
        sides = Sides(rel, left, right, output)
        self.preserved = [s for s in (sides.left, sides.right) if s.which in PRESERVED[rel.kind]]
        for side in self.preserved:
            if all(c in side.source.type.columns for c in output.type.heading.key):
                raise Refused(rel, "rows of the outer join that have no match would share a key with pairs")
        self.presences = [Presence(sides, s, "anti", sides.other(s).total) for s in self.preserved]
        self.layout = self._layout(output)
        self.shapes = {PAIRS + name: shape for name, shape in pairs.shapes.items()}
        self.origins = {PAIRS + name: origin for name, origin in pairs.origins.items()}
        for side, presence in zip(self.preserved, self.presences, strict=True):
            self.shapes |= {f"{side.which}: {name}": shape for name, shape in presence.shapes.items()}
            self.origins |= {f"{side.which}: {name}": origin for name, origin in presence.origins.items()}
        self.may_share = any(self._may_share(s, sides.other(s), output) for s in self.preserved)

    def _layout(self, output: Output) -> Layout:
        """That of the pairs, but a column that evolves in rows without a match evolves in all."""
        found = self.pairs.layout
        fixed, evolving = dict(found.fixed), dict(found.evolving)
        for side in self.preserved:
            for name, own in side.source.layout.evolving.items():
                if name in fixed:
                    evolving[name] = own
                    del fixed[name]
                elif name in evolving and evolving[name].kind != own.kind:
                    evolving[name] = Evolving("object", own.data)
        return Layout(found.key, fixed, evolving, False, output.heeded)

    def _may_share(self, side: Side, other: Side, output: Output) -> bool:
        """Whether a row without a match may have the key of a pair: all that tells them apart may be NULL."""
        own, others = side.source.type.columns, other.source.type.columns
        return all(c in own or others[c].nullable for c in output.type.heading.key)

    def is_woken(self, moved: Moved) -> bool:
        return self.pairs.is_woken(moved) or any(p.is_woken(moved) for p in self.presences)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        left, right = inputs
        own = {name.removeprefix(PAIRS): table for name, table in state.items() if name.startswith(PAIRS)}
        after, pairs = self.pairs.step(own, inputs, moved)
        tables = {PAIRS + name: table for name, table in after.items()}
        parts = [] if pairs is None else [self._lifted(pairs)]
        for side, presence in zip(self.preserved, self.presences, strict=True):
            prefix = f"{side.which}: "
            own = {name.removeprefix(prefix): table for name, table in state.items() if name.startswith(prefix)}
            asking, asked = (left, right) if side.which == "left" else (right, left)
            after, tested = presence.step(own, asking, asked, moved)
            tables |= {prefix + name: table for name, table in after.items()}
            parts += [self._unmatched(presence, t) for t in tested]
        parts = [p for p in parts if len(p)]
        if not parts:
            return tables, None
        told = concat(self.layout, parts)
        told = differing(self._one_a_key(told) if self.may_share else told, self.layout.heeded)
        return tables, told if len(told) else None

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lifted(self, pairs: Changes) -> Changes:
        """Pairs, with columns that evolve in other rows as knowledge."""
        old = None if pairs.old is None else self._version(pairs.fixed, pairs.old, pairs.old.mask)
        return Changes(pairs.fixed, old, self._version(pairs.fixed, pairs.new, pairs.new.mask))

    def _unmatched(self, presence: Presence, tested: Tested) -> Changes:
        changes = tested.changes
        count = len(changes)
        fixed = {
            c: changes.fixed[c] if c in changes.fixed else v.nulls(data, count)
            for c, data in self.layout.fixed.items()
        }  # fmt: skip
        old = None
        if changes.old is not None:
            old = self._version(changes.fixed, changes.old, _shown(changes.old, presence.shown(tested.had)))
        new = self._version(changes.fixed, changes.new, _shown(changes.new, presence.shown(tested.has)))
        return Changes(fixed, old, new)

    def _version(self, fixed: Mapping[str, Values], version: Version, mask: Codes) -> Version:
        return Version(lifted(self.layout, fixed, version), mask, version.steps)

    def _one_a_key(self, told: Changes) -> Changes:
        groups = Groups([told.fixed[c] for c in self.layout.key], len(told))
        if groups.count == len(told):
            return told
        new = _chosen(groups, told.new.mask)
        old = None if told.old is None else told.old.take(_chosen(groups, told.old.mask))
        return Changes(told.take(new).fixed, old, told.new.take(new))


def _shown(version: Version, shown: Codes) -> Codes:
    found = masks.all_of(version.mask, shown)
    return np.where(masks.heard(version.mask), found, np.uint8(masks.ABSENT))


def _chosen(groups: Groups, mask: Codes) -> Indices:
    """Of each group the row that is shown, or else may be, or else is heard of."""
    rank = masks.shown(mask) * 4 + masks.live(mask) * 2 + masks.heard(mask)
    order = np.lexsort((rank, groups.of))
    ends = np.append(groups.starts[1:], len(order)) - 1
    return order[ends]
