"""The status of a broker, as `smile status`, `/status` and `/metrics` show it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from smile.broker.attached_service import AttachedService
from smile.broker.directory import BrokerDirectory
from smile.broker.global_streams.registry_report import import_epochs
from smile.broker.health import HealthWord
from smile.broker.health_watch import HealthWatch
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.network.description_wait import DescriptionWait
from smile.broker.network.network import Network
from smile.broker.publishing.publisher import Publisher
from smile.broker.queries import AdHocQueries
from smile.broker.start_progress import StartProgress
from smile.broker.subscriptions.durable_subscriptions import DurableSubscriptions
from smile.broker.views.view import View
from smile.horizons import shown_horizons
from smile.log.storage.durable import DurableLog
from smile.memory import resident_bytes
from smile.program import CompiledProgram


class ReportingBroker(Protocol):
    """What changes while a broker runs."""

    @property
    def views(self) -> Mapping[str, View]: ...

    @property
    def compiled(self) -> CompiledProgram: ...

    @property
    def descriptions(self) -> DescriptionWait: ...

    @property
    def health(self) -> HealthWord: ...

    @property
    def queries(self) -> AdHocQueries: ...

    @property
    def log(self) -> DurableLog: ...

    @property
    def start_progress(self) -> StartProgress: ...

    @property
    def attached(self) -> Sequence[AttachedService]: ...

    @property
    def warnings(self) -> Sequence[Mapping[str, Any]]: ...


class BrokerStatus:
    """`monotonic` returns seconds: the clock of the links."""

    def __init__(
        self,
        engine: str,
        directory: BrokerDirectory,
        publisher: Publisher,
        maintainer: Maintainer,
        network: Network,
        subscriptions: DurableSubscriptions,
        health_watch: HealthWatch,
        monotonic: Callable[[], float],
        broker: ReportingBroker,
    ) -> None:
        self._engine, self._directory = engine, directory
        self._publisher, self._maintainer = publisher, maintainer
        self._network, self._subscriptions = network, subscriptions
        self._health_watch, self._monotonic, self._broker = health_watch, monotonic, broker
        self._started_at = time.time()

    def report(self) -> dict[str, Any]:
        health_report, horizons = self._health_watch.report, self._publisher.horizons
        return {
            "at": time.time(),
            "since": self._started_at,
            "health": self._broker.health,
            "engine": self._engine,
            "start": self._broker.start_progress.report(),
            "program": self._broker.compiled.source.name,
            "streams": {name: {"horizon": horizons.get(name)} for name in self._publisher.decoder.schemas},
            "waiting": self._broker.descriptions.status(),
            **self._network.status(self._monotonic()),
            **self._network.routing.status(),
            "views": self._report_views(health_report.lag_s),
            "queries": self._broker.queries.status(),
            "subscriptions": self._subscriptions.status(),
            **{service.name: dict(service.status()) for service in self._broker.attached},
            "publisher": self._publisher.status(),
            "keeper": dict(self._maintainer.status()),
            "memory_bytes": resident_bytes(),
            "java_memory_bytes": self._maintainer.process_memory_bytes,
            "log_bytes": self._directory.log_bytes(),
            "disk_free_bytes": self._directory.free_bytes(),
            "troubles": [asdict(trouble) for trouble in health_report.troubles],
            "warnings": self._broker.warnings,
        }

    def _report_views(self, lag_s: Mapping[str, float]) -> dict[str, dict[str, Any]]:
        state_bytes = self._maintainer.state_bytes_by_view()
        program = self._broker.compiled.rewritten
        epochs = import_epochs(program, self._broker.log)
        names = {i.stream.name: i.name for i in program.imports if i.stream is not None}
        timed = {n for n, s in self._publisher.decoder.schemas.items() if not s.stream.publisher_timed}
        return {
            view.name: {
                "rows": view.row_count,
                "changed": view.changed_row_count,
                "subscribers": view.subscriber_count,
                "behind_s": view.behind_s(timed),
                "state_bytes": state_bytes.get(view.name, 0),
                "lag_s": lag_s.get(view.name),
                "horizons": shown_horizons(view.horizons),
                "epochs": {names[s]: epochs[s] for s in sorted(view.base_streams) if s in epochs},
                "paused": None if view.pause is None else asdict(view.pause),
            }
            for view in self._broker.views.values()
        }
