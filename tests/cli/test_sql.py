"""`smile sql`: statements for a broker and for a database, in a terminal and without one."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import Result

from smile.cli.shell.routing import StatementPlace, TypedStatement, choose_place, last_statement, next_input
from smile.cli.shell.shell import Shell
from smile.cli.shell.tables import format_table
from tests.brokers import InProcessBroker
from tests.postgres.private_server import SUPERUSER, PrivateServer, fixture_server
from tests.processes import Terminal, invoke_smile

__all__ = ["fixture_server"]

PROGRAM = """CREATE STREAM Bids (bid: time -> issue: string, price: int);
CREATE VIEW Highest AS SELECT issue, MAX(price) AS price FROM Bids GROUP BY issue;
SUBSCRIBE Highest;
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, PROGRAM) as running:
        yield running


def run(broker: InProcessBroker, *commands: str, stdin: str | None = None) -> Result:
    words = [word for command in commands for word in ("-c", command)]
    return invoke_smile("sql", "--url", broker.url, *words, stdin=stdin)


# ── the broker ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_program_is_changed(broker: InProcessBroker) -> None:
    text = (
        "CREATE STREAM Asks (ask: time -> issue: string, price: int);\nCREATE DOMAIN money AS decimal(10, 2); -- yes\n"
    )
    done = run(broker, text, "CREATE VIEW Lowest AS SELECT issue, MIN(price) AS price FROM Asks GROUP BY issue")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["CREATE STREAM", "CREATE DOMAIN", "CREATE VIEW"]
    assert "CREATE STREAM Asks" in broker.served_program()
    (tick,) = broker.publish("Asks", {"issue": "IBM", "price": 5})
    assert broker.rows("Lowest", Asks=tick)[0]["row"]["price"] == 5
    assert run(broker, "DROP VIEW Lowest;").stdout == "DROP VIEW\n"
    assert "Lowest" not in broker.served_program()


def test_a_select_is_a_snapshot(broker: InProcessBroker) -> None:
    (_, _, tick) = broker.publish("Bids", *({"issue": issue, "price": 7} for issue in ("HP", "IBM", "SUN")))
    broker.rows("Highest", Bids=tick)
    done = run(broker, "SELECT * FROM highest WHERE issue = 'IBM'", "select * from Highest limit 2;")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["issue", "|", "price"]
    assert lines[2].split()[0] == "IBM"
    assert [line for line in lines if line.startswith("(")] == ["(1 row)", "(2 rows)"]


def test_any_other_select_is_a_query_of_its_own(broker: InProcessBroker) -> None:
    (_, _, tick) = broker.publish("Bids", *({"issue": issue, "price": 7} for issue in ("HP", "IBM", "SUN")))
    broker.rows("Highest", Bids=tick)
    done = run(
        broker,
        "SELECT issue FROM Highest WHERE price > 3 AND issue > 'I'",
        "SELECT COUNT(*) AS n FROM Bids",
        "SELECT * FROM Bids WHERE issue = 'HP'",
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if line.startswith("(")] == ["(2 rows)", "(1 row)", "(1 row)"]
    assert "IBM" in done.stdout
    assert len(broker.broker.queries) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT prize FROM Highest", "statement:1:8: error E022"),
        ("SELECT issue\n  FROM Nowhere", "statement:2:8: error E021"),
        ("CREATE VIEW W AS SELECT prize FROM Bids", "statement:1:25: error E022"),
        ("CREATE STREAM S (a int", "statement:"),
        ("DROP VIEW Nothing", "E021"),
        ("PUBLISH q(1)", "error E161: this statement is for a database, and the shell has none"),
        ("\\x", "error E161: there is no command \\x"),
        ("\\i /no/such/file", "error E001: /no/such/file cannot be read"),
        ("\\d Nothing", "error E021: there is no Nothing at the broker or in the database"),
    ],
)
def test_errors(broker: InProcessBroker, text: str, message: str) -> None:
    done = run(broker, text, "SELECT * FROM Highest")
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr
    assert broker.served_program() == PROGRAM


