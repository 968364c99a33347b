"""The tutorial of docs/postgres.md, done as it says: a broker in one terminal, and the statements in the shell."""

import re
from pathlib import Path

import pytest

from tests.docs import ROOT
from tests.postgres.documented_commands import Shell, shell
from tests.postgres.server import Server
from tests.processes import free_port, wait_until
from tests.test_readme_broker import terminal, wait_for

BLOCK = re.compile(r"^```(sh|sql|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.search(
    r"^## Ten minutes\n(.*?)^## ", (ROOT / "docs" / "postgres.md").read_text(), re.MULTILINE | re.DOTALL
)


def wait_for_output(opened: Shell, command: str, expected: str) -> None:
    """Runs a query until it prints this."""
    printed = ""

    def is_printed() -> bool:
        nonlocal printed
        printed = opened.run(command)
        return printed.strip() == expected.strip()

    try:
        wait_until(is_printed, f"this is not printed: {expected}")
    except AssertionError as problem:
        raise AssertionError(f"{problem}\nbut this: {printed}") from None


@pytest.mark.slow
def test_the_tutorial(server: Server, tmp_path: Path) -> None:
    assert SECTION
    blocks = BLOCK.findall(SECTION[1].replace("7400", str(free_port())))
    (create, serve, open_shell), blocks = [body.strip() for _, body in blocks[:3]], blocks[3:]
    assert [kind for kind, _ in blocks].count("") == 3
    with shell(server, tmp_path, ["shop"]) as opened:
        opened.run(create)
        with terminal(f"{serve} --flight ''", tmp_path, opened.environment, "broker.output"):
            wait_for(tmp_path / "broker.output", "waiting for the first event type")
            for (kind, body), (next_kind, next_body) in zip(blocks, [*blocks[1:], ("sql", "")], strict=True):
                command = f"{open_shell} <<'END'\n{body}\nEND"
                if next_kind == "":
                    wait_for_output(opened, command, next_body)
                elif kind == "sql":
                    opened.run(command)
