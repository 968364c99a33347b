"""What goes wrong before a broker or a command has started: one sentence says what, and nothing is pretended."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from smile.client import connect
from smile.errors import SmileError
from smile.source import Source
from tests.brokers import PROGRAM, InProcessBroker, open_broker
from tests.processes import clean_environment, invoke_smile, make_certificate, run_smile

HOOK = """
import os, signal, sys
class Hook:
    @staticmethod
    def find_spec(name, *_):
        if name == {module!r}:
            {action}
sys.meta_path.insert(0, Hook)
sys.argv = ["smile", "check", "-"]
from smile.cli.entry import main
main()
"""


def start_with_hook(module: str, action: str) -> subprocess.CompletedProcess[str]:
    """`smile check -`, and what happens when it imports this module."""
    code = HOOK.format(module=module, action=action)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, input="", env=clean_environment()
    )


@pytest.mark.parametrize("module", ["typer", "lark", "smile.program"])
def test_ctrl_c_while_modules_are_imported(module: str) -> None:
    ended = start_with_hook(module, "os.kill(os.getpid(), signal.SIGINT)")
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_a_missing_library() -> None:
    """One that belongs to no extra: the installation is damaged."""
    ended = start_with_hook(
        "smile.program", "raise ModuleNotFoundError(\"No module named 'smile.program'\", name='smile.program')"
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "smile: a library cannot be imported: No module named 'smile.program'\n  hint: Install SMILE"
    )


def test_no_java(tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    variables = {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    result = invoke_smile("serve", "floor.smile", "--listen", "127.0.0.1:0", cwd=tmp_path, **variables)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "E060: no Java of version 17 or later" in result.stderr
    assert not (tmp_path / "smile-data").exists()


def test_data_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    words = ("--data", "floor.smile/x", "--engine", "local", "--listen", "127.0.0.1:0")
    result = invoke_smile("serve", "floor.smile", *words, cwd=tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    words = ("--data", "floor.smile", "--engine", "local", "--listen", "127.0.0.1:0")
    result = invoke_smile("serve", "floor.smile", *words, cwd=tmp_path)
    assert "E105: floor.smile is a file, not a directory" in result.stderr
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--listen", "--flight"])
def test_a_port_in_use_is_reported_before_anything_is_announced(tmp_path: Path, option: str) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        addresses = {"--listen": "127.0.0.1:0", "--flight": "127.0.0.1:0", option: address}
        words = [word for pair in addresses.items() for word in pair]
        result = run_smile("serve", "floor.smile", "--engine", "local", *words, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"listen on {address}: " in result.stderr and f"with {option}" in result.stderr


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_the_wrong_scheme(tmp_path: Path, scheme: str) -> None:
    tls = {}
    if scheme == "http":
        certificate, key = make_certificate(tmp_path)
        tls = {"tls_cert": str(certificate), "tls_key": str(key)}
    with InProcessBroker(tmp_path, **tls) as broker, pytest.raises(SmileError) as failure:
        connect(f"{scheme}://127.0.0.1:{broker.port}", timeout=1)
    (diagnostic,) = failure.value.diagnostics
    if scheme == "https":
        assert diagnostic.message.endswith("what listens there does not speak TLS")
        assert "http://" in str(diagnostic.hint)
    else:
        assert "https://" in str(diagnostic.hint), diagnostic


def test_which_program_runs_is_said(tmp_path: Path) -> None:
    served, applied = Source("floor.smile", PROGRAM), Source("other.smile", PROGRAM.replace("Dear", "Costly"))
    with open_broker(tmp_path, served) as broker:
        assert broker.program_note == ""
        broker.apply(applied)
    with open_broker(tmp_path, served) as broker:
        assert set(broker.views) == {"Totals", "Costly"}
        assert "not floor.smile, but the program that `smile apply` has set" in broker.program_note
        assert "smile apply floor.smile" in broker.program_note
    with open_broker(tmp_path, None) as broker:
        assert broker.program_note == ""
    with open_broker(tmp_path, Source("floor.smile", PROGRAM + "-- changed")) as broker:
        assert set(broker.views) == {"Totals", "Dear"}
        assert "floor.smile replaces the program that ran before" in broker.program_note


def test_an_interrupted_client_leaves_no_task(tmp_path: Path) -> None:
    code = """
import signal, threading, os
from smile.client import connect
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    connect("http://127.0.0.1:1", timeout=20)
except KeyboardInterrupt:
    pass
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment())
    assert (ended.returncode, ended.stderr) == (0, "")
