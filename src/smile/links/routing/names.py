"""Names of routed relations: what each broker on the way calls the events of one host's stream.

The name is the same at all brokers, so an import continues when its path changes.
"""

import hashlib
from typing import NamedTuple

_AT = "@"


def is_routed_name(relation: str) -> bool:
    return _AT in relation


class RoutedStream(NamedTuple):
    """The events of a stream that `host` publishes, all of them or those that satisfy a condition."""

    stream: str
    host: str
    where: str = ""

    @property
    def relation(self) -> str:
        """The name of a broker has neither `@` nor a dot, and begins with a letter."""
        digest = hashlib.sha256(self.where.encode()).hexdigest()[:8]
        return f"{self.stream}{_AT}{self.host}" + (f".{digest}" if self.where else "")
