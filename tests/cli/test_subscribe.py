"""`smile subscribe`: a live table in a terminal, lines of JSON in a pipe, and a broker that comes and goes."""

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from smile.cli.view_display import LEGEND, ViewDisplay, progress_text
from smile.client.changes import Change, Frame, Schema
from smile.client.rows import Rows
from smile.client.ticks import TICKS_PER_SECOND
from smile.errors import SmileError
from smile.lang.conditions import parse_condition
from smile.source import Source
from tests.client.fake import Fake, row
from tests.processes import SMILE, WAIT_S, Terminal, clean_environment, invoke_smile


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    server.publish("a", "b", "a")
    yield server
    server.close()


def progress(fake: Fake) -> dict[str, Any]:
    return {"progress": {"S": str(fake.store.horizon)}}


# ── in a pipe ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_once(fake: Fake) -> None:
    done = invoke_smile("subscribe", "Counts", "--once", "--url", fake.url)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [row("a", 2), row("b", 1)]


def test_with_a_condition(fake: Fake) -> None:
    done = invoke_smile("subscribe", "Counts", "WHERE k = 'b'", "--once", SMILE_URL=fake.url)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [row("b", 1)]
    assert fake.subscriptions[-1]["where"] == {"k": "b"}


@pytest.mark.slow
def test_changes_in_a_pipe_survive_restarts(fake: Fake) -> None:
    command = [SMILE, "subscribe", "Counts", "--url", fake.url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None

        def read_messages(until: dict[str, Any]) -> list[Any]:
            lines: list[Any] = []
            for line in process.stdout or []:
                lines.append(json.loads(line))
                if lines[-1] == until:
                    return lines
            raise AssertionError(lines)

        assert read_messages(progress(fake)) == [row("a", 2), row("b", 1), progress(fake)]
        fake.publish("b")
        assert read_messages(progress(fake)) == [row("b", 2), progress(fake)]
        fake.stop()
        fake.store.publish("another", 99, [{"k": "c"}])
        fake.start()
        assert row("c", 1) in read_messages(progress(fake))
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_a_reader_who_has_had_enough(fake: Fake) -> None:
    command = f"{SMILE} subscribe Counts --url {fake.url} | head -n 1; echo ${{PIPESTATUS[0]}}"
    with subprocess.Popen(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == row("a", 2)
        # The next lines find no reader.
        for _ in range(100):
            fake.publish("a")
        out, errors = process.communicate(timeout=WAIT_S)
    assert (out, errors) == ("0\n", "")


def test_what_is_wrong(fake: Fake) -> None:
    done = invoke_smile("subscribe", "Count", "--url", fake.url)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "smile: error E021: there is no view Count\n  hint: Did you mean Counts?\n"
    done = invoke_smile("subscribe", "Counts", "WHERE k > 3", "--url", fake.url)
    assert done.exit_code == 2
    assert done.stderr == (
        "condition:1:9: error E099: expected = but found >\n  WHERE k > 3\n          ^\n"
        "  hint: Write column = value, or several such comparisons with AND. For other conditions, define a view.\n"
    )
    assert invoke_smile("subscribe", "Counts", "--once", "--changes", "--url", fake.url).exit_code == 2


# ── conditions ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("issue = 'IBM'", {"issue": "IBM"}),
        ("where issue = 'O''Hara' and price = 10", {"issue": "O'Hara", "price": 10}),
        ("WHERE #bid = -3 AND x = 1.5 AND y = TRUE AND z = false", {"#bid": -3, "x": 1.5, "y": True, "z": False}),
        ('WHERE "odd name" = 12345678901234567890', {"odd name": 12345678901234567890}),
        (
            "d = DATE '2024-05-31' AND b = x'00ff' AND i = INTERVAL '3 minutes'",
            {"d": "2024-05-31", "b": "\\x00ff", "i": "3 minutes"},
        ),
    ],
)
def test_conditions(text: str, expected: dict[str, Any]) -> None:
    condition = parse_condition(Source("condition", text))
    assert condition == expected
    assert [type(value) for value in condition.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    "text",
    ["", "WHERE", "k", "k =", "k = NULL", "k = v", "k = 'a' OR k = 'b'", "k = 'a' AND", "k = 'a' AND k = 'b'", "k = 'a",
     "k = (1)", "NOT k = 1", "k = 1 +", "k = - 'a'", "1 = 1", "k = 1; k = 2", "k <> 1", "k = DATE", "k == 1", "k = 1e999x"],
)  # fmt: skip
def test_no_conditions(text: str) -> None:
    with pytest.raises(SmileError):
        parse_condition(Source("condition", text))


