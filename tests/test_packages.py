"""The wheel has everything that SMILE needs. Each of its sizes is installed in an empty environment, and used there.

`tests/cli/test_extras.py` tries the same sizes without installing them.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest

from smile.errors import SmileError
from smile.extras import libraries_of
from smile.java import java_home
from tests.brokers import InProcessBroker
from tests.client.fake import Fake
from tests.processes import WAIT_S, clean_environment, free_port

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "programs" / "tradefloor.smile"
EVENTS = ROOT / "programs" / "tradefloor.events"
INSTALL_S = 600.0
"""How long an installation may take on a busy machine."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    command = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
    (built,) = folder.iterdir()
    return built


@pytest.mark.slow
def test_the_wheel_is_complete(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        headers = Parser().parsestr(archive.read(metadata).decode())
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files", "src/smile", "programs"], capture_output=True, text=True)
    expected = {
        re.sub("^(src/|(?=programs))", lambda m: "" if m[0] else "smile/", p) for p in tracked.stdout.split("\n")
    }
    assert sorted(expected - {""} - names) == []
    assert {"smile/py.typed", "smile/console/static/index.html", "smile/programs/tradefloor.smile"} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]
    assert set(headers.get_all("Provides-Extra", ())) == {
        "all",
        "broker",
        "cli",
        "connectors",
        "frames",
        "lsp",
        "postgres",
        "spark",
    }
    always = [line for line in headers.get_all("Requires-Dist", ()) if "extra ==" not in line]
    assert [line.partition("<")[0] for line in always] == ["websockets"]


PAGE = ROOT / "docs" / "installing.md"
INSTALL = re.compile(r"pip install [^`\n]+")


def commands_to_install(document: Path) -> list[list[str]]:
    """The arguments of `pip install` in a document."""
    return [shlex.split(command)[2:] for command in INSTALL.findall(document.read_text())]


def test_the_page_on_installing_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    page = PAGE.read_text()
    assert set(re.findall(r"^\|.*\| `smile-pubsub(?:\[(\w+)\])?` \|", page, re.MULTILINE)) == extras | {""}
    with pytest.raises(SmileError) as problem, libraries_of("spark"):
        raise ModuleNotFoundError(name="pyspark")
    shown = f"smile: error {problem.value.code}: {problem.value}"
    assert shown in page
    for document in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        if "decisions" not in document.parts:
            for words in commands_to_install(document):
                named = {extra for part in re.findall(r"\[([\w,]+)\]", " ".join(words)) for extra in part.split(",")}
                assert named <= extras, (document, words)


