"""Looks for known vulnerabilities of the locked packages, with pip-audit in an environment of its own.

Exit code 0: there are none. 1: there are some, which are printed. 3: they could not be looked up here.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"
LOOKED_UP = (0, 1)
UNKNOWN = 3


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True, symlinks=True)
        pip = [f"{scratch}/bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
        installed = subprocess.run([*pip, "install", "pip-audit"], capture_output=True, text=True)
        if installed.returncode != 0:
            return give_up("pip-audit cannot be installed", installed.stderr)
        command = [f"{scratch}/bin/pip-audit", "--strict", "--no-deps", "--disable-pip", "--requirement", str(LOCK)]
        audited = subprocess.run(command, capture_output=True, text=True)
    print(audited.stdout, end="")
    # It ends with 1 both for vulnerabilities and for packages that the index does not know.
    if audited.returncode not in LOOKED_UP or "Traceback" in audited.stderr or "ERROR" in audited.stderr:
        return give_up("the index of advisories cannot be reached", audited.stderr)
    print(audited.stderr, end="", file=sys.stderr)
    return audited.returncode


def give_up(reason: str, output: str) -> int:
    last_line = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    print(f"audit: {reason}: {last_line}", file=sys.stderr)
    print(
        "audit: nothing is known about the locked packages; run it where the internet can be reached", file=sys.stderr
    )
    return UNKNOWN


if __name__ == "__main__":
    sys.exit(main())
