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
class Sealed:
    """Spark hands it to every task anew. `run` is of the job that it tells of, and no other run's."""

    run: str
    data: bytes

    @staticmethod
    def of(run: str, what: Any) -> "Sealed":
        return Sealed(run, zlib.compress(pickle.dumps(what)))

    def opened(self) -> Any:
        if self.run not in _opened:
            _opened[self.run] = pickle.loads(zlib.decompress(self.data))
            forget_all_but(_opened)
        return _opened[self.run]

    def to_text(self) -> str:
        return f"{self.run} {base64.b64encode(self.data).decode()}"

    @staticmethod
    def from_text(text: str) -> "Sealed":
        run, _, data = text.partition(" ")
        return Sealed(run, base64.b64decode(data))


RUNS_HELD = 2
"""A process serves one run after the other, and two while a view is filled."""

_opened: dict[str, Any] = {}


def forget_all_but(held: dict[str, Any]) -> None:
    """The last few that came."""
    for run in list(held)[:-RUNS_HELD]:
        del held[run]
