"""Links and tables of views: rows of the catalogue that the service reads."""

import pytest

from tests.postgres.helpers import capture, refused, rows
from tests.postgres.server import Connection

LINK = "SELECT smile.create_link(%s, %s, %s, 'user', 'password')"


def test_links(connection: Connection) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute(LINK, ["Hospital", "host", 7400])
    assert rows(connection, "SELECT * FROM smile.links") == []
    connection.execute(LINK, ["Hospital", "host", 7400])
    assert rows(connection, "SELECT name, address, port, username FROM smile.links") == [
        ("Hospital", "host", 7400, "user")
    ]
    with refused("E155", "hospital"):
        connection.execute(LINK, ["hospital", "host", 7400])
    connection.execute("SELECT smile.drop_link('HOSPITAL')")
    with refused("E154"):
        connection.execute("SELECT smile.drop_link('Hospital')")
    connection.execute(LINK, ["Hospital", "other", 7400])
    assert rows(connection, "SELECT password FROM smile.link ORDER BY id") == [("",), ("password",)]
    capture(connection)  # it has passed the link that was dropped
    assert rows(connection, "SELECT address FROM smile.link") == [("other",)]


@pytest.mark.parametrize(("name", "address", "port", "code"), [("a b", "h", 1, "E150"), ("a", "", 1, "E093"), ("a", "h", 0, "E093"), ("a", "h", 65536, "E093")])  # fmt: skip
def test_wrong_links_are_refused(transaction: Connection, name: str, address: str, port: int, code: str) -> None:
    with refused(code), transaction.transaction():
        transaction.execute(LINK, [name, address, port])


def test_tables_of_views(connection: Connection) -> None:
    connection.execute("CREATE TABLE taken (a int); CREATE SCHEMA reports")
    connection.execute("SELECT smile.create_view_table('totals', 'Totals', true)")
    connection.execute("SELECT smile.create_view_table('reports.\"Totals\"', 'Totals')")
    listed = rows(connection, "SELECT table_name, view, with_knowledge FROM smile.view_tables ORDER BY id")
    assert listed == [("public.totals", "Totals", True), ('reports."Totals"', "Totals", False)]
    for table, code in (("taken", "E155"), ("TOTALS", "E155"), ("nothing.t", "E154"), ("a.b.c", "E156")):
        with refused(code):
            connection.execute("SELECT smile.create_view_table(%s, 'Totals')", [table])
    connection.execute("SELECT smile.drop_view_table('public.totals')")
    with refused("E154"):
        connection.execute("SELECT smile.drop_view_table('totals')")
    assert rows(connection, "SELECT table_name FROM smile.view_tables") == [('reports."Totals"',)]
