"""Where Java is. A home that is returned has a `bin/java` that ran just now and is of a version Spark accepts."""

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
"""What Spark 4 asks for."""

_WRAPPER = """\
#!/bin/sh
# Spark's launcher asks for a module that this Java does not have, and that Spark runs well without.
held=
for argument in "$@"; do
    shift
    case "$held$argument" in
        --add-modules=jdk.incubator.vector) held= ;;
        --add-modules) held=--add-modules= ;;
        --add-modules=*) held= && set -- "$@" "--add-modules=${{argument#--add-modules=}}" ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def java_home(environ: Mapping[str, str] = os.environ, prefix: Path = Path(sys.prefix)) -> Path:
    """The first home that will do: JAVA_HOME's, that of the `java` on PATH, the one wrapped in this environment."""
    others = []
    for home in dict.fromkeys(_candidates(environ, prefix)):
        found = _version(home)
        if isinstance(found, int) and found >= version_min:
            return home
        if (home / "bin" / "java").exists():
            others.append(f"the one in {home} {f'is of version {found}' if isinstance(found, int) else found}")
    seen = f": {', '.join(others)}" if others else ""
    raise error(
        "E060",
        f"no Java of version {version_min} or later in JAVA_HOME or on PATH{seen}",
        hint=f"Install Java {version_min} or later, or run `make java` where SMILE was set up with make.",
    )


def version(home: Path) -> int | None:
    """The feature version of the home's `java`, or None if it does not run."""
    found = _version(home)
    return found if isinstance(found, int) else None


def _version(home: Path) -> int | str:
    """The same, or what is wrong with it."""
    try:
        told = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=limits.java_start_s_max
        )
    except OSError as problem:
        return f"does not run: {problem.strerror}"
    except subprocess.TimeoutExpired:
        return "does not say its version"
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    if told.returncode == 0:
        return int(found[1]) if found else "does not say its version"
    said = [line.strip() for line in (told.stdout + told.stderr).splitlines() if line.strip()]
    return f"does not run: {said[-1] if said else f'exit code {told.returncode}'}"


def wrapped_home(prefix: Path = Path(sys.prefix)) -> Path:
    return prefix / "java"


def wrap(java: Path, home: Path) -> None:
    """Make `home` a Java home whose `java` is the given one, less the module that Spark asks for in vain."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    aside = wrapper.with_name(f"java.{os.getpid()}")
    aside.write_text(_WRAPPER.format(java=shlex.quote(str(java))))
    aside.chmod(0o755)
    aside.replace(wrapper)


def _candidates(environ: Mapping[str, str], prefix: Path) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield from _homes_of(Path(on_path))
    yield wrapped_home(prefix)


def _homes_of(java: Path) -> Iterator[Path]:
    """`java` is often a link into its home, and sometimes a script that only knows where its home is."""
    if java.resolve().parent.name == "bin":
        yield java.resolve().parent.parent
    try:
        told = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=limits.java_start_s_max,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    found = re.search(r"^\s*java\.home = (.+)$", told.stderr, re.MULTILINE)
    if found:
        yield Path(found[1])
