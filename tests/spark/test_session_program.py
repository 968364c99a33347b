"""Programs in a user's session: they give what a plain computation over the same rows gives, once, whatever is stopped or
killed."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import pyspark_smile
from smile.errors import SmileError
from smile.java import java_home
from smile.source import Source
from smile.spark.session_program import SessionProgram, check_inputs, checkpoint_folder, run, settings_of
from tests.processes import wait_until

ROOT = Path(__file__).parent.parent.parent
DRIVER = Path(__file__).parent / "killed_program.py"
RUN_S_MAX = 300

PROGRAM = """
CREATE STREAM Bids (bidid: time -> id: int, issue: string, price: int CHECK (price >= 0));
CREATE STREAM Matches (t: time -> id: int, traded: int);

CREATE VIEW Sold AS SELECT id, SUM(traded) AS sold FROM Matches GROUP BY id;
CREATE VIEW Open AS SELECT b.bidid, b.id, b.issue, b.price - s.sold AS remaining FROM Bids b JOIN Sold s USING (id);
CREATE VIEW Issues AS SELECT issue, COUNT(*) AS bids FROM Bids GROUP BY issue;
SUBSCRIBE Open, Issues;
"""


class Inputs:
    """Files that the streams read, and what a plain computation makes of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.bids: list[dict[str, Any]] = []
        self.matches: list[dict[str, Any]] = []

    def add(self, count: int) -> None:
        first = len(self.bids)
        new = [{"id": first + i, "issue": self.random.choice("XYZ"), "price": 100} for i in range(count)]
        self.bids += new
        matches = [
            {"id": self.random.randrange(len(self.bids)), "traded": self.random.randrange(9)} for _ in range(count)
        ]
        self.matches += matches
        for name, rows in (("bids", new), ("matches", matches)):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / f"{first}.json").write_text("\n".join(map(json.dumps, rows)))

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        bids = spark.readStream.schema("id long, issue string, price long").json(str(self.folder / "bids"))
        matches = spark.readStream.schema("id long, traded long").json(str(self.folder / "matches"))
        return {"Bids": bids, "Matches": matches}

    def expected(self) -> tuple[dict[int, int], dict[str, int]]:
        sold = Counter[int]()
        for match in self.matches:
            sold[match["id"]] += match["traded"]
        return {bid["id"]: 100 - sold[bid["id"]] for bid in self.bids}, Counter(bid["issue"] for bid in self.bids)


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    seed = int(os.environ.get("SMILE_SEEDS", "17"))
    return Inputs(tmp_path, seed)


def found(running: SessionProgram) -> tuple[dict[int, int], dict[str, int]]:
    return (
        {row.id: row.remaining for row in running.view("Open").collect()},
        {row.issue: row.bids for row in running.view("Issues").collect()},
    )


