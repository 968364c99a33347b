"""A broker with connectors, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smile.broker.broker import Broker
from smile.connectors.service import ConnectorService
from smile.log.position import BatchLimit
from smile.settings import Settings, SinkSettings, SourceSettings
from smile.source import Source

PROGRAM = """
CREATE STREAM Orders (t TIME KEY, item string, n int CHECK (n >= 0));
CREATE VIEW Totals AS SELECT item, COUNT(*) AS orders, SUM(n) AS total FROM Orders GROUP BY item;
CREATE VIEW Large AS SELECT item, n FROM Orders WHERE n > 100;
CREATE VIEW Popular AS SELECT item, SUM(n) AS total FROM Orders GROUP BY item HAVING COUNT(*) > 2 AND SUM(n) < 500;
SUBSCRIBE Totals, Large, Popular;
"""


@contextmanager
def serving(
    folder: Path,
    sources: dict[str, dict[str, Any]] | None = None,
    sinks: dict[str, dict[str, Any]] | None = None,
    program: str = PROGRAM,
) -> Iterator[tuple[Broker, ConnectorService]]:
    """Its directory is kept for the next one."""
    data = folder / "data"
    settings = Settings(
        engine="local",
        flush=False,
        silence_ms=20,
        idle_ms=50,
        sources={name: SourceSettings(**fields) for name, fields in (sources or {}).items()},
        sinks={name: SinkSettings(**fields) for name, fields in (sinks or {}).items()},
    )
    broker = Broker.open(data, None if (data / "broker.json").exists() else Source("p.smile", program), settings)
    try:
        service = ConnectorService(broker, data / "connectors.sqlite")
        broker.attach(service)
        broker.dead_letters = service
        service.start()
        yield broker, service
    finally:
        broker.stop()


def logged(broker: Broker, stream: str = "Orders") -> list[tuple[Any, ...]]:
    """The values of all events of a stream in the order of their ticks."""
    log, rows = broker.log, list[dict[str, Any]]()
    position = log.start()
    while (end := log.after(position, BatchLimit(commits=1_000))) != position:
        rows += log.read(stream, position, end).to_pylist()
        position = end
    return [tuple(value for name, value in row.items() if name != "t") for row in rows]


def publish(broker: Broker, *events: tuple[str | None, int]) -> None:
    from smile.broker.publishing.publication import Publication  # noqa: PLC0415

    broker.publish(Publication("Orders", list(events))).result(60)
