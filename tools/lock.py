"""Writes the lock files: all packages that pyproject.toml installs in an empty environment, with all extras and tools.
requirements.lock has their versions, requirements-hashes.lock also their hashes.

Locked versions stay, except those of the packages that are named as arguments: these become the newest that fit.

A package has other files for other versions of Python and other machines. The hashes are those of this Python on this
machine, which the second line of the file names (`lock_platform.py`). They are in a file of their own because pip
cannot install SMILE itself with them as constraints: it has no hash.
"""

import json
import re
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
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True, symlinks=True)
        constraints, report = Path(scratch) / "constraints.txt", Path(scratch) / "report.json"
        constraints.write_text("\n".join(pins_to_keep({normalized(name) for name in sys.argv[1:]})))
        pip = [f"{scratch}/bin/python", "-m", "pip", "--disable-pip-version-check"]
        command = [*pip, "install", "--dry-run", "--ignore-installed", "--constraint", str(constraints)]
        resolved = subprocess.run([*command, "--report", str(report), *requirements()], stdout=sys.stderr)
        if resolved.returncode != 0:
            sys.exit('lock: if a locked version does not fit, let it change: make lock UPGRADE="NAME …"')
        packages = json.loads(report.read_text())["install"]
    lines = sorted(map(locked_line, packages), key=str.casefold)
    write_lock("requirements.lock", [HEAD, *(line.partition(" ")[0] for line in lines)])
    write_lock("requirements-hashes.lock", [HEAD, platform_line(), *lines])


def requirements() -> list[str]:
    """What the project needs with all of its extras, its build, and its tools. An extra may include others."""
    settings = tomllib.loads(PYPROJECT.read_text())
    build, project, groups = settings["build-system"], settings["project"], settings["dependency-groups"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    outside = [line for line in extras if not line.startswith(f"{project['name']}[")]
    return [*build["requires"], *project["dependencies"], *outside, *groups["dev"]]


def pins_to_keep(upgraded: set[str]) -> list[str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [line for line in lines if "==" in line and normalized(line.partition("==")[0]) not in upgraded]


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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