@pytest.mark.slow
def test_the_commands_that_install(tmp_path: Path) -> None:
    """As pip takes them. The nightly tests install every extra."""
    (tmp_path / "smile").symlink_to(ROOT)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    commands = [words for words in commands_to_install(PAGE) if any(word.startswith(".") for word in words)]
    assert len(commands) == 3
    for words in commands:
        folder = tmp_path if any(word.startswith("./") for word in words) else ROOT
        command = [*pip, *words, "--dry-run", "--no-deps", "--no-build-isolation"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0 and "does not provide the extra" not in done.stderr, done.stderr


class Environment:
    """A virtual environment with SMILE in one size."""

    def __init__(self, folder: Path, wheel: Path, extra: str, *least: str) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=True, symlinks=True)
        constraints = folder / "constraints.txt"
        lock = (ROOT / "requirements.lock").read_text().splitlines()
        chosen = {pin.partition("==")[0] for pin in least}
        constraints.write_text("\n".join([*(pin for pin in lock if pin.partition("==")[0] not in chosen), *least]))
        pip = [self.path("python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        requirement = f"{wheel}[{extra}]" if extra else str(wheel)
        subprocess.run([*pip, "--constraint", str(constraints), requirement], check=True, timeout=INSTALL_S)

    def path(self, program: str) -> str:
        return str(self.folder / "venv" / "bin" / program)

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [self.path(program), *words]
        return subprocess.run(
            command, cwd=self.folder, env=clean_environment(), capture_output=True, text=True, timeout=WAIT_S
        )

    def packages(self) -> set[str]:
        listed = self.run("python", "-m", "pip", "--disable-pip-version-check", "list", "--format", "freeze").stdout
        return {line.partition("==")[0].lower() for line in listed.splitlines()} - {"pip", "setuptools"}


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    yield server
    server.close()


CLIENT = """
import sys
from smile import connect
with connect(sys.argv[1]) as client:
    client.publish("S", [{"k": "a"}, {"k": "b"}])
    print(len(client.snapshot("Counts", after={"S": 2**60})), client.status())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "websockets", ["", pytest.param("websockets==15.0.1", marks=pytest.mark.nightly)], ids=["locked", "least"]
)
def test_the_client_alone(wheel: Path, fake: Fake, tmp_path: Path, websockets: str) -> None:
    environment = Environment(tmp_path, wheel, "", *([websockets] if websockets else []))
    assert environment.packages() == {"smile-pubsub", "websockets"}
    done = environment.run("python", "-c", CLIENT, fake.url)
    assert (done.stdout, done.stderr) == ("2 {'program': 'ok'}\n", "")
    done = environment.run("smile", "--version")
    assert (done.returncode, 'pip install "smile-pubsub[cli]"' in done.stderr) == (1, True)


@pytest.mark.nightly
def test_the_commands(wheel: Path, fake: Fake, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheel, "cli")
    assert not environment.packages() & {"numpy", "pyarrow", "pyspark", "starlette", "lark"}
    done = environment.run("smile", "publish", "S", '{"k":"a"}', "--url", fake.url)
    assert (done.returncode, done.stderr.startswith("1 event published")) == (0, True)
    done = environment.run("smile", "subscribe", "Counts", "--once", "--url", fake.url)
    assert (done.returncode, '"k":"a"' in done.stdout) == (0, True), done.stderr


@pytest.mark.nightly
def test_data_frames(wheel: Path, fake: Fake, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheel, "frames")
    code = CLIENT.replace("print(len(", "print((").replace("})), client.status())", "}).to_pandas().n.sum()))")
    done = environment.run("python", "-c", code, fake.url)
    assert (done.stdout, done.stderr) == ("2\n", "")


@pytest.mark.nightly
@pytest.mark.parametrize(("extra", "engine"), [("broker", "local"), ("spark", "spark")])
def test_the_engines(wheel: Path, tmp_path: Path, extra: str, engine: str) -> None:
    environment = Environment(tmp_path, wheel, extra)
    assert ("pyspark" in environment.packages()) == (extra == "spark")
    done = environment.run("smile", "replay", str(PROGRAM), "--events", str(EVENTS), "--engine", engine)
    assert (done.returncode, '"view":"Matchable"' in done.stdout) == (0, True), done.stderr


@pytest.mark.nightly
def test_postgres(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheel, "postgres")
    done = environment.run("smile", "postgres", "status", "postgresql://127.0.0.1:1/none")
    assert (done.returncode, "E157" in done.stderr) == (1, True), done.stderr


@pytest.mark.nightly
def test_a_broker_with_its_console_and_connectors(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheel, "broker")
    shutil.copy(PROGRAM, tmp_path / "floor.smile")
    settings = '[sources.bids]\nkind = "mqtt"\nurl = "mqtt://127.0.0.1:1"\ntopic = "bids"\nstream = "BuyBids"\n'
    (tmp_path / "smile.toml").write_text(settings)
    serve = ["serve", "floor.smile", "--engine", "local", "--listen", f"127.0.0.1:{free_port()}", "--flight", ""]
    refused = environment.run("smile", *serve, "--config", "smile.toml")
    assert (refused.returncode, 'pip install "smile-pubsub[connectors]"' in refused.stderr) == (1, True)
    with subprocess.Popen(
        [environment.path("smile"), *serve], cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = next(line for line in process.stdout if line.startswith("listening on ")).split()[-1]
            page = httpx.get(f"{url}/", headers={"accept": "text/html"}, trust_env=False)
            (script,) = re.findall(r'src="(/assets/[^"]+)"', page.text)
            assert httpx.get(f"{url}{script}", trust_env=False).status_code == 200
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.nightly
@pytest.mark.parametrize("extra", ["connectors", "all"])
def test_everything_is_there(wheel: Path, tmp_path: Path, extra: str) -> None:
    """The service of connectors imports the libraries of all kinds."""
    environment = Environment(tmp_path, wheel, extra)
    modules = "smile.connectors.sinks.delta_table, smile.connectors.sources.mqtt, smile.connectors.service"
    done = environment.run("python", "-c", f"import {modules}")
    assert (done.returncode, done.stderr) == (0, "")
    checked = environment.run("python", "-m", "pip", "check")
    assert checked.returncode == 0, checked.stdout


SESSION = """
import sys
from pyspark.sql import SparkSession
master, url = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]") if master == "connect" else SparkSession.builder.master(master)
spark = builder.getOrCreate()
bids = spark.createDataFrame([("IBM", 120)], "issue string, price long")
bids.write.format("smile").option("url", url).option("stream", "Bids").mode("append").save()
totals = spark.readStream.format("smile").option("url", url).option("view", "Totals").load()
query = totals.writeStream.format("memory").queryName("changes").trigger(availableNow=True).start()
query.awaitTermination(120)
print("changes", spark.table("changes").where("_change = 'row'").count() > 0)
rows = spark.read.format("smile").option("url", url).option("view", "Totals").load()
print([(row.issue, row.total) for row in rows.collect()])
"""


@pytest.mark.nightly
def test_spark_finds_the_data_source(wheel: Path, tmp_path: Path) -> None:
    """In a session that knows nothing of SMILE but that it is installed, also over Spark Connect."""
    environment = Environment(tmp_path, wheel, "spark")
    installed = environment.run("python", "-c", "import pyspark; print(pyspark.__version__)").stdout.strip()
    pip = [environment.path("python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, f"pyspark[connect]=={installed}"], check=True, timeout=INSTALL_S)
    variables = clean_environment(
        PATH=f"{tmp_path}/venv/bin:{os.environ['PATH']}", JAVA_HOME=str(java_home()), SPARK_LOCAL_IP="127.0.0.1"
    )
    for master in ("local[1]", "connect"):
        with InProcessBroker(tmp_path / master) as broker:
            done = subprocess.run(
                [environment.path("python"), "-c", SESSION, master, broker.url],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
                timeout=5 * WAIT_S,
            )
        assert done.stdout.splitlines()[-2:] == ["changes True", "[('IBM', 120)]"], done.stderr
