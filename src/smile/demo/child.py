"""Runs the command `smile` as a child of a demo, and ends it with its parent: also with one that was killed.

The parent holds the other end of the child's standard input, and the system closes it when the parent ends.
"""

import os
import runpy
import signal
import sys
import time
from threading import Thread

STOP_S_MAX = 30.0
STDIN = 0


def _end_with_parent() -> None:
    while os.read(STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_S_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Thread(target=_end_with_parent, name="parent", daemon=True).start()
    sys.argv[0] = "smile"
    runpy.run_module("smile.cli.main", run_name="__main__")
