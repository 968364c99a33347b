"""A power failure: only what was flushed to the disk is left. Every acknowledged event is, unless `flush` is off.

A library that is loaded into the broker copies each file when it is flushed (`flushed_files.c`). The broker is killed, and
another one is started with the copies.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.brokers import PROGRAM, BrokerProcess, bid

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    built = tmp_path_factory.mktemp("library") / "flushed_files.so"
    source = Path(__file__).with_name("flushed_files.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(built), str(source), "-ldl"], check=True)
    return built


@pytest.mark.parametrize("flush", [True, False])
def test_what_is_acknowledged_survives_a_power_failure(tmp_path: Path, library: Path, flush: bool) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    disk, flushed = tmp_path / "smile-data", tmp_path / "flushed"
    flushed.mkdir()
    variables = {"LD_PRELOAD": str(library), "POWER_DISK": str(disk), "POWER_FLUSHED": str(flushed)}
    options = ("--flush" if flush else "--no-flush",)
    broker = BrokerProcess(tmp_path, options=options, variables=variables)
    ticks = list[str]()
    with broker:
        for n in range(60):
            ticks += broker.publish("Bids", bid(f"{n % 7}", 200 + n), bid("IBM", 1))
        broker.kill()
    survivor = BrokerProcess(tmp_path, data="flushed")
    with survivor:
        (last,) = survivor.publish("Bids", bid("IBM", 1))
        rows = survivor.rows("Totals", Bids=last)
        logged = sum(row["row"]["bids"] for row in rows) - 1
        shown = {row["key"]["bidid"] for row in survivor.rows("Dear", Bids=last)}
    assert logged == len(ticks) if flush else logged < len(ticks)
    if flush:
        assert {str(tick) for tick in shown} == set(ticks[::2])
