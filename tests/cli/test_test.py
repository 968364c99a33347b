"""`smile test`: what it prints, which files it runs, its exit codes, and `--accept`."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import smile.cli.spark_process
from tests.cli.test_replay_on_spark import SharedJava
from tests.processes import invoke_smile
from tests.testing.test_runs import FILE

PROGRAM, _, REST = FILE.removeprefix("--- program\n").partition("--- events")
WRONG = FILE.replace("| =13   |", "| =12   |")
ACCEPT = "  If the rows that are shown are right, accept them: smile test --accept"


def output(*words: str, cwd: Path) -> tuple[int, list[str]]:
    """The exit code, and the lines of both outputs."""
    result = invoke_smile("test", *words, cwd=cwd)
    return result.exit_code, result.output.splitlines()


def test_a_file_passes(tmp_path: Path) -> None:
    (tmp_path / "orders.test").write_text(FILE)
    assert output(cwd=tmp_path) == (0, ["passed: orders.test", "1 test file: 1 passed"])


def test_a_difference_fails(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "orders.smile").write_text(PROGRAM)
    (tmp_path / "tests" / "a.test").write_text(WRONG)
    (tmp_path / "tests" / "b.test").write_text(f"--- program ../orders.smile\n--- events{REST}")
    exit_code, lines = output("tests", cwd=tmp_path)
    assert exit_code == 1
    assert lines == [
        "[1/2] failed: tests/a.test",
        "tests/a.test:34: --- rows end: 1 row differs  (- expected, + shown)",
        "         Total | cents |",
        "    39 -       | =12   | final",
        "       +       | =13   | final",
        "[2/2] passed: tests/b.test",
        "2 test files: 1 passed, 1 failed",
        "  failed: tests/a.test",
        ACCEPT,
    ]


def test_accepted_rows_pass(tmp_path: Path) -> None:
    """What changes is shown. A link stays a link, and files that pass are not touched."""
    (tmp_path / "real.txt").write_text(WRONG)
    (tmp_path / "a.test").symlink_to("real.txt")
    (tmp_path / "b.test").write_text(FILE)
    before = (tmp_path / "b.test").stat().st_mtime_ns
    exit_code, lines = output("--accept", cwd=tmp_path)
    assert exit_code == 0
    assert lines[0] == "[1/2] accepted: a.test"
    assert "       +       | =13   | final" in lines
    assert lines[-1] == "2 test files: 1 passed, 1 accepted"
    assert (tmp_path / "a.test").is_symlink()
    assert (tmp_path / "real.txt").read_text() == FILE
    assert (tmp_path / "b.test").stat().st_mtime_ns == before
    assert output(cwd=tmp_path) == (0, ["[1/2] passed: a.test", "[2/2] passed: b.test", "2 test files: 2 passed"])


def test_a_file_that_cannot_be_run_does_not_stop_the_others(tmp_path: Path) -> None:
    """Each says where it is wrong. Nothing of it is accepted."""
    files = {
        "a.test": FILE.replace("Orders @2m", "Orders 2m"),
        "b.test": FILE.replace("COUNT(*) AS n", "COUNT(*) n n"),
        "c.test": FILE.replace('"cents": 7', '"cents": "seven"'),
        "d.test": "--- program none.smile\n--- rows end\n",
    }
    for name, text in {**files, "e.test": FILE}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "f.test").write_bytes(b"--- program \xff")
    exit_code, lines = output("--accept", cwd=tmp_path)
    assert exit_code == 1
    text = "\n".join(lines)
    assert "a.test:10:1: error E169: 'Orders 2m" in text
    assert "b.test:4:" in text and "error E010: unexpected n" in text
    assert "c.test:10:1: error E078" in text
    assert "d.test:1:1: error E169: none.smile cannot be read" in text
    assert "error E169: f.test is not UTF-8 text" in text
    assert lines[-6] == "6 test files: 1 passed, 5 not run"
    assert lines[-5:] == [f"  not run: {name}" for name in (*files, "f.test")]
    assert {name: (tmp_path / name).read_text() for name in files} == files


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.test").write_text(WRONG)
    (tmp_path / ".a.test.new").mkdir()  # where the new text would be written first
    exit_code, lines = output("--accept", cwd=tmp_path)
    assert exit_code == 1
    assert any("error E169: a.test cannot be written" in line for line in lines)
    assert (tmp_path / "a.test").read_text() == WRONG


def test_which_files_are_run(tmp_path: Path) -> None:
    """Those in folders below, but for hidden ones; a file by its name, whatever that is; each once."""
    for name in ("a.test", "deep/er/b.test", ".venv/c.test", "deep/notes.txt", "d.other"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(FILE)
    assert [line.rpartition(" ")[2] for line in output(cwd=tmp_path)[1][:-1]] == ["a.test", "deep/er/b.test"]
    assert output("a.test", ".", "-k", "A.", cwd=tmp_path)[1] == ["passed: a.test", "1 test file: 1 passed"]
    assert output("d.other", cwd=tmp_path)[1] == ["passed: d.other", "1 test file: 1 passed"]
    assert output(".venv", cwd=tmp_path)[1] == ["passed: .venv/c.test", "1 test file: 1 passed"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none",), "there is no file or folder none"),
        (("empty",), "there is no file *.test in empty"),
        (("-k", "xyz"), "none of the 1 test files has 'xyz' in its path"),
        (("--engine", "other"), "other"),
    ],
)
def test_misuse(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "a.test").write_text(FILE)
    (tmp_path / "empty").mkdir()
    exit_code, lines = output(*words, cwd=tmp_path)
    assert (exit_code, message in " ".join(lines)) == (2, True), lines


def test_imported_streams(tmp_path: Path) -> None:
    """Their types come from `--imports`, their events from the file. Imported views have no recorded rows."""
    (tmp_path / "there.smile").write_text(PROGRAM)
    types = invoke_smile("explain", "there.smile", "--as", "exports", "--broker", "there", cwd=tmp_path).stdout
    assert json.loads(types)
    (tmp_path / "types.json").write_text(types)
    statements = PROGRAM.replace(
        "CREATE STREAM Orders (t: time -> customer: string NOT NULL, cents: int);", "IMPORT Orders FROM there;"
    )
    (tmp_path / "a.test").write_text(f"--- program\n{statements}\n--- events{REST}")
    assert output("--imports", "types.json", cwd=tmp_path)[0] == 0
    assert output(cwd=tmp_path)[0] == 1
    view = "IMPORT Total FROM there; SUBSCRIBE Total;"
    (tmp_path / "a.test").write_text(f"--- program\n{view}\n--- rows end\n")
    exit_code, lines = output("--imports", "types.json", cwd=tmp_path)
    assert exit_code == 1
    assert any("E048: recorded events have no rows of the imported view Total" in line for line in lines)


def test_on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same rows and changes, and the same wrong row."""
    monkeypatch.setattr(SharedJava, "session_of_tests", spark, raising=False)
    monkeypatch.setattr(smile.cli.spark_process, "JavaProcess", SharedJava)
    (tmp_path / "a.test").write_text(FILE)
    (tmp_path / "b.test").write_text(WRONG.replace("| 13 ?  | stays", "| 11 ?  | stays"))
    exit_code, lines = output("--engine", "spark", cwd=tmp_path)
    assert exit_code == 1
    assert lines[:4] == [
        "smile: Spark is starting",
        "[1/2] passed: a.test",
        "[2/2] failed: b.test",
        "b.test:28: --- changes 4: 1 row differs  (- expected, + shown)",
    ]
    assert "       +       | =13   | final" in lines
