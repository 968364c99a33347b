"""Chromium and Node for tests. A test that needs one of them is skipped where it is not installed, and says so; in
continuous integration it fails instead."""

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
STATIC = ROOT / "src" / "smile" / "console" / "static"
CLIENT = STATIC / "assets" / "smile-client.js"
WAIT_MS = 60_000
"""How long a page may take for what must happen: it only delays tests that fail."""
expect.set_options(timeout=WAIT_MS)
NPM_S = 300
"""How long npm may take to install packages and to run their programs."""


@functools.cache
def chromium_path() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def skip_without(path: str | None, package: str, environment: Mapping[str, str] = os.environ) -> pytest.MarkDecorator:
    """`path` is that of the program, if it is installed. `CI` is set in continuous integration."""
    is_skipped = path is None and not environment.get("CI")
    return pytest.mark.skipif(is_skipped, reason=f"it is not installed: apt-get install {package}")


needs_chromium = skip_without(chromium_path(), "chromium")
needs_node = skip_without(shutil.which("node"), "nodejs")
needs_npm = skip_without(shutil.which("npm"), "npm")


@contextmanager
def open_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox, and often little shared memory.
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser: Browser, allowed: str = "", **options: Any) -> Iterator[Page]:
    """A page in a context of its own. Errors in its console fail the test, unless they match `allowed`."""
    errors: list[str] = []
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.on("pageerror", lambda problem: errors.append(str(problem)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    try:
        yield page
    finally:
        context.close()
    unexpected = [text for text in errors if not (allowed and re.search(allowed, text))]
    assert unexpected == [], unexpected


class NodeDriver:
    """The JavaScript client in Node, driven by commands (`clients/driver.js`)."""

    def __init__(self, folder: Path) -> None:
        module = folder / "smile-client.mjs"
        module.write_bytes(CLIENT.read_bytes())
        host = ROOT / "tests" / "clients" / "node_host.mjs"
        self._process = subprocess.Popen(
            ["node", "--experimental-websocket", "--no-warnings", str(host), str(module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"node ended with {self._process.wait()}"
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class PageDriver:
    """The JavaScript client in a page, driven by the same commands."""

    def __init__(self, page: Page, url: str) -> None:
        self._page = page
        page.goto(url)
        driver = (ROOT / "tests" / "clients" / "driver.js").read_text()
        page.evaluate(f"async () => {{ window.drive = ({driver})(await import('/assets/smile-client.js')); }}")

    def run(self, **command: Any) -> Any:
        return json.loads(self._page.evaluate("async (command) => JSON.stringify(await drive(command))", command))
