"""Which rows of a run newer runs hide: of each row the version of its table from which on it is hidden.

Versions of a table that follow one another write into one array: what a version writes, those before it do not heed. A
version that is not the last to have written has the array to itself first, so that versions may also branch.
"""

import numpy as np

from smile.columns.values import Array, Bools, Indices

NEVER = np.iinfo(np.int64).max


class RowVisibility:
    """`latest` is the last version that has this object."""

    __slots__ = ("any", "latest", "since")

    def __init__(self, since: Array, latest: int, any_: bool) -> None:
        self.since, self.latest, self.any = since, latest, any_

    @staticmethod
    def all_visible(count: int, version: int) -> "RowVisibility":
        return RowVisibility(np.full(count, NEVER), version, False)

    def at_next_version(self, version: int, row_numbers: Indices | None) -> "RowVisibility":
        """Of the version that follows `version`, which hides these places too."""
        visibility = self
        if self.latest > version:
            # Another version followed before: what it hides is not hidden here.
            visibility = RowVisibility(np.where(self.since <= version, self.since, NEVER), version, self.any)
        visibility.latest = version + 1
        if row_numbers is not None:
            visibility.hide(row_numbers, version + 1)
        return visibility

    def hide(self, row_numbers: Indices, version: int) -> None:
        """From this version on."""
        if len(row_numbers):
            self.since[row_numbers] = version
            self.any = True

    def is_hidden(self, version: int, row_numbers: Indices) -> Bools | None:
        """Which of these places are hidden; None if none of the run is."""
        return self.since[row_numbers] <= version if self.any else None

    def is_visible(self, version: int) -> Bools | None:
        """Which of all are not; None if none is hidden."""
        return self.since > version if self.any else None
