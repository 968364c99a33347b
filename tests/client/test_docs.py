"""Every command and every dialogue of docs/client.md gives what it says, with a broker beside it."""

import doctest
from pathlib import Path

import pytest

from tests.brokers import InProcessBroker
from tests.docs import BLOCK, ROOT, dialogues, refreshed

DOCUMENT = ROOT / "docs" / "client.md"


@pytest.mark.slow
def test_the_document_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = next(body for _, title, body in BLOCK.findall(DOCUMENT.read_text()) if "trades.smile" in title)
    monkeypatch.delenv("SMILE_TOKEN", raising=False)
    with InProcessBroker(tmp_path, program, name="trades.smile") as broker:
        monkeypatch.setenv("SMILE_URL", broker.url)
        assert refreshed(DOCUMENT) == DOCUMENT.read_text()
        for dialogue in dialogues(DOCUMENT):
            runner = doctest.DocTestRunner(verbose=False)
            runner.run(dialogue)
            assert runner.failures == 0
