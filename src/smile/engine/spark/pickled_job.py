"""A pickled job, as Spark carries it. Each process unpickles it once, on first use.

Spark starts several Python processes only to plan the first batch. So this module imports nothing that they do not
need.
"""

import base64
import pickle
import zlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PickledJob:
    """Spark passes it to every task. `run_id` identifies the content."""

    run_id: str
    data: bytes

    @staticmethod
    def dump(run_id: str, job: Any) -> "PickledJob":
        return PickledJob(run_id, zlib.compress(pickle.dumps(job)))

    def load(self) -> Any:
        if self.run_id not in _loaded:
            _loaded[self.run_id] = pickle.loads(zlib.decompress(self.data))
            evict_old_runs(_loaded)
        return _loaded[self.run_id]

    def to_text(self) -> str:
        return f"{self.run_id} {base64.b64encode(self.data).decode()}"

    @staticmethod
    def from_text(text: str) -> "PickledJob":
        run_id, _, data = text.partition(" ")
        return PickledJob(run_id, base64.b64decode(data))


RUNS_CACHED_MAX = 2
"""A process serves one run at a time, or two during the backfill of a view."""

_loaded: dict[str, Any] = {}


def evict_old_runs(cache: dict[str, Any]) -> None:
    """Keeps only the newest entries."""
    for run_id in list(cache)[:-RUNS_CACHED_MAX]:
        del cache[run_id]
