"""`smile apply`: replaces the program of a running broker, after the user has confirmed the difference.

The program is compiled here first, so that its errors are reported without the broker. A program with imports is
compiled by the broker, which has the types of what is imported.
"""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smile import limits
from smile.cli.client import CaOption, UrlOption
from smile.cli.exits import error_exit
from smile.client.address import BrokerAddress
from smile.client.connection import response_error, unreachable_error
from smile.errors import Diagnostic, SmileError, error, render
from smile.program import CompiledProgram, compile_program, imported_relations, read_source
from smile.source import Source, Span

if TYPE_CHECKING:
    import httpx

DIFFERENCE_KEYS = {"added", "changed", "dropped", "unchanged", "streams_added", "streams_dropped"}
"""What a broker reports: names of views, and of streams."""

POLL_S = 0.5
"""Interval at which the progress shown in a terminal is updated."""


def apply(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="A SmileSQL program, or MMPL if its name ends in .mmpl.")
    ],
    url: UrlOption = None,
    ca: CaOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the difference.")] = False,
) -> None:
    """Change the program that a broker runs: show the difference, ask, and wait until new views have caught up.

    Unchanged views continue without interruption, and so do their subscriptions. If the broker requires tokens, the
    principal of SMILE_TOKEN needs ADMIN ON program.

    Example: smile apply programs/tradefloor.smile --dry-run
    """
    source = Source(program, "")
    try:
        source = read_source(program)
        # Only the broker knows the types of what it imports.
        compiled = None if imported_relations(source) else compile_program(source)
        with _RunningBroker(BrokerAddress.resolve(url, ca=ca), source) as broker:
            running_text = broker.fetch_program()
            difference = broker.fetch_difference()
            streams = [] if compiled is None else [stream.name for stream in compiled.original.streams]
            _print_difference(running_text, source, streams, difference)
            if compiled is not None:
                _print_warnings(compiled, (*difference["added"], *difference["changed"]))
            if dry_run or running_text == source.text:
                return
            if not yes and not _confirm():
                return
            with _show_progress(broker, (*difference["added"], *difference["changed"])):
                broker.apply_program()
    except SmileError as problem:
        raise error_exit(problem, source) from None
    except KeyboardInterrupt:
        print("smile: interrupted: the broker finishes what it has begun", file=sys.stderr)
        raise typer.Exit(130) from None
    print("smile: applied", file=sys.stderr)


class _RunningBroker:
    """Requests to a running broker, whose program is to become `source`."""

    def __init__(self, address: BrokerAddress, source: Source) -> None:
        import httpx  # noqa: PLC0415  # it takes a while to load

        self._address, self._source = address, source
        # A backfill may take hours. If the broker stops meanwhile, the connection is closed.
        timeout = httpx.Timeout(limits.client_timeout_s)
        self._long_timeout = httpx.Timeout(limits.client_timeout_s, read=None)
        verify = address.tls_context() or True
        self._http = httpx.Client(verify=verify, trust_env=not address.is_loopback, timeout=timeout)

    def __enter__(self) -> "_RunningBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def fetch_program(self) -> str:
        return self._request("GET", "/program").text

    def fetch_difference(self) -> dict[str, list[str]]:
        difference = self._decode_object(self._put_program("?dry_run=true"))
        if not difference.keys() >= DIFFERENCE_KEYS:
            raise self._unexpected_answer()
        return difference

    def apply_program(self) -> None:
        self._put_program("", timeout=self._long_timeout)

    def fetch_status(self) -> dict[str, Any]:
        return self._decode_object(self._request("GET", "/status"))

    def _put_program(self, query: str, **more: Any) -> "httpx.Response":
        content_type = "text/x-mmpl" if self._source.name.lower().endswith(".mmpl") else "text/plain"
        headers = {"Content-Type": f"{content_type}; charset=utf-8"}
        return self._request("PUT", f"/program{query}", content=self._source.text.encode(), headers=headers, **more)

    def _request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> "httpx.Response":
        import httpx  # noqa: PLC0415

        all_headers = {**self._address.headers, **(headers or {})}
        try:
            response = self._http.request(method, f"{self._address.url}{path}", headers=all_headers, **more)
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            raise unreachable_error(self._address, failure) from None
        if response.status_code != 200:
            raise self._decode_errors(response)
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

    def _decode_errors(self, answer: "httpx.Response") -> SmileError:
        """The errors that the broker reports, with their positions in the program."""
        try:
            errors = answer.json()["errors"]
            return SmileError([self._decode_diagnostic(encoded) for encoded in errors])
        except (ValueError, KeyError, TypeError):
            return response_error(self._address, answer.status_code, answer.content)

    def _decode_diagnostic(self, encoded: dict[str, Any]) -> Diagnostic:
        span = None
        if "line" in encoded:
            lines_before = self._source.text.split("\n")[: encoded["line"] - 1]
            start = sum(len(line) + 1 for line in lines_before) + encoded["col"] - 1
            span = Span(start, start + encoded.get("length", 1))
        return Diagnostic(encoded["code"], encoded["message"], span, encoded.get("hint"))


