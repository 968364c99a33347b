"""Groups whose key says which row is in them: a group has no other member, so its row follows from that row alone.

Nothing is remembered. A group is sealed as soon as its member is heard of.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.columns import masks
from smile.columns.hashing import hashes
from smile.columns.values import Bools, Values
from smile.kernels.aggregates.parts import Batch
from smile.kernels.changes import Changes, Groups, Version, differing
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.summarize import Grouping
from smile.kernels.transform import State, Transform


class Single(Transform):
    def __init__(self, grouping: Grouping) -> None:
        self.grouping, self.layout = grouping, grouping.layout
        type_ = grouping.output.type
        self.seals = Seals(type_.seals, type_.heading.columns)

    def default(self, key: Mapping[str, Values], count: int, horizons: Horizons) -> Changes:
        sealed = self.seals.reached(horizons, key, count)
        return Changes(key, None, self.grouping.nothing(key, count, sealed if sealed.any() else None))

    def is_woken(self, moved: Moved) -> bool:
        return False

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        (changes,) = inputs
        if changes is None or not len(changes):
            return state, None
        per = self.grouping.per
        groups = Groups([changes.fixed[c] for c in per], len(changes))
        key = {c: changes.fixed[c].take(groups.first) for c in per}
        old = None if changes.old is None else self._version(changes, changes.old, groups, key)
        found = Changes(key, old, self._version(changes, changes.new, groups, key))
        return state, differing(found, self.layout.heeded)

    def _version(self, changes: Changes, version: Version, groups: Groups, key: Mapping[str, Values]) -> Version:
        """The groups as they are if their members are as in this version, and none had been heard of before."""
        grouping, count = self.grouping, groups.count
        there: Bools | None = masks.heard(version.mask)[groups.first]
        place = grouping.place(key, hashes([key[c] for c in grouping.per], count), grouping.empty())
        batch = Batch(Changes(changes.fixed, None, version), groups)
        rows, tables = grouping.absorbed(grouping.zero(count), batch, place)
        sealed = np.ones(count, bool)
        return grouping.version(rows, sealed, grouping.place(key, place.marks, tables), there)
