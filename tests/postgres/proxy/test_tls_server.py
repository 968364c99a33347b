"""A server that is built with TLS offers channel binding. It is one of this machine: that of the wheel has no TLS."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres.private_server import PASSWORD, SCRAM_USER, private_server
from tests.postgres.proxy.running_proxy import RunningProxy
from tests.postgres.proxy.test_connections import server_context
from tests.postgres.server import system_programs
from tests.processes import make_certificate


@pytest.mark.slow
def test_channel_binding_of_a_real_server(tmp_path: Path) -> None:
    programs = system_programs()
    if programs is None:
        pytest.skip("no PostgreSQL is installed on this machine")
    certificate = make_certificate(tmp_path)
    with private_server(programs, certificate) as server:
        options: dict[str, Any] = {"user": SCRAM_USER, "password": PASSWORD, "sslmode": "require"}
        with server.connect(channel_binding="require", **options) as direct:
            assert direct.pgconn.ssl_in_use
        url = f"{server.url}?sslmode=verify-full&sslrootcert={certificate[0]}"
        with RunningProxy(url, server_context(certificate)) as proxy:
            with pytest.raises(
                psycopg.OperationalError, match="both support channel binding, which a proxy cannot relay"
            ):
                server.connect(proxy.port, **options)
            with server.connect(proxy.port, channel_binding="disable", **options) as connection:
                (is_encrypted,) = (
                    connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() or ()
                )
                assert is_encrypted
        plain = RunningProxy(f"{server.url}?sslmode=disable", server_context(certificate))
        with plain, server.connect(plain.port, **options) as connection:
            assert connection.pgconn.ssl_in_use
