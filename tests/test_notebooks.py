"""The example notebook runs, and what is shown live in it has followed the view."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from tests.brokers import InProcessBroker
from tests.docs import ROOT
from tests.processes import WAIT_S

NOTEBOOK = ROOT / "docs" / "notebooks" / "sensors.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries that run notebooks
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMILE_TOKEN", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    with InProcessBroker(tmp_path, (ROOT / "programs" / "sensors.smile").read_text()) as broker:
        monkeypatch.setenv("SMILE_URL", broker.url)
        config = Config({"KernelManager": {"transport": "ipc"}})
        NotebookClient(notebook, config=config, timeout=WAIT_S, kernel_name="python3").execute()
    shown = {cell.source.splitlines()[0]: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    assert "[184.5..200]" in shown['hourly = client.table("Hourly").wait_for(ticks)'][0].data["text/html"]
    assert "[191..200]" in shown["live = hourly.live()"][0].data["text/html"], "the live table has been updated"
    assert shown['highest = hourly.plot("high", x="sensor")'][0].data["text/html"].startswith("<svg")
    assert shown["for display in (live, highest, counts):"][0].data["text/plain"] == "True"
