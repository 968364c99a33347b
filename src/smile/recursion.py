"""Deep recursion within Python's own recursion limit.

Python counts the nested calls of each thread separately. So a recursive function continues in a new thread after some
levels. The limit itself applies to the whole process, and protects C code, such as decoders of JSON, from an overflow
of its stack. So it must stay as it is.

The depth of the input must be limited before: every level costs memory.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial, wraps
from typing import Final, ParamSpec, TypeVar

LEVELS_PER_THREAD: Final = 20
"""A level of the parser takes up to thirty calls, and Python allows a thousand."""

P = ParamSpec("P")
T = TypeVar("T")

_thread = threading.local()


def continue_in_threads(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a recursive function: after `LEVELS_PER_THREAD` nested calls, of all functions decorated so, the next
    one runs in a new thread."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        level: int = getattr(_thread, "level", 0)
        if level >= LEVELS_PER_THREAD:
            return _call_in_thread(partial(call, *args, **kwargs))
        _thread.level = level + 1
        try:
            return function(*args, **kwargs)
        finally:
            _thread.level = level

    return call


def _call_in_thread(function: Callable[[], T]) -> T:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as problem:  # noqa: BLE001  # raised again in the calling thread
            future.set_exception(problem)

    threading.Thread(target=run, name="deep recursion", daemon=True).start()
    return future.result()
