"""Follows one event through a broker in this process, from POST to a WebSocket subscriber.

`python -m tools.trace_event` prints the modules of `src/smile` in the order in which the event first enters them, and
how often the way changes from one folder to another.
"""

import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import smile
from smile import limits
from tests.brokers import InProcessBroker, Json

SOURCE = f"{Path(smile.__file__).parent}/"
LIBRARIES: Final = {"algebra", "columns", "knowledge", "kernels", "state"}
"""Folders of data structures and functions, which every step uses."""
DELIVERY: Final = "broker/maintenance/ordered_delivery.py"
SOCKET: Final = "gateway/websocket/subscription.py"
OUTBOUND: Final = ((DELIVERY, DELIVERY, "broker/broker.py"), ("gateway/frames.py", SOCKET, SOCKET))
"""The two threads of the way out, the maintainer's and the gateway's: a module that only this thread enters, and the
modules with which its part begins and ends."""
PROGRAM = """
CREATE STREAM Matches (t: time -> buyid: int, traded: int);
CREATE VIEW Bought AS SELECT buyid, SUM(traded) AS total FROM Matches GROUP BY buyid;
SUBSCRIBE Bought;
"""


@dataclass
class EventTrace:
    """`modules` are paths in `src/smile`, in the order of their first calls. `ways` has, for each thread, the modules
    in the order in which they run, calls and returns alike."""

    modules: dict[str, None] = field(default_factory=dict)
    ways: dict[str, list[str]] = field(default_factory=dict)
    is_recording: bool = False

    def profile(self, frame: FrameType, kind: str, _: Any) -> None:
        """Called at every call and return in the broker's threads."""
        thread = threading.current_thread().name
        current = frame if kind == "call" else frame.f_back if kind == "return" else None
        # The thread `pulse` works at intervals, not because of an event.
        if self.is_recording and thread != "pulse" and current is not None:
            path = current.f_code.co_filename
            if path.startswith(SOURCE):
                module = path.removeprefix(SOURCE)
                self.modules.setdefault(module)
                self.ways.setdefault(thread, []).append(module)

    def outbound_steps(self) -> list[str]:
        """The modules from the deltas of the batch to the socket, each once in sequence, without libraries."""
        steps = []
        for thread_module, first, last in OUTBOUND:
            way = next(way for way in self.ways.values() if thread_module in way)
            end = len(way) - way[::-1].index(last)
            steps += [module for module in way[way.index(first) : end] if folder(module) not in LIBRARIES]
        return [module for module, _ in groupby(steps)]


def trace_event() -> EventTrace:
    """The way of an event whose subscriber has received an earlier one. Nothing else happens meanwhile."""
    trace = EventTrace()
    with patch.object(limits, "progress_pause_s", 3600.0), tempfile.TemporaryDirectory() as folder:
        threading.setprofile(trace.profile)
        try:
            broker = InProcessBroker(Path(folder), PROGRAM, idle_ms=3_600_000)
        finally:
            threading.setprofile(None)
        with broker, broker.http() as http, broker.websocket() as subscriber:
            subscriber.ask({"subscribe": "Bought", "id": 1})
            for is_second in (False, True):
                time.sleep(0.2)  # until what came before is done
                trace.is_recording = is_second
                answer = http.post("/streams/Matches/events", json=[{"buyid": 10, "traded": 150}])
                assert answer.status_code == 200, answer.text
                subscriber.receive_until(_has_rows)
            trace.is_recording = False
    return trace


def _has_rows(frame: Json) -> bool:
    return bool(frame.get("rows"))


def folder(module: str) -> str:
    return module.partition("/")[0]


def main() -> None:
    trace = trace_event()
    for number, module in enumerate(trace.modules, 1):
        print(f"{number:3} {module}")
    folders = [name for name, _ in groupby(map(folder, trace.modules))]
    print(f"{len(trace.modules)} modules; in this order the folder changes {len(folders) - 1} times")
    steps = trace.outbound_steps()
    folders = [name for name, _ in groupby(map(folder, steps))]
    print(
        f"from the batch to the socket, calls and returns pass {len(set(steps))} modules, "
        f"change the module {len(steps) - 1} times and the folder {len(folders) - 1} times"
    )


if __name__ == "__main__":
    main()
