"""Who may do what. A token is known by its hash only, whatever was not granted is refused, and a file that cannot be
trusted in every row of it grants nothing.

`Accounts` is the file, `access.db` in a broker's data directory, which commands change while a broker runs or not.
`Access` is what a running broker asks; it sees changes within a second.
"""

import hashlib
import logging
import re
import secrets
import sqlite3
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import quote

from smile import limits
from smile.errors import Diagnostic, SmileError, error
from smile.settings import TOKEN_PREFIX

FILE: Final = "access.db"

EVERYBODY: Final = "local"
"""The principal of all who come where no token is asked for."""

ANY: Final = "*"
"""A grant on it is on every stream, or every view."""

PROGRAM: Final = "program"
"""What ADMIN is granted on: the program, its views, how the broker fares."""

_FORMAT: Final = 1
_APPLICATION: Final = int.from_bytes(b"SMIA", "big")
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_PROBLEMS: Final = (sqlite3.Error, OSError, UnicodeError)
_OUTSIDE: Final = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PERM")
"""What is no fault of the file."""
_TABLES: Final = """
CREATE TABLE tokens (hash TEXT PRIMARY KEY, principal TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE grants (
  right TEXT NOT NULL, name TEXT NOT NULL, principal TEXT NOT NULL, crc INTEGER NOT NULL,
  PRIMARY KEY (right, name, principal)
);
"""

logger = logging.getLogger("smile.gateway.access")


class Right(StrEnum):
    publish = "PUBLISH"
    subscribe = "SUBSCRIBE"
    admin = "ADMIN"


@dataclass(frozen=True, order=True)
class Grant:
    right: str
    name: str
    principal: str


@dataclass(frozen=True)
class Known:
    """All that the file has."""

    tokens: dict[str, str]
    """Principal by the token's hash: finding it takes as long whatever the token is."""
    grants: frozenset[Grant]


NOTHING: Final = Known({}, frozenset())


class Busy(SmileError):
    """Another process is writing, and what is known is as new as can be."""


