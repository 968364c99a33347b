"""`smile init` makes a project in which everything works that its README says, and never touches what is there."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from smile.lang import format_program
from smile.source import Source
from tests.docs import ROOT
from tests.processes import WAIT_S, clean_environment, free_port, invoke_smile
from tests.test_readme_broker import terminal, wait_for

FILES = {".gitignore", "README.md", "orders.ndjson", "shop.smile", "tests/busy.test"}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def made(folder: Path) -> Path:
    assert invoke_smile("init", str(folder)).exit_code == 0
    return folder


def test_a_project_is_made(tmp_path: Path) -> None:
    """It says what it made and what to do next; the paths and commands are right where it says them."""
    done = invoke_smile("init", "new/shop", cwd=tmp_path)
    assert done.exit_code == 0
    assert files(tmp_path) == {f"new/shop/{name}" for name in FILES}
    first, _, following = done.stdout.partition("\n")
    assert set(first.removeprefix("made ").split(", ")) == {f"new/shop/{name}" for name in FILES}
    commands = re.findall(r"^  (\S.*?)(?:  +#.*)?$", following, re.MULTILINE)
    assert commands == ["cd new/shop", "smile test", "smile serve shop.smile --engine local"]


def test_what_it_makes_is_right(tmp_path: Path) -> None:
    """The test passes, and can fail; the program has no warning, and is in the style."""
    folder = made(tmp_path / "shop")
    checked = invoke_smile("check", "shop.smile", cwd=folder)
    assert (checked.exit_code, "warning" in checked.output) == (0, False)
    text = (folder / "shop.smile").read_text()
    assert format_program(Source("shop.smile", text)) == text
    assert invoke_smile("test", cwd=folder).output == "passed: tests/busy.test\n1 test file: 1 passed\n"
    (folder / "shop.smile").write_text(text.replace(">= 3", ">= 2"))
    assert invoke_smile("test", cwd=folder).exit_code == 1


def test_an_empty_folder_and_a_repository_are_used(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").touch()
    done = invoke_smile("init", ".", cwd=tmp_path)
    assert (done.exit_code, "cd " in done.stdout) == (0, False)
    assert files(tmp_path) == {*FILES, ".git/HEAD"}


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "README.md"])
def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    done = invoke_smile("init", str(tmp_path))
    assert done.exit_code == 1
    assert f"error E170: the folder {tmp_path} is not empty: it has {name}\n" in done.stderr
    assert files(tmp_path) == {name}
    assert (tmp_path / name).read_text() == "mine"


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in ("file", "file/shop"):
        done = invoke_smile("init", path, cwd=tmp_path)
        assert (done.exit_code, "error E170: " in done.stderr) == (1, True)
    assert (tmp_path / "file").read_text() == "mine"
    assert invoke_smile("init").exit_code == 2


# ── the README ──────────────────────────────────────────────────────────────────────────────────────────────────────

README = (ROOT / "src/smile/cli/project/README.md").read_text()
COMMAND = re.compile(r"^.*<<'END'\n(?:.*\n)*?END$|^.+$", re.MULTILINE)


def commands() -> list[str]:
    """All commands of the README, in its order; one that reads the following lines has them."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [command for block in blocks for command in COMMAND.findall(block)]


def test_all_commands_are_found() -> None:
    assert (
        sum(command.startswith("smile ") for command in commands())
        == len(re.findall("^smile ", README, re.MULTILINE))
        >= 12
    )
    assert [c for c in commands() if not c.startswith(("smile ", "cat >> shop.smile <<'END'\n"))] == []


@pytest.mark.slow
def test_every_command_of_the_readme_works(tmp_path: Path) -> None:
    """In its order: the broker and the first subscriber in terminals of their own; at last its Python."""
    folder = made(tmp_path / "shop")
    address = f"127.0.0.1:{free_port()}"
    variables = {"SMILE_FLIGHT": "", "SMILE_LISTEN": address, "SMILE_URL": f"http://{address}"}
    env = clean_environment(**variables)
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    exit_codes = []
    with ExitStack() as terminals:
        for command in commands():
            if command == "smile serve shop.smile --engine local":
                terminals.enter_context(terminal(command, folder, env, "broker.log"))
                wait_for(folder / "broker.log", "listening on")
            elif command == "smile subscribe PerMinute":
                terminals.enter_context(terminal(command, folder, env, "watched.log"))
                wait_for(folder / "watched.log", '"progress"')
            elif command.startswith("smile "):
                exit_codes.append((command, invoke_smile(*shlex.split(command)[1:], cwd=folder, **variables).exit_code))
            else:
                subprocess.run(command, shell=True, cwd=folder, check=True, timeout=WAIT_S)
        wait_for(folder / "watched.log", '"orders":3')
        (python,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
        shown = subprocess.run([sys.executable, "-c", python], env=env, capture_output=True, text=True, timeout=WAIT_S)
    assert "Spent customer ann: cents ≥855" in shown.stdout.splitlines(), shown
    failed = [command for command, exit_code in exit_codes if exit_code]
    assert failed == ["smile test"], "it fails once, before the rows of the new view are accepted"
