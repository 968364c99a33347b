"""`make bench-peers`: builds the environments in `.peers`. One that matches its requirements is not built again."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE.parent.parent / ".peers"
SEPARATE_PEERS = ("flink", "pathway")
"""Peers with their own environment. The others run in the environment of the project."""


def main() -> None:
    for peer in SEPARATE_PEERS:
        if is_built(peer):
            print(f"bench-peers: {peer} is built")
            continue
        print(f"bench-peers: building {peer}", flush=True)
        build(peer)


def python_path(peer: str) -> Path:
    """The interpreter that runs the peer's module."""
    return PEERS / peer / "bin" / "python" if peer in SEPARATE_PEERS else Path(sys.executable)


def is_built(peer: str) -> bool:
    if peer not in SEPARATE_PEERS:
        return True
    stamp = _stamp_path(peer)
    return stamp.exists() and stamp.read_text() == requirements_path(peer).read_text()


def requirements_path(peer: str) -> Path:
    return HERE / f"requirements-{peer}.txt"


def build(peer: str) -> None:
    shutil.rmtree(PEERS / peer, ignore_errors=True)
    venv.create(PEERS / peer, symlinks=True)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    pip += ["--python", python_path(peer)]
    # Dependencies must be in the file, pinned: with --no-deps, `pip check` finds those that are not.
    for step in (["install", "--no-deps", "-r", requirements_path(peer)], ["check"]):
        if subprocess.run([*pip, *step]).returncode != 0:
            sys.exit(f"bench-peers: {peer} could not be built")
    _stamp_path(peer).write_text(requirements_path(peer).read_text())


def _stamp_path(peer: str) -> Path:
    """A copy of the requirements, which is written when the build is complete."""
    return PEERS / peer / "built-of.txt"


if __name__ == "__main__":
    main()
