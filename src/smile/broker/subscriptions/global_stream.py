"""Global subscriptions: the events of a stream of all brokers that publish one of its name, as far as this broker has
them: its own, and the routed streams that it imports.

Each producer's log is a history of its own. The position of a global subscription has a tick for each history and
origin, so every event of every producer is delivered once, wherever it comes from and whenever its producer appears.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.broker.network.descriptions import ImportRecords
from smile.broker.network.host import ExportedRelation
from smile.broker.network.routed_stream import condition_text, read_routed
from smile.broker.network.routing import Routing
from smile.broker.subscriptions.log_ranges import LogRanges
from smile.broker.subscriptions.selection import StreamSelection, find_selection
from smile.broker.views.condition import ViewCondition, parse_condition
from smile.errors import SmileError, error
from smile.links.routing.names import RoutedStream
from smile.log.storage.pieces import StreamPiece

HISTORY = "global"
"""The history of a global subscription: its ticks name the histories of the producers themselves."""
_PREFIX = "global "
_SEPARATOR = "/"


class ProducerStream(NamedTuple):
    """A stream of the log that has the events of one history."""

    history: str
    logged: str

    def position_key(self, origin: str) -> str:
        return f"{self.history}{_SEPARATOR}{origin}"


@dataclass(frozen=True, eq=False)
class GlobalStream:
    """`selection` has the type of the stream, and its conditions. `find_producers` returns those that are here now."""

    selection: StreamSelection
    condition: ViewCondition
    where: str
    """The condition as a host evaluates it."""
    find_producers: Callable[[], Sequence[ProducerStream]]

    @property
    def filter(self) -> tuple[str, str]:
        return self.selection.base, self.where


def stored_name(stream: str, where: str) -> str:
    """What a stored position has instead of the stream of the log."""
    return _PREFIX + json.dumps([stream, where], ensure_ascii=False)


def stored_filter(stored: str) -> tuple[str, str] | None:
    """The stream and the condition of a global subscription; None if it is a local one."""
    if not stored.startswith(_PREFIX):
        return None
    stream, where = json.loads(stored.removeprefix(_PREFIX))
    return stream, where


class GlobalRanges:
    """The ranges of all producers of a stream, as if each origin of each history were an origin of one stream."""

    def __init__(self, ranges: LogRanges, find_producers: Callable[[], Sequence[ProducerStream]]) -> None:
        self._ranges, self._find_producers = ranges, find_producers

    @property
    def version(self) -> int:
        return self._ranges.version

    def horizons(self, stream: str) -> Mapping[str, int]:
        return {
            producer.position_key(origin): tick
            for producer in self._find_producers()
            for origin, tick in self._ranges.horizons(producer.logged).items()
        }

    def read(self, stream: str, origin: str, after: int) -> StreamPiece | None:
        history, _, own_origin = origin.rpartition(_SEPARATOR)
        for producer in self._find_producers():
            if producer.history == history:
                return self._ranges.read(producer.logged, own_origin, after)
        return None


class GlobalHost(Protocol):
    """What global streams need of their broker."""

    @property
    def program(self) -> mmpl.Program: ...

    @property
    def import_records(self) -> ImportRecords: ...

    def find_export(self, relation: str) -> ExportedRelation: ...


class GlobalStreams:
    def __init__(self, routing: Routing, host: GlobalHost) -> None:
        self._routing, self._host = routing, host

    def find(self, stream: str, where: Mapping[str, Any], host_where: str | None = None) -> GlobalStream:
        """`host_where` is the condition that hosts evaluate; None if it follows from `where`, the condition of the
        subscriber. Raises E129 if no broker that is known publishes the stream."""
        definition = self._find_definition(stream)
        # Checks do not matter for what is read, and differ between producers.
        plain = replace(definition, name=stream, checks=(), unique=(), home=None, many_origins=False)
        selection = find_selection(mmpl.Program((plain,), (), (stream,)), stream)
        assert selection is not None, "a stream is a selection of itself"
        condition = parse_condition(selection.source, where)
        if host_where is not None:
            return self._create(plain, selection, condition, host_where)
        values = {n: v.data[0].as_py() if v.is_text else v.data[0].item() for n, v in condition.value_columns.items()}
        return self._create(plain, selection, condition, condition_text(values, stream_types(plain)))

    def _create(
        self, stream: mmpl.StreamDef, selection: StreamSelection, condition: ViewCondition, where: str
    ) -> GlobalStream:
        def producers() -> list[ProducerStream]:
            return [p for p, other in self.find_producers(stream.name, where) if has_type_of(other, stream)]

        return GlobalStream(selection, condition, where, producers)

    def _find_definition(self, stream: str) -> mmpl.StreamDef:
        local = self._local_stream(stream)
        if local is not None:
            return local
        for entry in self._routing.advertised_by(stream):
            try:
                return read_routed(entry.description, RoutedStream(stream, entry.host)).streams[0]
            except SmileError:
                continue
        hint = "Wait until a broker that publishes it is linked, or check `smile status` there: is it advertised?"
        raise error("E129", f"no broker advertises {stream[:100]}", hint=hint)

    def _local_stream(self, stream: str) -> mmpl.StreamDef | None:
        """The stream in the program, if it is there: it says what type the others must have."""
        program = self._host.program
        for definition in program.streams:
            if definition.name == stream:
                return definition
        imported = (i.passed_on_stream for i in program.imports if i.name == stream)
        return next(imported, None)

    def find_producers(self, stream: str, where: str) -> list[tuple[ProducerStream, mmpl.StreamDef]]:
        """All producers whose events are in the log, whatever their types."""
        program, found = self._host.program, dict[str, tuple[ProducerStream, mmpl.StreamDef]]()
        local = self._local_stream(stream)
        if local is not None:
            exported = self._host.find_export(stream)
            found[exported.history] = ProducerStream(exported.history, exported.logged_stream), local
        routed = self._host.import_records.routed
        for import_ in program.imports:
            record = routed.get(import_.name)
            if record is not None and import_.stream is not None and record.stream[::2] == (stream, where):
                producer = ProducerStream(record.history, import_.stream.name)
                found.setdefault(record.history, (producer, import_.stream))
        return list(found.values())

    def problems(self) -> dict[str, SmileError]:
        """Producers whose events cannot be delivered with those of others, by relation (E130)."""
        found, routed = dict[str, SmileError](), self._host.import_records.routed
        for import_ in self._host.program.imports:
            record = routed.get(import_.name)
            if record is None or import_.stream is None:
                continue
            stream, host = record.stream.stream, record.stream.host
            try:
                definition = self._find_definition(stream)
            except SmileError:
                continue
            if not has_type_of(import_.stream, definition):
                hint = "Define it alike at all brokers, or give one of the streams another name."
                found[import_.name] = error("E130", f"{stream} has other columns at {host} than elsewhere", hint=hint)
        return found


def has_type_of(stream: mmpl.StreamDef, other: mmpl.StreamDef) -> bool:
    """Whether events of two streams can be delivered together."""
    return (stream.tick, stream.columns) == (other.tick, other.columns)
