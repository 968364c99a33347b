"""A session through the proxy gives the same bytes as a direct one."""

import os
import random
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, strategies as st

from smile.postgres.proxy.messages import message
from tests.postgres.private_server import SUPERUSER, PrivateServer
from tests.postgres.proxy.cancellation import assert_cancellable
from tests.postgres.proxy.raw_client import (
    COPY_DONE,
    FLUSH,
    SYNC,
    TERMINATE,
    Message,
    RawClient,
    bind,
    close,
    copy_data,
    copy_fail,
    describe,
    execute,
    parse,
    query,
    startup,
)
from tests.postgres.proxy.running_proxy import RunningProxy
from tests.processes import WAIT_S

pytestmark = pytest.mark.slow

Script = Sequence[bytes]
"""What is sent, in chunks: the proxy must not depend on them."""


def run(port: int, script: Script, first: bytes | None = None) -> list[Message]:
    """All messages of a session, without what differs in every session: its process and the key to cancel it."""
    with RawClient(port, first) as client:
        for chunk in script:
            client.send(chunk)
        return [(kind, body[12 if kind == b"K" else 4 if kind == b"A" else 0 :]) for kind, body in client.receive_all()]


def assert_same(
    server: PrivateServer, proxy: RunningProxy, script: Script, first: bytes | None = None
) -> list[Message]:
    direct = run(server.port, script, first)
    assert run(proxy.port, script, first) == direct
    return direct


def kinds(messages: list[Message]) -> bytes:
    return b"".join(kind for kind, _ in messages if kind not in b"RSK")


