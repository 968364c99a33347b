"""A relation that this broker imports: its cache, and what each request for it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from smile.algebra import mmpl
from smile.algebra.printer import print_expression
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.analysis.export_description import definition_digest
from smile.broker.imports.stream_cache import StreamCache
from smile.broker.imports.view_cache import ViewCache
from smile.broker.network.link_imports import LogQueue, StreamImportSink, ViewImportSink
from smile.broker.network.neighbours import Acknowledgements, least_acknowledged
from smile.broker.network.origin_report import event_horizons
from smile.broker.network.range_relay import RangeRelay
from smile.broker.network.view_cursor import to_link_horizons
from smile.horizons import END, HORIZON_MIN, origin_name, select_streams
from smile.kernels.compile import compile_export
from smile.links.imports import Import, StreamImport, ViewImport
from smile.links.messages import OpenImport, StreamHorizons
from smile.log.membership import StreamMembership
from smile.log.storage.durable import DurableLog


def open_cache(import_: mmpl.ImportDef, log: DurableLog) -> StreamCache | ViewCache:
    """The cache of an import. The log must have its streams."""
    if import_.stream is not None:
        return StreamCache(import_.name, import_.stream, import_.brokers, log)
    return ViewCache(import_, compile_export(import_).inputs[import_.relation_name].layout, log)


@dataclass(frozen=True, eq=False)
class ImportedRelation:
    """`import_id` identifies it on all links. `history` identifies the logs that it goes back to, "" if that is not
    known. Several links may carry it: its cache drops what it has already."""

    import_id: int
    import_: mmpl.ImportDef
    history: str
    cache: StreamCache | ViewCache
    relay: RangeRelay
    """What other brokers have asked for, if it is a stream."""

    @property
    def log_stream(self) -> str:
        """The first of its streams in the log."""
        return self.import_.log_streams[0].name

    @property
    def membership(self) -> StreamMembership | None:
        """Who the origins of a stream with many are, as far as it is known."""
        return self.cache.membership if isinstance(self.cache, StreamCache) else None

    @property
    def is_global(self) -> bool:
        """Whether a producer or a republisher of a global stream has it."""
        return isinstance(self.cache, StreamCache) and self.cache.is_global

    def open(self, queue: LogQueue, random: Random, now: float) -> Import:
        """The receiving end on one link."""
        assert self.import_.definition is not None
        condition = self.import_.condition
        request = OpenImport(
            self.import_id,
            self.import_.relation,
            definition_digest(self.import_.definition),
            self.history,
            "" if condition is None else print_expression(condition),
        )
        if isinstance(self.cache, StreamCache):
            return StreamImport(self.import_id, request, StreamImportSink(self.cache, queue, self.relay), random, now)
        return ViewImport(self.import_id, request, ViewImportSink(self.cache, queue), random, now)

    def safe_horizons(self, checkpoint: Mapping[str, int], downstream: Acknowledgements) -> StreamHorizons:
        """What this broker will not ask for again: it is in the hard checkpoint, which has these horizons, and in those
        of all neighbours that import the stream from here."""
        if isinstance(self.cache, ViewCache):
            prefix, names = self.import_.horizon_name(""), map(self.import_.horizon_name, self.import_.base_streams)
            named = select_streams(checkpoint, [name for name in names if name in checkpoint])
            return to_link_horizons({name.removeprefix(prefix): tick for name, tick in named.items()})
        (stream,) = self.import_.log_streams
        if stream.name not in checkpoint:
            return {}

        def safe(origin: str) -> int:
            name = origin_name(stream.name, origin) if stream.many_origins else stream.name
            return min(checkpoint.get(name, HORIZON_MIN), least_acknowledged(downstream, origin))

        return {self.import_.relation: {o: min(safe(o), tick) for o, tick in self.cache.horizons.items()}}

    def behind_s(self, now_us: int) -> float | None:
        """How long ago everything was known that is known here; None if no clock advances its streams."""
        horizons = event_horizons(self.cache.horizons, self.is_global)
        ticks = [tick for name, tick in horizons.items() if self._follows_clock(name) and tick < END]
        return max((now_us - tick / TICKS_PER_MICROSECOND) / 1e6 for tick in ticks) if ticks else None

    def _follows_clock(self, name: str) -> bool:
        if isinstance(self.cache, ViewCache):
            return name in _broker_timed_streams(self.import_)
        assert self.import_.definition is not None
        return not self.import_.definition.input_streams[0].publisher_timed


def _broker_timed_streams(import_: mmpl.ImportDef) -> set[str]:
    """Those of its base streams whose horizons follow a clock."""
    program = import_.exporting_program
    names = {stream.name for stream in program.streams if not stream.publisher_timed}
    for nested in program.imports:
        if nested.stream is None:
            names |= {nested.horizon_name(stream) for stream in _broker_timed_streams(nested)}
        elif nested.definition is not None and not nested.definition.input_streams[0].publisher_timed:
            names.add(nested.stream.name)
    return names
