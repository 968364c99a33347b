"""Stored classes are used by the next start of Spark; what cannot be stored is said, and changes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smile.cli.main import app
from smile.engine.spark import session
from tests.processes import clean_environment

STATEMENTS = """
from pathlib import Path
import sys
from smile.engine.spark import session

archive, log = map(Path, sys.argv[1:])
session.class_archive = lambda: archive
java = session.JavaProcess("local[1]", log)
spark = java.session("smile")
runtime = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print("-XX:SharedArchiveFile=" + str(archive) in list(runtime.getInputArguments()))
print(spark.range(3).count())
java.stop()
"""


def run_spark(archive: Path, log: Path) -> list[str]:
    """Whether Java was started with the archive, and the result of a query."""
    done = subprocess.run(
        [sys.executable, "-c", STATEMENTS, archive, log],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.nightly
def test_stored_classes_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a folder" / "spark-classes.jsa"
    monkeypatch.setattr("smile.cli.spark_classes.class_archive", lambda: archive)
    monkeypatch.setattr(session, "class_archive", lambda: archive)
    result = CliRunner().invoke(app, ["prepare"])
    assert result.exit_code == 0, result.output
    assert archive.stat().st_size > 10_000_000
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    assert run_spark(archive, tmp_path / "log") == ["True", "3"]


@pytest.mark.slow
def test_an_archive_that_does_not_fit_is_ignored(tmp_path: Path) -> None:
    archive = tmp_path / "spark-classes.jsa"
    archive.write_bytes(os.urandom(100_000))
    assert run_spark(archive, tmp_path / "log") == ["True", "3"]


def test_what_cannot_be_stored_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("smile.cli.spark_classes.class_archive", lambda: tmp_path / "file" / "spark-classes.jsa")
    result = CliRunner().invoke(app, ["prepare"])
    assert result.exit_code == 1
    assert "E179" in result.output and "Not a directory" in result.output