# ── in a terminal ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_live_table(fake: Fake) -> None:
    with Terminal("subscribe", "Counts", "--url", fake.url) as terminal:
        assert "≥2" in terminal.read_until(r"2 rows, 0 final · known up to")
        fake.publish("a", "c")
        terminal.read_until(r"a +≥3\s+b +≥1\s+c +≥1\s+≥ may grow .*\s+Counts: 3 rows")
        fake.stop()
        terminal.read_until("connection lost; waiting for the broker")
        fake.store.publish("another", 99, [{"k": "d"}])
        fake.start()
        terminal.read_until(r"d +≥1\s+≥ may grow .*\s+Counts: 4 rows, 0 final · known up to")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == (0, "")


@pytest.mark.slow
def test_a_table_larger_than_the_terminal(fake: Fake) -> None:
    fake.publish(*(f"k{i:03}" for i in range(100)))
    with Terminal("subscribe", "Counts", "--url", fake.url, lines=12, columns=60) as terminal:
        terminal.read_until(r"… and 96 more\s+≥ may grow .*\s+Counts: 102 rows")
        fake.publish("zz")
        terminal.read_until(r"zz +≥1\s+… and 97 more")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == (0, "")


@pytest.mark.slow
def test_once_in_a_terminal_shows_all(fake: Fake) -> None:
    fake.publish(*(f"k{i:03}" for i in range(100)))
    with Terminal("subscribe", "Counts", "--once", "--url", fake.url, lines=12) as terminal:
        assert "k050" in terminal.read_until("102 rows, 0 final")
        assert terminal.wait() == (0, "")


def picture(messages: list[dict[str, Any]], now: float = 1_700_000_000.0, height: int | None = None) -> str:
    columns = {"k": "string", "n": "int", "m": "int"}
    schema = Schema.from_json({"subscribed": "V", "key": ["k"], "columns": columns, "streams": ["S"]})
    rows = Rows()
    rows.set_schema(schema)
    rows.deliver_frame(
        Frame([schema.decode_change(one) for one in messages], {"S": int((now - 1.5) * TICKS_PER_SECOND)}, reset=True)
    )
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(ViewDisplay(rows, lambda: True, lambda: now).render(80, height))
    return capture.get()


def test_the_signs_of_knowledge() -> None:
    base = {"view": "V", "final": False, "steps": 1}
    messages = [
        base | {"key": {"k": "b"}, "row": {"n": 17, "m": 5}, "knowledge": {"n": {"unknown": True}}},
        base | {"key": {"k": "a"}, "row": {"n": 4, "m": None}, "knowledge": {"n": {"exactly": 4}}, "final": True},
        base | {"key": {"k": "c"}, "row": {"n": 3, "m": 6}, "knowledge": {"n": {"between": [2, 5]}}},
    ]
    lines = [line.split() for line in picture(messages).splitlines()]
    assert lines == [
        ["k", "n", "m"], ["✓", "a", "=4", "NULL"], ["b", "17~", "5"], ["c", "3~", "[2..5]", "6"], LEGEND.split(),
        ["V:", "3", "rows,", "1", "final", "·", "known", "up", "to", "1.5", "s", "ago"],
    ]  # fmt: skip


def drawn(rows: Rows, display: ViewDisplay, width: int, height: int) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(display.render(width, height))
    return capture.get().splitlines()


def counted(schema: Schema, key: str, n: int, final: bool = False, deleted: bool = False) -> Change:
    message = {"view": "V", "key": {"k": key}, "final": final, "steps": 1}
    known = {"n": {"exactly": n} if final else {"at_least": n}}
    return schema.decode_change(message | ({"deleted": True} if deleted else {"row": {"n": n}, "knowledge": known}))


def test_some_of_the_rows_that_are_shown_are_final() -> None:
    """Of many rows that change all the time, and a few that became final before."""
    schema = Schema.from_json({"subscribed": "V", "key": ["k"], "columns": {"k": "string", "n": "int"}, "streams": []})
    rows, now = Rows(), [1_700_000_000.0]
    rows.set_schema(schema)
    display = ViewDisplay(rows, lambda: True, lambda: now[0])
    rows.changed(display.record_changes)

    def deliver(*changes: Change) -> None:
        notify = rows.deliver_frame(Frame(changes))
        assert notify is not None
        notify()

    deliver(*(counted(schema, f"closed{n}", n, final=True) for n in range(5)))
    for count in range(3):
        now[0] += 1
        deliver(*(counted(schema, f"open{n:02}", count) for n in range(50)))
    lines = drawn(rows, display, 80, 18)
    assert len(lines) <= 17
    assert len([line for line in lines if line.startswith("✓  closed")]) == 4
    assert len([line for line in lines if line.startswith("   open")]) == 8
    assert "… and 43 more" in lines

    deliver(counted(schema, "closed1", 0, final=True, deleted=True), counted(schema, "open49", 0, deleted=True))
    assert [line.split() for line in drawn(rows, display, 80, 18) if line.startswith("✗")] == [["✗", "closed1", "=1"]]
    now[0] += 3
    assert not [line for line in drawn(rows, display, 80, 18) if line.startswith("✗")]


