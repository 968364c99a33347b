"""Prints the lock file: all packages, with versions, that pyproject.toml's pins install in an empty environment."""

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
HEAD = "# Made from pyproject.toml by `make lock`; not to be changed by hand."


def main() -> None:
    settings = tomllib.loads(PYPROJECT.read_text())
    build, project, groups = settings["build-system"], settings["project"], settings["dependency-groups"]
    requirements = [*build["requires"], *project["dependencies"], *groups["dev"]]
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True, symlinks=True)
        pip = [f"{scratch}/bin/python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *requirements], check=True, stdout=sys.stderr)
        frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout.splitlines()
    if unpinned := [line for line in frozen if "==" not in line]:
        sys.exit(f"lock: not from a package index: {', '.join(unpinned)}")
    print("\n".join([HEAD, *frozen]))


if __name__ == "__main__":
    main()
