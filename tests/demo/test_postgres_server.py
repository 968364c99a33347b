"""A private PostgreSQL server starts wherever its folder and its programs are, also if this process runs as root."""

import os
import shutil
import tempfile
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from smile.demo import postgres_server
from smile.demo.postgres_server import PACKAGE, VERSION, initialized_server, run_program, running_postgres
from smile.errors import SmileError

LOCAL = "-c listen_addresses=''"


def check_starts() -> None:
    with running_postgres("-c fsync=off") as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_in_a_temporary_folder_that_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    check_starts()


def test_in_a_temporary_folder_whose_path_is_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    check_starts()


@pytest.mark.slow
def test_with_programs_that_are_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None
    package, closed = Path(spec.origin).parent, tmp_path / "closed"
    shutil.copytree(package / VERSION, closed / PACKAGE / VERSION, symlinks=True)
    libraries = f"{PACKAGE}.libs"
    shutil.copytree(package.parent / libraries, closed / libraries)
    closed.chmod(0o700)
    copied = ModuleSpec(PACKAGE, None, origin=str(closed / PACKAGE / "__init__.py"))
    monkeypatch.setattr(postgres_server, "find_spec", lambda _: copied)
    with initialized_server(LOCAL) as server, server.running():
        assert server.programs.is_relative_to(server.folder if os.geteuid() == 0 else closed)


def test_a_program_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SmileError, match=r"initdb cannot be run.*: (Permission denied|No such file)"):
        run_program([tmp_path / "initdb"])
    with pytest.raises(SmileError, match="sh failed with 7: no space left"):
        run_program(["/bin/sh", "-c", "echo no space left; exit 7"])
    monkeypatch.setattr(postgres_server, "UNPRIVILEGED", "no such user")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SmileError, match="there is no user no such user"):
        run_program(["/bin/true"])
