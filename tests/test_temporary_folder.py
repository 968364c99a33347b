"""The temporary folder of a process is removed at its end, also while others still write there."""

import os
import tempfile
from pathlib import Path

import pytest

from smile.temporary_folder import temporary_folder


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_the_default_of_tempfile_and_is_removed(parent: Path) -> None:
    with temporary_folder() as folder:
        assert folder.parent == parent
        assert Path(tempfile.mkdtemp()).parent == folder
    assert not folder.exists()
    assert tempfile.gettempdir() == str(parent)


def test_another_process_writes_there_while_it_is_removed(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late_files, remove_directory = ["1", "2", "3"], os.rmdir

    def rmdir(path: str | Path, *, dir_fd: int | None = None) -> None:
        if late_files:
            (folder / late_files.pop()).write_text("written by a process that is ending")
        remove_directory(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir)
    with temporary_folder() as folder:
        pass
    assert not late_files
    assert not folder.exists()
