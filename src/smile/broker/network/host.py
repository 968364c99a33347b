"""What a network needs of its broker, and who may do what."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from smile.algebra import mmpl
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.views.view import View
from smile.log.membership import StreamMembership
from smile.log.storage.durable import DurableLog


@dataclass(frozen=True, eq=False)
class ExportedRelation:
    """A relation that neighbours may import. `digest` is that of its definition, and `history` identifies the logs that
    it goes back to. A stream has no `view`; `logged_stream` is the name that it has in the log, and `home_origin` the
    origin whose events this broker logs first, None if the stream is imported.

    Of a routed stream, only the events that satisfy `condition` and only `columns` are sent, unless these are None.
    `begins_with_kept`: who has nothing of it begins with the oldest events in the log. `find_membership` returns who
    its origins are, if the log does not say it."""

    relation: str
    definition: mmpl.Program
    digest: str
    history: str
    view: View | None = None
    logged_stream: str = ""
    home_origin: str | None = None
    condition: mmpl.Expr | None = None
    columns: tuple[str, ...] | None = None
    begins_with_kept: bool = False
    find_membership: Callable[[], StreamMembership | None] | None = None

    def import_with(self, condition: mmpl.Expr | None) -> mmpl.ImportDef:
        """The import of a neighbour."""
        return mmpl.ImportDef(self.relation, "", self.relation, condition, self.definition)


class NetworkHost(Protocol):
    """A broker, or a simulated one."""

    @property
    def log(self) -> DurableLog: ...

    def find_export(self, relation: str) -> ExportedRelation:
        """Raises E021 if there is no such relation."""

    def append_imported(self, append: CacheAppend) -> "Future[Any]":
        """Appends what has arrived to the log: `append.take_entries()`, then one commit, then
        `append.cache.record_commit()`, all in the thread that writes the log. The future has the error if the commit
        has failed; `append.cache.discard_taken()` was called then."""

    def end_origin(self, stream: str) -> "Future[Any]":
        """Publishes nothing more to a stream with many origins: its origin is silent for ever."""

    def checkpoint_horizons(self) -> Mapping[str, int]:
        """The horizons of the last hard checkpoint, by stream of the log: what no view and no durable subscription
        will read again, whatever happens to this broker. Empty if there is none."""


class LinkAccess(Protocol):
    """What neighbours may do. It is asked before everything that is sent, so it must be fast."""

    def can_import(self, principal: str, relation: str) -> bool:
        """Whether the principal has SUBSCRIBE on the relation."""

    def can_publish(self, principal: str, stream: str) -> bool:
        """Whether the principal has PUBLISH on the stream, and so may be one of its origins."""

    def can_act_as(self, principal: str, broker: str) -> bool:
        """Whether the principal may call itself this broker. Otherwise anybody could send what this broker imports."""


class OpenAccess:
    """Everybody may do everything: for a broker that requires no tokens."""

    def can_import(self, principal: str, relation: str) -> bool:
        return True

    def can_publish(self, principal: str, stream: str) -> bool:
        return True

    def can_act_as(self, principal: str, broker: str) -> bool:
        return True