@pytest.mark.usefixtures("five_hours_behind_utc")
def test_times_are_shorter_in_a_narrow_terminal() -> None:
    columns = {"first": "time", "second": "time", "issue": "string"}
    schema = Schema.from_json({"subscribed": "V", "key": ["first"], "columns": columns, "streams": []})
    tick, rows = (1_700_000_000_123_456 << 10), Rows()
    message = {"key": {"first": str(tick)}, "row": {"second": str(tick), "issue": "IBM"}, "knowledge": {}}
    rows.set_schema(schema)
    rows.deliver_frame(Frame([schema.decode_change(message | {"final": True, "steps": 1})], {}, reset=True))
    display = ViewDisplay(rows, lambda: True, lambda: 1_700_000_000.0)
    texts = {width: drawn(rows, display, width, 20)[1].split()[1:] for width in (80, 40, 30)}
    assert texts[80] == ["17:13:20.123456", "17:13:20.123456", "IBM"]
    assert texts[40] == ["17:13:20.123", "17:13:20.123", "IBM"]
    assert texts[30] == ["17:13:20", "17:13:20", "IBM"]


@pytest.mark.usefixtures("five_hours_behind_utc")
def test_ticks_are_local_times() -> None:
    columns = {"t": "time", "n": "int", "late": "time"}
    schema = Schema.from_json({"subscribed": "V", "key": ["t"], "columns": columns, "streams": ["S"]})
    tick = (1_700_000_000_000_000 << 10) + 3
    message = {"view": "V", "key": {"t": str(tick)}, "row": {"n": 5, "late": 17}, "final": False, "steps": 1}
    rows = Rows()
    rows.set_schema(schema)
    rows.deliver_frame(
        Frame(
            [schema.decode_change(message | {"knowledge": {"n": {"latest": 5, "at": str(tick)}}})],
            {"S": tick},
            reset=True,
        )
    )

    def shown(width: int, now: float) -> list[str]:
        console = Console(width=width, no_color=True)
        with console.capture() as capture:
            console.print(ViewDisplay(rows, lambda: True, lambda: now).render(width, None))
        return capture.get().splitlines()[1].split()

    assert shown(120, 1_700_000_000.0) == shown(46, 1_700_000_000.0) == ["17:13:20", "5@17:13:20", "17"]
    assert shown(120, 1_700_086_400.0) == ["2023-11-14", "17:13:20", "5@2023-11-14", "17:13:20", "17"]


def test_a_nested_relation_gives_way_to_the_other_columns() -> None:
    columns = {"issue": "string", "n": "int", "trades": "relation{t: time, price: int}"}
    schema = Schema.from_json({"subscribed": "V", "key": ["issue"], "columns": columns, "streams": ["S"]})
    trades = [{"t": tick, "price": 100} for tick in range(20)]
    message = {
        "view": "V", "key": {"issue": "International"}, "row": {"n": 123456, "trades": trades}, "final": False, "steps": 1,
        "knowledge": {"n": {"unknown": True}, "trades": {"rows": ["final"] * 20, "open": True}},
    }  # fmt: skip
    rows = Rows()
    rows.set_schema(schema)
    rows.deliver_frame(Frame([schema.decode_change(message)], {"S": 1}, reset=True))
    for width in (60, 80):
        console = Console(width=width, no_color=True)
        with console.capture() as capture:
            console.print(ViewDisplay(rows, lambda: True, lambda: 0.0).render(width, None))
        header, row = capture.get().splitlines()[:2]
        assert header.split() == ["issue", "n", "trades"]
        assert row.split()[:4] == ["International", "123456~", "{t", "0,"]
        assert row.rstrip().endswith("…")
        assert len(row.rstrip()) <= width


def test_how_far_it_is_known() -> None:
    now = 1_700_000_000.0
    tick = int(now * TICKS_PER_SECOND)
    assert progress_text({"A": tick, "B": tick - 2 * TICKS_PER_SECOND}, now) == "2.0 s ago"
    ages = {59: "59.0 s ago", 60: "1 min ago", 7000: "1 h ago", 700_000: "8 days ago"}
    assert [progress_text({"A": tick - age * TICKS_PER_SECOND}, now) for age in ages] == list(ages.values())
    assert progress_text({"A": 17}, now) == "tick 17 of A"
    assert progress_text({"A": -1, "B": 5}, now) == "nothing of A"
    assert progress_text({"A": 2**63 - 1}, now) == "the end of A"
