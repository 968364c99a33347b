"""The networks of databases in programs/postgres, run by the commands of their READMEs: what arrives, and what does not."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.docs import ROOT
from tests.postgres.documented_commands import PORT, Shell, shell, shell_blocks, wait_for_rows
from tests.postgres.server import Server
from tests.processes import free_port
from tests.test_readme_broker import terminal, wait_for

pytestmark = pytest.mark.slow

FOLDER = ROOT / "programs" / "postgres"


def copy_network(name: str, folder: Path) -> list[str]:
    """Copies a network, with ports that are free, and returns the commands of its README."""
    ports: dict[str, int] = {}
    for path in (FOLDER / name).iterdir():
        text = PORT.sub(lambda m: f"127.0.0.1{m[1]}{ports.setdefault(m[2], free_port())}", path.read_text())
        (folder / path.name).write_text(text)
    return shell_blocks((folder / "README.md").read_text())


@contextmanager
def brokers(opened: Shell, commands: dict[str, str]) -> Iterator[None]:
    """A terminal for each broker, in which its command runs."""
    with ExitStack() as stack:
        for name, command in commands.items():
            stack.enter_context(terminal(command, opened.folder, opened.environment, f"{name}.output"))
        for name in commands:
            wait_for(opened.folder / f"{name}.output", "ready")
        yield


def logged_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_healthcare(server: Server, tmp_path: Path) -> None:
    create, grant, run_sql, *serve, act, look = copy_network("healthcare", tmp_path)
    names = ("hospital", "pharmacy", "auditor", "home")
    with shell(server, tmp_path, names) as opened:
        for command in (create, grant, run_sql):
            opened.run(command)
        with brokers(opened, dict(zip(names, serve, strict=True))):
            opened.run(act)
            columns = "number, drug, dosage, prescriber"
            wait_for_rows(
                opened,
                "pharmacy",
                f"SELECT {columns}, birth_year FROM dispensary",
                [
                    ["1", "amoxicillin", "500 mg three times a day", "Dr. Brown", "1950"],
                    ["2", "morphine", "10 mg every four hours", "Dr. Green", "1981"],
                ],
            )
            audited = [["2", "morphine", "10 mg every four hours", "Dr. Green"]]
            wait_for_rows(opened, "auditor", f"SELECT {columns} FROM controlled_drugs", audited)
            wait_for_rows(opened, "hospital", "TABLE notices", [["Dr. Brown", "1", "a rash on both arms"]])
            # An observation of a prescription that the hospital does not have concerns no doctor.
            opened.run("""smile sql --database postgresql:///home -c "PUBLISH Observation(9, 'unknown')" """)
            opened.run("""smile sql --database postgresql:///home -c "PUBLISH Observation(2, 'no pain')" """)
            informed = [["Dr. Brown", "1", "a rash on both arms"], ["Dr. Green", "2", "no pain"]]
            wait_for_rows(opened, "hospital", "TABLE notices", informed)
            opened.run(look)
            # Later ones follow, and the auditor has still only the controlled ones.
            later = "(4, 'Ada Smith', 1950, 'sleeps badly', 'diazepam', '5 mg', true, 'Dr. Brown')"
            opened.run(f'smile sql --database postgresql:///hospital -c "INSERT INTO prescriptions VALUES {later}"')
            audited.append(["4", "diazepam", "5 mg", "Dr. Brown"])
            wait_for_rows(opened, "auditor", f"SELECT {columns} FROM controlled_drugs", audited)
        # Nothing that is not released has left the hospital: it is in no file of the others.
        kept = logged_bytes(tmp_path / "hospital-data")
        assert b"Ada Smith" in kept and b"sleeps badly" in kept and b"amoxicillin" in kept
        for name in ("pharmacy", "auditor", "home"):
            logged = logged_bytes(tmp_path / f"{name}-data")
            assert b"Ada Smith" not in logged and b"sleeps badly" not in logged, name
        assert b"amoxicillin" in logged_bytes(tmp_path / "pharmacy-data")
        assert b"amoxicillin" not in logged_bytes(tmp_path / "auditor-data")
        assert b"100 mg" not in kept, "a prescription that was rolled back"


def test_financial(server: Server, tmp_path: Path) -> None:
    create, serve_newyork, serve_london, trade, look = copy_network("financial", tmp_path)
    with shell(server, tmp_path, ("newyork", "london")) as opened:
        opened.run(create)
        with brokers(opened, {"newyork": serve_newyork, "london": serve_london}):
            opened.run(trade)
            received = [
                ["growth", "HP", "38.20"],
                ["growth", "IBM", "117.25"],
                ["income", "HP", "38.10"],
                ["income", "HP", "38.20"],
            ]
            noted = "SELECT * FROM noted ORDER BY portfolio, symbol, price"
            wait_for_rows(opened, "newyork", noted, received)
            limits = "SELECT * FROM firm_limits ORDER BY office"
            decided = [["london", "BP", "9.50"], ["newyork", "IBM", "125.00"]]
            for office in ("newyork", "london"):
                wait_for_rows(opened, office, limits, decided)
            volumes = "SELECT symbol, volume FROM volumes WHERE volume IN (300) ORDER BY symbol"
            wait_for_rows(opened, "newyork", volumes, [["HP", "300"], ["IBM", "300"]])
            opened.run(look)
            assert opened.sql("london", noted) == [], "quotes stay in their office"


def test_all_networks_are_listed() -> None:
    listed = (FOLDER / "README.md").read_text()
    folders = [path.name for path in FOLDER.iterdir() if path.is_dir()]
    assert folders and all(f"| `{name}` |" in listed for name in folders)
