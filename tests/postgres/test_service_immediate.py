"""IMMEDIATE events are published whatever becomes of their transactions, and each once."""

from pathlib import Path

import pytest

from smile.postgres.capture.logical_messages import parse_message
from smile.postgres.immediate_way import ImmediateWay
from smile.postgres.schema.install import install
from tests.postgres.helpers import refused
from tests.postgres.server import TEMPLATE, running_server, system_programs
from tests.postgres.services import connect, create_type, logged, publish, serving, wait_for_events
from tests.processes import wait_until


def check_immediate(url: str, folder: Path, reliability: str) -> None:
    """Commit, rollback and savepoint; after a restart nothing comes twice."""
    with connect(url) as connection:
        create_type(connection, "E")
        modes = ("immediate", reliability)
        with serving(url, folder) as broker:
            with connection.transaction():
                publish(connection, "E", {"n": 1}, *modes)
                publish(connection, "E", {"n": 100})
                assert [e["n"] for e in wait_for_events(broker, "E", 1)] == [1]
            wait_for_events(broker, "E", 2)
            with connection.transaction(force_rollback=True):
                publish(connection, "E", {"n": 2}, *modes)
                publish(connection, "E", {"n": 200})
                with connection.transaction(force_rollback=True):
                    publish(connection, "E", {"n": 3}, *modes)
            assert sorted(e["n"] for e in wait_for_events(broker, "E", 4)) == [1, 2, 3, 100]
        publish(connection, "E", {"n": 4}, *modes)
        with serving(url, folder) as broker:
            assert sorted(e["n"] for e in wait_for_events(broker, "E", 5)) == [1, 2, 3, 4, 100]
            publish(connection, "E", {"n": 5})
            wait_for_events(broker, "E", 6)
            assert len(logged(broker, "E")) == 6


@pytest.mark.parametrize("reliability", ["guaranteed", "non-guaranteed"])
def test_immediate_events_in_logical_messages(database: str, tmp_path: Path, reliability: str) -> None:
    with connect(database) as connection:
        install(connection, ImmediateWay.logical)
        if reliability == "guaranteed" and connection.info.server_version < 170_000:
            create_type(connection, "E")
            with refused("E153", "needs PostgreSQL 17"):
                publish(connection, "E", {"n": 1}, "immediate", reliability)
            return
    check_immediate(database, tmp_path, reliability)


def test_the_slot_does_not_keep_what_others_write(database: str, tmp_path: Path) -> None:
    with connect(database) as connection:
        install(connection, ImmediateWay.logical)
        position = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = smile.slot_name()"
        before = connection.execute(position).fetchone()
        with serving(database, tmp_path):
            connection.execute("CREATE TABLE public.other AS SELECT generate_series(1, 1000) AS n")
            wait_until(lambda: connection.execute(position).fetchone() != before, "the slot stays where it is")


@pytest.mark.slow
@pytest.mark.parametrize("reliability", ["guaranteed", "non-guaranteed"])
def test_immediate_events_through_a_second_connection(tmp_path: Path, reliability: str) -> None:
    programs = system_programs()
    if programs is None:
        pytest.skip("no PostgreSQL with dblink is installed on this machine")
    with running_server(programs) as server:
        server.create_template()
        url = server.create_database(TEMPLATE)
        with connect(url) as connection:
            install(connection, ImmediateWay.dblink)
        check_immediate(url, tmp_path, reliability)


def test_messages_of_the_plugin_are_parsed() -> None:
    data = b"M\x00" + (77).to_bytes(8, "big") + b"smile\0" + (3).to_bytes(4, "big") + b"abc"
    message = parse_message(data)
    assert message is not None
    assert (message.lsn, message.prefix, message.content) == (77, b"smile", b"abc")
    assert parse_message(b"B" + data[1:]) is None
