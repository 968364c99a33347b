"""`smile replay` in this process, as its user runs it: what comes out, and what is said when something is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from smile.cli.main import app

SMILE = Path(sys.executable).parent / "smile"
ROOT = Path(__file__).parents[2]
LOCAL = ("--engine", "local")
PROGRAM = """\
CREATE STREAM S (t: time -> a: string, n: shares);
CREATE VIEW Sums AS SELECT a, SUM(n) AS total FROM S GROUP BY a;
CREATE VIEW Count AS SELECT COUNT(*) AS n FROM S;
SUBSCRIBE Sums, Count;
"""
EVENTS = """\
{"stream":"S","at":10,"event":{"a":"x","n":3}}
{"stream":"S","at":12,"event":{"a":"y","n":4}}
{"stream":"S","at":17,"event":{"a":"x","n":5}}
{"silence_to":20}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "sums.smile"
    path.write_text(PROGRAM)
    return str(path)


def events(tmp_path: Path, text: str = EVENTS) -> str:
    path = tmp_path / "sums.events"
    path.write_text(text)
    return str(path)


def replay(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["replay", *LOCAL, *args], input=stdin)


def rows(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_rows_of_subscribed_views(program: str, tmp_path: Path) -> None:
    result = replay(program, "--events", events(tmp_path))
    shown = {(r["view"], str(r["key"])): (r["row"], r["knowledge"], r["final"]) for r in rows(result)}
    assert shown == {
        ("Sums", "{'a': 'x'}"): ({"total": 8}, {"total": {"at_least": 8}}, False),
        ("Sums", "{'a': 'y'}"): ({"total": 4}, {"total": {"at_least": 4}}, False),
        ("Count", "{}"): ({"n": 3}, {"n": {"at_least": 3}}, False),
    }
    assert "3 events in" in result.stderr
    assert "rows changed; state:" in result.stderr


def test_at_the_end_all_is_final(program: str, tmp_path: Path) -> None:
    assert all(r["final"] for r in rows(replay(program, "--events", events(tmp_path), "--end")))


def test_one_view(program: str, tmp_path: Path) -> None:
    assert [r["view"] for r in rows(replay(program, "--events", events(tmp_path), "--view", "Count"))] == ["Count"]
    result = replay(program, "--events", events(tmp_path), "--view", "Sum")
    assert result.exit_code == 2
    assert "there is no stream or view Sum" in result.stderr


def test_changes_and_progress(program: str, tmp_path: Path) -> None:
    messages = rows(replay(program, "--events", events(tmp_path), "--changes", "--batch", "1", "--view", "Sums"))
    assert [m.get("row", {}).get("total") or m["progress"]["S"] for m in messages] == [3, 10, 4, 12, 8, 17, 20]


def test_standard_input_and_ticks_that_count_up(program: str) -> None:
    lines = '{"stream":"S","event":{"a":"x","n":1}}\n{"stream":"S","event":{"a":"x","n":2}}\n'
    messages = rows(replay(program, "--events", "-", "--changes", "--view", "Count", stdin=lines))
    assert messages[0]["row"] == {"n": 0}
    assert messages[-1] == {"progress": {"S": 1}}


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_no_events(program: str, tmp_path: Path, text: str) -> None:
    (count,) = rows(replay(program, "--events", events(tmp_path, text)))
    assert (count["view"], count["row"]) == ("Count", {"n": 0})


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"stream":"T","at":30,"event":{"a":"x","n":3}}', "E076"),
        ('{"stream":"S","at":30,"event":{"a":"x","n":3,"m":1}}', "E077"),
        ('{"stream":"S","at":30,"event":{"a":"x","n":"three"}}', "E078"),
        ('{"stream":"S","at":30,"event":{"a":"x","n":true}}', "E078"),
        ('{"stream":"S","at":30,"event":{"a":"x","n":-3}}', "E080"),
        ('{"stream":"S","at":17,"event":{"a":"x","n":6}}', "E082"),
        ('{"stream":"S","at":15,"event":{"a":"x","n":6}}', "E081"),
        ('{"stream":"S","at":30,"event":{"a":"x","n":3}', "E073"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(program: str, tmp_path: Path, line: str, code: str) -> None:
    path = events(tmp_path, EVENTS + line + "\n")
    result = replay(program, "--events", path)
    assert result.exit_code == 1
    assert f"{path}:5:" in result.stderr
    assert f"error {code}: " in result.stderr
    skipped = replay(program, "--events", path, "--skip-bad")
    assert len(rows(skipped)) == 3
    assert "1 line refused" in skipped.stderr
    (bad,) = [json.loads(b) for b in Path(path + ".bad").read_text().splitlines()]
    assert (bad["line"], bad["code"], bad["text"]) == (5, code, line)


def test_a_duplicate_changes_nothing(program: str, tmp_path: Path) -> None:
    result = replay(program, "--events", events(tmp_path, EVENTS + EVENTS))
    assert [r["row"] for r in rows(result) if r["view"] == "Count"] == [{"n": 3}]
    assert "3 duplicates dropped" in result.stderr


def test_a_file_that_is_not_there(program: str, tmp_path: Path) -> None:
    result = replay(program, "--events", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert result.stderr.startswith("smile: error E070: ")
    assert "Traceback" not in result.stderr


def test_a_join_that_cannot_be_kept(tmp_path: Path) -> None:
    """Rows without a match would share a key with pairs: said where the join is."""
    path = tmp_path / "full.mmpl"
    path.write_text(
        "STREAM A (t: time -> k: string, n: int);\nSTREAM B (u: time -> j: string, m: int);\n"
        "VIEW V := A SUMMARIZE PER {k} ADD {c := COUNT()} FULL JOIN (B SUMMARIZE PER {j} ADD {d := COUNT()}) ON {k = j}"
        " WHEN c > d;\nSUBSCRIBE V;\n"
    )
    result = replay(str(path), "--events", events(tmp_path, ""))
    assert result.exit_code == 1
    assert "E051" in result.stderr
    assert "Traceback" not in result.stderr


def test_state_that_is_kept(program: str, tmp_path: Path) -> None:
    """A run that was stopped continues from its state: changes that it printed are not printed again."""
    state = str(tmp_path / "state")
    lines = EVENTS.splitlines(keepends=True)
    first = ["--changes", "--batch", "1", "--view", "Sums", "--state", state]
    messages = rows(replay(program, "--events", events(tmp_path, "".join(lines[:2])), *first))
    assert [m["row"]["total"] for m in messages if "row" in m] == [3, 4]
    messages = rows(replay(program, "--events", events(tmp_path), *first))
    assert [m["row"]["total"] for m in messages if "row" in m] == [8]
    for path in sorted(Path(state, "in-process").iterdir())[-2:]:
        path.write_bytes(path.read_bytes()[:-1])
    result = replay(program, "--events", events(tmp_path), *first)
    assert "is damaged" in result.stderr
    assert [m["row"]["total"] for m in rows(result) if "row" in m] == [8]
    other = replay(program, "--events", events(tmp_path), "--state", state)
    assert other.exit_code == 1
    assert "E065" in other.stderr


def test_figures_count_lines_that_make_no_frame(program: str, tmp_path: Path) -> None:
    path = events(tmp_path, "no event\n" * 3)
    for batch in ("1", "2", "100"):
        assert "3 lines refused" in replay(program, "--events", path, "--skip-bad", "--batch", batch).stderr


def test_views_that_nobody_asked_for_are_not_run(tmp_path: Path) -> None:
    path = tmp_path / "two.smile"
    path.write_text(PROGRAM.replace("SUBSCRIBE Sums, Count", "SUBSCRIBE Count"))
    result = replay(str(path), "--events", events(tmp_path))
    assert [r["view"] for r in rows(result)] == ["Count"]
    assert "state: 2 rows" in result.stderr


def test_the_events_are_not_overwritten(program: str, tmp_path: Path) -> None:
    path = events(tmp_path)
    result = replay(program, "--events", path, "--skip-bad", "--bad-file", path)
    assert result.exit_code == 2
    assert Path(path).read_text() == EVENTS


def test_misuse(program: str) -> None:
    assert replay("-", "--events", "-", stdin=PROGRAM).exit_code == 2
    assert replay(program, "--events", "-", "--bad-file", "x", stdin="").exit_code == 2
    assert replay(program).exit_code == 2
    assert replay(program, "--events", "-", "--batch", "0", stdin="").exit_code == 2
    assert replay(program, "--events", "-", "--engine", "flink", stdin="").exit_code == 2


@pytest.mark.slow
def test_a_full_disk(program: str, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [SMILE, "replay", *LOCAL, program, "--events", events(tmp_path)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert "the output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_reader_that_has_had_enough(program: str, tmp_path: Path) -> None:
    many = "".join(f'{{"stream":"S","event":{{"a":"k{n}","n":1}}}}\n' for n in range(20_000))
    command = f"{SMILE} replay {' '.join(LOCAL)} {program} --events {events(tmp_path, many)} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert json.loads(done.stdout)["view"] == "Sums"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_interrupt_leaves_whole_lines(program: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [str(SMILE), "replay", *LOCAL, program, "--events", "-", "--changes", "--batch", "1"]
    block = b'{"stream":"S","event":{"a":"k","n":1}}\n' * 8_000
    deadline = time.monotonic() + 300
    said = tmp_path / "said"
    with out.open("wb") as sink, said.open("wb") as errors:
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink, stderr=errors)
        assert running.stdin is not None
        with running.stdin:
            running.stdin.write(block)
            running.stdin.flush()
            while not out.stat().st_size and time.monotonic() < deadline:
                time.sleep(0.05)
            while running.poll() is None and time.monotonic() < deadline:
                if "interrupted" not in said.read_text():
                    running.send_signal(signal.SIGINT)  # again, since one may be lost in a library's callback
                with suppress(subprocess.TimeoutExpired):
                    running.wait(30)
            running.kill()
        running.wait()
    output = said.read_text()
    assert running.returncode == 130, output
    assert "interrupted" in output
    lines = out.read_bytes()
    assert lines.endswith(b"\n")
    assert all(json.loads(line) for line in lines.splitlines())


def test_recorded_events_of_the_example_programs() -> None:
    for path in sorted((ROOT / "programs").glob("*.smile")):
        result = replay(str(path), "--events", str(path.with_suffix(".events")), "--end")
        shown = rows(result)
        assert shown, path
        assert all(row["final"] for row in shown), path


@pytest.mark.slow
def test_no_bar_where_nobody_sees_it(program: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        [SMILE, "replay", *LOCAL, program, "--events", events(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert len(done.stderr.splitlines()) == 1
