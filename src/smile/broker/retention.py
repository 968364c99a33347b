"""Retention: which events the log of a broker keeps, and what holds its truncation back.

An event is removed only if the last hard checkpoint of all views includes it, every durable subscription and every
neighbour has acknowledged it, and it is older than the setting `keep`. A subscription or a neighbour that has been away
for longer than the setting `away_max` holds nothing back.
"""

from collections.abc import Callable, Iterable

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
    """`monotonic` returns seconds. Used by one thread at a time; `checkpoint_horizons` may be read by any."""

    def __init__(
        self,
        log: DurableLog,
        maintainer: Maintainer,
        network: Network,
        subscriptions: DurableSubscriptions,
        settings: Settings,
        clock: Clock,
        monotonic: Callable[[], float],
    ) -> None:
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
        subscribed = self._subscriptions.needed_horizons(away_us_max)
        horizons = self.checkpoint_horizons = _limit(horizons, subscribed, self._log.streams)
        if keep_us is not None:
            exported = self._network.needed_horizons(away_us_max)
            horizons = _limit(horizons, exported, self._log.streams)
            self._log.truncate(horizons, before=self._clock() - keep_us)


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
