"""A view of 10,000 rows that changes 1,000 times a second, open in a page for ten minutes. It measures, so nothing runs
beside it: it is a part of its own of `make nightly`. SMILE_LOAD_S is another duration in seconds.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, expect

from tests.brokers import BrokerProcess
from tests.browser import WAIT_MS, needs_chromium, open_page
from tests.console.pages import READINGS_PROGRAM, open_view

ROWS = 10_000
CHANGES_PER_S = 1_000
LOAD_S = float(os.environ.get("SMILE_LOAD_S", "600"))
HEAP_SAMPLES = 10
HEAP_GROWTH_MAX = 3 * 2**20
"""Less than a byte for each change of five minutes: what is not garbage yet differs by about as much."""

COUNT = """() => {
  window.drawn = { frames: 0, updates: 0 };
  const count = () => { window.drawn.frames++; requestAnimationFrame(count); };
  requestAnimationFrame(count);
  new MutationObserver(() => window.drawn.updates++)
    .observe(document.querySelector("table.live tbody"), { subtree: true, childList: true, characterData: true });
}"""
"""Counts frames, and those in which cells or rows of the table have changed."""


@contextmanager
def readings(broker: BrokerProcess) -> Iterator[None]:
    """Publishes `CHANGES_PER_S` readings a second, each of another sensor than the last."""
    is_done = threading.Event()

    def run() -> None:
        at, beginning = 0, time.monotonic()
        with broker.http() as http:
            while not is_done.is_set():
                due = int((time.monotonic() - beginning) * CHANGES_PER_S)
                events = [{"sensor": n * 7919 % ROWS, "value": n % 997 / 10} for n in range(at, min(due, at + 2000))]
                if events:
                    http.post("/streams/Readings/events", json=events).raise_for_status()
                    at += len(events)
                is_done.wait(0.05)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


@needs_chromium
def test_a_large_view_that_changes_stays_smooth(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(READINGS_PROGRAM)
    with BrokerProcess(tmp_path) as broker, open_page(browser, viewport={"width": 1400, "height": 900}) as page:
        for start in range(0, ROWS, 1000):
            broker.publish("Readings", *({"sensor": n, "value": 1.0} for n in range(start, start + 1000)))
        open_view(page, broker.url, "Sensors")
        expect(page.locator(".counts")).to_contain_text("10,000 rows", timeout=WAIT_MS)
        # Sorted by a column that changes all the time: that is the most work.
        page.get_by_role("button", name="readings").click()
        session = page.context.new_cdp_session(page)
        with readings(broker):
            page.wait_for_timeout(3000)
            heap = [used_heap(session)]
            page.evaluate(COUNT)
            beginning = time.monotonic()
            for sample in range(1, HEAP_SAMPLES + 1):
                while time.monotonic() < beginning + sample * LOAD_S / HEAP_SAMPLES:
                    page.mouse.move(700, 500)
                    page.mouse.wheel(0, 800)
                    page.wait_for_timeout(500)
                heap.append(used_heap(session))
            seconds = time.monotonic() - beginning
            drawn = page.evaluate("window.drawn")
            rate = page.locator(".counts span").last.inner_text()
        frames, updates = drawn["frames"] / seconds, drawn["updates"] / seconds
        figures = (
            f"{frames:.1f} frames and {updates:.1f} updates of the table a second, {rate}, in {seconds:.0f} s; "
            f"heap in MiB: {' '.join(f'{size / 2**20:.1f}' for size in heap)}"
        )
        sys.stdout.write(f"{figures}\n")
        assert frames >= 30, figures
        assert updates >= 1, figures
        second_half = heap[len(heap) // 2 :]
        assert max(second_half) < second_half[0] + HEAP_GROWTH_MAX, figures
        assert page.locator("table.live tbody tr").count() < 100
        changes = float(re.sub(r"[^\d.]", "", rate))
        assert changes > CHANGES_PER_S / 4, figures  # what waits is merged, so they are fewer than the events


def used_heap(session: CDPSession) -> int:
    session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])