def hashed(token: str) -> str:
    """Tokens have 256 random bits: there is nothing to guess, so nothing slower than this is needed."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


class Accounts:
    """The file; made if it is not there and `make` is true. E105 if it cannot be trusted. Threads take turns."""

    def __init__(self, path: Path, make: bool = False, wait_s: float = limits.access_wait_s_max) -> None:
        self.path = path
        with self._told():
            if make and not path.exists():
                path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
                path.touch(_FILE_MODE)
            if stat.S_IMODE(path.stat().st_mode) & ~_FILE_MODE:
                path.chmod(_FILE_MODE)
            self.inode = path.stat().st_ino
            place = f"file:{quote(str(path.absolute()))}?mode=rw"
            self._file = sqlite3.connect(place, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=False)
        try:
            with self._told():
                self._prepare()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def changes(self) -> int:
        """A number that is another one once another process has written."""
        with self._told():
            return int(self._file.execute("PRAGMA data_version").fetchone()[0])

    def known(self) -> Known:
        with self._told():
            tokens = self._file.execute("SELECT hash, principal, crc FROM tokens").fetchall()
            grants = self._file.execute("SELECT right, name, principal, crc FROM grants").fetchall()
        for *values, crc in [*tokens, *grants]:
            if crc != _checksum(*values):
                raise _damaged(self.path, "a row does not have the checksum it was written with")
        return Known({h: p for h, p, _ in tokens}, frozenset(Grant(r, n, p) for r, n, p, _ in grants))

    def add_token(self, principal: str) -> str:
        """A new token of the principal, besides those it has. It is not kept: whoever loses it needs another."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self._told():
            values = (hashed(token), _principal(principal))
            self._file.execute("INSERT INTO tokens VALUES (?, ?, ?)", (*values, _checksum(*values)))
        return token

    def revoke_tokens(self, principal: str) -> int:
        """How many it had."""
        with self._told():
            return self._file.execute("DELETE FROM tokens WHERE principal = ?", (principal,)).rowcount

    def grant(self, grant: Grant) -> bool:
        """Whether that is new."""
        values = _written(grant)
        with self._told():
            told = self._file.execute("INSERT OR IGNORE INTO grants VALUES (?, ?, ?, ?)", (*values, _checksum(*values)))
            return told.rowcount > 0

    def revoke(self, grant: Grant) -> bool:
        """Whether it had been granted."""
        with self._told():
            told = self._file.execute("DELETE FROM grants WHERE (right, name, principal) = (?, ?, ?)", _written(grant))
            return told.rowcount > 0

    def _prepare(self) -> None:
        if self.path.stat().st_size == 0:
            with self._file:
                self._file.execute("BEGIN IMMEDIATE")
                if not self._format():
                    for statement in _TABLES.split(";\n"):
                        self._file.execute(statement)
                    self._file.execute(f"PRAGMA application_id = {_APPLICATION}")
                    self._file.execute(f"PRAGMA user_version = {_FORMAT}")
        if (found := self._format()) > _FORMAT:
            raise error("E105", f"{self.path} was written by a newer version of SMILE")
        if not found or self._file.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise _damaged(self.path, "it is something else")

    def _format(self) -> int:
        return int(self._file.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _PROBLEMS as problem:
            code = getattr(problem, "sqlite_errorname", "")
            if code.startswith("SQLITE_BUSY"):
                raise Busy(Diagnostic("E105", f"{self.path} is being written by another process")) from None
            if isinstance(problem, OSError) or code.startswith(_OUTSIDE):
                reason = problem.strerror if isinstance(problem, OSError) else problem
                raise error("E105", f"{self.path} cannot be used: {reason}") from None
            raise _damaged(self.path, str(problem)) from None


def _damaged(path: Path, reason: str) -> SmileError:
    hint = "Put back a copy of it, or remove it and grant anew: until then nobody has a right."
    return error("E105", f"{path} is damaged: {reason}", hint=hint)


def _checksum(*values: str) -> int:
    return zlib.crc32("\0".join(values).encode(errors="surrogatepass"))


def _principal(name: str) -> str:
    if not re.fullmatch(r"[\w.@+-]+", name) or len(name) > limits.principal_chars_max:
        hint = "Letters, digits and . @ + - _ make a name."
        raise error("E093", f"{name[: limits.principal_chars_max]!r} is no name of a principal", hint=hint)
    return name


def _written(grant: Grant) -> tuple[str, str, str]:
    if not grant.name or not grant.name.isprintable() or len(grant.name) > limits.principal_chars_max:
        raise error("E093", f"{grant.name[: limits.principal_chars_max]!r} is no name of a stream or view")
    if grant.right == Right.admin and grant.name != PROGRAM:
        raise error("E093", f"ADMIN is granted on {PROGRAM}, not on {grant.name}")
    return Right(grant.right).value, grant.name, _principal(grant.principal)


class Access:
    """What a running broker asks, from any thread. With `asked` false no token is asked for: everybody is `EVERYBODY`,
    and may do everything."""

    def __init__(self, path: Path, asked: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self.asked = asked
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._accounts: Accounts | None = Accounts(path, True, limits.access_broker_wait_s_max) if asked else None
        self._changes = 0
        self._known = NOTHING
        self._trouble = ""
        self._looked = -limits.access_age_s_max
        if self._accounts:
            self._accounts.known()  # a broker does not start on a file that is damaged

    def principal(self, token: str | None) -> str | None:
        """Whose token it is."""
        if not self.asked:
            return EVERYBODY
        return self._present().tokens.get(hashed(token)) if token else None

    def may(self, principal: str, right: str, name: str) -> bool:
        if not self.asked:
            return True
        grants = self._present().grants
        if right == Right.admin:
            return Grant(right, PROGRAM, principal) in grants
        return Grant(right, name, principal) in grants or Grant(right, ANY, principal) in grants

    def close(self) -> None:
        with self._lock:
            if self._accounts:
                self._accounts.close()
            self._accounts = None

    def _present(self) -> Known:
        """What the file says now, or said a moment ago."""
        with self._lock:
            if self._clock() - self._looked >= limits.access_age_s_max:
                self._looked = self._clock()
                try:
                    self._look()
                    self._tell("")
                except Busy:
                    pass
                except SmileError as problem:
                    self._forget()
                    self._tell(str(problem))
            return self._known

    def _look(self) -> None:
        if self._accounts and not _is(self._path, self._accounts.inode):
            self._forget()
        if self._accounts is None:
            self._accounts = Accounts(self._path, wait_s=limits.access_broker_wait_s_max)
        changes = self._accounts.changes()
        if self._known is NOTHING or changes != self._changes:
            self._known = self._accounts.known()
            self._changes = changes

    def _forget(self) -> None:
        self._known = NOTHING
        if self._accounts:
            self._accounts.close()
        self._accounts = None

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            logger.error("nobody has a right: %s", trouble)
        elif self._trouble and not trouble:
            logger.info("rights are known again")
        self._trouble = trouble


def _is(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except OSError:
        return False
