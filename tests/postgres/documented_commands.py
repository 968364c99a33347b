"""The commands of a page of documentation, run as it says, with databases of the tests' server."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from smile.demo.postgres_server import USER
from tests.postgres.server import Server
from tests.processes import WAIT_S, clean_environment, wait_until

PORT = re.compile(r"127\.0\.0\.1(:|' )(\d{4})")


def shell_blocks(text: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Shell:
    """Runs commands in a folder. Their databases, which have no address, are those of the server."""

    folder: Path
    environment: dict[str, str]

    def run(self, command: str) -> str:
        done = subprocess.run(
            f"set -e\n{command}",
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def sql(self, database: str, statement: str) -> list[list[str]]:
        """The rows of a query, as texts."""
        lines = self.run(f'smile sql --database postgresql:///{database} -c "{statement}"').splitlines()
        return [[cell.strip() for cell in line.split("|")] for line in lines[2:] if not line.startswith("(")]


@contextmanager
def shell(server: Server, folder: Path, databases: Sequence[str]) -> Iterator[Shell]:
    """The databases are dropped at the end: the commands create them."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), str(server.programs)])
    environment = clean_environment(PGHOST=str(server.folder), PGUSER=USER, COLUMNS="200")
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    try:
        yield Shell(folder, environment)
    finally:
        for name in databases:
            server.drop_database(server.url(name))


def wait_for_rows(opened: Shell, database: str, statement: str, expected: list[list[str]]) -> None:
    """Until the query has so many rows. They must then be these."""
    rows = wait_until(
        lambda: found if len(found := opened.sql(database, statement)) >= len(expected) else None,
        f"{statement} has fewer than {len(expected)} rows",
    )
    assert rows == expected
