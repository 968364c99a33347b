"""Prints the lock: every package, with its version, that pyproject.toml's pins bring into an empty environment."""

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
HEAD = "# Made from pyproject.toml by `make lock`; not to be changed by hand."


def main() -> None:
    told = tomllib.loads(PYPROJECT.read_text())
    wanted = [*told["build-system"]["requires"], *told["project"]["dependencies"], *told["dependency-groups"]["dev"]]
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True, symlinks=True)
        pip = [f"{scratch}/bin/python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *wanted], check=True, stdout=sys.stderr)
        frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout.splitlines()
    if odd := [line for line in frozen if "==" not in line]:
        sys.exit(f"lock: not from a package index: {', '.join(odd)}")
    print("\n".join([HEAD, *frozen]))


if __name__ == "__main__":
    main()
