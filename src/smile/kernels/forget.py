"""What may be forgotten upstream, because a restriction has hidden for good all that could come of it.

A row of a history that is joined to the one row of an aggregate comes but once; when a restriction above the join hides
it for good, neither it nor its group is ever asked for again.
"""

from dataclasses import dataclass

from smile.kernels.changes import Changes
from smile.kernels.transform import State


@dataclass(frozen=True)
class Forgetful:
    restrict: str

    def forget(self, states: dict[str, State], changes: dict[str, Changes]) -> None:
        """Drops from `states` what no later frame can ask for."""
