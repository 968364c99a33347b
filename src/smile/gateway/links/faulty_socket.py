"""For tests: a connection whose messages are lost, repeated and reordered, as `SMILE_LINK_FAULTS` says. TCP does
none of this, so without these faults curiosity would hardly ever be tested.

The variable is for instance `lost=0.1,repeated=0.05,swapped=0.2,seed=7`: how likely each fault is for each message.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from random import Random

from smile.errors import SmileError, error
from smile.gateway.links.link_driver import LinkSocket
from smile.settings import LINK_FAULTS_VARIABLE


@dataclass(frozen=True)
class LinkFaults:
    """Probabilities for each message."""

    lost: float = 0.0
    repeated: float = 0.0
    swapped: float = 0.0
    """That it is sent after the one that follows."""
    seed: float = 0.0

    @property
    def random(self) -> Random:
        return Random(self.seed) if self.seed else Random()


def read_link_faults(environment: Mapping[str, str] = os.environ) -> LinkFaults | None:
    """The faults that the environment asks for. E100 if they cannot be read."""
    text = environment.get(LINK_FAULTS_VARIABLE, "")
    if not text:
        return None
    names = [field.name for field in fields(LinkFaults)]
    try:
        values = {name: float(value) for name, value in (part.split("=") for part in text.split(","))}
        return LinkFaults(**values)
    except (ValueError, TypeError):
        hint = f"Write {names[0]}=0.1, separated by commas; there are {', '.join(names)}."
        raise error("E100", f"environment, {LINK_FAULTS_VARIABLE}: it has no faults of links", hint=hint) from None


class FaultySocket:
    """A link socket in front of another one."""

    def __init__(self, socket: LinkSocket, faults: LinkFaults, random: Random) -> None:
        self._socket, self._faults, self._random = socket, faults, random
        self._late: bytes | None = None

    def send(self, packets: Sequence[bytes]) -> None:
        self._socket.send([sent for packet in packets for sent in self._with_faults(packet)])

    def _with_faults(self, packet: bytes) -> Iterator[bytes]:
        random, faults, late = self._random, self._faults, self._late
        if random.random() < faults.lost:
            return
        if late is None and random.random() < faults.swapped:
            self._late = packet
            return
        yield packet
        if random.random() < faults.repeated:
            yield packet
        if late is not None:
            self._late = None
            yield late

    def has_room(self) -> bool:
        return self._socket.has_room()

    def set_reading_paused(self, is_paused: bool) -> None:
        self._socket.set_reading_paused(is_paused)

    def close(self, problem: SmileError | None) -> None:
        self._socket.close(problem)
