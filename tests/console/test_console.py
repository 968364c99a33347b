"""The console in Chromium, on a broker in this process: what a user sees and can do."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, expect

from smile.gateway.access import Grant
from tests.brokers import BrokerProcess, InProcessBroker
from tests.browser import CLIENT, WAIT_MS, needs_chromium, needs_node, open_page, skip_without
from tests.console.pages import CUT_VALUES, PROGRAM, open_view, tick_at, trade
from tests.processes import WAIT_S, clean_environment, wait_until

HOSTILE = [
    '<img src=x onerror="window.hacked=1">',
    "<script>window.hacked=1</script>",
    '"><svg onload=window.hacked=1>',
    "javascript:window.hacked=1",
    "\u202eright to left\u202c",
    "x" * 5000,
    "{{constructor.constructor('window.hacked=1')()}}",
    "${window.hacked=1}",
]

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), needs_chromium]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("console"), PROGRAM) as broker:
        yield broker


def cell(page: Page, row: str, column: int) -> Any:
    return page.locator("table.live tbody tr", has_text=row).first.locator("td").nth(column)


def walk(broker: InProcessBroker, walker: str, steps: int, at_s: int) -> None:
    """Publishes an event at a time that the test chooses."""
    broker.publish("Steps", {"at": str(tick_at(at_s)), "walker": walker, "steps": steps})


def drawing(chart: Locator) -> str:
    """What is drawn on the canvas."""
    return str(chart.locator("canvas").evaluate("canvas => canvas.toDataURL()"))


def test_rows_evolve_and_become_final(browser: Browser, broker: InProcessBroker) -> None:
    with open_page(browser) as page:
        open_view(page, broker.url, "Periods")
        broker.publish("Trades", trade("LIVE", 5), trade("LIVE", 6))
        first = page.locator("table.live tbody tr", has_text="LIVE").first
        expect(first).to_be_visible(timeout=WAIT_MS)
        # The period ends by itself: then each of its cells is final, by sign and by colour.
        expect(first.locator("td.state")).to_have_text(re.compile(r"✓\s*final"), timeout=WAIT_MS)
        assert first.locator("td .known.final .sign").all_inner_texts() == ["✓", "=", "="]
        assert re.fullmatch(r"\d\d:\d\d:\d\d", first.locator("td").nth(1).inner_text())
        expect(page.get_by_label("Legend")).to_contain_text("will never change")


def test_a_row_has_its_history_and_chart(browser: Browser, broker: InProcessBroker) -> None:
    broker.publish("Trades", trade("STORY", 100))
    with open_page(browser) as page:
        open_view(page, broker.url, "Totals")
        expect(cell(page, "STORY", 2)).to_have_text(re.compile("≥ ?1"), timeout=WAIT_MS)
        cell(page, "STORY", 3).click()
        panel = page.get_by_label("Row", exact=True)
        expect(panel).to_contain_text("It is at least 100, whatever comes")
        broker.publish("Trades", trade("STORY", 20))
        expect(panel).to_contain_text("It is at least 120", timeout=WAIT_MS)
        expect(panel.locator(".history li")).to_have_count(2)
        expect(panel.get_by_role("img", name=re.compile("volume as it became known"))).to_be_visible()
        # Screen readers are told which cell the keys have chosen.
        table = page.get_by_role("grid", name="Rows of Totals")
        table.focus()
        page.keyboard.press("ArrowLeft")
        chosen = page.locator(f"#{table.get_attribute('aria-activedescendant')}")
        expect(chosen).to_have_text(re.compile(r"≥\s*2"))
        page.keyboard.press("Escape")
        expect(panel).to_have_count(0)


def test_unrelated_rows_are_not_joined_in_a_chart(browser: Browser, broker: InProcessBroker) -> None:
    """Events whose key is their time are no series; a key that is an empty text is not the key of the only row."""
    broker.publish("Trades", *(trade("", shares) for shares in (3, 4, 5)))
    with open_page(browser) as page:
        open_view(page, broker.url, "Each")
        page.locator("table.live tbody tr:not(.spacer)").first.locator("td").nth(3).click()
        panel = page.get_by_label("Row", exact=True)
        expect(panel.get_by_role("img", name=re.compile("shares as it became known"))).to_be_visible(timeout=WAIT_MS)
        assert panel.get_by_role("img").count() == 1
        page.goto(f"{broker.url}/#/views/Totals")
        page.locator("tr", has=page.locator("td:nth-child(2):text-is('')")).first.locator("td").nth(2).click()
        expect(panel.get_by_role("heading", level=2)).to_have_text('""', timeout=WAIT_MS)


def test_a_view_that_is_not_there(browser: Browser, broker: InProcessBroker) -> None:
    with open_page(browser) as page:
        open_view(page, broker.url, "Nothing")
        expect(page.get_by_role("alert")).to_contain_text("E021", timeout=WAIT_MS)
        assert page.get_by_label("Legend").count() == page.get_by_text("connecting").count() == 0


def test_search_sort_filter_and_pause(browser: Browser, broker: InProcessBroker) -> None:
    broker.publish("Trades", trade("AAA", 1), trade("BBB", 300), trade("CCC", 20))
    with open_page(browser) as page:
        open_view(page, broker.url, "Totals")
        rows = page.locator("table.live tbody tr:not(.spacer)")
        expect(cell(page, "CCC", 1)).to_be_visible(timeout=WAIT_MS)
        page.get_by_role("searchbox").fill("bbb")
        expect(rows).to_have_count(1)
        page.get_by_role("searchbox").fill("")
        page.get_by_role("button", name="volume").click()
        expect(page.locator("th", has_text="volume")).to_have_attribute("aria-sort", "descending")

        def is_sorted() -> bool:  # the rows are drawn after the heading
            shown = rows.locator("td:nth-child(2)").all_inner_texts()
            return [name for name in shown if name in ("AAA", "BBB", "CCC")] == ["BBB", "CCC", "AAA"]

        wait_until(is_sorted, "the rows are not sorted")
        page.get_by_label("Value of the filter").fill("AAA")
        page.get_by_role("button", name="Filter", exact=True).click()
        expect(rows).to_have_count(1)
        page.get_by_role("button", name="Pause").click()
        broker.publish("Trades", trade("AAA", 4))
        expect(page.get_by_text("nothing is lost")).to_be_visible()
        page.wait_for_timeout(400)
        assert re.fullmatch(r"≥\s*1", cell(page, "AAA", 2).inner_text())
        page.get_by_role("button", name="Resume").click()
        expect(cell(page, "AAA", 2)).to_have_text(re.compile("≥ ?2"), timeout=WAIT_MS)
        with page.expect_download() as download:
            page.get_by_role("button", name="Download as CSV").click()
        assert Path(download.value.path()).read_text().splitlines()[1].startswith('"AAA",2,5,')


def test_a_filter_may_be_a_range(browser: Browser, broker: InProcessBroker) -> None:
    """Also of a column that changes: rows come and leave as it does."""
    broker.publish("Trades", trade("RANGE1", 9100), trade("RANGE2", 9200), trade("RANGE3", 9300))
    with open_page(browser) as page:
        open_view(page, broker.url, "Totals")
        expect(cell(page, "RANGE3", 1)).to_be_visible(timeout=WAIT_MS)
        column, operator = page.get_by_label("Column of the filter"), page.get_by_label("Operator of the filter")
        value, add = page.get_by_label("Value of the filter"), page.get_by_role("button", name="Filter", exact=True)
        assert operator.locator("option").all_inner_texts() == ["="]  # of a text
        column.select_option("volume")
        for sign, bound in (("≥", "9200"), ("<", "9999")):
            operator.select_option(sign)
            value.fill(bound)
            add.click()
        names = page.locator("table.live tbody tr:not(.spacer) td:nth-child(2)")
        expect(names).to_have_text(["RANGE2", "RANGE3"], timeout=WAIT_MS)
        broker.publish("Trades", trade("RANGE1", 200), trade("RANGE3", 5000))
        expect(names).to_have_text(["RANGE1", "RANGE2"], timeout=WAIT_MS)
        value.fill("many")
        add.click()
        assert "Write a number" in value.evaluate("input => input.validationMessage")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download as CSV").click()
        rows = sorted(Path(download.value.path()).read_text().splitlines()[1:])
        assert [row.split(",")[:3] for row in rows] == [['"RANGE1"', "2", "9300"], ['"RANGE2"', "1", "9200"]]
        for name in ("volume ≥ 9200", "volume < 9999"):
            page.get_by_role("button", name=f"Remove the filter {name}").click()
        expect(cell(page, "RANGE3", 1)).to_be_visible(timeout=WAIT_MS)
        with broker.http() as http:
            wait_until(lambda: http.get("/status").json()["queries"] == [], "a query is left behind")


def test_a_filter_on_a_time_takes_what_the_table_shows(browser: Browser, broker: InProcessBroker) -> None:
    hour = int(time.time()) // 3600 * 3600
    walk(broker, "EARLY", 1, hour - 7200)
    walk(broker, "LATE", 2, hour - 3600)
    with open_page(browser) as page:
        open_view(page, broker.url, "Hours")
        rows = page.locator("table.live tbody tr:not(.spacer)")
        expect(cell(page, "LATE", 1)).to_be_visible(timeout=WAIT_MS)
        column, value = page.get_by_label("Column of the filter"), page.get_by_label("Value of the filter")
        expect(column).to_have_value("walker")  # the first that is no time
        column.select_option("window_end")
        shown = cell(page, "EARLY", 1).inner_text()
        assert shown in page.locator("#filter-values option").evaluate_all("all => all.map((one) => one.value)")
        value.fill("yesterday")
        page.get_by_role("button", name="Filter", exact=True).click()
        assert "Choose one" in value.evaluate("input => input.validationMessage")
        value.fill(shown)
        page.get_by_role("button", name="Filter", exact=True).click()
        expect(page.get_by_label("Remove the filter window_end")).to_contain_text(shown)
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("EARLY")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download as CSV").click()
        assert '"LATE"' not in Path(download.value.path()).read_text()


def test_why_a_row_is_not_final_until_it_is(browser: Browser, broker: InProcessBroker) -> None:
    hour = int(time.time()) // 3600 * 3600
    walk(broker, "WHY", 5, hour)
    with open_page(browser, color_scheme="light", timezone_id="Asia/Kolkata") as page:
        open_view(page, broker.url, "Hours")
        expect(cell(page, "WHY", 3)).to_have_text(re.compile("≥ ?5"), timeout=WAIT_MS)
        cell(page, "WHY", 3).click()
        panel = page.get_by_label("Row", exact=True)
        chart = panel.get_by_role("img", name=re.compile("total as it became known"))
        expect(chart).to_have_attribute("aria-label", re.compile("at least 5, no upper bound"))
        expect(panel.get_by_role("heading", name="Why is this not final?")).to_be_visible()
        expect(panel.locator(".earliest")).to_have_text(re.compile(r"Final at the earliest .*in \d"), timeout=WAIT_MS)
        # All times are those of the browser's clock, and each reason is said once.
        why = panel.get_by_role("region", name="Why is this not final?")
        end = datetime.fromtimestamp(hour + 3600, ZoneInfo("Asia/Kolkata")).strftime("%H:%M:%S")
        assert cell(page, "WHY", 1).inner_text().endswith(end)
        expect(why.locator("li")).to_have_text(
            re.compile(rf"^Open window.*period ends at [\d -]*{end}; Steps is known up to")
        )
        expect(why.locator(".earliest strong")).to_have_text(re.compile(rf"{end}$"))
        assert why.inner_text().count("period ends") == 1 and "UTC" not in why.inner_text()
        expect(panel.get_by_text(re.compile(r"since it was opened, at \d\d:\d\d:\d\d"))).to_be_visible()
        # The chart is drawn in the colours of the system, also when they change.
        light = drawing(chart)
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert drawing(chart) != light
        page.emulate_media(color_scheme="light")
        with broker.http() as http:
            http.post("/streams/Steps/silence", json={"to": str(tick_at(hour + 3600))}).raise_for_status()
        expect(chart).to_have_attribute("aria-label", re.compile(r"\. Final: 5$"), timeout=WAIT_MS)
        expect(panel.get_by_text("This row will never change")).to_be_visible()
        expect(panel.get_by_role("heading", name="Why is this not final?")).to_have_count(0)
        expect(panel.locator(".earliest")).to_have_count(0)


def test_a_phone_shows_what_is_known(browser: Browser, broker: InProcessBroker) -> None:
    broker.publish("Trades", trade("PHONE", 3))
    with open_page(browser, viewport={"width": 390, "height": 760}) as page:
        open_view(page, broker.url, "Periods")
        first = page.locator("table.live tbody tr:not(.spacer)").first
        sign = first.locator("td:not(.state) .known .sign").first
        expect(sign).to_be_in_viewport(ratio=1, timeout=WAIT_MS)
        expect(first.locator("td:not(.state) .known .value").first).to_be_in_viewport(ratio=1)
        assert page.locator("table.live th").nth(2).inner_text() == "trades"  # a value, before the second key
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # A value with a note, which becomes longer: it is in sight as a whole.
        open_view(page, broker.url, "Newest")
        for price in (60.4, 1234567890.25):
            broker.publish("Trades", trade("PHONE", 3, price))
            value = page.locator("table.live tbody tr", has_text="PHONE").locator(".value").first
            expect(value).to_have_text(f"{price:.12g}".removesuffix(".25"), timeout=WAIT_MS)
            expect(value).to_be_in_viewport(ratio=1)
            expect(page.locator("tr", has_text="PHONE").locator(".note").first).to_have_text(re.compile(r"^at \d\d:"))
            wait_until(lambda: page.evaluate(CUT_VALUES) == [], "a value is cut")


def test_hostile_values_are_text(browser: Browser, broker: InProcessBroker) -> None:
    broker.publish("Trades", *(trade(text) for text in HOSTILE))
    with open_page(browser) as page:
        open_view(page, broker.url, "Totals")
        expect(page.locator("table.live")).to_contain_text("onerror", timeout=WAIT_MS)
        page.locator("table.live td", has_text="<script>").click()
        expect(page.get_by_label("Row", exact=True).get_by_role("heading").first).to_have_text(HOSTILE[1])
        page.goto(f"{broker.url}/#/streams/Trades")
        expect(page.get_by_role("region", name="Newest events")).to_contain_text("onerror", timeout=WAIT_MS)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_publishing_from_the_form(browser: Browser, broker: InProcessBroker) -> None:
    with open_page(browser) as page:
        page.goto(f"{broker.url}/#/streams/Trades")
        page.get_by_label("symbol").fill("O'Form")
        page.get_by_label("price").fill("ten")
        page.get_by_label("shares").fill("-3")
        expect(page.get_by_text("Write a number.")).to_be_visible()
        expect(page.get_by_role("button", name="Publish", exact=True)).to_be_disabled()
        page.get_by_label("price").fill("10.5")
        page.get_by_role("button", name="Publish", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("E080", timeout=WAIT_MS)
        page.get_by_label("shares").fill("3")
        page.get_by_role("button", name="Publish", exact=True).click()
        expect(page.get_by_text("Published at")).to_be_visible(timeout=WAIT_MS)
        expect(page.locator("figure.code pre")).to_contain_text("'\\''Form")
        expect(page.get_by_role("region", name="Newest events")).to_contain_text("O'Form", timeout=WAIT_MS)


def test_what_is_typed_into_the_form_is_checked(browser: Browser, tmp_path: Path) -> None:
    """Times are written as the page shows them; numbers that their column cannot have are not sent."""
    program = """
        CREATE STREAM Orders (at: time -> id: int, amount: decimal(8, 2), due: time, grace: interval, placed: timestamp)
          WITH (TICKS = PUBLISHER);
        CREATE VIEW Last AS SELECT id, MAX(due) AS due FROM Orders GROUP BY id;
        SUBSCRIBE Last;"""
    wrong = {
        "at": ["yesterday", "25:00", "2026-02-30 10:00", "9223372036854775807"],
        "id": ["9223372036854775808", "1.5", "0x10"],
        "amount": ["1.234", "1234567", "1,5"],
        "due": ["2026-01-01", "-1"],
        "grace": ["soon"],
        "placed": ["2026-13-01 10:00:00"],
    }
    right = {
        "at": "2026-01-31 12:00:00.5", "id": "-9223372036854775808", "amount": "123456.78", "due": "2026-01-31T07:30:00Z",
        "grace": "3 minutes", "placed": "2026-01-31 12:00:00",
    }  # fmt: skip
    at_s = datetime(2026, 1, 31, 12, 0, 0, 500_000, ZoneInfo("Asia/Kolkata")).timestamp()
    with InProcessBroker(tmp_path, program) as broker, open_page(browser, timezone_id="Asia/Kolkata") as page:
        page.goto(f"{broker.url}/#/streams/Orders")
        publish = page.get_by_role("button", name="Publish", exact=True)
        for name, text in right.items():
            page.get_by_label(re.compile(rf"^{name} ")).fill(text)
        expect(publish).to_be_enabled()
        for name, texts in wrong.items():
            field = page.get_by_label(re.compile(rf"^{name} "))
            for text in texts:
                field.fill(text)
                expect(field).to_have_attribute("aria-invalid", "true")
                expect(publish).to_be_disabled()
            field.fill(right[name])
        publish.click()
        expect(page.get_by_text("Published at 2026-01-31 12:00:00.500")).to_be_visible(timeout=WAIT_MS)
        with broker.http() as http:
            (newest,) = http.get("/streams/Orders?newest=1").json()["newest"]
        assert (int(newest["at"]), int(newest["event"]["due"])) == (tick_at(at_s), tick_at(at_s - 0.5 + 3600))
        assert [str(newest["event"][name]) for name in ("id", "amount")] == [right["id"], right["amount"]]


def test_program_graph_and_editor(browser: Browser, broker: InProcessBroker) -> None:
    with open_page(browser) as page:
        page.goto(f"{broker.url}/#/program")
        page.get_by_role("button", name=re.compile("^Totals")).click()
        expect(page.get_by_label("Node", exact=True)).to_contain_text("Watch it", timeout=WAIT_MS)
        page.get_by_role("tab", name="Editor").click()
        editor = page.get_by_role("textbox", name="The program")
        expect(editor).to_contain_text("CREATE STREAM Trades", timeout=WAIT_MS)
        editor.click()
        page.keyboard.press("Control+End")
        page.keyboard.type("SUBSCRIBE Totalz;")
        expect(page.locator(".diagnostics .error")).to_contain_text("Totalz", timeout=WAIT_MS)
        expect(page.get_by_role("button", name="Apply")).to_be_disabled()
        page.get_by_role("button", name="Undo all").click()
        expect(page.get_by_text("This is what runs.")).to_be_visible()


def test_a_view_is_added_in_the_editor(browser: Browser, tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM) as broker, open_page(browser) as page:
        page.goto(f"{broker.url}/#/program")
        page.get_by_role("tab", name="Editor").click()
        editor = page.get_by_role("textbox", name="The program")
        expect(editor).to_contain_text("CREATE STREAM Trades", timeout=WAIT_MS)
        editor.click()
        page.keyboard.press("Control+End")
        page.keyboard.type("CREATE VIEW Added AS SELECT t, pricee FROM Trades;")
        wrong = page.locator(".diagnostics .error").first
        expect(wrong).to_contain_text("pricee", timeout=WAIT_MS)
        line, caret = wrong.locator("pre").inner_text().split("\n")
        assert caret == " " * line.index("pricee") + "^" * len("pricee")
        for _ in range(len("e FROM Trades;")):
            page.keyboard.press("Backspace")
        page.keyboard.type(" FROM Trades WHERE shares > 1 QUALIFY true;")
        assert keyword_colors(page, "CREATE") == keyword_colors(page, "QUALIFY") != keyword_colors(page, "Added")
        for _ in range(len(" QUALIFY true;")):
            page.keyboard.press("Backspace")
        page.keyboard.type(";\nSUBSCRIBE Added;")
        show = page.get_by_role("button", name="Show the difference")
        expect(page.locator(".diagnostics .error")).to_have_count(0, timeout=WAIT_MS)
        show.click()
        expect(page.get_by_label("Difference", exact=True)).to_contain_text("New views")
        expect(page.get_by_label("Difference", exact=True)).to_contain_text("Added")
        changed = page.get_by_label("Changed lines")
        added = changed.locator("ins").all_inner_texts()
        assert [text.strip() for text in added] == [
            "+ CREATE VIEW Added AS SELECT t, price FROM Trades WHERE shares > 1;",
            "+ SUBSCRIBE Added;",
        ]
        assert changed.locator("del").count() == 0
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_text("Applied.")).to_be_visible(timeout=WAIT_MS)
        page.get_by_role("link", name="Views").click()
        expect(page.get_by_role("link", name="Added")).to_be_visible(timeout=WAIT_MS)


def keyword_colors(page: Page, word: str) -> str:
    """The colour of a word in the editor."""
    text = page.locator(".cm-line span", has_text=re.compile(rf"^\s*{word}\s*$"))
    line = page.locator(".cm-line", has_text=word).last
    return str((text.last if text.count() else line).evaluate("element => getComputedStyle(element).color"))


def test_a_question_is_answered_live(browser: Browser, broker: InProcessBroker) -> None:
    broker.publish("Trades", trade("ASKED", 1))
    # Where a selection is typed over, Chromium itself adds a style to the element, and the policy refuses it: no harm.
    with open_page(browser, allowed="422|400|Applying inline style") as page:
        page.goto(f"{broker.url}/#/ask")
        editor = page.get_by_role("textbox", name="The question, a SELECT")
        editor.click()
        page.keyboard.type("SELECT nothing FROM Trades")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("alert")).to_contain_text("nothing", timeout=WAIT_MS)
        editor.click()
        page.keyboard.press("Control+a")
        page.keyboard.type("SELECT symbol, COUNT(*) AS n FROM Trades WHERE symbol = 'ASKED' GROUP BY symbol")
        page.keyboard.press("Control+Enter")
        expect(cell(page, "ASKED", 2)).to_have_text(re.compile(r"≥\s*1"), timeout=WAIT_MS)
        broker.publish("Trades", trade("ASKED", 1))
        expect(cell(page, "ASKED", 2)).to_have_text(re.compile(r"≥\s*2"), timeout=WAIT_MS)
        # The rows are in the order that is asked for.
        editor.click()
        page.keyboard.press("Control+a")
        page.keyboard.type("SELECT t, shares FROM Trades WHERE symbol = 'ORDER' ORDER BY shares DESC LIMIT 3")
        broker.publish("Trades", *(trade("ORDER", shares) for shares in (30, 70, 50, 10)))
        page.keyboard.press("Control+Enter")
        values = page.locator("table.live tbody tr:not(.spacer) td:nth-child(3)")
        expect(values).to_have_text([re.compile("70$"), re.compile("50$"), re.compile("30$")], timeout=WAIT_MS)


def test_a_tour_leads_through_the_views(browser: Browser, tmp_path: Path) -> None:
    """It opens by itself, follows the step that the demo is at until the reader turns the pages, and covers nothing."""
    steps = [
        {"title": "Open", "text": "It may grow.\n\nSo it is at least that.", "view": "Totals", "column": "volume"},
        {"title": "Period", "text": "It ends by itself.", "view": "Periods"},
        {"title": "Graph", "text": "All of it.", "page": "program"},
    ]
    path = tmp_path / "tour.json"
    path.write_text(json.dumps({"title": "A story", "steps": steps, "running": 0}))
    with InProcessBroker(tmp_path, PROGRAM, tour=str(path)) as broker:
        broker.publish("Trades", trade("ACME", 7), trade("HOOLI", 8))
        with open_page(browser, viewport={"width": 1360, "height": 850}) as page:
            page.goto(broker.url)
            tour = page.get_by_role("region", name="Tour")
            expect(tour.get_by_role("heading")).to_have_text("Open", timeout=WAIT_MS)
            expect(page.get_by_label("Row", exact=True)).to_contain_text("It is at least 7", timeout=WAIT_MS)
            for width in (1360, 390):
                page.set_viewport_size({"width": width, "height": 850})
                above, table = tour.bounding_box(), page.locator(".table-scroller").bounding_box()
                assert above and table and above["y"] + above["height"] <= table["y"]
            path.write_text(json.dumps({"title": "A story", "steps": steps, "running": 1}))
            expect(page.get_by_role("heading", level=1)).to_have_text("Periods", timeout=WAIT_MS)
            tour.get_by_role("button", name="Back").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Totals")
            expect(tour).to_contain_text("1 of 3; the demo is at 2")
            tour.get_by_role("button", name="Follow the demo").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Periods")
            # A reader who is elsewhere is left there, and told what the demo does.
            page.get_by_role("link", name="Streams").click()
            path.write_text(json.dumps({"title": "A story", "steps": steps, "running": 0}))
            expect(tour.get_by_role("heading")).to_have_text("Open", timeout=WAIT_MS)
            expect(page.get_by_role("heading", level=1)).to_have_text("Streams")
            tour.get_by_role("button", name="Next").click()
            tour.get_by_role("button", name="Next").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Program")
            tour.get_by_role("button", name="Done").click()
            expect(tour).to_have_count(0)
            page.goto(f"{broker.url}/#/views")
            page.reload()
            page.get_by_role("button", name="Tour").click()
            expect(tour).to_be_visible()


def test_sign_in(browser: Browser, tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM, auth=True) as broker:
        accounts = broker.accounts()
        token = accounts.add_token("reader")
        accounts.grant(Grant("SUBSCRIBE", "Totals", "reader"))
        accounts.close()
        with open_page(browser, allowed="401|403|WebSocket") as page:
            addresses: list[str] = []
            page.on("request", lambda request: addresses.append(request.url))
            page.on("websocket", lambda socket: addresses.append(socket.url))
            page.goto(broker.url)
            page.get_by_label("Token").fill("wrong")
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("alert")).to_contain_text("E091", timeout=WAIT_MS)
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("link", name="Totals")).to_be_visible(timeout=WAIT_MS)
            assert page.get_by_text("Periods").count() == 0  # what the caller may not see is not there
            page.reload()
            expect(page.get_by_role("link", name="Totals")).to_be_visible(timeout=WAIT_MS)
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_label("Token")).to_be_visible(timeout=WAIT_MS)
            assert not any(token in address for address in addresses)


def test_an_administrator_gives_and_takes_rights(browser: Browser, tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM, auth=True) as broker:
        accounts = broker.accounts()
        root = accounts.add_token("root")
        accounts.grant(Grant("ADMIN", "program", "root"))
        accounts.close()
        with open_page(browser, allowed="401|403|409|WebSocket") as page:
            addresses: list[str] = []
            page.on("request", lambda request: addresses.append(request.url))
            sign_in(page, f"{broker.url}/#/operations", root)
            access = page.get_by_role("region", name="Tokens and grants")
            expect(access.get_by_role("row", name=re.compile("^root"))).to_contain_text("(you)", timeout=WAIT_MS)
            access.get_by_label("Principal", exact=True).fill("ann")
            access.get_by_role("button", name="Create a token").click()
            token = access.get_by_label("Token", exact=True).inner_text()
            assert token.startswith("smile_")
            access.get_by_role("button", name="Hide it").click()
            expect(page.get_by_text(token)).to_have_count(0)
            access.get_by_label("Name", exact=True).fill("Totals")
            access.get_by_role("button", name="Grant", exact=True).click()
            revoke = access.get_by_role("button", name="Revoke SUBSCRIBE ON Totals from ann")
            expect(revoke).to_be_visible(timeout=WAIT_MS)
            with broker.http(token) as ann:
                assert ann.get("/views/Totals").status_code == 200
                page.once("dialog", lambda dialog: dialog.accept())
                revoke.click()
                expect(revoke).to_have_count(0, timeout=WAIT_MS)
                assert ann.get("/views/Totals").status_code == 403
            # The last administrator is warned twice, and stays.
            asked: list[str] = []

            def answer(dialog: Dialog) -> None:
                asked.append(dialog.message)
                dialog.accept() if len(asked) == 1 else dialog.dismiss()

            page.on("dialog", answer)
            access.get_by_role("button", name="Revoke ADMIN ON program from root").click()
            expect(access.get_by_role("alert")).to_contain_text("nobody could administer", timeout=WAIT_MS)
            assert asked[0] == "You lose ADMIN ON program."
            assert "nobody could administer" in asked[1]
            assert not any(secret in address for address in addresses for secret in (token, root))
        with open_page(browser, allowed="401|403|WebSocket") as page:
            sign_in(page, f"{broker.url}/#/operations", token)
            expect(page.get_by_role("alert")).to_contain_text("E090", timeout=WAIT_MS)
            assert page.get_by_text("Tokens and grants").count() == 0
            assert page.get_by_text("root").count() == 0


def sign_in(page: Page, url: str, token: str) -> None:
    page.goto(url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Operations", timeout=WAIT_MS)


def test_the_broker_goes_away_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    with BrokerProcess(tmp_path) as broker, open_page(browser, allowed="ERR_|Failed to load|WebSocket") as page:
        broker.publish("Trades", trade("BACK"))
        open_view(page, broker.url, "Totals")
        expect(cell(page, "BACK", 2)).to_have_text(re.compile("≥ ?1"), timeout=WAIT_MS)
        broker.kill()
        expect(page.get_by_role("alert")).to_contain_text("The broker is away", timeout=WAIT_MS)
        expect(cell(page, "BACK", 2)).to_have_text(re.compile("≥ ?1"))
        broker.start()
        expect(page.get_by_text("The broker is away")).to_have_count(0, timeout=WAIT_MS)
        broker.publish("Trades", trade("BACK"))
        expect(cell(page, "BACK", 2)).to_have_text(re.compile("≥ ?2"), timeout=WAIT_MS)


@pytest.mark.parametrize(
    "language",
    [
        pytest.param("curl", marks=skip_without(shutil.which("curl"), "curl")),
        "Python",
        pytest.param("JavaScript", marks=needs_node),
    ],
)
def test_what_can_be_copied_publishes_the_event(
    language: str, browser: Browser, broker: InProcessBroker, tmp_path: Path
) -> None:
    """As it stands, whatever is in the event."""
    symbol = f"{language} {QUOTED}"
    with open_page(browser) as page:
        page.goto(f"{broker.url}/#/streams/Trades")
        page.get_by_label("symbol").fill(symbol)
        page.get_by_label("price").fill("10.5")
        page.get_by_label("shares").fill("3")
        page.get_by_role("tab", name=language).click()
        code = page.locator("figure.code pre").inner_text()
    done = subprocess.run(
        command_of(language, code, tmp_path), cwd=tmp_path, env=clean_environment(), capture_output=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr.decode()
    with broker.http() as http:
        newest = http.get("/streams/Trades?newest=1").json()["newest"][0]["event"]
    assert newest == {"symbol": symbol, "price": 10.5, "shares": 3}
    assert not (tmp_path / "hacked").exists()


QUOTED = "'; touch hacked; echo '\"$(touch hacked)`touch hacked`${1+touch hacked}\\n\\'{x} null true %s é\u202e😀"


def command_of(language: str, code: str, folder: Path) -> list[str]:
    """The command that runs what was copied."""
    if language == "curl":
        return ["sh", "-c", code.replace("curl ", "curl --fail --silent --show-error --noproxy '*' ", 1)]
    if language == "Python":
        return [sys.executable, "-c", code]
    (folder / "node_modules" / "smile-client").mkdir(parents=True)
    (folder / "node_modules" / "smile-client" / "index.mjs").write_bytes(CLIENT.read_bytes())
    (folder / "node_modules" / "smile-client" / "package.json").write_text('{"main": "index.mjs"}')
    (folder / "copied.mjs").write_text(code)
    return ["node", "--experimental-websocket", "--no-warnings", "copied.mjs"]
