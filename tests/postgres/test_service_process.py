"""The service as a process: `smile postgres serve`, and what `smile status`, `/status` and `/metrics` say of it."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import httpx
import pytest

from smile.gateway.metrics import BROKER_METRICS
from tests.gateway.test_status import number_paths
from tests.postgres.services import connect, create_type, publish, wait_for_value
from tests.processes import SMILE, clean_environment, free_port, invoke_smile, wait_until

PASSWORD = "s3cret-password"


@contextmanager
def postgres_serve(url: str, folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    words = ["postgres", "serve", url, "--data", "data", "--engine", "local", "--listen", f"127.0.0.1:{port}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [SMILE, *words, "--flight", "", "--no-flush"],
            cwd=folder,
            env=clean_environment(PGPASSWORD=PASSWORD),
            stdout=log,
            stderr=log,
            text=True,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()


def read_status(port: int) -> dict[str, Any] | None:
    try:
        status: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/status").json()
    except httpx.HTTPError:
        return None
    return status


def captured(port: int, count: int) -> dict[str, Any] | None:
    status = read_status(port)
    return status if status and status["postgres"]["capture"]["events"] >= count else None


@pytest.mark.slow
def test_a_broker_with_only_the_types_of_a_database(database: str, tmp_path: Path) -> None:
    port, url = free_port(), f"{database}&password={PASSWORD}"
    with postgres_serve(url, tmp_path, port), connect(database) as connection:
        wait_until(lambda: "waiting for the first event type" in (tmp_path / "log").read_text(), "it does not wait")
        create_type(connection, "E")
        connection.execute("CREATE FUNCTION public.take(json) RETURNS void LANGUAGE sql AS ''")
        connection.execute("SELECT smile.create_subscription('s', 'E', 'local', 'n > 0', 'public.take', 'event', 0)")
        create_type(connection, "F")
        publish(connection, "E", {"n": 1})
        publish(connection, "F", {"n": 2})
        status = wait_for_value(lambda: captured(port, 2), "the events are not captured")
        assert set(status["streams"]) == {"E", "F"}
        assert "E" in status["postgres"]["database_subscriptions"]["s"]["stream"]
        paths = [path for path in number_paths(status["postgres"], "postgres") if not path.endswith("position.0")]
        assert paths
        for path in paths:
            assert len([m.name for m in BROKER_METRICS if fnmatchcase(path, m.path)]) == 1, path
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert "smile_capture_events_total 2.0" in metrics.splitlines()
        shown = invoke_smile("status", "--url", f"http://127.0.0.1:{port}").stdout
        assert "database, capture" in shown and "database subscription s" in shown
        texts = [json.dumps(status), metrics, shown, (tmp_path / "log").read_text()]
        assert not any(PASSWORD in text for text in texts)
    with postgres_serve(url, tmp_path, port), connect(database) as connection:
        publish(connection, "F", {"n": 3})
        status = wait_for_value(lambda: captured(port, 1), "the service does not go on after a restart")
        assert set(status["streams"]) == {"E", "F"}


def test_a_database_that_cannot_be_used_is_an_error(empty_database: str, tmp_path: Path) -> None:
    result = invoke_smile("postgres", "serve", empty_database, "--engine", "local", cwd=tmp_path)
    assert result.exit_code == 1
    assert "the schema smile is not installed" in result.stderr
