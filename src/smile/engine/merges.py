"""Large merges of runs, beside everything else: a table that one is due for goes on as it is until it is done.

Which run holds a row changes nothing that anybody is told, so it does not matter when a merge is taken in.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from smile.kernels.transform import State
from smile.state.run import Run
from smile.state.table import Merging

Place = tuple[str, str]
"""A transform, and the name it has for a table."""


@dataclass
class Merges:
    """One at a time, in a thread of its own."""

    _pool: ThreadPoolExecutor | None = None
    _begun: dict[Place, tuple[Merging, Future[Run]]] = field(default_factory=dict)

    def begin(self, states: Mapping[str, State]) -> None:
        """Those that are due."""
        for name, state in states.items():
            for own, table in state.items():
                if (name, own) in self._begun:
                    continue
                merging = table.merging()
                if merging is not None:
                    self._pool = self._pool or ThreadPoolExecutor(1, "merges")
                    self._begun[name, own] = (merging, self._pool.submit(merging.run))

    def taken_in(self, states: Mapping[str, State]) -> Mapping[str, State]:
        """The same states with the merges that are done."""
        done = [place for place, (_, future) in self._begun.items() if future.done()]
        if not done:
            return states
        found = dict(states)
        for name, own in done:
            merging, future = self._begun.pop((name, own))
            found[name] = {**found[name], own: found[name][own].with_merged(merging, future.result())}
        return found
