"""The page Operations: figures, troubles and subscribers of a broker, and what Spark is doing."""

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from smile.broker.directory import BrokerDirectory
from tests.brokers import BrokerProcess, InProcessBroker
from tests.browser import WAIT_MS, needs_chromium, open_page
from tests.console.pages import PROGRAM, trade
from tests.processes import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), needs_chromium]


def figure(page: Page, label: str) -> Locator:
    return page.locator(".figure", has=page.locator(".figure-label", has_text=re.compile(f"^{label}$")))


def test_figures_troubles_and_subscribers(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerDirectory, "free_bytes", lambda _: 999)
    with (
        InProcessBroker(tmp_path, PROGRAM, disk_free_min=1000) as broker,
        open_page(browser) as page,
        broker.websocket() as subscriber,
    ):
        page.goto(f"{broker.url}/#/operations")
        expect(figure(page, "Subscribers").locator(".figure-value")).to_have_text("0", timeout=WAIT_MS)
        subscriber.ask({"subscribe": "Totals", "id": 1})
        broker.publish("Trades", trade("A"), trade("B"), trade("C"))
        expect(figure(page, "Subscribers").locator(".figure-value")).to_have_text("1", timeout=WAIT_MS)
        expect(figure(page, "Events")).to_contain_text("3 published since the start")
        expect(figure(page, "Events").locator(".figure-value")).to_have_text(re.compile(r"^\d+(\.\d)?/s$"))
        expect(figure(page, "Batch").locator(".figure-note")).to_have_text(re.compile(r"^[1-9]\d* batches$"))
        expect(figure(page, "State").locator(".figure-value")).to_have_text(re.compile(r"^[\d.]+ (B|[KM]iB)$"))
        totals = page.get_by_role("region", name="Views").get_by_role("row", name=re.compile("^Totals"))
        expect(totals.locator("td").nth(1)).to_have_text("3", timeout=WAIT_MS)
        expect(totals.locator("td").nth(3)).to_have_text("1")
        expect(page.get_by_role("heading", name=re.compile("^Engine"))).to_contain_text("running")
        troubles = page.locator(".troubles")
        expect(troubles).to_contain_text("E112: the data directory has 999 bytes of free space")
        broker.broker.warn("something was tried again")
        expect(troubles.get_by_text("something was tried again", exact=True)).to_be_visible(timeout=WAIT_MS)


@pytest.mark.nightly
def test_what_spark_is_doing(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    (tmp_path / "spark-defaults.conf").write_text("spark.ui.enabled true\n")
    variables = {"SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    options = ["--master", "local[1]", "--partitions", "1"]
    with (
        BrokerProcess(tmp_path, engine="spark", options=options, variables=variables) as broker,
        open_page(browser) as page,
    ):
        page.goto(f"{broker.url}/#/operations")
        start = page.locator(".note-box[role=status]")
        phases = "starting Java|opening a session|starting the pipeline|running the first batch"
        expect(start).to_have_text(re.compile(rf"^({phases}): for \d.*\.$"), timeout=WAIT_MS)
        broker.wait_until_ready()
        broker.publish("Trades", trade("A"), trade("B"))
        expect(start).to_have_count(0, timeout=WAIT_MS)
        expect(page.get_by_role("heading", name=re.compile("^Spark"))).to_contain_text("running", timeout=WAIT_MS)
        parts = page.get_by_label("Parts of a batch").locator("li span")
        expect(parts.first).to_be_visible(timeout=WAIT_MS)
        assert {"planning", "job", "kernels", "commit"} <= set(parts.all_inner_texts())
        # The figures are of batches of Spark, each of which takes milliseconds at least.
        expect(figure(page, "Batch").locator(".figure-value")).to_have_text(
            re.compile(r"^[1-9]\d* ms$|s$"), timeout=WAIT_MS
        )
        own_page = page.get_by_role("link", name="Spark's own page").get_attribute("href")
        assert own_page
        shown = httpx.get(own_page, follow_redirects=True, timeout=WAIT_S, trust_env=False)
        assert (shown.status_code, "Spark" in shown.text) == (200, True)
