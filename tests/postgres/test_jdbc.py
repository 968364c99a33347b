"""The statements in a Java program: JDBC sends them through the proxy, in the extended protocol."""

import shutil
import subprocess
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from smile.java import java_home
from tests.postgres.proxy.running_proxy import RunningProxy

pytestmark = pytest.mark.slow

DRIVER = Path("/usr/share/java/postgresql.jar")
PROGRAM = Path(__file__).parent / "jdbc" / "Quotes.java"


@pytest.fixture
def java() -> str:
    """Java that compiles what it runs."""
    if not DRIVER.exists():
        pytest.skip("there is no JDBC driver of PostgreSQL; Debian has it in libpostgresql-jdbc-java")
    compiler = shutil.which("javac") or shutil.which("javac", path=f"{java_home()}/bin")
    if compiler is None:
        pytest.skip("there is no Java with a compiler")
    return str(Path(compiler).with_name("java"))


@pytest.mark.parametrize("mode", ["extended", "extended&prepareThreshold=1", "simple"])
def test_a_program_with_jdbc(database: str, java: str, mode: str) -> None:
    """With `simple`, the driver puts the values of parameters into the text."""
    options = conninfo_to_dict(database)
    with RunningProxy(f"postgresql://?host={options['host']}") as proxy:
        url = f"jdbc:postgresql://127.0.0.1:{proxy.port}/{options['dbname']}?user={options['user']}&sslmode=disable"
        url += f"&preferQueryMode={mode}"
        done = subprocess.run(
            [java, "-cp", DRIVER, PROGRAM, url], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "SM151 ERROR: Quotes is not advertised",
        "0",
        "42P01 at 15",
        "42703 at 23",
        "42601 at 22",
        "3",
        "SM080",
        "HP 8 36",
        "IBM 1 120",
        "SUN 3 30",
    ]
