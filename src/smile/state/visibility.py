"""Which rows of a run are hidden by newer runs: for each row, the first table version that hides it.

Successive versions of a table share one array. A version ignores entries of later versions, so it is not affected when
they write. Versions can branch: if a version already has a successor, another successor copies the array first.
"""

import numpy as np

from smile.columns.values import Array, Bools, Indices

NEVER = np.iinfo(np.int64).max


class RowVisibility:
    """`since`: for each row, the first version that hides it, or NEVER. `latest`: the newest version that uses this
    object. `has_hidden_rows`: whether any row has been hidden."""

    __slots__ = ("has_hidden_rows", "latest", "since")

    def __init__(self, since: Array, latest: int, has_hidden_rows: bool) -> None:
        self.since, self.latest, self.has_hidden_rows = since, latest, has_hidden_rows

    @staticmethod
    def all_visible(count: int, version: int) -> "RowVisibility":
        return RowVisibility(np.full(count, NEVER), version, False)

    def at_next_version(self, version: int, row_numbers: Indices | None) -> "RowVisibility":
        """The visibility for the version after `version`, which also hides these rows."""
        visibility = self
        if self.latest > version:
            # Another version already follows `version`: the rows that it hides stay visible here.
            visibility = RowVisibility(
                np.where(self.since <= version, self.since, NEVER), version, self.has_hidden_rows
            )
        visibility.latest = version + 1
        if row_numbers is not None:
            visibility.hide(row_numbers, version + 1)
        return visibility

    def hide(self, row_numbers: Indices, version: int) -> None:
        """Hides rows from this version on."""
        if len(row_numbers):
            self.since[row_numbers] = version
            self.has_hidden_rows = True

    def is_hidden(self, version: int, row_numbers: Indices) -> Bools | None:
        """Which of these rows are hidden; None if no row of the run is."""
        return self.since[row_numbers] <= version if self.has_hidden_rows else None

    def is_visible(self, version: int) -> Bools | None:
        """Which rows of the run are visible; None if all are."""
        return self.since > version if self.has_hidden_rows else None
