"""Large merges of runs, beside everything else: a table that one is due for goes on as it is until it is done.

Which run holds a row changes nothing that anybody is told, so it does not matter when a merge is taken in.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from smile.kernels.transform import State
from smile.state.run import Run
from smile.state.table import RunMerge

TableKey = tuple[str, str]
"""A transform, and the name it has for a table."""


@dataclass
class BackgroundMerges:
    """One at a time, in a thread of its own."""

    _pool: ThreadPoolExecutor | None = None
    _running: dict[TableKey, tuple[RunMerge, Future[Run]]] = field(default_factory=dict)

    def start_due(self, states: Mapping[str, State]) -> None:
        """Those that are due."""
        for name, state in states.items():
            for table_name, table in state.items():
                if (name, table_name) in self._running:
                    continue
                merging = table.pending_merge()
                if merging is not None:
                    self._pool = self._pool or ThreadPoolExecutor(1, "merges")
                    self._running[name, table_name] = (merging, self._pool.submit(merging.execute))

    def apply_finished(self, states: Mapping[str, State]) -> Mapping[str, State]:
        """The same states with the merges that are done."""
        done = [key for key, (_, future) in self._running.items() if future.done()]
        if not done:
            return states
        merged_states = dict(states)
        for name, table_name in done:
            merging, future = self._running.pop((name, table_name))
            merged_states[name] = {
                **merged_states[name],
                table_name: merged_states[name][table_name].with_merged_run(merging, future.result()),
            }
        return merged_states
