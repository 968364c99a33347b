"""docs/howto/dashboards.md: the page works in a browser, from an origin of its own, beside a broker with these settings."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smile.client import connect
from tests.brokers import InProcessBroker
from tests.browser import WAIT_MS, needs_chromium, open_browser, open_page
from tests.docs import BLOCK, ROOT

TEXT = (ROOT / "docs" / "howto" / "dashboards.md").read_text()
(PAGE,) = (body for _, title, body in BLOCK.findall(TEXT) if "file=volume.html" in title)
PROGRAM = """
CREATE STREAM Trades (t: time -> issue: string, n: int CHECK (n > 0));
CREATE VIEW Volume AS SELECT issue, SUM(n) AS total FROM Trades GROUP BY issue;
SUBSCRIBE Volume;
"""


@contextmanager
def serving_files(folder: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@needs_chromium
def test_the_page_shows_the_view(tmp_path: Path) -> None:
    with (
        serving_files(tmp_path) as origin,
        InProcessBroker(tmp_path, PROGRAM, origins=[origin]) as broker,
        connect(broker.url) as client,
        open_browser() as browser,
        open_page(browser, allowed="favicon|404") as page,
    ):
        assert PAGE.count("http://127.0.0.1:7400") == 2
        (tmp_path / "volume.html").write_text(PAGE.replace("http://127.0.0.1:7400", broker.url))
        page.goto(f"{origin}/volume.html")
        client.publish("Trades", [{"issue": "IBM", "n": 5}, {"issue": "<b>", "n": 9}])
        page.wait_for_selector("tbody tr:nth-child(2)", timeout=WAIT_MS)
        client.publish("Trades", {"issue": "IBM", "n": 2})
        page.wait_for_function("document.querySelector('tbody').innerText.includes('≥7\\t')", timeout=WAIT_MS)
        lines = {line.split("\t")[0]: line.split("\t")[1] for line in page.inner_text("tbody").splitlines()}
        assert lines == {"IBM": "≥7", "<b>": "≥9"}
