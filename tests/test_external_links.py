"""The addresses of other sites in the documents answer. Skipped where there is no connection to the internet."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.test_docs_links import DOCUMENTS

LINK = re.compile(r"\]\((https?://[^)\s]+)\)")
KNOWN_SITE = "https://example.com/"
ANSWER_S_MAX = 20.0
OWN = ("127.0.0.1", "localhost", "example.org", "example.com")


def external_links() -> dict[str, str]:
    """A document of each."""
    found = {}
    for document in DOCUMENTS:
        text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
        for url in LINK.findall(text):
            if not any(name in url for name in OWN):
                found[url.partition("#")[0]] = document.name
    return found


@pytest.fixture
def internet() -> Iterator[httpx.Client]:
    with httpx.Client(follow_redirects=True, timeout=ANSWER_S_MAX, headers={"user-agent": "Mozilla/5.0"}) as client:
        try:
            is_reached = client.get(KNOWN_SITE).status_code == 200
        except httpx.HTTPError:
            is_reached = False
        if not is_reached:
            pytest.skip(f"there is no internet here: {KNOWN_SITE} does not answer, so no link was checked")
        yield client


def is_gone(client: httpx.Client, url: str) -> str | None:
    """Why the page is not there. Other refusals, such as of robots, say nothing."""
    try:
        status = client.get(url).status_code
    except (httpx.ConnectError, httpx.UnsupportedProtocol) as problem:
        return f"{url}: {problem}"
    except httpx.HTTPError:
        return None
    return f"{url}: {status}" if status in (404, 410) else None


def test_links_to_other_sites_are_found() -> None:
    assert len(external_links()) > 20


def test_a_page_that_is_gone_is_found() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "none.test":
            raise httpx.ConnectError("unknown host")
        return httpx.Response({"/gone": 404, "/robots": 403}.get(request.url.path, 200))

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        urls = ("https://a.test/", "https://a.test/robots", "https://a.test/gone", "https://none.test/")
        assert [bool(is_gone(client, url)) for url in urls] == [False, False, True, True]


@pytest.mark.slow
@pytest.mark.nightly
def test_links_to_other_sites_lead_somewhere(internet: httpx.Client) -> None:
    links = external_links()
    with ThreadPoolExecutor(8) as pool:
        gone = [problem for problem in pool.map(lambda url: is_gone(internet, url), links) if problem]
    assert [f"{links[problem.partition(': ')[0]]}: {problem}" for problem in gone] == []
