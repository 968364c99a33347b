"""With only some of the extras installed, what they are for works, and everything else says in one sentence what to install.

Here the libraries of the other extras are made impossible to import. `tests/test_packages.py` installs the extras.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smile.extras import EXTRAS
from tests.client.fake import Fake
from tests.processes import WAIT_S, clean_environment

PROGRAMS = Path(__file__).parents[2] / "programs"
TEST_FILE = str(PROGRAMS.parent / "tests" / "programs" / "filter.test")
FLOOR, EVENTS = str(PROGRAMS / "tradefloor.smile"), str(PROGRAMS / "tradefloor.events")

HOOK = """
import sys
class Missing:
    @staticmethod
    def find_spec(name, *_):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing)
"""
COMMAND = """
from smile.cli.entry import main
main()
"""


def run_with(extras: tuple[str, ...], code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python code where only `websockets` and the libraries of these extras can be imported."""
    installed = frozenset().union(*(EXTRAS[extra] for extra in extras))
    missing = sorted(frozenset().union(*EXTRAS.values()) - installed)
    return subprocess.run(
        [sys.executable, "-c", HOOK.format(missing=missing) + code, *words],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    yield server
    server.close()


CLIENT = """
import smile
from smile.client import connect
with connect(sys.argv[1]) as client:
    client.publish("S", [{"k": "a"}, {"k": "b"}])
    client.publish("S", ({"k": "c"} for _ in range(3)))
    rows = client.snapshot("Counts", after={"S": 2**60})
    print(sorted(row.key["k"] for row in rows))
    for convert in (rows.to_arrow, rows.to_pandas, rows.to_polars):
        try:
            convert()
        except smile.SmileError as problem:
            print(problem.code, problem.hint)
"""


def test_the_client_alone(fake: Fake, tmp_path: Path) -> None:
    done = run_with((), CLIENT, fake.url, cwd=tmp_path)
    hint = 'E167 Install it: pip install "smile-pubsub[frames]".'
    assert (done.stdout.splitlines(), done.stderr) == (["['a', 'b', 'c']", hint, hint, hint], "")


def test_data_frames(fake: Fake, tmp_path: Path) -> None:
    code = CLIENT.replace('[{"k": "a"}, {"k": "b"}]', '__import__("pandas").DataFrame({"k": ["a", "b"]})')
    done = run_with(("frames",), code, fake.url, cwd=tmp_path)
    assert (done.stdout.splitlines(), done.stderr) == (["['a', 'b', 'c']"], "")


CLI, BROKER = ("cli",), ("cli", "broker")


@pytest.mark.parametrize(
    ("extras", "words", "library", "extra"),
    [
        ((), ("publish", "S", "{}"), "typer", "cli"),
        (CLI, ("check", FLOOR), "lark", "broker"),
        (CLI, ("test", TEST_FILE), "lark", "broker"),
        (CLI, ("apply", FLOOR), "lark", "broker"),
        (CLI, ("serve", FLOOR), "lark", "broker"),
        (CLI, ("demo", "stocks"), "pyspark", "spark"),
        (CLI, ("postgres", "install", "postgresql:///none"), "psycopg", "postgres"),
        (CLI, ("sql", "--database", "postgresql:///none", "-c", "SELECT 1"), "psycopg", "postgres"),
        (BROKER, ("replay", FLOOR, "--events", EVENTS), "pyspark", "spark"),
        (BROKER, ("test", TEST_FILE, "--engine", "spark"), "pyspark", "spark"),
        (BROKER, ("serve", FLOOR), "pyspark", "spark"),
        (BROKER, ("lsp",), "lsprotocol", "lsp"),
    ],
    ids=lambda value: "-".join(Path(word).name for word in value) if isinstance(value, tuple) else None,
)
def test_a_missing_extra_is_named(
    extras: tuple[str, ...], words: tuple[str, ...], library: str, extra: str, tmp_path: Path
) -> None:
    done = run_with(extras, COMMAND, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"smile: error E167: this needs {library}, which is not installed\n"
        f'  hint: Install it: pip install "smile-pubsub[{extra}]".\n'
    )


@pytest.mark.parametrize(
    ("extras", "words", "exit_code", "output"),
    [
        (CLI, ("--help",), 0, "subscribe"),
        (CLI, ("init", "shop"), 0, "shop/shop.smile"),
        (CLI, ("token", "alice", "--data", "data"), 0, "smile_"),
        (CLI, ("subscribe", "Counts", "--once"), 1, "E103"),
        (CLI, ("sql", "-c", "SELECT * FROM Counts"), 1, "E103"),
        (BROKER, ("test", TEST_FILE), 0, "1 passed"),
        (BROKER, ("replay", FLOOR, "--events", EVENTS, "--engine", "local"), 0, '"view":"Matchable"'),
    ],
    ids=lambda value: "-".join(Path(word).name for word in value) if isinstance(value, tuple) else None,
)
def test_what_an_extra_is_for_works(
    extras: tuple[str, ...], words: tuple[str, ...], exit_code: int, output: str, tmp_path: Path
) -> None:
    done = run_with(
        extras, 'import os; os.environ["SMILE_URL"] = "http://127.0.0.1:1"\n' + COMMAND, *words, cwd=tmp_path
    )
    assert (done.returncode, output in done.stdout + done.stderr) == (exit_code, True), done.stderr


def test_a_broker_without_spark(tmp_path: Path) -> None:
    """It listens, and is stopped by the test: nothing that it imports is missing."""
    code = """
import os, signal, threading
import smile.gateway.serve as serving
serving.run = lambda *_, **__: print("serving")
"""
    done = run_with(
        BROKER, code + COMMAND, "serve", FLOOR, "--engine", "local", "--listen", "127.0.0.1:0", cwd=tmp_path
    )
    assert (done.returncode, "serving" in done.stdout) == (0, True), done.stderr


def test_publishing_with_the_command(fake: Fake, tmp_path: Path) -> None:
    done = run_with(CLI, COMMAND, "publish", "S", '{"k":"a"}', "--url", fake.url, cwd=tmp_path)
    assert (done.returncode, done.stderr.startswith("1 event published")) == (0, True), done.stderr
    assert [k for _, k in fake.store.events] == ["a"]
