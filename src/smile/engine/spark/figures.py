"""Figures of a pipeline: what its tasks said of each batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Figures:
    """`tasks` are by stage and partition, of the last batch."""

    tasks: dict[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)
    events: int = 0

    def take(self, heads: Sequence[Mapping[str, Any]]) -> None:
        """The heads of a batch's messages."""
        self.tasks = {(head["stage"], head["partition"]): head["figures"] for head in heads}
        self.events += max((of["events"] for (stage, _), of in self.tasks.items() if stage == 1), default=0)

    @property
    def state_bytes(self) -> int:
        return sum(of["state"] for of in self.tasks.values())
