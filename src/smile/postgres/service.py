"""The service of a database: captures what is published there, and delivers to its subscriptions and tables. It runs
beside a broker, which goes on while the database is away.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from smile.broker.broker import Broker
from smile.broker.health import Trouble, TroubleKind
from smile.errors import SmileError
from smile.postgres.capture.capture import Capture
from smile.postgres.catalogue import Catalogue
from smile.postgres.database import Database
from smile.postgres.database_network import DatabaseNetwork
from smile.postgres.database_worker import DatabaseWorker
from smile.postgres.delivery.delivery import Delivery
from smile.postgres.delivery.view_tables import ViewTables

ABSENCE_S_MAX: Final = 10.0
"""A database that cannot be used for longer than this is a trouble: a restart of it takes less."""
STOP_S_MAX: Final = 3.0

_log = logging.getLogger("smile.postgres")


class PostgresService:
    """Thread-safe."""

    name: Final = "postgres"

    def __init__(self, broker: Broker, url: str) -> None:
        database = Database(url)
        self._delivery = Delivery(broker.subscriptions, broker.log, lambda: broker.program)
        self._view_tables = ViewTables(broker)
        self._network = DatabaseNetwork(broker.routing, broker.links)
        self._capture = Capture(broker, self._delivery, self._set_catalogue)
        self._workers = {
            "capture": DatabaseWorker("capture", database, self._capture.work),
            "delivery": DatabaseWorker("delivery", database, self._delivery.work),
            "view_tables": DatabaseWorker("view tables", database, self._view_tables.work),
        }
        self._delivery.worker = self._workers["delivery"]
        self._view_tables.worker = self._workers["view_tables"]
        self._type_problems: Mapping[str, SmileError] = {}

    def start(self) -> None:
        for worker in self._workers.values():
            worker.start()

    def stop(self) -> None:
        """What was captured or delivered in part is repeated after the next start."""
        for worker in self._workers.values():
            worker.stop()
        for worker in self._workers.values():
            worker.join(STOP_S_MAX)
        self._delivery.close()
        self._view_tables.close()

    def _set_catalogue(self, catalogue: Catalogue, streams: Mapping[int, str | SmileError]) -> None:
        problems = {
            catalogue.types[id_].name: stream for id_, stream in streams.items() if isinstance(stream, SmileError)
        }
        for name, problem in problems.items():
            if str(self._type_problems.get(name)) != str(problem):
                _log.error("an event type cannot be used", extra={"type": name, "what": problem.message})
        self._type_problems = problems
        self._network.set_catalogue(catalogue, streams)
        self._delivery.set_catalogue(catalogue, streams)
        self._view_tables.set_catalogue(catalogue)

    def status(self) -> Mapping[str, Any]:
        return {
            "connections": {name: worker.status() for name, worker in self._workers.items()},
            "capture": self._capture.status(),
            "type_problems": {name: problem.message for name, problem in self._type_problems.items()},
            "database_subscriptions": self._delivery.status(),
            "view_tables": self._view_tables.status(),
        }

    def troubles(self) -> Sequence[Trouble]:
        """None of them is severe: the broker goes on."""
        troubles = list[Trouble]()

        def add(subject: str, code: str, message: str) -> None:
            troubles.append(Trouble(TroubleKind.DATABASE, subject, code, message, is_severe=False))

        for name, worker in self._workers.items():
            status = worker.status()
            if worker.problem is not None and status["for_s"] > ABSENCE_S_MAX:
                add(name, worker.problem.code, worker.problem.message)
        delay = self._capture.delay
        if delay is not None:
            add("capture", delay.diagnostics[0].code, f"events of the database are not taken: {delay.message}")
        for name, problem in self._type_problems.items():
            add(name, problem.diagnostics[0].code, problem.message)
        for name, problem in self._network.problems.items():
            add(name, problem.diagnostics[0].code, problem.message)
        for subject, diagnostic in self._delivery.problems():
            add(subject, diagnostic.code, diagnostic.message)
        for table, diagnostic in self._view_tables.problems():
            add(f"table {table}", diagnostic.code, diagnostic.message)
        return troubles
