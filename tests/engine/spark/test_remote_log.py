"""Tasks that cannot read the log file read it over Arrow Flight, and send the same messages."""

from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import SparkSession

from smile.gateway.access import Access
from smile.gateway.connection_counts import ConnectionCounts
from smile.gateway.flight.server import FlightServer
from smile.gateway.rate_limiter import RateLimiter
from smile.log.storage.remote import RemoteLog
from smile.settings import Settings
from tests.engine.spark.comparison import COMMIT_PER_BATCH, make_pipeline, recorded, rows_of, run_locally
from tests.engine.spark.workload import frames, program


def test_a_pipeline_over_the_network_tells_the_same(spark: SparkSession, tmp_path: Path) -> None:
    history, floor = frames(7), program()
    log = recorded(floor, history, tmp_path / "log")
    access = Access(tmp_path / "access.db", requires_tokens=False)
    broker = SimpleNamespace(log=log, views={}, log_token="smile_of_tasks")
    settings = Settings(flight="127.0.0.1:0")
    limiters = RateLimiter(0, "requests"), RateLimiter(0, "events")
    server = FlightServer(broker, settings, access, *limiters, ConnectionCounts(999, 999))  # type: ignore[arg-type]
    try:
        far = RemoteLog(server.location, floor.streams, "")
        outputs: list[list[str]] = []
        pipeline = make_pipeline(spark, floor, far, tmp_path / "state", 2, COMMIT_PER_BATCH, outputs)
        pipeline.start(available_now=True)
        while not pipeline.wait():
            pass
        assert (outputs, rows_of(pipeline, floor.subscriptions)) == run_locally(floor, history)
    finally:
        server.stop()
        access.close()
        log.close()
