"""Many rows, kills, pictures of all pages, and what needs npm: accessibility and the reproducible build."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from tests.brokers import BrokerProcess, InProcessBroker
from tests.browser import NPM_S, ROOT, STATIC, WAIT_MS, needs_chromium, needs_npm, open_page
from tests.console.pages import (
    CUT_VALUES,
    ERRORS_OF_STATES,
    PAGES,
    PROGRAM,
    READINGS_PROGRAM,
    open_view,
    trade,
    visit_all,
)

CONSOLE = ROOT / "clients" / "console"
AXE = CONSOLE / "node_modules" / "axe-core" / "axe.min.js"

SCREENSHOTS = ROOT / "build" / "screenshots"
SCHEMES = ("light", "dark")
WIDTHS = (1360, 390)
COLORS_MIN = 30
"""A page with text has this many colours at least: the edges of letters have many."""
SHEET_WIDTH, SHEET_ROW_HEIGHT = 3200, 500
OVERFLOW = """() => [document.documentElement, document.querySelector("main")].some(
  (element) => element.scrollWidth > element.clientWidth)"""

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("browser")]


@needs_chromium
def test_100_000_rows_scroll(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(READINGS_PROGRAM)
    with BrokerProcess(tmp_path) as broker, open_page(browser) as page:
        for start in range(0, 100_000, 2000):
            broker.publish("Readings", *({"sensor": n, "value": 1.0} for n in range(start, start + 2000)))
        open_view(page, broker.url, "Sensors")
        expect(page.locator(".counts")).to_contain_text("100,000 rows", timeout=WAIT_MS)
        page.get_by_role("grid").focus()
        page.keyboard.press("End")
        expect(page.locator("table.live")).to_contain_text("99999")
        assert page.locator("table.live tbody tr").count() < 100
        page.get_by_role("searchbox").fill("4242")
        expect(page.locator("table.live")).to_contain_text("42420")


@needs_chromium
def test_kills_under_an_open_page(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    with BrokerProcess(tmp_path) as broker, open_page(browser, allowed="ERR_|Failed to load|WebSocket") as page:
        broker.publish("Trades", trade("KILL", 1))
        open_view(page, broker.url, "Totals")
        for round_ in range(2, 6):
            broker.kill()
            broker.start()
            broker.publish("Trades", trade("KILL", 1))
            cell = page.locator("table.live tbody tr", has_text="KILL").locator("td").nth(2)
            expect(cell).to_have_text(re.compile(rf"≥\s*{round_}$"), timeout=WAIT_MS)


@pytest.fixture(scope="module")
def npm_packages() -> None:
    if not AXE.exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=CONSOLE, check=True, timeout=NPM_S)


@needs_chromium
@needs_npm
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_accessibility(browser: Browser, tmp_path: Path, npm_packages: None, scheme: str, width: int) -> None:
    found: dict[str, list[str]] = {}
    size = {"width": width, "height": 850}
    with open_page(browser, ERRORS_OF_STATES, viewport=size, color_scheme=scheme, bypass_csp=True) as page:
        for name in visit_all(page, tmp_path):
            page.evaluate(AXE.read_text())
            report = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
            found |= {f"{name} {item['id']}": [node["html"] for node in item["nodes"]] for item in report}
    assert found == {}


@needs_chromium
def test_screenshots_of_all_pages(browser: Browser, tmp_path: Path) -> None:
    """They are in build/screenshots, with a sheet of all of them, to be looked at. None is blank, or wider than the
    screen, or shows a part of a value only."""
    shutil.rmtree(SCREENSHOTS, ignore_errors=True)
    SCREENSHOTS.mkdir(parents=True)
    paths: list[Path] = []
    wrong: list[str] = []
    for scheme, width in itertools.product(SCHEMES, WIDTHS):
        folder = tmp_path / f"{scheme}-{width}"
        folder.mkdir()
        size = {"width": width, "height": 850}
        with open_page(browser, ERRORS_OF_STATES, viewport=size, color_scheme=scheme) as page:
            for name in visit_all(page, folder):
                paths.append(SCREENSHOTS / f"{name}-{scheme}-{width}.png")
                page.screenshot(path=paths[-1])
                if page.evaluate(OVERFLOW):
                    wrong.append(f"{paths[-1].name} is wider than the screen")
                if cut := page.evaluate(CUT_VALUES):
                    wrong.append(f"{paths[-1].name} shows only a part of {cut}")
                if len(Image.open(paths[-1]).convert("RGB").getcolors(2**24) or ()) < COLORS_MIN:
                    wrong.append(f"{paths[-1].name} is blank")
    save_sheet(paths, SCREENSHOTS / "all.png")
    assert len(set(paths)) == (len(PAGES) + 3) * len(SCHEMES) * len(WIDTHS)
    assert wrong == []


def save_sheet(paths: list[Path], sheet: Path) -> None:
    """All pictures on one, in rows of equal height."""
    rows: list[list[Image.Image]] = [[]]
    for path in paths:
        picture = Image.open(path).convert("RGB")
        picture.thumbnail((SHEET_WIDTH, SHEET_ROW_HEIGHT))
        if sum(one.width for one in rows[-1]) + picture.width > SHEET_WIDTH:
            rows.append([])
        rows[-1].append(picture)
    whole = Image.new("RGB", (SHEET_WIDTH, SHEET_ROW_HEIGHT * len(rows)), "gray")
    for top, row in enumerate(rows):
        left = 0
        for picture in row:
            whole.paste(picture, (left, SHEET_ROW_HEIGHT * top))
            left += picture.width
    whole.save(sheet)


@needs_npm
def test_the_committed_output_is_what_the_sources_give(tmp_path: Path, npm_packages: None) -> None:
    client = ROOT / "clients" / "js"
    shutil.rmtree(client / "dist", ignore_errors=True)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=client, check=True, timeout=NPM_S)
    subprocess.run(["node", "build.mjs", "--out", str(tmp_path)], cwd=CONSOLE, check=True, timeout=NPM_S)
    built = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    committed = {str(path.relative_to(STATIC)): path.read_bytes() for path in STATIC.rglob("*") if path.is_file()}
    assert sorted(built) == sorted(committed)
    assert built == committed, "run make console"


@needs_npm
def test_types_of_the_sources(npm_packages: None) -> None:
    subprocess.run(["npm", "run", "check"], cwd=CONSOLE, check=True, timeout=NPM_S)


@needs_npm
def test_types_of_a_broker(tmp_path: Path, npm_packages: None) -> None:
    """`smile-types` prints types that compile, and that fit the client."""
    client = ROOT / "clients" / "js"
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=client, check=True, timeout=NPM_S)
    with InProcessBroker(tmp_path, PROGRAM) as broker:
        command = ["node", str(client / "dist" / "types.js"), broker.url]
        text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert 'export interface TradesEvent {\n  "symbol": string | null;' in text
    assert 'export interface PeriodsRow {\n  "window_end": bigint;' in text
    (tmp_path / "broker.ts").write_text(text)
    (tmp_path / "use.ts").write_text(USE_OF_TYPES)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "smile-client").symlink_to(client)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    tsc = str(client / "node_modules" / ".bin" / "tsc")
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--ignoreConfig"]
    subprocess.run([tsc, *options, "use.ts"], cwd=tmp_path, check=True, timeout=120)


USE_OF_TYPES = """
import { connect } from "smile-client";
import type { Broker, TradesEvent } from "./broker.js";