def test_commands_and_files(broker: InProcessBroker, tmp_path: Path) -> None:
    counts = "(SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue) AS c"  # what two views share is no view
    (tmp_path / "more.smile").write_text(
        f"-- a view\nCREATE VIEW Number AS SELECT * FROM {counts} WHERE n > 1;\nCREATE VIEW Many AS SELECT * FROM {counts} WHERE n > 3"
    )
    done = run(broker, stdin=f"-- first\n\\i {tmp_path / 'more.smile'}\n\\d\n\\d highest\n\\?\n\\q\nSELECT nonsense;")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == ["CREATE VIEW", "CREATE VIEW", "streams and views: Bids, Highest, Number, Many"]
    assert "streams and view Highest: issue, price" in lines
    assert any("to the broker" in line for line in lines)
    (tmp_path / "loop.smile").write_text(f"\\i {tmp_path / 'loop.smile'}\n")
    assert "includes itself" in run(broker, f"\\i {tmp_path / 'loop.smile'}").stderr


# ── where statements go ─────────────────────────────────────────────────────────────────────────────────────────────


def place(text: str, has_database: bool = True) -> str:
    typed = last_statement(text, 0)
    assert typed is not None
    return choose_place(typed, ["Highest"], has_database).name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE STREAM s (a int)", "BROKER"), ("CREATE STREAM s FROM TABLE t", "DATABASE"), ("create view v as select 1", "BROKER"),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", "DATABASE"), ("CREATE DOMAIN d AS int", "BROKER"), ("DROP VIEW v", "BROKER"),
        ("IMPORT v FROM other", "BROKER"), ("IMPORT FOREIGN SCHEMA s FROM SERVER x INTO y", "DATABASE"), ("SUBSCRIBE v", "BROKER"),
        ("SELECT * FROM highest", "BROKER"), ("SELECT 1", "DATABASE"), ("SELECT (SELECT 1 FROM Highest) FROM t", "DATABASE"),
        ("PUBLISH q(1)", "DATABASE"), ("CREATE TABLE t FROM VIEW Highest", "DATABASE"), ("BEGIN", "DATABASE"),
        ("CREATE GLOBAL STREAM s (t: time, k: string -> a: int)", "BROKER"), ("CREATE GLOBAL SUBSCRIPTION s ON q EXECUTE f()", "DATABASE"),
        ("CREATE REPUBLISHER r AS SELECT * FROM s", "BROKER"), ("ADVERTISE s WHERE k = 'a' AS p", "BROKER"), ("advertise s as p", "BROKER"),
        ("ADVERTISE s", "DATABASE"), ("CREATE TABLE t (k int PRIMARY KEY)", "DATABASE"), ("CREATE TEMP TABLE t (k int)", "DATABASE"),
        ("DROP STREAM s", "DATABASE"), ("CREATE SUBSCRIPTION s ON q EXECUTE f()", "DATABASE"),
    ],
)  # fmt: skip
def test_where_statements_go(text: str, expected: str) -> None:
    assert place(text) == expected


def test_without_a_database_a_select_goes_to_the_broker() -> None:
    assert place("SELECT 1", has_database=False) == StatementPlace.BROKER.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE TABLE t (k int PRIMARY KEY)", "BROKER"), ("ADVERTISE s", "BROKER"), ("CREATE TABLE t FROM VIEW v", "DATABASE"),
        ("CREATE TABLE t AS SELECT 1", "DATABASE"), ("PUBLISH q(1)", "DATABASE"),
    ],
)  # fmt: skip
def test_without_a_database_what_both_have_goes_to_the_broker(text: str, expected: str) -> None:
    assert place(text, has_database=False) == expected


def test_statements_of_the_registry_and_tables_change_the_program(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM, origin=9) as broker:
        done = run(
            broker,
            "CREATE GLOBAL STREAM ntp (t: time, tool: string -> latency: float)",
            "ADVERTISE ntp WHERE tool = 'ping' AS S2",
            "CREATE REPUBLISHER R1 AS SELECT * FROM ntp WHERE tool = 'ping'",
            "CREATE TABLE Prices (symbol: string PRIMARY KEY, price: int)",
        )
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["CREATE GLOBAL STREAM", "ADVERTISE", "CREATE REPUBLISHER", "CREATE TABLE"]
        assert "ADVERTISE ntp" in broker.served_program()


def inputs(text: str) -> list[str]:
    position = 0
    found: list[str] = []
    while True:
        typed, position = next_input(text, position)
        if typed is None:
            return [*found, f"rest: {text[position:]}"]
        found.append(typed.text if isinstance(typed, TypedStatement) else f"command: {typed}")


