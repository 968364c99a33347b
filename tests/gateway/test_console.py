"""The console as a browser loads it: the page and its assets, what they may load and call, and how long they are kept."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from smile.gateway.http.console import ConsoleFile, console_files
from tests.brokers import InProcessBroker

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("console"), auth=True) as broker:
        yield broker


def test_the_page_needs_no_token_and_loads_nothing_from_elsewhere(served: InProcessBroker) -> None:
    with served.http() as http:
        page = http.get("/", headers=HTML)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = page.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page.text) == []
        assert "<script>" not in page.text
        assert "style=" not in page.text
        for path in re.findall(r"""(?:src|href)=["']?/?(assets/[^"'\s>]+)""", page.text):
            assert http.get(f"/{path}").status_code == 200


def test_the_page_is_asked_for_again_and_assets_are_kept(
    served: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = b"export const answer = 42;\n" * 100
    files = {**console_files(), "assets/app-1a2b3c4d.js": ConsoleFile("text/javascript", script)}
    monkeypatch.setattr("smile.gateway.http.console.console_files", lambda: files)
    with served.http() as http:
        page = http.get("/", headers=HTML)
        assert page.headers["cache-control"] == "no-cache"
        assert http.get("/", headers={**HTML, "if-none-match": page.headers["etag"]}).status_code == 304
        asset = http.get("/assets/app-1a2b3c4d.js")
        assert (asset.content, asset.headers["content-encoding"]) == (script, "gzip")
        assert "immutable" in asset.headers["cache-control"]
        assert asset.headers["x-content-type-options"] == "nosniff"
        assert http.get("/assets/app-1a2b3c4d.js", headers={"accept-encoding": "identity"}).content == script
        head = http.head("/assets/app-1a2b3c4d.js")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) == len(gzip.compress(script, mtime=0))
        files["assets/client.js"] = ConsoleFile("text/javascript", script)
        assert http.get("/assets/client.js").headers["cache-control"] == "no-cache"
        missing = http.get("/assets/app-00000000.js")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "E093")
        assert http.get("/assets/..%2Findex.html").status_code == 404
        assert http.get("/?token=secret", headers=HTML).status_code == 400


def test_other_clients_are_told_what_there_is(served: InProcessBroker) -> None:
    with served.http() as http:
        answer = http.get("/", headers={"accept": "*/*"})
        assert answer.headers["content-type"].startswith("text/plain")
        assert f"{served.url}/views" in answer.text
        head = http.head("/")
        assert (head.status_code, head.content) == (200, b"")


def test_all_files_of_the_console_are_in_the_package() -> None:
    folder = Path(__file__).parents[2] / "src" / "smile" / "console" / "static"
    assert sorted(console_files()) == sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