export const event: TradesEvent = { symbol: "ACME", price: 1.5, shares: 3 };
const client = connect<Broker>({ url: "http://127.0.0.1:7400" });
await client.publish("Trades", [event]);
await client.publish("Steps", { at: 17n, walker: "ann", steps: 3 });
const periods = client.subscribe("Periods", { where: { symbol: "ACME" } }, (frame) => {
  for (const change of frame.changes) console.log(change.key.window_end satisfies bigint, change.deleted);
});
for (const row of periods.rows.values()) {
  const end: bigint | null = row.get("window_end").value;
  const symbol: string | null = row.value("symbol");
  console.log(end, symbol, row.format("symbol"));
}
// @ts-expect-error: a stream that the broker does not have
await client.publish("Trade", event);
// @ts-expect-error: a misspelt column of an event
await client.publish("Trades", { symbol: "ACME", price: 1.5, share: 3 });
// @ts-expect-error: a value of another type
await client.publish("Trades", { symbol: "ACME", price: "much", shares: 3 });
// @ts-expect-error: a view that the broker does not have
client.subscribe("Period");
// @ts-expect-error: a misspelt column of a filter
client.subscribe("Periods", { where: { symbl: "ACME" } });
for (const row of (await client.snapshot("Periods")).rows) {
  // @ts-expect-error: a misspelt column
  row.get("symbl");
  // @ts-expect-error: a column of another type
  const wrong: string | null = row.value("window_end");
  // @ts-expect-error: a column that is not of the key
  console.log(wrong, row.key.nothing);
}
"""
