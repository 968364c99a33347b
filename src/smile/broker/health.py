"""The health of a broker, in terms of what its users get: whether events can be published, and whether views follow.

A trouble is something that users notice, or soon will. It has a time since when, which stays the same as long as the
trouble lasts. `HealthMonitor` has no I/O: it turns samples into reports.
"""

from collections import deque
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal

from smile import limits
from smile.broker.maintenance.listener import Horizons, ViewPause
from smile.horizons import HORIZON_MIN, is_of_streams

HealthWord = Literal["ok", "degraded", "failing", "starting", "stopping"]
"""degraded: some views are not up to date. failing: events cannot be published, or no view is up to date."""

SAMPLES_MAX: Final = 3_600
"""Samples that are kept to find out how far a view is behind: an hour of them."""


class TroubleKind(StrEnum):
    LOG = "log"
    """Events cannot be published."""
    DISK = "disk"
    """There is little space left."""
    MEMORY = "memory"
    """There is little memory left."""
    ENGINE = "engine"
    """The views are not maintained, or this is being tried again."""
    JAVA = "java"
    """The Java process of Spark does not run."""
    VIEW_PAUSED = "view_paused"
    VIEW_BEHIND = "view_behind"
    IMPORT = "import"
    """An import does not follow its relation."""
    LINK = "link"
    """A neighbour cannot be reached at one of its addresses."""
    DATABASE = "database"
    """The database cannot be reached, or something in it cannot be used."""
    CONNECTOR = "connector"
    """A source or a sink does not work, or has dead letters."""


@dataclass(frozen=True)
class Trouble:
    """`subject` is the view, import or neighbour that it concerns, or empty. If it `is_severe`, the broker is of no use
    to its publishers or to its subscribers. `since` is in seconds since 1970."""

    kind: TroubleKind
    subject: str
    code: str
    message: str
    is_severe: bool
    since: float = 0.0


@dataclass(frozen=True)
class ViewSample:
    """A view that `is_filling` was added, and has not caught up with the log for the first time. `streams` are those
    that it is computed from: the horizons of others may be missing, because a stream is added to the log without
    disturbing the views."""

    horizons: Horizons
    streams: AbstractSet[str]
    pause: ViewPause | None = None
    is_filling: bool = False

    def has_reached(self, horizons: Horizons) -> bool:
        return all(
            self.horizons.get(name, HORIZON_MIN) >= tick
            for name, tick in horizons.items()
            if is_of_streams(name, self.streams)
        )


@dataclass(frozen=True)
class HealthSample:
    """The state of a broker at a time: `at` is in seconds since 1970, `monotonic_s` does not jump. `troubles` are those
    that are evident from one sample."""

    at: float
    monotonic_s: float
    log_horizons: Horizons
    views: Mapping[str, ViewSample]
    troubles: Sequence[Trouble]


@dataclass(frozen=True)
class HealthReport:
    """`lag_s` is the age of what each view shows: it has everything that was in the log so many seconds ago."""

    at: float = 0.0
    monotonic_s: float = 0.0
    troubles: Sequence[Trouble] = ()
    lag_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_severe(self) -> bool:
        return any(trouble.is_severe for trouble in self.troubles)


class HealthMonitor:
    def __init__(self, lag_s_max: float) -> None:
        self._lag_s_max = lag_s_max
        self._log_samples: deque[tuple[float, Horizons]] = deque(maxlen=SAMPLES_MAX)
        self._since: dict[tuple[TroubleKind, str], float] = {}

    def report(self, sample: HealthSample) -> HealthReport:
        self._log_samples.append((sample.monotonic_s, sample.log_horizons))
        lag_s = self._lags_s(sample)
        troubles = [*sample.troubles, *self._view_troubles(sample, lag_s)]
        since_before, self._since = self._since, {}
        dated = []
        for trouble in troubles:
            key = trouble.kind, trouble.subject
            since = trouble.since or since_before.get(key, sample.at)
            self._since[key] = since
            dated.append(replace(trouble, since=since))
        return HealthReport(sample.at, sample.monotonic_s, dated, lag_s)

    def _lags_s(self, sample: HealthSample) -> dict[str, float]:
        lags_s, previous, lag_s = dict[str, float](), None, 0.0
        for name, view in sample.views.items():
            if not view.is_filling:
                known = view.horizons, view.streams
                if known != previous:  # most views have the same
                    previous, lag_s = known, self._lag_s(view, sample.monotonic_s)
                lags_s[name] = lag_s
        return lags_s

    def _lag_s(self, view: ViewSample, now_s: float) -> float:
        for sampled_s, horizons in reversed(self._log_samples):
            if view.has_reached(horizons):
                return now_s - sampled_s
        return now_s - self._log_samples[0][0]

    def _view_troubles(self, sample: HealthSample, lag_s: Mapping[str, float]) -> list[Trouble]:
        """If no view follows the log, that is severe."""
        paused = {name: view.pause for name, view in sample.views.items() if view.pause is not None}
        behind = {name: lag for name, lag in lag_s.items() if lag > self._lag_s_max and name not in paused}
        is_severe = len(paused) + len(behind) == len(lag_s) > 0
        troubles = [
            Trouble(TroubleKind.VIEW_PAUSED, name, pause.code, pause.message, is_severe, pause.since)
            for name, pause in paused.items()
        ]
        for name, lag in behind.items():
            message = f"{name} shows what was known {lag:.0f} s ago"
            troubles.append(Trouble(TroubleKind.VIEW_BEHIND, name, "E111", message, is_severe))
        return troubles


def disk_trouble(free_bytes: int, free_bytes_min: int) -> list[Trouble]:
    if free_bytes >= free_bytes_min:
        return []
    message = f"the data directory has {free_bytes:,} bytes of free space; disk_free_min is {free_bytes_min:,}"
    return [Trouble(TroubleKind.DISK, "", "E112", message, is_severe=True)]


def memory_trouble(used_bytes: int, bytes_max: int) -> list[Trouble]:
    if not bytes_max or used_bytes < limits.memory_warned_share * bytes_max:
        return []
    message = f"the broker uses {used_bytes:,} bytes of memory; memory_max is {bytes_max:,}"
    return [Trouble(TroubleKind.MEMORY, "", "E114", message, is_severe=False)]


def log_trouble(problem: str | None) -> list[Trouble]:
    """`problem` says why events cannot be logged."""
    return [] if problem is None else [Trouble(TroubleKind.LOG, "", "E084", problem, is_severe=True)]
