"""`smile apply`: a running broker's program becomes another one, once the user has seen what changes.

What is wrong with the program is found here, before the broker hears of it.
"""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smile import limits
from smile.cli.client import Ca, Url
from smile.cli.ends import ended
from smile.client.link import answered, unreachable
from smile.client.place import Place
from smile.errors import Diagnostic, SmileError, error
from smile.program import Compiled, compile_program, read_source
from smile.source import Source, Span

if TYPE_CHECKING:
    import httpx

DIFFERENCE = {"added", "changed", "dropped", "unchanged", "streams_added", "streams_dropped"}
"""What a broker tells of: names of views, and of streams."""

POLL_S = 0.5
"""How often the broker is asked how far it is, where somebody watches."""


def apply(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="A SmileSQL program, or MMPL if its name ends in .mmpl.")
    ],
    url: Url = None,
    ca: Ca = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference only.")] = False,
) -> None:
    """Change the program that a broker runs: show the difference, ask, and wait until new views have caught up.

    Views that are unchanged go on untouched, and so do their subscribers. Where a broker asks for a token, SMILE_TOKEN
    must be one that has ADMIN ON program.

    Example: smile apply programs/tradefloor.smile --dry-run
    """
    source = Source(program, "")
    try:
        source = read_source(program)
        compiled = compile_program(source)
        with _Running(Place.of(url, ca=ca), source) as running:
            before = running.program()
            difference = running.difference()
            _show(before, compiled, difference)
            if dry_run or before == source.text:
                return
            if not yes and not _agreed():
                return
            with _progress(running, (*difference["added"], *difference["changed"])):
                running.become()
    except SmileError as problem:
        raise ended(problem, source) from None
    except KeyboardInterrupt:
        print("smile: interrupted: what the broker has begun, it goes on with", file=sys.stderr)
        raise typer.Exit(130) from None
    print("smile: applied", file=sys.stderr)


class _Running:
    """The broker that runs a program, which may become `source`."""

    def __init__(self, place: Place, source: Source) -> None:
        import httpx  # noqa: PLC0415  # it takes a while to load

        self._place, self._source = place, source
        # Views may take hours to fill, and the connection says when the broker is gone.
        timeout = httpx.Timeout(limits.client_timeout_s)
        self._patient = httpx.Timeout(limits.client_timeout_s, read=None)
        trusted = place.tls() or True
        self._http = httpx.Client(verify=trusted, trust_env=not place.is_loopback, timeout=timeout)

    def __enter__(self) -> "_Running":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def program(self) -> str:
        return self._asked("GET", "/program").text

    def difference(self) -> dict[str, list[str]]:
        told = self._told(self._put("?dry_run=true"))
        if not told.keys() >= DIFFERENCE:
            raise self._strange()
        return told

    def become(self) -> None:
        self._put("", timeout=self._patient)

    def status(self) -> dict[str, Any]:
        return self._told(self._asked("GET", "/status"))

    def _put(self, query: str, **more: Any) -> "httpx.Response":
        kind = "text/x-mmpl" if self._source.name.lower().endswith(".mmpl") else "text/plain"
        headers = {"Content-Type": f"{kind}; charset=utf-8"}
        return self._asked("PUT", f"/program{query}", content=self._source.text.encode(), headers=headers, **more)

    def _asked(self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any) -> "httpx.Response":
        import httpx  # noqa: PLC0415

        sent = {**self._place.headers, **(headers or {})}
        try:
            answer = self._http.request(method, f"{self._place.url}{path}", headers=sent, **more)
        except (httpx.HTTPError, httpx.InvalidURL) as trouble:
            raise unreachable(self._place, trouble) from None
        if answer.status_code != 200:
            raise self._placed(answer)
        return answer

    def _told(self, answer: "httpx.Response") -> dict[str, Any]:
        try:
            told = answer.json()
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise self._strange()
        return told

    def _strange(self) -> SmileError:
        return error("E103", f"{self._place.url}: its answer is not a broker's", hint="Is that the URL of a broker?")

    def _placed(self, answer: "httpx.Response") -> SmileError:
        """What the broker says is wrong, at its places in the program."""
        try:
            errors = answer.json()["errors"]
            return SmileError([self._diagnostic(told) for told in errors])
        except (ValueError, KeyError, TypeError):
            return answered(self._place, answer.status_code, answer.content)

    def _diagnostic(self, told: dict[str, Any]) -> Diagnostic:
        span = None
        if "line" in told:
            before = self._source.text.split("\n")[: told["line"] - 1]
            start = sum(len(line) + 1 for line in before) + told["col"] - 1
            span = Span(start, start + told.get("length", 1))
        return Diagnostic(told["code"], told["message"], span, told.get("hint"))


def _show(before: str, compiled: Compiled, difference: Mapping[str, Sequence[str]]) -> None:
    """Line by line how the text changes; then what becomes of each stream and view."""
    from rich.console import Console  # noqa: PLC0415  # it takes a while to load
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    after = compiled.source
    styles = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}

    def show(line: str) -> None:
        console.print(Text(line, style=styles.get(line[:1], "")))

    if before == after.text:
        show(f"The broker runs this program already: {after.name}")
        return
    for line in unified_diff(before.splitlines(), after.text.splitlines(), "running", after.name, lineterm=""):
        show("".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line))
    show("")
    streams = [s.name for s in compiled.written.streams]
    added, dropped = difference["streams_added"], difference["streams_dropped"]
    for sign, noun, names, what in [
        ("+", "stream", added, "added"),
        ("-", "stream", dropped, "dropped; its events stay in the log"),
        (" ", "stream", [name for name in streams if name not in added], "unchanged"),
        ("+", "view", difference["added"], "added"),
        ("~", "view", difference["changed"], "changed: computed anew, its subscribers are told that it has ended"),
        ("-", "view", difference["dropped"], "dropped: its subscribers are told that it has ended"),
        (" ", "view", difference["unchanged"], "unchanged"),
    ]:
        for name in names:
            show(f"{sign} {noun} {name}: {what}")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise error("E093", "there is nobody to ask whether to apply this", hint="Say --yes, or --dry-run.")
    if typer.confirm("Apply?", default=False, err=True):
        return True
    print("smile: nothing was changed", file=sys.stderr)
    return False


@contextmanager
def _progress(running: _Running, views: Sequence[str]) -> Iterator[None]:
    """Says on a terminal how many rows the views have that are being filled."""
    if not views or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415

    done = threading.Event()
    with Console(stderr=True).status(f"filling {', '.join(views)}") as line:

        def watch() -> None:
            while not done.wait(POLL_S):
                try:
                    found = running.status()["views"]
                    rows = [f"{name}: {found[name]['rows']:,} rows" for name in views if name in found]
                except (SmileError, KeyError, TypeError, ValueError):
                    continue  # what became of it, the answer will say
                line.update(f"filling {', '.join(rows)}")

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            done.set()
            watching.join(limits.client_timeout_s)


def register(app: typer.Typer) -> None:
    app.command()(apply)
