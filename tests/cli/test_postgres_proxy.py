"""`smile postgres proxy` as a process: what it refuses, and how it ends."""

import signal
import subprocess

import psycopg
import pytest

from tests.postgres.private_server import PrivateServer, fixture_server
from tests.processes import SMILE, WAIT_S, clean_environment, free_port, invoke_smile

__all__ = ["fixture_server"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--listen", "127.0.0.1", "--to", "postgresql://x"], "E100: 127.0.0.1 is not HOST:PORT"),
        (["--listen", "127.0.0.1:1", "--to", "http://x"], "E100: http://x: it does not begin with postgresql://"),
        (["--listen", "0.0.0.0:1", "--to", "postgresql://x"], "E107: 0.0.0.0 is not a loopback address, and there is no TLS"),
        (["--listen", "127.0.0.1:1", "--to", "postgresql://x", "--tls-cert", "c"], "E100: --tls-cert and --tls-key belong together"),
        (["--listen", "127.0.0.1:1", "--to", "postgresql://x", "--tls-cert", "c", "--tls-key", "k"], "E100: the certificate in c"),
        (["--listen", "192.0.2.1:1", "--to", "postgresql://x", "--insecure"], "E106: cannot listen on 192.0.2.1:1"),
    ],
)  # fmt: skip
def test_what_is_refused(words: list[str], message: str) -> None:
    done = invoke_smile("postgres", "proxy", *words)
    assert done.exit_code == (1 if "E106" in message else 2)
    assert message in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_a_signal(server: PrivateServer, ending: signal.Signals) -> None:
    port = free_port()
    command = [SMILE, "postgres", "proxy", "--listen", f"127.0.0.1:{port}", "--to", server.url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_environment()) as process:
        assert process.stderr is not None
        assert (
            process.stderr.readline() == f"smile: listening on 127.0.0.1:{port}, relaying to 127.0.0.1:{server.port}\n"
        )
        with server.connect(port) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            process.send_signal(ending)
            assert process.wait(WAIT_S) == 0
            assert process.stderr.read() == ""
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
