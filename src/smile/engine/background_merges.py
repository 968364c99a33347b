"""Merges large runs of state tables in a background thread. The table keeps its old runs until the merge is done.

Merging runs never changes what a table contains, so a finished merge can be applied at any later batch.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from smile.engine.plan import RelationObserver, ignore_relation
from smile.kernels.transform import State
from smile.state.run import Run
from smile.state.table import RunMerge

TableKey = tuple[str, str]
"""The name of a transform, and the name of one of its tables."""


@dataclass
class BackgroundMerges:
    """Runs one merge at a time, in a thread of its own."""

    _pool: ThreadPoolExecutor | None = None
    _running: dict[TableKey, tuple[RunMerge, Future[Run]]] = field(default_factory=dict)

    def start_due(self, states: Mapping[str, State]) -> None:
        """Starts a merge for every table that needs one and has none running."""
        for name, state in states.items():
            for table_name, table in state.items():
                if (name, table_name) in self._running:
                    continue
                merge = table.pending_merge()
                if merge is not None:
                    self._pool = self._pool or ThreadPoolExecutor(1, "merges")
                    self._running[name, table_name] = (merge, self._pool.submit(merge.execute))

    def apply_finished(
        self, states: Mapping[str, State], observe: RelationObserver = ignore_relation
    ) -> Mapping[str, State]:
        """The states with all finished merges applied."""
        done = [key for key, (_, future) in self._running.items() if future.done()]
        if not done:
            return states
        merged_states = dict(states)
        for name, table_name in done:
            observe(name)
            merge, future = self._running.pop((name, table_name))
            merged_states[name] = {
                **merged_states[name],
                table_name: merged_states[name][table_name].with_merged_run(merge, future.result()),
            }
        return merged_states
