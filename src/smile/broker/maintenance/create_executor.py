"""The executor of the engine that the settings name, and the log that it reads."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from smile.broker.directory import BrokerDirectory
from smile.broker.maintenance.executor import Executor
from smile.errors import error
from smile.log.storage.durable import DurableLog
from smile.log.storage.remote import RemoteLog, ServedLog
from smile.settings import Settings, parse_address

if TYPE_CHECKING:
    from smile.engine.spark.host import SparkHost


def create_executor(
    directory: BrokerDirectory,
    settings: Settings,
    log_token: str,
    monotonic: Callable[[], float],
    host: "SparkHost | None" = None,
) -> Executor:
    """`log_token` allows Spark's tasks to read the log over the network. `monotonic` returns seconds. On Spark, the
    views run in a session of the `host`, if one is given."""
    if settings.engine == "local":
        from smile.broker.maintenance.local_executor import LocalExecutor  # noqa: PLC0415  # only one of them is needed

        return LocalExecutor(directory.state_path, monotonic)
    from smile.broker.maintenance.spark_executor import SparkExecutor  # noqa: PLC0415

    return SparkExecutor(
        directory.state_path,
        settings.master,
        settings.partitions,
        directory.spark_log_path,
        log_token,
        settings.memory_max or None,
        host,
    )


def executor_log(log: DurableLog, settings: Settings, log_token: str) -> DurableLog:
    """The log for the executor. Spark's tasks on this machine read the file; tasks on other machines ask this
    broker."""
    if settings.engine == "local" or settings.master.startswith("local") or not settings.flight:
        return log
    host, port = parse_address(settings.flight)
    if not port:
        raise error("E100", "on a cluster, flight needs a fixed port: tasks read the log there")
    name = next(iter(settings.hosts), socket.getfqdn() if host in ("0.0.0.0", "::") else host)
    location = f"{'grpc+tls' if settings.tls else 'grpc'}://{f'[{name}]' if ':' in name else name}:{port}"
    certificate = Path(settings.tls_cert).read_bytes() if settings.tls else None
    definitions = [schema.stream for schema in log.schemas.values()]
    remote = RemoteLog(location, definitions, log_token, certificate)
    return ServedLog(log.path, definitions, remote, settings.flush)