SCRIPTS: dict[str, list[bytes]] = {
    "rows": [query("SELECT * FROM numbers ORDER BY n"), query("SELECT 1; SELECT 2; ; SELECT $$a;b$$")],
    "empty": [query(""), query(";"), query("-- publish"), parse("") + bind() + describe(b"P") + execute() + SYNC],
    "errors": [query("SELECT 1; SELEC 2"), query("SELECT 1; SELECT 1/0; SELECT 2"), query("SELECT publish"), query("SELECT 'open")],
    "transaction": [query("BEGIN"), query("SELECT 1/0"), query("SELECT 1"), query("ROLLBACK"), query("BEGIN; SAVEPOINT a"),
                    query("SELEC"), query("ROLLBACK TO a"), query("COMMIT")],
    "prepared": [parse("SELECT n, word FROM numbers WHERE n < $1 ORDER BY n", "p"), describe(b"S", "p"), SYNC,
                 bind([b"5"], "p", "a"), describe(b"P", "a"), execute("a", 2), execute("a", 2), execute("a"), SYNC,
                 bind([b"3"], "p", result_format=1), execute(), close(b"S", "p"), SYNC, bind([b"3"], "p"), SYNC],
    "pipeline": [parse("SELECT 1") + bind() + execute() + parse("SELECT 1/0") + bind() + execute() + parse("SELECT 2") + SYNC
                 + parse("SELECT 3") + bind() + execute() + SYNC],
    "flush": [parse("SELECT 1") + bind() + execute() + FLUSH, SYNC],
    "two statements": [parse("SELECT 1; SELECT 2") + SYNC],
    "copy out": [query("COPY (SELECT * FROM numbers ORDER BY n) TO STDOUT"), query("COPY numbers TO STDOUT (FORMAT binary)")],
    "copy in": [query("BEGIN; CREATE TEMP TABLE c (a int, b text); COPY c FROM STDIN"), copy_data(b"1\tx\n2\t"), copy_data(b"y\n"),
                COPY_DONE, query("SELECT a + 0 FROM c"), query("COPY c FROM STDIN; COPY c FROM STDIN; SELECT count(*) FROM c"),
                copy_data(b"3\tz\n"), COPY_DONE, copy_data(b"4\tz\n"), COPY_DONE, query("COPY c FROM STDIN"), copy_fail("enough"),
                query("ROLLBACK")],
    "copy in, extended": [query("CREATE TEMP TABLE c (a int)"), parse("COPY c FROM STDIN") + bind() + execute() + SYNC, copy_data(b"1\n"),
                          COPY_DONE + SYNC, parse("SELECT a + 0 FROM c") + bind() + describe(b"P") + execute() + SYNC,
                          parse("COPY c FROM STDIN") + bind() + execute(), copy_data(b"x\n"), COPY_DONE + SYNC, SYNC,
                          parse("SELECT 7") + bind() + execute() + SYNC],
    "stray copy messages": [copy_data(b"x"), COPY_DONE, copy_fail("x"), query("SELECT 1"), COPY_DONE, parse("SELECT 1") + SYNC],
    "notify": [query("LISTEN publish"), query("NOTIFY publish, 'PUBLISH q(1)'"), query("UNLISTEN *")],
    "settings": [query("SET application_name = 'publish'"), query("SET client_encoding = 'LATIN1'"), query("SELECT 'x'"),
                 query("SET standard_conforming_strings = off"), query("RESET ALL")],
    "own statements": [query("BEGIN; CREATE TABLE event (publish int)"), query("CREATE RULE r AS ON INSERT TO event DO ALSO SELECT 1"),
                       query("INSERT INTO event VALUES (1)"), query("DROP RULE r ON event"), query("GRANT SELECT ON event TO PUBLIC"),
                       query("ROLLBACK"), query("DROP SUBSCRIPTION s"), query("CREATE SUBSCRIPTION s CONNECTION 'x' PUBLICATION p"),
                       query("CREATE RULE"), query("CREATE TABLE t"), query("DO $$ BEGIN RAISE NOTICE 'publish'; END $$"),
                       query("GRANT PUBLISH ON event TO smile"), query("PREPARE s AS PUBLISH t(1)")],
    "function call": [message(b"F", struct.pack("!ihhih", 1610, 0, 0, 0, 0)[:-6] + struct.pack("!h", 1)), query("SELECT 1")],
    "unknown message": [query("SELECT 1"), message(b"!", b"x")],
    "wrong length": [query("SELECT 1"), b"Q\0\0\0\1SELECT"],
    "no end of the text": [message(b"Q", b"SELECT 1")],
    "text after the end": [message(b"Q", b"SELECT 1\0PUBLISH q(1)\0")],
    "wrong bytes": [message(b"Q", b"SELECT '\xff' -- publish\0"), query("SELECT 1")],
    "terminate": [query("SELECT 1"), TERMINATE],
    "deallocate": [parse("SELECT 1", "p") + SYNC, query("DEALLOCATE ALL"), query("DISCARD ALL"), bind((), "p") + SYNC],
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(server: PrivateServer, proxy: RunningProxy, name: str) -> None:
    script = [*SCRIPTS[name], TERMINATE]
    messages = assert_same(server, proxy, script)
    assert kinds(messages)
    whole = b"".join(script)
    assert run(proxy.port, [whole]) == messages
    assert run(proxy.port, [whole[i : i + 7] for i in range(0, len(whole), 7)]) == messages


ATOMS = [
    query("SELECT 1"), query("SELECT 1; SELECT 'publish'; SELECT 1/0"), query("BEGIN"), query("COMMIT"), query("ROLLBACK"), query("SELEC"),
    query(""), query("COPY (SELECT 1) TO STDOUT"), query("COPY pg_temp.c FROM STDIN"), query("VALUES (1), (2)"),
    parse("SELECT $1::int", "p"), parse("SELECT n FROM numbers ORDER BY n LIMIT 5", "q"), parse("SELEC", "p"), parse("", "q"), parse("SELECT 5"),
    parse("COPY pg_temp.c FROM STDIN"), parse("SAVEPOINT s"), bind([b"3"], "p"), bind([b"x"], "p"), bind((), "q", "r"), bind(),
    describe(b"S", "p"), describe(b"S", "q"), describe(b"P"), describe(b"P", "r"), execute(), execute("r", 2), execute("r"),
    close(b"S", "p"), close(b"P", "r"), SYNC, SYNC, SYNC, FLUSH, copy_data(b"1\n"), copy_data(b"x\n"), COPY_DONE, copy_fail("no"),
]  # fmt: skip


@given(st.lists(st.sampled_from(ATOMS), max_size=25), st.integers(0, 2**32))
def test_random_scripts(server: PrivateServer, proxy: RunningProxy, atoms: list[bytes], seed: int) -> None:
    """After any messages, copying is ended, and a query is still answered with its rows."""
    end = [SYNC, COPY_DONE, copy_fail("end"), SYNC, query("ROLLBACK"), query("SELECT 'still here'"), TERMINATE]
    whole = query("CREATE TEMP TABLE c (a int)") + b"".join([*atoms, *end])
    generator, chunks = random.Random(seed), []
    while whole:
        size = generator.choice([1, 5, 50, 500])
        chunks.append(whole[:size])
        whole = whole[size:]
    assert_same(server, proxy, chunks)


OURS = [query("PUBLISH Quote('a', 1)"), parse("PUBLISH Quote($1, 1)", "p"), parse("PUBLISH Quote('c', 1)"), parse("ADVERTISE Quote", "q"), query("PUBLISH"),
        query("SELECT 1; ADVERTISE Quote; SELECT 2")]  # fmt: skip
CALLS = [query("DO 'BEGIN END'"), parse("SELECT set_config('a.b', $1, false) WHERE false", "p"), parse("DO 'BEGIN END'"), parse("DO 'BEGIN END'", "q"), query("SELEC"),
         query("SELECT 1; DO 'BEGIN END'; SELECT 2")]  # fmt: skip
"""For each of OURS, a statement of PostgreSQL that gives the same kinds of messages."""


@given(st.lists(st.integers(0, len(ATOMS) + len(OURS) - 1), max_size=20))
def test_random_scripts_with_publications(server: PrivateServer, proxy: RunningProxy, indices: list[int]) -> None:
    """Translated statements give the kinds of messages that commands without rows give. The parameters of `p` are text
    in both, so that errors are the same."""
    end = [SYNC, COPY_DONE, copy_fail("end"), SYNC, query("ROLLBACK"), query("SELECT 'still here'"), TERMINATE]
    begin = [query("SET client_min_messages = warning"), query("CREATE TEMP TABLE c (a int)")]

    def script(own: list[bytes]) -> list[bytes]:
        return [b"".join([*begin, *((own + ATOMS)[index] for index in indices), *end])]

    through = run(proxy.port, script(OURS))
    direct = run(server.port, script(CALLS))
    # A SELECT without rows is described, and a command is not: only what follows is compared.
    assert kinds(through).replace(b"T", b"").replace(b"n", b"") == kinds(direct).replace(b"T", b"").replace(b"n", b"")
    assert [body for kind, body in through if kind == b"D"] == [body for kind, body in direct if kind == b"D"]
    assert not any(b"smile_" in body for _, body in through)


def test_replication_connections(server: PrivateServer, proxy: RunningProxy) -> None:
    first = startup(replication="database")
    messages = assert_same(
        server,
        proxy,
        [query("SHOW wal_level"), query("SELECT 1"), query("IDENTIFY_SYSTEM;"), query("PUBLISH q(1)"), TERMINATE],
        first,
    )
    assert b"E" in kinds(messages)


def test_psql(server: PrivateServer, proxy: RunningProxy) -> None:
    script = r"""\set ECHO all
SELECT 1 AS a \gdesc
SELECT * FROM numbers ORDER BY n LIMIT 3;
\copy (SELECT * FROM numbers ORDER BY n LIMIT 3) TO STDOUT
\d numbers
BEGIN; SELECT 1/0; SELECT 2; ROLLBACK;
SELECT 1 \; SELECT $a$;$a$ \; SELECT 3;
SELECT $1 \bind 5 \g
SELEC;
\dt
SELECT count(*) FROM generate_series(1, 100000);
"""

    def psql(port: int, text: str) -> tuple[str, str]:
        words: list[str | Path] = [
            server.programs / "psql",
            "-X",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-U",
            SUPERUSER,
            "postgres",
        ]
        environment = {**os.environ, "PGSSLMODE": "disable", "PGCONNECT_TIMEOUT": "60"}
        done = subprocess.run(words, input=text, capture_output=True, text=True, env=environment, timeout=WAIT_S)
        return done.stdout, done.stderr

    assert psql(proxy.port, script) == psql(server.port, script)
    out, errors = psql(
        proxy.port, "\\set VERBOSITY verbose\nPUBLISH Quote('psql', 1);\nSELECT 1;\n  PUBLISH Quote('psql', x);\n"
    )
    assert out.splitlines()[0] == "PUBLISH"
    assert "42703" in errors
    assert "LINE 1: PUBLISH Quote('psql', x);\n" in errors
    assert errors.splitlines()[-2 if "LOCATION" in errors else -1].rstrip().endswith("^")


def test_cancel_requests(server: PrivateServer, proxy: RunningProxy) -> None:
    with server.connect(proxy.port) as connection:
        assert_cancellable(server, connection)


def test_large_values_and_back_pressure(server: PrivateServer, proxy: RunningProxy) -> None:
    value = os.urandom(20 * 2**20)
    with server.connect(proxy.port) as connection:
        row = connection.execute("SELECT %b::bytea", (value,), binary=True).fetchone()
        assert row == (value,)
        with (
            connection.cursor() as cursor,
            cursor.copy("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 20000)) TO STDOUT") as copy,
        ):
            time.sleep(0.2)
            assert sum(len(block) for block in copy) == 1001 * 20000


def test_copy_in_of_psycopg(server: PrivateServer, proxy: RunningProxy) -> None:
    with server.connect(proxy.port) as connection:
        connection.execute("CREATE TEMP TABLE copied (n int, t text)")
        with connection.cursor().copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text"])
            for number in range(10_000):
                copy.write_row((number, "publish" * 10))
        assert connection.execute("SELECT count(*), sum(n) FROM copied").fetchone() == (10_000, 49_995_000)
        with (
            pytest.raises(psycopg.errors.InvalidTextRepresentation),
            connection.cursor().copy("COPY copied FROM STDIN") as copy,
        ):
            copy.write("x\tx\n")
