from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser import open_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser
