"""A service that runs beside a broker, in threads of its own: it publishes and subscribes like any client, without a
connection. The broker shows its status, and stops it before itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from smile.broker.health import Trouble


class AttachedService(Protocol):
    @property
    def name(self) -> str:
        """Its key in the status."""

    def status(self) -> Mapping[str, Any]:
        """Fast, and never waits for anybody."""

    def troubles(self) -> Sequence[Trouble]:
        """Fast, and never waits for anybody."""

    def stop(self) -> None:
        """Returns when nothing of it uses the broker any more."""
