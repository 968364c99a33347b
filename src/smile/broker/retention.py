"""Retention: which events the log of a broker keeps, and what holds its truncation back.

An event is removed only if the last hard checkpoint of all views includes it, every durable subscription and every
neighbour has acknowledged it, it is older than the setting `keep`, and it is no part of the history of a republisher. A
subscription or a neighbour that has been away for longer than the setting `away_max` holds nothing back.
"""

from collections.abc import Callable, Iterable, Mapping, Set as AbstractSet

from smile.algebra import mmpl
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.maintenance.listener import Horizons
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.network.network import Network
from smile.broker.subscriptions.durable_subscriptions import DurableSubscriptions
from smile.errors import error
from smile.horizons import END, HORIZON_MIN, split_name
from smile.log.clock import Clock
from smile.log.storage.durable import DurableLog
from smile.program import CompiledProgram
from smile.settings import Settings

RETENTION_INTERVAL_S = 60.0


class Retention:
    """`monotonic` returns seconds. `find_routed` returns the streams of the log that no view reads: those that global
    subscriptions and plans have imported. `needed_by_plans` returns what plans have not passed on yet.
    `find_histories` returns how many ticks of a stream of the log stay in it at least. Used by one thread at a time;
    `checkpoint_horizons` may be read by any."""

    def __init__(
        self,
        log: DurableLog,
        maintainer: Maintainer,
        network: Network,
        subscriptions: DurableSubscriptions,
        settings: Settings,
        clock: Clock,
        monotonic: Callable[[], float],
        find_routed: Callable[[], AbstractSet[str]],
        needed_by_plans: Callable[[], Horizons],
        find_histories: Callable[[], Mapping[str, int]],
    ) -> None:
        self._find_histories = find_histories
        self._find_routed, self._needed_by_plans = find_routed, needed_by_plans
        self._log, self._maintainer = log, maintainer
        self._network, self._subscriptions = network, subscriptions
        self._settings, self._clock, self._monotonic = settings, clock, monotonic
        self._truncated_at = monotonic()
        self.checkpoint_horizons: Horizons = {}
        """What no view and no durable subscription will read again, whatever happens to this broker. Empty if there was
        no hard checkpoint yet."""

    @property
    def is_due(self) -> bool:
        return self._monotonic() - self._truncated_at >= RETENTION_INTERVAL_S

    def truncate(self, has_views: bool) -> None:
        """Removes from the log what is not needed any more. Acknowledges to neighbours what will not be read again."""
        self._truncated_at = self._monotonic()
        keep_us, away_us_max = self._settings.retention_us, self._settings.away_us_max
        if keep_us is None and not self._network.has_imported_streams:
            return
        # A broker without views only passes on what it imports.
        horizons = self._maintainer.checkpoint() if has_views else self._log.newest().named_horizons()
        if horizons is None:
            return
        horizons = {**horizons, **self._routed_horizons()}
        subscribed = self._subscriptions.needed_horizons(away_us_max, keep_us)
        horizons = _limit(horizons, subscribed, self._log.streams)
        horizons = self.checkpoint_horizons = _limit(horizons, self._needed_by_plans(), self._log.streams)
        if keep_us is not None:
            exported = self._network.needed_horizons(away_us_max)
            horizons = _limit(horizons, exported, self._log.streams)
            horizons = _limit(horizons, self._history_horizons(horizons), self._log.streams)
            self._log.truncate(horizons, before=self._clock() - keep_us)

    def _history_horizons(self, horizons: Horizons) -> Horizons:
        """Where the histories of republishers begin, for each stream and each origin."""
        now, streams = self._clock() * TICKS_PER_MICROSECOND, self._log.streams
        begins = {stream: now - ticks for stream, ticks in self._find_histories().items()}
        named = {name: split_name(name, streams)[0] for name in horizons}
        return {**begins, **{name: begins[stream] for name, stream in named.items() if stream in begins}}

    def _routed_horizons(self) -> Horizons:
        routed, streams = self._find_routed(), self._log.streams
        newest = self._log.newest().named_horizons() if routed else {}
        return {name: tick for name, tick in newest.items() if split_name(name, streams)[0] in routed}


def find_histories(program: mmpl.Program) -> dict[str, int]:
    """How many ticks of the streams of republishers stay in the log at least."""
    ticks = {history.relation: history.ticks for history in program.histories}
    return {i.stream.name: ticks[i.name] for i in program.republishers if i.stream is not None and i.name in ticks}


def _limit(horizons: Horizons, needed: Horizons, streams: Iterable[str]) -> Horizons:
    """The horizons, but of each stream and origin at most what is not needed any more. An origin that is missing in
    `needed` is needed from its beginning. `streams` are all of the log."""
    limited = dict(horizons)
    for name in {**horizons, **needed}:
        stream, origin = split_name(name, streams)
        if stream in needed and (name in horizons or (origin is not None and horizons.get(stream) == END)):
            limited[name] = min(horizons.get(name, END), needed.get(name, HORIZON_MIN))
    return limited


def refuse_truncated_streams(log: DurableLog, compiled: CompiledProgram, views: Iterable[str]) -> None:
    """Refuses new views whose streams were truncated: a view is computed from all events."""
    for view in views:
        for stream in compiled.analysis.relations[view].seals:
            tick = log.truncated_to(stream)
            if tick is not None:
                message = f"{view} needs all events of {stream}, but the log was truncated at tick {tick}"
                hint = "Views can be added only while the log has all events. The setting `keep` says how long."
                raise error("E097", message, hint=hint)
