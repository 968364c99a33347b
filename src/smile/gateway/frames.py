"""What was told, as it goes over the wire. Whatever many are told alike is made once."""

from collections import OrderedDict
from collections.abc import Callable

from smile import limits
from smile.broker.subscription import Subscription
from smile.broker.told import Told
from smile.gateway.answers import encode


class Shared:
    """What was made of the last few messages."""

    def __init__(self, make: Callable[[Told], bytes]) -> None:
        self._make = make
        self._made: OrderedDict[int, tuple[Told, bytes]] = OrderedDict()

    def __call__(self, told: Told) -> bytes:
        # By identity, which is the message's own as long as it is kept here.
        found = self._made.get(id(told))
        if found is None:
            found = self._made[id(told)] = told, self._make(told)
            if len(self._made) > limits.frames_shared_max:
                self._made.popitem(last=False)
        return found[1]


def place_of(subscription: Subscription) -> tuple[int, int]:
    """Of which rows, and how far it was told of them: from the same place all are told the same."""
    return id(subscription.channel), -1 if subscription.number is None else subscription.number


def frame(told: Told) -> bytes:
    """The end of a WebSocket's frame, which begins with whose it is: `{"id":1,"n":5,`."""
    parts = [b'"reset":true,' if told.reset else b"", b'"rows":[', told.json(), b"]"]
    if told.progress is not None:
        parts += [b',"progress":', told.progress_json]
    if told.resume is not None:
        parts += [b',"resume":', encode(told.resume)]
    return b"".join([*parts, b"}"])


def server_sent(told: Told) -> bytes:
    """The same as server-sent events. The token goes with the progress: whoever comes again says it."""
    parts = [b"event: reset\ndata: {}\n\n"] if told.reset else []
    parts += [b"event: change\ndata: " + line + b"\n\n" for line in told.lines().splitlines()]
    if told.progress is not None:
        token = b"id: " + told.resume.encode() + b"\n" if told.resume is not None else b""
        parts.append(b"event: progress\n" + token + b'data: {"progress":' + told.progress_json + b"}\n\n")
    return b"".join(parts)
