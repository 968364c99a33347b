"""Watches the health of a broker: takes a sample every second, and logs each new trouble.

It has a thread of its own and waits for nobody, because everything else may wait for a disk or a process that does not
answer. If even this thread is held up, the report says so.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event, Thread
from typing import Any, Protocol

from smile import limits
from smile.broker.attached_service import AttachedService
from smile.broker.directory import BrokerDirectory
from smile.broker.health import (
    HealthMonitor,
    HealthReport,
    HealthSample,
    Trouble,
    TroubleKind,
    ViewSample,
    disk_trouble,
    log_trouble,
    memory_trouble,
)
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.network.description_wait import DescriptionWait
from smile.broker.network.network import Network
from smile.broker.network.troubles import network_troubles
from smile.broker.publishing.publisher import Publisher
from smile.broker.views.view import View
from smile.errors import SmileError
from smile.memory import resident_bytes
from smile.settings import Settings

_log = logging.getLogger("smile.broker.health")


class WatchedBroker(Protocol):
    """What changes while a broker runs."""

    @property
    def views(self) -> Mapping[str, View]: ...

    @property
    def failure(self) -> SmileError | None: ...

    @property
    def warnings(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def network(self) -> Network: ...

    @property
    def descriptions(self) -> DescriptionWait: ...

    @property
    def attached(self) -> Sequence[AttachedService]: ...


class HealthWatch:
    def __init__(
        self,
        publisher: Publisher,
        maintainer: Maintainer,
        directory: BrokerDirectory,
        settings: Settings,
        broker: WatchedBroker,
    ) -> None:
        self._publisher, self._maintainer, self._directory = publisher, maintainer, directory
        self._settings, self._broker = settings, broker
        self._monitor = HealthMonitor(settings.lag_s_max)
        self._report = HealthReport()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        self.check()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(limits.health_age_s_max)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def report(self) -> HealthReport:
        report = self._report
        age_s = time.monotonic() - report.monotonic_s
        if age_s <= limits.health_age_s_max:
            return report
        message = f"the health was last checked {age_s:.0f} s ago"
        late = Trouble(TroubleKind.ENGINE, "", "E113", message, is_severe=True, since=report.at)
        return replace(report, troubles=[*report.troubles, late])

    def _run(self) -> None:
        while not self._stopping.wait(limits.health_check_s):
            self.check()

    def check(self) -> None:
        """Takes a sample now."""
        known = {(trouble.kind, trouble.subject) for trouble in self._report.troubles}
        filling = self._maintainer.filling_views
        views = {
            name: ViewSample(view.horizons, view.base_streams, view.pause, name in filling)
            for name, view in self._broker.views.items()
        }
        self._report = self._monitor.report(
            HealthSample(
                time.time(), time.monotonic(), self._publisher.horizons, views, tuple(self._evident_troubles())
            )
        )
        for trouble in self._report.troubles:
            if (trouble.kind, trouble.subject) not in known:
                fields = {"kind": str(trouble.kind), "subject": trouble.subject, "code": trouble.code}
                _log.error("there is a trouble", extra={**fields, "what": trouble.message})

    def _evident_troubles(self) -> list[Trouble]:
        """What is wrong with everything but the views."""
        settings, maintainer, failure = self._settings, self._maintainer, self._broker.failure
        troubles = log_trouble(self._publisher.problem())
        troubles += disk_trouble(self._directory.free_bytes(), settings.disk_free_min)
        troubles += memory_trouble(resident_bytes(), settings.memory_max)
        troubles += network_troubles(self._broker.network.status(time.monotonic()))
        troubles += self._broker.descriptions.troubles()
        troubles += [trouble for service in self._broker.attached for trouble in service.troubles()]
        if (problem := maintainer.process_problem) is not None:
            troubles.append(Trouble(TroubleKind.JAVA, "", "E069", problem, is_severe=True))
        if failure is not None:
            code = failure.diagnostics[0].code
            troubles.append(Trouble(TroubleKind.ENGINE, "", code, failure.message, is_severe=True))
        elif maintainer.state == "recovering" and self._broker.warnings:
            message = self._broker.warnings[-1]["what"]
            troubles.append(Trouble(TroubleKind.ENGINE, "", "E113", message, is_severe=False))
        elif maintainer.state == "running" and maintainer.silent_s > limits.maintainer_silent_s_max:
            message = f"the maintainer has been busy with one step for {maintainer.silent_s:.0f} s"
            troubles.append(Trouble(TroubleKind.ENGINE, "", "E113", message, is_severe=False))
        return troubles
