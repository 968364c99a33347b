"""Every dialogue of docs/spark.md gives what it says, with a broker beside it."""

import doctest
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smile.spark.data_source import SmileDataSource
from tests.brokers import InProcessBroker
from tests.docs import BLOCK, ROOT, dialogues

DOCUMENT = ROOT / "docs" / "spark.md"


def test_the_document_is_true(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.dataSource.register(SmileDataSource)  # sessions of SMILE's own do not search for it
    program = next(body for _, title, body in BLOCK.findall(DOCUMENT.read_text()) if "trades.smile" in title)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trades.smile").write_text(program)
    with InProcessBroker(tmp_path, program, name="trades.smile", flight="127.0.0.1:0") as broker:
        assert broker.server.flight is not None
        for dialogue in dialogues(DOCUMENT):
            dialogue.globs |= {"spark": spark, "url": broker.url, "flight": broker.server.flight.location}
            runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
            runner.run(dialogue)
            assert runner.failures == 0
