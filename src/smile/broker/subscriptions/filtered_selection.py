"""What a durable subscription to events selects: a selection of a stream, a condition and a filter."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from smile.algebra import mmpl
from smile.broker.network.host import ExportedRelation
from smile.broker.subscriptions.event_filter import (
    EVERY_EVENT,
    EventFilter,
    parse_filter,
    table_streams,
    with_condition,
)
from smile.broker.subscriptions.event_subscription import event_identity
from smile.broker.subscriptions.position_store import SubscriptionRecord
from smile.broker.subscriptions.selection import StreamSelection, find_selection
from smile.broker.views.condition import ViewCondition, parse_condition
from smile.errors import SmileError, error


@dataclass(frozen=True, eq=False)
class FilteredSelection:
    """`event_filter` includes the condition. `tables` are the tables that the filter consults, by their names in the
    program, as the log has them."""

    selection: StreamSelection
    condition: ViewCondition
    written_filter: EventFilter
    event_filter: EventFilter
    tables: Mapping[str, mmpl.StreamDef]

    def identity(self, history: str, find_export: Callable[[str], ExportedRelation]) -> str:
        """That of its tokens. `history` identifies the history of the stream."""
        histories = [find_export(table).history for table in self.tables]
        return event_identity(history, self.selection, self.condition, self.written_filter, histories)

    def is_same(self, other: "FilteredSelection") -> bool:
        """Whether both select the same events, of programs that may differ otherwise."""
        a, b = self.selection, other.selection
        return (a.stream, a.text, self.event_filter, dict(self.tables)) == (
            b.stream,
            b.text,
            other.event_filter,
            dict(other.tables),
        )


class FilteredSelections:
    """Those of the present program. Thread-safe. Selections and filters are compiled once."""

    def __init__(self, find_program: Callable[[], mmpl.Program]) -> None:
        self._find_program = find_program
        self._lock = Lock()
        self._program: mmpl.Program | None = None
        self._selections: dict[str, StreamSelection | None] = {}
        self._filters: dict[tuple[str, str], EventFilter] = {}

    def find_selection(self, relation: str) -> StreamSelection | None:
        """The selection that a relation of the program is; None if it is another view."""
        program = self._find_program()
        with self._lock:
            self._forget_unless(program)
            if relation not in self._selections:
                self._selections[relation] = find_selection(program, relation)
            return self._selections[relation]

    def find(self, relation: str, where: Mapping[str, Any], filter_text: str) -> FilteredSelection:
        """Raises E142 if the relation is not a selection, and the error of a wrong condition or filter."""
        selection = self.find_selection(relation)
        if selection is None:
            hint = "Its rows can be delivered: their changes, with the resume position under the name."
            raise error("E142", f"{relation} is no selection of a stream, so it has no events", hint=hint)
        return self.complete(selection, parse_condition(selection.source, where), filter_text)

    def complete(self, selection: StreamSelection, condition: ViewCondition, filter_text: str) -> FilteredSelection:
        """Adds a filter to a selection and a condition. Raises the error of a wrong filter."""
        program = self._find_program()
        written = self._find_filter(program, selection, filter_text) if filter_text else EVERY_EVENT
        tables = {name: stream for name, stream in table_streams(program).items() if stream.name in written.tables}
        return FilteredSelection(selection, condition, written, with_condition(written, condition, selection), tables)

    def find_recorded(self, record: SubscriptionRecord) -> FilteredSelection | None:
        """What a stored subscription selects; None if the program does not have that any more."""
        try:
            found = self.find(record.relation, json.loads(record.conditions), record.filter)
        except SmileError:
            return None
        return found if found.selection.stream == record.stream else None

    def _find_filter(self, program: mmpl.Program, selection: StreamSelection, text: str) -> EventFilter:
        key = selection.source.name, text
        with self._lock:
            self._forget_unless(program)
            known = self._filters.get(key)
        if known is None:
            known = parse_filter(program, selection, text)
            with self._lock:
                if self._program is program:
                    self._filters[key] = known
        return known

    def _forget_unless(self, program: mmpl.Program) -> None:
        if self._program is not program:
            self._program, self._selections, self._filters = program, {}, {}
