"""What a broker knows of its connections to neighbours."""

from collections.abc import Callable
from dataclasses import dataclass, field

from smile.broker.network.link_exports import LinkExports
from smile.broker.network.link_imports import LogQueue
from smile.errors import SmileError
from smile.links.imports import Import
from smile.links.link import Link


@dataclass(eq=False)
class Connection:
    """A link with what this broker knows of it. `expected` is the broker that was called; None if the other side has
    called."""

    expected: str | None
    principal: str
    queue: LogQueue
    exports: LinkExports
    wake: Callable[[], None]
    since: float
    address: str
    link: Link = field(init=False)
    neighbour: str | None = None
    imports: dict[int, Import] = field(default_factory=dict)
    imports_version: int = -1


@dataclass
class NeighbourRoute:
    """A way to a neighbour: an address that this broker calls, or none if the neighbour calls. `links` counts the links
    that were opened; without one now, `problem` says why, and `since` since when."""

    since: float
    problem: SmileError | None = None
    links: int = 0
    is_open: bool = False
