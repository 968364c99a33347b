"""`make bench-peers`: an environment in `.peers` is built if it has exactly what its requirements say."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE.parent.parent / ".peers"
APART = ("flink", "pathway")
"""Peers with environments of their own; the others run in the project's."""


def main() -> None:
    for peer in APART:
        if is_built(peer):
            print(f"bench-peers: {peer} is built")
            continue
        print(f"bench-peers: building {peer}", flush=True)
        build(peer)


def python(peer: str) -> Path:
    """What runs the peer's module."""
    return PEERS / peer / "bin" / "python" if peer in APART else Path(sys.executable)


def is_built(peer: str) -> bool:
    if peer not in APART:
        return True
    stamp = _stamp(peer)
    return stamp.exists() and stamp.read_text() == requirements(peer).read_text()


def requirements(peer: str) -> Path:
    return HERE / f"requirements-{peer}.txt"


def build(peer: str) -> None:
    shutil.rmtree(PEERS / peer, ignore_errors=True)
    venv.create(PEERS / peer, symlinks=True)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    pip += ["--python", python(peer)]
    # What a requirement needs and the file does not name would come in unpinned; `pip check` finds it instead.
    for step in (["install", "--no-deps", "-r", requirements(peer)], ["check"]):
        if subprocess.run([*pip, *step]).returncode != 0:
            sys.exit(f"bench-peers: {peer} could not be built")
    _stamp(peer).write_text(requirements(peer).read_text())


def _stamp(peer: str) -> Path:
    """A copy of the requirements, made last."""
    return PEERS / peer / "built-of.txt"


if __name__ == "__main__":
    main()
