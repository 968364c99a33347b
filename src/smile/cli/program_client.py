"""Requests about the program of a running broker: read it, change it, and learn what a change would do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from smile import limits
from smile.client.address import BrokerAddress
from smile.client.connection import response_error, unreachable_error
from smile.errors import Diagnostic, SmileError, error
from smile.source import Source

if TYPE_CHECKING:
    import httpx

DIFFERENCE_KEYS = {"added", "changed", "dropped", "unchanged", "streams_added", "streams_dropped", "imports_changed"}
"""What a broker reports: names of views, and of streams."""


class ProgramClient:
    def __init__(self, address: BrokerAddress) -> None:
        import httpx  # noqa: PLC0415  # it takes a while to load

        self._address = address
        # A backfill may take hours. If the broker stops meanwhile, the connection is closed.
        timeout = httpx.Timeout(limits.client_timeout_s)
        self._long_timeout = httpx.Timeout(limits.client_timeout_s, read=None)
        verify = address.tls_context() or True
        self._http = httpx.Client(verify=verify, trust_env=not address.is_loopback, timeout=timeout)

    def __enter__(self) -> "ProgramClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def fetch_program(self) -> str:
        return self._request("GET", "/program").text

    def fetch_difference(self, source: Source) -> dict[str, list[str]]:
        """What would change if this became the program."""
        difference = self._decode_object(self._put_program(source, "?dry_run=true"))
        if not difference.keys() >= DIFFERENCE_KEYS:
            raise self._unexpected_answer()
        return difference

    def apply_program(self, source: Source) -> None:
        """Returns when new views have caught up."""
        self._put_program(source, "", timeout=self._long_timeout)

    def add_views(self, source: Source) -> None:
        """Adds the views of these statements to the program."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        self._request("POST", "/views", source, headers, content=source.text.encode(), timeout=self._long_timeout)

    def drop_view(self, name: str) -> None:
        self._request("DELETE", f"/views/{quote(name, safe='')}", timeout=self._long_timeout)

    def open_query(self, source: Source) -> tuple[str, dict[str, int]]:
        """Opens an ad-hoc query. Returns the name of its temporary view, and the horizons of the log."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        answer = self._decode_object(
            self._request("POST", "/queries", source, headers, content=source.text.encode(), timeout=self._long_timeout)
        )
        try:
            return str(answer["view"]), {stream: int(tick) for stream, tick in answer["progress"].items()}
        except (KeyError, AttributeError, TypeError, ValueError):
            raise self._unexpected_answer() from None

    def close_query(self, view: str) -> None:
        self._request("DELETE", f"/queries/{quote(view, safe='')}")

    def fetch_status(self) -> dict[str, Any]:
        return self._decode_object(self._request("GET", "/status"))

    def _put_program(self, source: Source, query: str, **more: Any) -> "httpx.Response":
        content_type = "text/x-mmpl" if source.name.lower().endswith(".mmpl") else "text/plain"
        headers = {"Content-Type": f"{content_type}; charset=utf-8"}
        return self._request("PUT", f"/program{query}", source, headers, content=source.text.encode(), **more)

    def _request(
        self,
        method: str,
        path: str,
        source: Source | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,  # as httpx takes them
    ) -> "httpx.Response":
        import httpx  # noqa: PLC0415

        all_headers = {**self._address.headers, **(headers or {})}
        try:
            response = self._http.request(method, f"{self._address.url}{path}", headers=all_headers, **more)
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            raise unreachable_error(self._address, failure) from None
        if not response.is_success:
            raise self._decode_errors(response, source)
        return response

    def _decode_object(self, answer: "httpx.Response") -> dict[str, Any]:
        try:
            decoded = answer.json()
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            raise self._unexpected_answer()
        return decoded

    def _unexpected_answer(self) -> SmileError:
        return error(
            "E103", f"{self._address.url}: the answer is not that of a broker", hint="Is that the URL of a broker?"
        )

    def _decode_errors(self, answer: "httpx.Response", source: Source | None) -> SmileError:
        """The errors that the broker reports, with their positions in the text that was sent."""
        try:
            errors = answer.json()["errors"]
            return SmileError([_decode_diagnostic(encoded, source) for encoded in errors])
        except (ValueError, KeyError, TypeError):
            return response_error(self._address, answer.status_code, answer.content)


def _decode_diagnostic(encoded: dict[str, Any], source: Source | None) -> Diagnostic:
    span = None
    if "line" in encoded and source is not None:
        span = source.span_at(encoded["line"], encoded["col"], encoded.get("length", 1))
    return Diagnostic(encoded["code"], encoded["message"], span, encoded.get("hint"))
