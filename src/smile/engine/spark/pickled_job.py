"""What a process is told of a job, on its way: it is opened where it is needed, once, and never changes.

Spark starts several Python processes before the first batch, and only to plan it. So nothing is loaded here that they
have no use for.
"""

import base64
import pickle
import zlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PickledJob:
    """Spark hands it to every task anew. `run` is of the job that it tells of, and no other run's."""

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
"""A process serves one run after the other, and two while a view is filled."""

_loaded: dict[str, Any] = {}


def evict_old_runs(cache: dict[str, Any]) -> None:
    """The last few that came."""
    for run_id in list(cache)[:-RUNS_CACHED_MAX]:
        del cache[run_id]
