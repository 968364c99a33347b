"""A real server with functions in place of the schema `smile`, and a proxy before it."""

from collections.abc import Iterator

import pytest

from tests.postgres.private_server import PrivateServer, fixture_server
from tests.postgres.proxy.running_proxy import RunningProxy

__all__ = ["fixture_server"]

FUNCTIONS = {
    "create_event_type": "name text, columns text",
    "drop_event_type": "name text",
    "alter_queue": "queue text, auditable boolean",
    "advertise": "event_type text, condition text DEFAULT NULL",
    "unadvertise": "event_type text",
    "publish_quote": "symbol text, price integer, visibility text DEFAULT 'deferred', reliability text DEFAULT 'guaranteed'",
    "create_rule": "name text, operation text, table_name text, condition text, event_type text, arguments text, "
    "visibility text, reliability text",
    "drop_rule": "name text, table_name text",
    "create_subscription": "name text, event_type text, scope text, filter text, function text, arguments text, "
    "priority integer",
    "drop_subscription": "name text",
    "create_link": "name text, address text, port integer, username text, password text",
    "drop_link": "name text",
    "grant": "privilege text, event_type text, role text",
    "revoke": "privilege text, event_type text, role text",
    "create_table_stream": "name text, table_name text",
    "drop_table_stream": "name text",
    "create_view_table": "table_name text, view text, with_knowledge boolean",
    "drop_view_table": "table_name text",
}
"""The interface of the schema. Each function records its call; names and event types that begin with `fail` fail."""


@pytest.fixture(scope="session", autouse=True)
def functions(server: PrivateServer) -> None:
    with server.connect() as connection:
        connection.execute("CREATE SCHEMA smile; CREATE TABLE smile.call (id serial, function text, arguments text[])")
        for name, parameters in FUNCTIONS.items():
            count = parameters.count(",") + 1
            arguments = ", ".join(f"${number}::text" for number in range(1, count + 1))
            connection.execute(
                f"""CREATE FUNCTION smile."{name}"({parameters}) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
                IF $1 LIKE 'fail%' THEN RAISE '% is refused', $1 USING ERRCODE = 'SM154', HINT = 'Try another.'; END IF;
                RAISE NOTICE 'called {name}';
                INSERT INTO smile.call (function, arguments) VALUES ('{name}', ARRAY[{arguments}]); END $$"""
            )
        connection.execute("CREATE TABLE numbers (n integer PRIMARY KEY, word text)")
        connection.execute("INSERT INTO numbers SELECT i, 'word ' || i FROM generate_series(1, 100) AS i")
        connection.execute("GRANT USAGE ON SCHEMA smile TO PUBLIC")
        connection.execute("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA smile, public TO PUBLIC")
        connection.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA smile TO PUBLIC")


@pytest.fixture(scope="session")
def proxy(server: PrivateServer) -> Iterator[RunningProxy]:
    with RunningProxy(server.url) as proxy:
        yield proxy
