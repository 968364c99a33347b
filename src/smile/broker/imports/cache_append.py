"""What has arrived of an import and was checked, on its way to the log. The publisher appends it with its next
commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from smile.broker.imports.receipt import Receipt
from smile.errors import error
from smile.log.membership import StreamMembership
from smile.log.storage.pieces import StreamPiece


class ImportCache(Protocol):
    """The cache of an imported stream or view."""

    @property
    def has_whole_commits(self) -> bool: ...

    @property
    def log_horizons(self) -> Mapping[str, int]: ...

    def take(self, data: Any, /) -> tuple[Receipt, Sequence[StreamPiece | StreamMembership]]: ...

    def record_commit(self) -> None: ...

    def discard_taken(self) -> None: ...


@dataclass(frozen=True)
class CacheAppend:
    """A range of a stream (`StreamRange`), its membership, or a frame of a view (`ImportFrame`), for its cache."""

    name: str
    cache: ImportCache
    data: Any
    rows: int
    bytes: int

    def take_entries(self) -> Sequence[StreamPiece | StreamMembership]:
        """What to append to the log; none if nothing is new. Raises E123 if something before it is missing."""
        receipt, entries = self.cache.take(self.data)
        if receipt is Receipt.GAP:
            raise error("E123", f"{self.name} has a gap before what has arrived: it is asked for again")
        return entries
