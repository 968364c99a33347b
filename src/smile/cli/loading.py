"""Large libraries are imported when a command needs them. Ctrl-C ends the command meanwhile without a traceback."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def loading() -> Iterator[None]:
    """Around imports."""
    if current_thread() is not main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
