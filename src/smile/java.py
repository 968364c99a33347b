"""Finds a Java installation. The `java` of a home that is returned has just been run, and has a version that Spark
accepts."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from smile import limits
from smile.errors import error

version_min: Final = 17
"""Spark 4 requires it."""

_WRAPPER = """\
#!/bin/sh
# Spark's launcher requests a module that this Java does not have. Spark runs without it.
option=
for argument in "$@"; do
    shift
    case "$option$argument" in
        --add-modules=jdk.incubator.vector) option= ;;
        --add-modules) option=--add-modules= ;;
        --add-modules=*) option= && set -- "$@" "--add-modules=${{argument#--add-modules=}}" ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def java_home(environ: Mapping[str, str] = os.environ, prefix: Path = Path(sys.prefix)) -> Path:
    """The first suitable home: JAVA_HOME, that of the `java` on PATH, or the wrapped one of this environment."""
    rejected = []
    for home in dict.fromkeys(_candidates(environ, prefix)):
        version_or_problem = _version_or_problem(home)
        if isinstance(version_or_problem, int) and version_or_problem >= version_min:
            return home
        if (home / "bin" / "java").exists():
            is_old = isinstance(version_or_problem, int)
            problem = f"is of version {version_or_problem}" if is_old else version_or_problem
            rejected.append(f"the one in {home} {problem}")
    rejected_text = f": {', '.join(rejected)}" if rejected else ""
    raise error(
        "E060",
        f"no Java of version {version_min} or later in JAVA_HOME or on PATH{rejected_text}",
        hint=f"Install Java {version_min} or later, or run `make java` where SMILE was set up with make.",
    )


def version(home: Path) -> int | None:
    """The feature version of the home's `java`, or None if it does not run."""
    version_or_problem = _version_or_problem(home)
    return version_or_problem if isinstance(version_or_problem, int) else None


def _version_or_problem(home: Path) -> int | str:
    """The same, or the reason why it does not run."""
    try:
        process = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=limits.java_start_s_max
        )
    except OSError as problem:
        return f"does not run: {problem.strerror}"
    except subprocess.TimeoutExpired:
        return "does not say its version"
    match = re.search(r'version "(?:1\.)?(\d+)', process.stderr)
    if process.returncode == 0:
        return int(match[1]) if match else "does not say its version"
    output_lines = [line.strip() for line in (process.stdout + process.stderr).splitlines() if line.strip()]
    return f"does not run: {output_lines[-1] if output_lines else f'exit code {process.returncode}'}"


def wrapped_home(prefix: Path = Path(sys.prefix)) -> Path:
    return prefix / "java"


def wrap_java(java: Path, home: Path) -> None:
    """Makes `home` a Java home whose `java` runs the given one without the module that it does not have."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    temporary = wrapper.with_name(f"java.{os.getpid()}")
    temporary.write_text(_WRAPPER.format(java=shlex.quote(str(java))))
    temporary.chmod(0o755)
    temporary.replace(wrapper)


def _candidates(environ: Mapping[str, str], prefix: Path) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield from _homes_of_executable(Path(on_path))
    yield wrapped_home(prefix)


def _homes_of_executable(java: Path) -> Iterator[Path]:
    """`java` is often a link into its home. It may also be a script; then it is run to find out its home."""
    if java.resolve().parent.name == "bin":
        yield java.resolve().parent.parent
    try:
        process = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=limits.java_start_s_max,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    match = re.search(r"^\s*java\.home = (.+)$", process.stderr, re.MULTILINE)
    if match:
        yield Path(match[1])
