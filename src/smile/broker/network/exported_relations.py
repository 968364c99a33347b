"""What a broker's neighbours may import: the streams and imported streams of its program, and the views that it
maintains. A view is exported as it is computed: with the definition of its generation."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from smile.algebra import mmpl
from smile.analysis.export_description import definition_digest, describe_export, export_definition
from smile.broker.network.descriptions import ImportRecords, source_edges
from smile.broker.network.host import ExportedRelation
from smile.broker.program_difference import GenerationRecord
from smile.broker.views.view import View
from smile.log.membership import StreamMembership
from smile.program import CompiledProgram


class ExportedRelations:
    """Those of one program. `broker` is the name of this broker, `log_id` identifies its log, and `origin` is its own
    in the streams that are published here, except for those with many origins: `find_membership` returns who these
    are."""

    def __init__(
        self,
        broker: str,
        log_id: str,
        origin: str,
        compiled: CompiledProgram,
        records: ImportRecords,
        generations: Sequence[GenerationRecord],
        find_membership: Callable[[str], StreamMembership | None],
    ) -> None:
        self._broker, self._log_id, self._origin = broker, log_id, origin
        self._find_membership = find_membership
        self._hosted = frozenset(s.name for s in compiled.rewritten.streams if s.many_origins)
        self._compiled, self._records, self._generations = compiled, records, generations
        self._program = compiled.rewritten
        self._streams = {stream.name for stream in self._program.streams}
        self._streams |= {i.name for i in self._program.imports if i.stream is not None}
        # A stream that is subscribed to is maintained as a view too. It is exported as a stream.
        views = ((view, record) for record in generations for view in record.digests if view not in self._streams)
        self._view_programs = {view: record.generation.program for view, record in views}
        self._found: dict[str, ExportedRelation] = {}

    def is_of(self, compiled: CompiledProgram, records: ImportRecords, generations: Sequence[GenerationRecord]) -> bool:
        """Whether these are still the relations of the broker."""
        return self._compiled is compiled and self._records is records and self._generations is generations

    def find(self, relation: str, views: Mapping[str, View]) -> ExportedRelation | None:
        """None if there is no such relation, or if it is a static table: importers copy that from its description."""
        known, view = self._found.get(relation), None if relation in self._streams else views.get(relation)
        if relation in self._compiled.tables and relation not in self._streams:
            return None
        if known is not None and known.view is view and relation not in self._hosted:
            return known
        program = self._defining_program(relation)
        if program is None or (relation in self._view_programs and view is None):
            return None
        found = self._found[relation] = self._export(relation, program, view)
        return found

    def describe(self, relation: str) -> dict[str, Any] | None:
        """What an importing broker records about a relation; None if there is no such relation."""
        program = self._defining_program(relation)
        if program is None:
            return None
        edges = source_edges(self._broker, program, relation, self._records)
        return {
            **describe_export(program, relation, self._compiled.tables),
            "history": self._history(program, relation),
            "sources": [[*reader, *source] for reader, source in edges],
        }

    def _defining_program(self, relation: str) -> mmpl.Program | None:
        if relation in self._streams or relation in self._compiled.tables:
            return self._program
        return self._view_programs.get(relation)

    def _export(self, relation: str, program: mmpl.Program, view: View | None) -> ExportedRelation:
        definition = export_definition(program, relation, self._compiled.tables)
        imported = {i.name: i.stream.name for i in program.imports if i.stream is not None}
        return ExportedRelation(
            relation,
            definition,
            definition_digest(definition),
            self._history(program, relation),
            view,
            "" if view is not None else imported.get(relation, relation),
            None if view is not None or relation in imported else self._own_origin(relation),
        )

    def _own_origin(self, stream: str) -> str | None:
        if stream not in self._hosted:
            return self._origin
        membership = self._find_membership(stream)
        return None if membership is None else membership.find(self._broker, self._log_id)

    def _import_history(self, import_: mmpl.ImportDef) -> str:
        return global_history(self._log_id, import_) if import_.is_global else self._records.history(import_)

    def _history(self, program: mmpl.Program, relation: str) -> str:
        """An imported stream has the history that it has at its home, and so has one with many origins. Everything else
        goes back to several."""
        for import_ in program.imports:
            if import_.name == relation and import_.stream is not None:
                return self._import_history(import_)
        if relation in self._hosted:
            membership = self._find_membership(relation)
            return "" if membership is None else membership.history
        part = export_definition(program, relation)
        histories = {self._log_id} if part.streams else set[str]()
        histories |= {self._import_history(import_) for import_ in part.imports}
        if "" in histories:
            return ""
        return join_histories(histories)


def global_history(log_id: str, import_: mmpl.ImportDef) -> str:
    """A global import is assembled here, so its history begins with this log."""
    return join_histories({log_id, import_.input_name})


def join_histories(histories: Iterable[str]) -> str:
    """Identifies several logs together."""
    return hashlib.sha256(repr(sorted(histories)).encode()).hexdigest()[:16]
