"""What the program of a broker provides to others: relations that neighbours import, and streams that it advertises."""

from collections.abc import Callable
from typing import Any

from smile.algebra import mmpl
from smile.algebra.dependencies import relations_read
from smile.algebra.printer import print_expression
from smile.analysis.global_streams import ALWAYS
from smile.broker.network.description_wait import DescriptionWait
from smile.broker.network.exported_relations import ExportedRelations
from smile.broker.network.host import ExportedRelation
from smile.broker.network.producer_registry import LocalStream
from smile.broker.network.routing_file import ProducerView
from smile.broker.running_program import RunningProgram
from smile.broker.views.view import View
from smile.errors import SmileError, did_you_mean, error
from smile.log.storage.durable import DurableLog
from smile.settings import Settings


class LocalExports:
    """`find_view` raises an error that says why there is no such view."""

    def __init__(
        self,
        settings: Settings,
        running: RunningProgram,
        log: DurableLog,
        descriptions: DescriptionWait,
        find_view: Callable[[str], View],
    ) -> None:
        self._settings, self._running, self._log = settings, running, log
        self._descriptions, self._find_view = descriptions, find_view
        self._relations: ExportedRelations | None = None

    def describe(self, relation: str) -> dict[str, Any]:
        """What a neighbour that imports the relation records about it."""
        description = self._current().describe(relation) or self._descriptions.describe(relation)
        if description is None:
            raise self._missing(relation)
        return description

    def find(self, relation: str) -> ExportedRelation:
        """Raises E021 if there is no such relation."""
        exported = self._current().find(relation, self._running.views)
        if exported is None:
            raise self._missing(relation)
        return exported

    def own_histories(self) -> frozenset[str]:
        """Those of the streams that the program itself publishes or imports."""
        program, routed = self._running.program, self._running.metadata.imports.routed
        names = [s.name for s in program.streams]
        names += [i.name for i in program.imports if i.stream is not None and i.name not in routed]
        return frozenset(h for name in names if (h := self.find(name).history))

    def unread_streams(self) -> frozenset[str]:
        """The streams of the log that no view reads: those that global subscriptions and plans have imported."""
        program = self._running.program
        read = {name for view in program.views for name in relations_read(view.body)}
        unread = {*self._running.metadata.imports.routed, *(i.name for i in program.republishers)} - read
        return frozenset(i.stream.name for i in program.imports if i.name in unread and i.stream is not None)

    def advertisable_streams(self) -> dict[str, LocalStream]:
        """The streams that this broker can advertise. Of one with many origins, its home advertises it for all."""
        exports, compiled = self._current(), self._running.compiled
        published: dict[str, ProducerView | None] = {
            s.name: None for s in compiled.rewritten.streams if s.home in (None, self._settings.name)
        }
        published |= {i.name: _republished(i) for i in compiled.original.republishers}
        local = {name: (exports.find(name, {}), record) for name, record in published.items()}
        return {
            name: LocalStream(
                exported.definition.streams[0], exported.history, exported.home_origin, exported.logged_stream, record
            )
            for name, (exported, record) in local.items()
            if exported is not None and exported.history
        }

    def _current(self) -> ExportedRelations:
        compiled, metadata, relations = self._running.compiled, self._running.metadata, self._relations
        if relations is None or not relations.is_of(compiled, metadata.imports, metadata.generations):
            name, origin = self._settings.name, str(self._settings.origin)
            relations = self._relations = ExportedRelations(
                name, metadata.log_id, origin, compiled, metadata.imports, metadata.generations, self._log.membership
            )
        return relations

    def _missing(self, relation: str) -> SmileError:
        compiled = self._running.compiled
        if relation in {view.name for view in compiled.original.views} or self._descriptions.error_of(relation):
            try:
                self._find_view(relation)
            except SmileError as problem:
                return problem
        names = [*(stream.name for stream in compiled.original.input_streams), *self._running.views]
        hint = did_you_mean(relation[:100], names) or f"There are {', '.join(names) or 'none'}."
        return error("E021", f"there is no stream or view {relation[:100]}", hint=hint)


def _republished(import_: mmpl.ImportDef) -> ProducerView:
    """What a republisher says of itself."""
    return ProducerView(import_.relation, print_expression(import_.condition or ALWAYS))
