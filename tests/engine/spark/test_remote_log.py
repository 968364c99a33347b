"""Tasks that do not reach the log's file read it over Arrow Flight, and tell the same."""

from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import SparkSession

from smile.gateway.access import Access
from smile.gateway.flight.server import FlightServer
from smile.gateway.rate_limiter import RateLimiter
from smile.log.storage.remote import RemoteLog
from smile.settings import Settings
from tests.engine.spark.beside import ONE, locally, pipeline_of, recorded, rows_of
from tests.engine.spark.workload import frames, program


def test_a_pipeline_over_the_network_tells_the_same(spark: SparkSession, tmp_path: Path) -> None:
    history, floor = frames(7), program()
    log = recorded(floor, history, tmp_path / "log")
    access = Access(tmp_path / "access.db", requires_tokens=False)
    broker = SimpleNamespace(log=log, views={}, log_token="smile_of_tasks")
    settings = Settings(flight="127.0.0.1:0")
    server = FlightServer(broker, settings, access, RateLimiter(0, "requests"), RateLimiter(0, "events"))  # type: ignore[arg-type]
    try:
        far = RemoteLog(server.location, floor.streams, "")
        found: list[list[str]] = []
        pipeline = pipeline_of(spark, floor, far, tmp_path / "state", 2, ONE, found)
        pipeline.start(available_now=True)
        while not pipeline.wait():
            pass
        assert (found, rows_of(pipeline, floor.subscriptions)) == locally(floor, history)
    finally:
        server.stop()
        access.close()
        log.close()