def _print_difference(
    before: str, new_source: Source, streams: Sequence[str], difference: Mapping[str, Sequence[str]]
) -> None:
    """Prints the changed lines of the text, then the effect on each stream and view."""
    from rich.console import Console  # noqa: PLC0415  # it takes a while to load
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    styles = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}

    def show(line: str) -> None:
        console.print(Text(line, style=styles.get(line[:1], "")))

    if before == new_source.text:
        show(f"The broker runs this program already: {new_source.name}")
        return
    for line in unified_diff(
        before.splitlines(), new_source.text.splitlines(), "running", new_source.name, lineterm=""
    ):
        show("".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line))
    show("")
    added, dropped = difference["streams_added"], difference["streams_dropped"]
    for sign, noun, names, effect in [
        ("+", "stream", added, "added"),
        ("-", "stream", dropped, "dropped; its events stay in the log"),
        (" ", "stream", [name for name in streams if name not in added], "unchanged"),
        ("+", "view", difference["added"], "added"),
        ("~", "view", difference["changed"], "changed: computed anew; its subscriptions end"),
        ("-", "view", difference["dropped"], "dropped; its subscriptions end"),
        (" ", "view", difference["unchanged"], "unchanged"),
    ]:
        for name in names:
            show(f"{sign} {noun} {name}: {effect}")


def _print_warnings(compiled: CompiledProgram, views: Sequence[str]) -> None:
    """Prints the warnings about these views."""
    spans = [view.span for view in compiled.original.views if view.name in views and view.span is not None]
    warnings = [w for w in compiled.warnings if any(w.span and s.start <= w.span.start < s.end for s in spans)]
    if warnings:
        print(render(warnings, compiled.source), file=sys.stderr)


def _confirm() -> bool:
    if not sys.stdin.isatty():
        raise error(
            "E093", "cannot ask for confirmation: standard input is not a terminal", hint="Use --yes or --dry-run."
        )
    if typer.confirm("Apply?", default=False, err=True):
        return True
    print("smile: nothing was changed", file=sys.stderr)
    return False


@contextmanager
def _show_progress(broker: _RunningBroker, views: Sequence[str]) -> Iterator[None]:
    """Shows in a terminal how many rows the views under backfill have."""
    if not views or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415

    done = threading.Event()
    with Console(stderr=True).status(f"backfilling {', '.join(views)}") as line:

        def watch() -> None:
            while not done.wait(POLL_S):
                try:
                    view_status = broker.fetch_status()["views"]
                    rows = [f"{name}: {view_status[name]['rows']:,} rows" for name in views if name in view_status]
                except (SmileError, KeyError, TypeError, ValueError):
                    continue  # the response to the PUT reports errors
                line.update(f"backfilling {', '.join(rows)}")

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join(limits.client_timeout_s)


def register(app: typer.Typer) -> None:
    app.command()(apply)
