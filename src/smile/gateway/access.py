"""Authentication and rights. Tokens are stored only as hashes, what was not granted is refused, and a file with a
damaged row grants nothing.

`AccessDatabase` is the file `access.db` in a broker's data directory. Commands change it, whether a broker runs or not.
`Access` answers the questions of a running broker, and sees changes within a second.
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

ACCESS_FILE: Final = "access.db"

LOCAL_PRINCIPAL: Final = "local"
"""The principal of all callers where no token is required."""

ANY_NAME: Final = "*"
"""A grant on this name covers every stream, or every view."""

PROGRAM: Final = "program"
"""The name that ADMIN and QUERY are granted on. ADMIN covers the program, its views and the broker's status."""

_FORMAT: Final = 1
_APPLICATION_ID: Final = int.from_bytes(b"SMIA", "big")
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_FILE_ERRORS: Final = (sqlite3.Error, OSError, UnicodeError)
_ENVIRONMENT_ERRORS: Final = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PERM")
"""Errors that are not caused by damage of the file."""
_SCHEMA_SQL: Final = """
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
    read = "READ"
    """Of raw events of a stream, from the log."""
    admin = "ADMIN"
    query = "QUERY"
    """Of ad-hoc queries, over what the principal may subscribe to."""


RIGHTS_ON_PROGRAM: Final = (Right.admin, Right.query)


@dataclass(frozen=True, order=True)
class Grant:
    right: str
    name: str
    principal: str


@dataclass(frozen=True)
class AccessEntries:
    """The content of the file."""

    tokens: dict[str, str]
    """Principal by the token's hash: the lookup takes as long for any token."""
    grants: frozenset[Grant]

    @property
    def administrators(self) -> set[str]:
        """The principals that have the right to administer, and a token to use it with."""
        return {g.principal for g in self.grants if g.right == Right.admin} & set(self.tokens.values())


NO_ENTRIES: Final = AccessEntries({}, frozenset())


class AccessDatabaseBusy(SmileError):
    """Another process is writing; the entries that were read last remain valid."""


class LastAdministratorError(SmileError):
    """The change would leave nobody who can administer the broker over the network."""


