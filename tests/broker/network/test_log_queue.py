"""The queue of what a link has received: messages are confirmed when the log has them."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from smile.broker.network.link_imports import LogQueue
from smile.errors import error


class HostModel:
    """Appends when the test says so."""

    def __init__(self) -> None:
        self.futures: list[Future[None]] = []

    def append_imported(self, append: Any) -> "Future[None]":
        self.futures.append(Future())
        return self.futures[-1]


def test_a_message_is_stored_when_everything_up_to_it_is_in_the_log() -> None:
    host, wakes = HostModel(), list[int]()
    queue = LogQueue(host, lambda: wakes.append(queue.stored_number))  # type: ignore[arg-type]  # it needs no more
    append: Any = SimpleNamespace()
    queue.append(append)
    queue.append(append)
    queue.note_received(1)
    queue.append(append)
    queue.note_received(2)
    queue.note_received(3)  # it has nothing for the log
    host.futures[0].set_result(None)
    assert queue.stored_number == 0 and not wakes
    host.futures[1].set_result(None)
    assert queue.stored_number == 1 and wakes == [1]
    host.futures[2].set_result(None)
    assert queue.stored_number == 3 and wakes == [1, 3]
    queue.note_received(4)
    assert queue.stored_number == 4


def test_what_cannot_be_appended_is_reported() -> None:
    host, wakes = HostModel(), list[int]()
    queue = LogQueue(host, lambda: wakes.append(1))  # type: ignore[arg-type]  # it needs no more
    append: Any = SimpleNamespace()
    queue.append(append)
    host.futures[0].set_exception(error("E084", "the disk is full"))
    assert queue.problem is not None and wakes