def test_input_is_divided() -> None:
    assert inputs(" ; a ;\\d x\n-- c\n\\q\nb 'x;\n") == ["a", "command: \\d x", "command: \\q", "rest: b 'x;\n"]
    assert inputs("a\n\\d\n;") == ["a\n\\d", "rest: "]
    assert inputs("-- only a comment\n") == ["rest: "]
    function = "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END"
    assert inputs(f"{function};") == [function, "rest: "]
    assert inputs("CREATE VIEW v AS SELECT x: {a};") == ["CREATE VIEW v AS SELECT x: {a}", "rest: "]


def test_tables() -> None:
    assert format_table(["a", "number"], [["日本", "5"], [None, "17"], ["x\n", None]], [False, True]).splitlines() == [
        "a    | number", "-----+-------", "日本 |      5", "NULL |     17", "x\\n  |   NULL", "(3 rows)",
    ]  # fmt: skip


# ── the database ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_of_a_view_that_the_broker_does_not_have_is_warned_of() -> None:
    class Stub:
        """The broker, and the database."""

        notices: ClassVar[list[str]] = []

        def run(self, _: str) -> str:
            return "CREATE TABLE"

        def fetch_views(self) -> list[str]:
            return ["Highest"]

        def notify(self, message: str) -> None:
            self.notices.append(message)

    stub: Any = Stub()
    written: list[str] = []
    Shell(stub, stub, written.append).run_text(
        "CREATE TABLE t FROM VIEW hIGHEST; CREATE TABLE u FROM VIEW Highst WITH KNOWLEDGE; CREATE TABLE v (a int)"
    )
    assert written == ["CREATE TABLE"] * 3
    (notice,) = stub.notices
    assert notice.startswith("the broker has no view Highst: it has Highest")


@pytest.mark.slow
def test_a_database(server: PrivateServer, broker: InProcessBroker) -> None:
    url = f"postgresql://{SUPERUSER}@127.0.0.1:{server.port}/postgres"
    text = """CREATE TEMP TABLE t (n integer, word text); INSERT INTO t VALUES (1, 'a;b'), (22, NULL);
    SELECT * FROM t; COPY t TO STDOUT; DO $$ BEGIN RAISE NOTICE 'hello'; END $$; BEGIN; ROLLBACK;
    SELECT * FROM Highest; \\d t"""
    done = invoke_smile("sql", "--url", broker.url, "--database", url, stdin=f"{text}\n")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == "NOTICE: hello\n"
    assert done.stdout.splitlines() == [
        "CREATE TABLE", "INSERT 0 2", "n  | word", "---+-----", " 1 | a;b", "22 | NULL", "(2 rows)", "1\ta;b", "22\t\\N", "DO", "BEGIN",
        "ROLLBACK", "issue | price", "------+------", "(0 rows)", "table t: n integer, word text",
    ]  # fmt: skip
    for statement, message in [
        ("SELECT 1,\n  nothing", 'statement:2:3: error 42703: column "nothing" does not exist\n    nothing\n    ^'),
        ("PUBLISH", "statement:1:8: error E158: expected an event type at the end of the statement"),
    ]:
        failed = invoke_smile("sql", "--url", broker.url, "--database", url, "-c", statement)
        assert failed.exit_code == 1
        assert message in failed.stderr
    unreachable = invoke_smile("sql", "--url", broker.url, "--database", "postgresql://127.0.0.1:1/x", "-c", "SELECT 1")
    assert (unreachable.exit_code, "E159" in unreachable.stderr) == (1, True)


# ── in a terminal ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_in_a_terminal(broker: InProcessBroker, tmp_path: Path) -> None:
    (tick,) = broker.publish("Bids", {"issue": "IBM", "price": 5})
    broker.rows("Highest", Bids=tick)
    with Terminal("sql", "--url", broker.url, with_errors=True, XDG_STATE_HOME=str(tmp_path / "state")) as terminal:
        terminal.read_until("smile=>")
        terminal.type(b"SELECT *\r")
        terminal.read_until(r"\.\.\.>")
        terminal.type(b"FROM Hig\t")
        terminal.read_until("Highest")
        terminal.type(b";\r")
        assert "IBM" in terminal.read_until("1 row")
        terminal.type(b"SELECT wrong FROM Highest;\r")
        terminal.read_until("E022")
        terminal.type(b"SUBSCRIBE Highest;\r")
        terminal.read_until("Highest: 1 row")
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until("smile=>")
        terminal.type(b"\\q\r")
        assert terminal.wait()[0] == 0
    assert "FROM Highest" in (tmp_path / "state" / "smile" / "sql_history").read_text()