def token_hash(token: str) -> str:
    """A fast hash is enough: tokens have 256 random bits, and cannot be guessed."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


class AccessDatabase:
    """The file; created if it is missing and `create` is true. E105 if it cannot be trusted. Callers must not use it in
    two threads at once."""

    def __init__(self, path: Path, create: bool = False, wait_s: float = limits.access_wait_s_max) -> None:
        self.path = path
        with self._translate_errors():
            if create and not path.exists():
                path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
                path.touch(_FILE_MODE)
            if stat.S_IMODE(path.stat().st_mode) & ~_FILE_MODE:
                path.chmod(_FILE_MODE)
            self.inode = path.stat().st_ino
            uri = f"file:{quote(str(path.absolute()))}?mode=rw"
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=False
            )
        try:
            with self._translate_errors():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def data_version(self) -> int:
        """A number that changes when another process has written."""
        with self._translate_errors():
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def read_entries(self) -> AccessEntries:
        with self._translate_errors():
            tokens = self._connection.execute("SELECT hash, principal, crc FROM tokens").fetchall()
            grants = self._connection.execute("SELECT right, name, principal, crc FROM grants").fetchall()
        for *values, crc in [*tokens, *grants]:
            if crc != _checksum(*values):
                raise _damage_error(self.path, "the checksum of a row is wrong")
        return AccessEntries({h: p for h, p, _ in tokens}, frozenset(Grant(r, n, p) for r, n, p, _ in grants))

    def add_token(self, principal: str) -> str:
        """Creates a token of the principal, besides its others. Only the hash is stored: a lost token must be
        replaced."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self._translate_errors():
            values = (token_hash(token), _check_principal(principal))
            self._connection.execute("INSERT INTO tokens VALUES (?, ?, ?)", (*values, _checksum(*values)))
        return token

    def revoke_tokens(self, principal: str, keeps_administrator: bool = False) -> int:
        """Deletes all tokens of the principal. Returns their number. `LastAdministratorError` if `keeps_administrator`
        and nobody else can administer the broker."""
        with self._translate_errors(), self._revocation(keeps_administrator):
            return self._connection.execute("DELETE FROM tokens WHERE principal = ?", (principal,)).rowcount

    def grant(self, grant: Grant) -> bool:
        """Returns whether the grant is new."""
        values = _grant_values(grant)
        with self._translate_errors():
            cursor = self._connection.execute(
                "INSERT OR IGNORE INTO grants VALUES (?, ?, ?, ?)", (*values, _checksum(*values))
            )
            return cursor.rowcount > 0

    def revoke(self, grant: Grant, keeps_administrator: bool = False) -> bool:
        """Returns whether it had been granted. `keeps_administrator` is as for `revoke_tokens`."""
        values = _grant_values(grant)
        with self._translate_errors(), self._revocation(keeps_administrator):
            cursor = self._connection.execute("DELETE FROM grants WHERE (right, name, principal) = (?, ?, ?)", values)
            return cursor.rowcount > 0

    @contextmanager
    def _revocation(self, keeps_administrator: bool) -> Iterator[None]:
        """A transaction, so that two revocations at once cannot remove the last two administrators."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            if keeps_administrator and not self.read_entries().administrators:
                raise LastAdministratorError(Diagnostic("E093", "nobody could administer the broker any more"))
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _prepare(self) -> None:
        if self.path.stat().st_size == 0:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                if not self._format_version():
                    for statement in _SCHEMA_SQL.split(";\n"):
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    self._connection.execute(f"PRAGMA user_version = {_FORMAT}")
        if (version := self._format_version()) > _FORMAT:
            raise error("E105", f"{self.path} was written by a newer version of SMILE")
        if not version or self._connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise _damage_error(self.path, "it is something else than a database of tokens and grants")

    def _format_version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except _FILE_ERRORS as problem:
            code = getattr(problem, "sqlite_errorname", "")
            if code.startswith("SQLITE_BUSY"):
                raise AccessDatabaseBusy(
                    Diagnostic("E105", f"{self.path} is being written by another process")
                ) from None
            if isinstance(problem, OSError) or code.startswith(_ENVIRONMENT_ERRORS):
                reason = problem.strerror if isinstance(problem, OSError) else problem
                raise error("E105", f"{self.path} cannot be used: {reason}") from None
            raise _damage_error(self.path, str(problem)) from None


def _damage_error(path: Path, reason: str) -> SmileError:
    hint = "Restore a backup, or delete it and create tokens and grants again: until then nobody has access."
    return error("E105", f"{path} is damaged: {reason}", hint=hint)


def _checksum(*values: str) -> int:
    return zlib.crc32("\0".join(values).encode(errors="surrogatepass"))


def _check_principal(name: str) -> str:
    if not re.fullmatch(r"[\w.@+-]+", name) or len(name) > limits.principal_chars_max:
        hint = "A name consists of letters, digits and . @ + - _"
        raise error("E093", f"{name[: limits.principal_chars_max]!r} is not a name of a principal", hint=hint)
    return name


def _grant_values(grant: Grant) -> tuple[str, str, str]:
    if not grant.name or not grant.name.isprintable() or len(grant.name) > limits.principal_chars_max:
        raise error("E093", f"{grant.name[: limits.principal_chars_max]!r} is not a name of a stream or view")
    if grant.right in RIGHTS_ON_PROGRAM and grant.name != PROGRAM:
        raise error("E093", f"{grant.right} is granted on {PROGRAM}, not on {grant.name}")
    return Right(grant.right).value, grant.name, _check_principal(grant.principal)


class Access:
    """Checks tokens and rights for a running broker. Thread-safe. Without `requires_tokens`, every caller is
    `LOCAL_PRINCIPAL` and may do everything."""

    def __init__(self, path: Path, requires_tokens: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self.requires_tokens = requires_tokens
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._database: AccessDatabase | None = (
            AccessDatabase(path, True, limits.access_broker_wait_s_max) if requires_tokens else None
        )
        self._data_version = 0
        self._entries = NO_ENTRIES
        self._error = ""
        self._refreshed_at = -limits.access_age_s_max
        if self._database:
            self._database.read_entries()  # a broker does not start with a damaged file

    def principal(self, token: str | None) -> str | None:
        """The principal that the token belongs to, or None."""
        if not self.requires_tokens:
            return LOCAL_PRINCIPAL
        return self._current_entries().tokens.get(token_hash(token)) if token else None

    def is_allowed(self, principal: str, right: str, name: str) -> bool:
        if not self.requires_tokens:
            return True
        grants = self._current_entries().grants
        if right in RIGHTS_ON_PROGRAM:
            return Grant(right, PROGRAM, principal) in grants
        return Grant(right, name, principal) in grants or Grant(right, ANY_NAME, principal) in grants

    @contextmanager
    def open_database(self) -> Iterator[AccessDatabase]:
        """The file, for changes. They hold here as soon as it is closed."""
        database = AccessDatabase(self._path)
        try:
            yield database
        finally:
            database.close()
            with self._lock:
                self._refreshed_at = -limits.access_age_s_max

    def close(self) -> None:
        with self._lock:
            if self._database:
                self._database.close()
            self._database = None

    def _current_entries(self) -> AccessEntries:
        """The content of the file, as it is now or was a moment ago."""
        with self._lock:
            if self._clock() - self._refreshed_at >= limits.access_age_s_max:
                self._refreshed_at = self._clock()
                try:
                    self._refresh()
                    self._log_error("")
                except AccessDatabaseBusy:
                    pass
                except SmileError as problem:
                    self._close_database()
                    self._log_error(problem.message)
            return self._entries

    def _refresh(self) -> None:
        if self._database and not _has_inode(self._path, self._database.inode):
            self._close_database()
        if self._database is None:
            self._database = AccessDatabase(self._path, wait_s=limits.access_broker_wait_s_max)
        data_version = self._database.data_version()
        if self._entries is NO_ENTRIES or data_version != self._data_version:
            self._entries = self._database.read_entries()
            self._data_version = data_version

    def _close_database(self) -> None:
        self._entries = NO_ENTRIES
        if self._database:
            self._database.close()
        self._database = None

    def _log_error(self, message: str) -> None:
        if message and message != self._error:
            logger.error("nobody has access: %s", message)
        elif self._error and not message:
            logger.info("tokens and grants can be read again")
        self._error = message


def _has_inode(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except OSError:
        return False
