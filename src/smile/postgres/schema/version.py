"""The version of the schema: in this package, and in a database."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from psycopg import Connection
from psycopg.rows import TupleRow

from smile.errors import error


@dataclass(frozen=True)
class SchemaVersion:
    """The number of the last migration, and a digest of the functions and views."""

    migration: int
    digest: str


@dataclass(frozen=True)
class SqlFile:
    number: int
    text: bytes


def sql_files(folder: str) -> list[SqlFile]:
    """The files of a folder in the order in which they are applied. Their names begin with their numbers."""
    paths = (resources.files("smile.postgres.schema") / "sql" / folder).iterdir()
    files = (SqlFile(int(path.name.partition("_")[0]), path.read_bytes()) for path in paths)
    return sorted(files, key=lambda file: file.number)


@cache
def packaged_version() -> SchemaVersion:
    text = b"".join(file.text for file in sql_files("functions"))
    return SchemaVersion(sql_files("migrations")[-1].number, hashlib.sha256(text).hexdigest()[:16])


def installed_version(connection: Connection[TupleRow]) -> SchemaVersion | None:
    """None if the schema is not installed."""
    found = connection.execute("SELECT to_regnamespace('smile') IS NOT NULL, to_regclass('smile.setting') IS NOT NULL")
    has_schema, has_settings = found.fetchone() or (False, False)
    if not has_schema:
        return None
    if not has_settings:
        hint = "Rename that schema: SMILE needs the name."
        raise error("E157", "the database has a schema smile that is not SMILE's", hint=hint)
    settings: dict[str, str] = dict(connection.execute("SELECT name, value FROM smile.setting").fetchall())
    return SchemaVersion(int(settings["migration"]), settings["digest"])
