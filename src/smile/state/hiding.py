"""Which rows of a run newer runs hide: of each row the version of its table from which on it is hidden.

Versions of a table that follow one another write into one array: what a version writes, those before it do not heed. A
version that is not the last to have written has the array to itself first, so that versions may also branch.
"""

import numpy as np

from smile.columns.values import Array, Bools, Indices

NEVER = np.iinfo(np.int64).max


class Hiding:
    """`latest` is the last version that has this object."""

    __slots__ = ("any", "latest", "since")

    def __init__(self, since: Array, latest: int, any_: bool) -> None:
        self.since, self.latest, self.any = since, latest, any_

    @staticmethod
    def nothing(count: int, version: int) -> "Hiding":
        return Hiding(np.full(count, NEVER), version, False)

    def after(self, version: int, places: Indices | None) -> "Hiding":
        """Of the version that follows `version`, which hides these places too."""
        found = self
        if self.latest > version:
            # Another version followed before: what it hides is not hidden here.
            found = Hiding(np.where(self.since <= version, self.since, NEVER), version, self.any)
        found.latest = version + 1
        if places is not None:
            found.hide(places, version + 1)
        return found

    def hide(self, places: Indices, version: int) -> None:
        """From this version on."""
        if len(places):
            self.since[places] = version
            self.any = True

    def hides(self, version: int, places: Indices) -> Bools | None:
        """Which of these places are hidden; None if none of the run is."""
        return self.since[places] <= version if self.any else None

    def live(self, version: int) -> Bools | None:
        """Which of all are not; None if none is hidden."""
        return self.since > version if self.any else None
