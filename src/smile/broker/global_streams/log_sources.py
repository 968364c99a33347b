"""Finds the sources of plans in the log of a broker."""

from collections.abc import Callable
from functools import partial

from smile.algebra import mmpl
from smile.algebra.parser import parse_expression
from smile.broker.global_streams.plan_source import RunningSource
from smile.broker.imports.exported_stream import ExportedStream
from smile.broker.network.routing import Routing
from smile.log.storage.durable import DurableLog


class LogSources:
    """`find_program` returns the program of this broker as it runs now, and `has_history` says whether an import of it
    has events of this history."""

    def __init__(
        self,
        log: DurableLog,
        routing: Routing,
        find_program: Callable[[], mmpl.Program],
        has_history: Callable[[mmpl.ImportDef, str], bool],
    ) -> None:
        self._log, self._routing, self._find_program, self._has_history = log, routing, find_program, has_history
        self._confirmed: set[tuple[str, str]] = set()
        """The streams of the log and the histories of their events, as far as they were asked for."""

    def open(self, source: RunningSource, tick: str) -> ExportedStream | None:
        """The stream of the log that has the events of a source; None if it is not there yet."""
        name, condition = self._find(source, tick)
        schema = self._log.schemas.get(name or "")
        if schema is None:
            return None
        is_published_here = name == source.stream and not schema.stream.many_origins
        membership = partial(self._routing.producer_membership, source.stream) if is_published_here else None
        return ExportedStream(self._log, schema.stream, condition, begins_with_kept=True, find_membership=membership)

    def _find(self, source: RunningSource, tick: str) -> tuple[str | None, mmpl.Expr | None]:
        """Its name in the log, and what it selects there. What comes from another broker is selected already."""
        program, routed = self._find_program(), source.routed(tick)
        is_own = source.host == self._routing.broker
        if is_own and any(s.name == source.stream for s in program.streams):
            return source.stream, parse_expression(routed.where) if routed.where else None
        name = source.stream if is_own else routed.relation
        found = (i for i in program.imports if i.name == name and i.stream is not None)
        import_ = next(found, None)
        if import_ is None or not self._is_of(import_, source.history):
            return None, None
        return import_.input_name, parse_expression(routed.where) if is_own and routed.where else None

    def _is_of(self, import_: mmpl.ImportDef, history: str) -> bool:
        """The same name may have events of another history for a moment, before or after the plan has followed a
        republisher whose view is another one."""
        confirmed = import_.input_name, history
        if history and confirmed not in self._confirmed:
            if not self._has_history(import_, history):
                return False
            self._confirmed.add(confirmed)
        return True