def test_inputs_give_views_that_continue(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    before = {key: spark.conf.get(key) for key in ("spark.sql.adaptive.enabled", "spark.sql.streaming.pollingDelay")}
    for number in range(2):
        inputs.add(20)
        # The second time, the state of one partition is divided.
        settings = {"partitions": 1 + number}
        with run(spark, PROGRAM, inputs.frames(spark), tmp_path / "checkpoint", True, settings) as running:
            assert running.wait(RUN_S_MAX)
            assert found(running) == inputs.expected()
            assert running.views == ["Open", "Issues"]
    assert before == {key: spark.conf.get(key) for key in before}


def test_changes_and_jobs_of_a_program_that_goes_on(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    inputs.add(5)
    latest: dict[str, int] = {}

    def keep(frame: DataFrame, _: int) -> None:
        latest.update((row.issue, row.bids) for row in frame.collect() if row._change == "row")

    with run(spark, PROGRAM, inputs.frames(spark), tmp_path / "checkpoint") as running:
        changes = running.changes("Issues").writeStream.foreachBatch(keep)
        query = changes.option("checkpointLocation", str(tmp_path / "changes")).start()
        try:
            for _ in range(2):
                inputs.add(5)
                wait_until(lambda: latest == inputs.expected()[1], f"{latest} is not {inputs.expected()[1]}", RUN_S_MAX)
            assert not running.wait(0.1)  # its inputs have no end
        finally:
            query.stop()
        jobs = spark._jsc.sc().statusStore().jobsList(None)
        descriptions = {str(jobs.apply(i).description().toString()) for i in range(min(20, jobs.size()))}
        assert any(re.search(r"stage \d: .*Issues", text) for text in descriptions), descriptions


def test_a_row_that_is_refused_ends_its_input(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    inputs.add(3)
    (tmp_path / "bids" / "wrong.json").write_text('{"id": 99, "issue": "X", "price": -1}')
    with run(spark, PROGRAM, inputs.frames(spark), tmp_path / "checkpoint", True) as running:
        with pytest.raises(SmileError, match=r"the input of Bids has ended: E080: event .*: .*price >= 0") as caught:
            running.wait(RUN_S_MAX)
        assert caught.value.code == "E174"
    (tmp_path / "bids" / "wrong.json").write_text('{"id": 99, "issue": "X", "price": 100}')
    inputs.bids.append({"id": 99, "issue": "X", "price": 100})
    with run(spark, PROGRAM, inputs.frames(spark), tmp_path / "checkpoint", True) as running:
        assert running.wait(RUN_S_MAX)
        assert found(running) == inputs.expected()


@pytest.mark.parametrize(
    ("inputs", "code", "message"),
    [
        ({"Bid": True}, "E174", "the program has no stream Bid"),
        ({"Open": True}, "E174", "the program has no stream Open"),
        ({"Bids": False}, "E174", "the input of Bids is not a streaming DataFrame"),
    ],
)
def test_wrong_inputs(inputs: dict[str, bool], code: str, message: str) -> None:
    frames: Any = {name: SimpleNamespace(isStreaming=streaming) for name, streaming in inputs.items()}
    with pytest.raises(SmileError) as caught:
        check_inputs(Source("program.smile", PROGRAM), frames)
    assert (caught.value.code, caught.value.diagnostics[0].message) == (code, message)
    assert caught.value.hint


def test_a_session_over_spark_connect_is_refused(tmp_path: Path) -> None:
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(SmileError, match="not one over Spark Connect"):
        run(remote, PROGRAM, {}, tmp_path)


def test_settings_are_checked(tmp_path: Path) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    assert settings_of(spark, tmp_path, {"partitions": 3}).partitions == 3
    with pytest.raises(SmileError, match=r"there is no setting partition\n  hint: Did you mean partitions\?"):
        settings_of(spark, tmp_path, {"partition": 3})
    with pytest.raises(SmileError, match="partitions: 0 is not between 1"):
        settings_of(spark, tmp_path, {"partitions": 0})


def test_a_checkpoint_is_a_local_folder(tmp_path: Path) -> None:
    assert checkpoint_folder(f"file://{tmp_path}") == checkpoint_folder(tmp_path) == tmp_path
    with pytest.raises(SmileError, match="a checkpoint cannot be at s3://bucket"):
        checkpoint_folder("s3://bucket/folder")


def test_spark_finds_the_data_source() -> None:
    """It looks for `DefaultSource` in packages `pyspark_*` beside `smile`, which the wheel has."""
    assert pyspark_smile.DefaultSource.name() == "smile"
    assert '"src/pyspark_smile"' in (ROOT / "pyproject.toml").read_text()


def drive(folder: Path, kill_after_s: float | None) -> bool:
    """Runs the driver; returns whether it came to its end."""
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, str(DRIVER), str(folder)]
    log = folder / "driver.log"
    with (
        log.open("ab") as out,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=out, stdin=subprocess.DEVNULL, env=environment, cwd=folder
        ) as process,
    ):
        assert process.stdout is not None
        try:
            if kill_after_s is not None:
                process.stdout.readline()  # it runs
                process.wait(kill_after_s)
            process.wait(RUN_S_MAX)
        except subprocess.TimeoutExpired:
            assert kill_after_s is not None, log.read_text()[-3000:]
        finally:
            process.kill()
        assert process.wait() in (0, -9), log.read_text()[-3000:]
        return process.returncode == 0


@pytest.mark.slow
@pytest.mark.nightly
def test_a_driver_that_is_killed_counts_every_row_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("SMILE_SEEDS", "17"))
    chance, expected = random.Random(seed), Counter[str]()
    (tmp_path / "in").mkdir()
    for number in range(24):
        issues = [chance.choice("XYZ") for _ in range(25)]
        expected.update(issues)
        lines = [json.dumps({"issue": issue, "price": 1}) for issue in issues]
        (tmp_path / "in" / f"{number:02}.json").write_text("\n".join(lines))
    kills = [chance.uniform(0, 8) for _ in range(3)]
    ends = [drive(tmp_path, seconds) for seconds in kills]
    drive(tmp_path, None)
    rows = json.loads((tmp_path / "rows.json").read_text())
    repeat = (
        f"SMILE_SEEDS={seed} .venv/bin/python -m pytest {Path(__file__).relative_to(ROOT)} -k killed; {kills} {ends}"
    )
    assert rows == {issue: [count, count] for issue, count in expected.items()}, repeat
