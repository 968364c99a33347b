"""Writes the lock files: all packages that pyproject.toml's pins install in an empty environment. requirements.lock has
their versions, requirements-hashes.lock also their hashes.

A package has other files for other versions of Python and other machines. The hashes are those of this Python on this
machine, which the second line of the file names (`lock_platform.py`). They are in a file of their own because pip
cannot install SMILE itself with them as constraints: it has no hash.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

from lock_platform import platform_line

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
HEAD = "# Made from pyproject.toml by `make lock`; not to be changed by hand."


def main() -> None:
    settings = tomllib.loads(PYPROJECT.read_text())
    build, project, groups = settings["build-system"], settings["project"], settings["dependency-groups"]
    requirements = [*build["requires"], *project["dependencies"], *groups["dev"]]
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True, symlinks=True)
        report = Path(scratch) / "report.json"
        pip = [f"{scratch}/bin/python", "-m", "pip", "--disable-pip-version-check"]
        command = [*pip, "install", "--dry-run", "--ignore-installed", "--report", str(report), *requirements]
        subprocess.run(command, check=True, stdout=sys.stderr)
        packages = json.loads(report.read_text())["install"]
    lines = sorted(map(locked_line, packages), key=str.casefold)
    write_lock("requirements.lock", [HEAD, *(line.partition(" ")[0] for line in lines)])
    write_lock("requirements-hashes.lock", [HEAD, platform_line(), *lines])


def write_lock(name: str, lines: list[str]) -> None:
    (ROOT / name).write_text("\n".join(lines) + "\n")


def locked_line(package: dict[str, Any]) -> str:
    name, version = package["metadata"]["name"], package["metadata"]["version"]
    try:
        digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
    except KeyError:
        sys.exit(f"lock: not from a package index: {name}")
    return f"{name}=={version} --hash=sha256:{digest}"


if __name__ == "__main__":
    main()
