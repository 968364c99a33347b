"""Builds .venv: exactly the packages of the lock file, and the project itself, editable. It may be run again any time.

It runs on a bare Python 3.11, so it uses only the standard library.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from lock_platform import hashes_apply

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
JDBC_DRIVER = Path("/usr/share/java/postgresql.jar")
PIP: list[str | Path] = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def main() -> None:
    if not runs([PYTHON, "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]):
        print("setup: creating .venv", flush=True)
        make_venv()
    hashed = ROOT / "requirements-hashes.lock"
    options: list[str | Path] = ["-r", ROOT / "requirements.lock"]
    if hashes_apply(hashed.read_text()):
        options = ["--require-hashes", "-r", hashed]
    else:
        print("setup: there are no hashes for this Python on this machine; versions are pinned, files not checked")
    print("setup: installing the locked packages (the first time, Spark alone takes a minute)", flush=True)
    # Without --no-deps, a package missing from the lock would be installed unpinned. `pip check` finds it instead.
    must_run([*PIP, "install", "--no-deps", *options], "the lock could not be installed")
    must_run([*PIP, "install", "--no-deps", "--no-build-isolation", "-e", ROOT], "SMILE could not be installed")
    must_run([*PIP, "check"], "requirements.lock is not complete; run make lock")
    must_run([PYTHON, ROOT / "tools" / "setup_java.py"], "Java could not be set up")
    if not runs([PYTHON.with_name("smile"), "prepare"]):
        print("setup: the classes of Spark could not be stored, so it starts more slowly: smile prepare says why")
    set_up_programs_of_tests()


def set_up_programs_of_tests() -> None:
    """Where a program cannot be installed, the tests that need it are skipped, and say so."""
    found_by_package = {
        "libpostgresql-jdbc-java": JDBC_DRIVER.exists(),
        "chromium": any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
        "mosquitto": shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin"),
        "nodejs": shutil.which("node"),
        "npm": shutil.which("npm"),
    }
    missing = [package for package, found in found_by_package.items() if not found]
    if not missing:
        return
    can_install = os.geteuid() == 0 and shutil.which("apt-get")
    # Debian starts a service when it is installed, on the machine's own port: tests start Mosquitto themselves.
    install: list[str | Path] = ["env", "RUNLEVEL=1", "apt-get", "install", "--yes", *missing]
    if can_install and runs(["apt-get", "update"]) and runs(install):
        return
    packages = " ".join(missing)
    print(f"setup: tests that need {packages} will be skipped: apt-get install {packages}")


def make_venv() -> None:
    """Debian's Python has `ensurepip`, which installs pip in a venv, only if python3-venv is installed."""
    if importlib.util.find_spec("ensurepip"):
        venv.create(VENV, clear=True, with_pip=True, symlinks=True)
    elif runs([sys.executable, "-m", "pip", "--version"]):
        venv.create(VENV, clear=True, with_pip=False, symlinks=True)
        must_run(
            [sys.executable, "-m", "pip", "--quiet", "--python", PYTHON, "install", "pip"], "pip could not be installed"
        )
    else:
        major, minor = sys.version_info[:2]
        sys.exit(f"setup: this Python cannot create virtual environments: apt-get install python{major}.{minor}-venv")


def runs(command: list[str | Path]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def must_run(command: list[str | Path], otherwise: str) -> None:
    if subprocess.run(command).returncode != 0:
        sys.exit(f"setup: {otherwise}")


if __name__ == "__main__":
    main()
