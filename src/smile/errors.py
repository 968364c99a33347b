"""The catalogue of errors. Every code is stable: it is never reused, and its meaning never changes.

A message is in lower case without a full stop; a hint is a sentence. A diagnostic always has a code. If it concerns the
text of a program, it also has a span.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from smile import limits
from smile.source import Source, Span

CATALOGUE: dict[str, str] = {
    # E00x: the file
    "E001": "the program cannot be read",
    "E002": "the program is not text",
    "E003": "the program is too large",
    "E004": "the program is empty",
    # E01x: syntax
    "E010": "syntax error",
    "E011": "unterminated string or comment",
    "E012": "nested too deeply",
    "E013": "not supported",
    # E02x: names
    "E020": "duplicate name",
    "E021": "unknown relation",
    "E022": "unknown column",
    "E023": "ambiguous column",
    "E024": "views refer to each other in a cycle",
    "E025": "unknown type or domain",
    "E026": "unknown function",
    "E027": "no recorded type of an import",
    # E03x: types of data
    "E030": "incomparable types",
    "E031": "wrong type",
    "E032": "wrong number of arguments",
    "E033": "wrong literal",
    # E04x: relations and queries
    "E040": "no key",
    "E041": "the GROUP BY loses the key",
    "E042": "aggregate in the wrong place",
    "E043": "no tick",
    "E044": "column lists do not match",
    "E045": "SILENCE in the wrong place",
    "E046": "wrong window",
    "E047": "wrong subquery",
    "E048": "wrong import",
    "E049": "options of a stream that exclude each other",
    # E05x: knowledge
    "E050": "contradictory knowledge",
    "E051": "rows of a join would share a key",
    "E052": "a view cannot be computed",
    "E053": "a view needs too much memory",
    # E06x: state, Java and Spark
    "E060": "no Java",
    "E061": "damaged state",
    "E062": "state of a newer version",
    "E063": "state cannot be accessed",
    "E064": "state cannot be written",
    "E065": "state of another program",
    "E066": "Java does not start",
    "E067": "wrong master",
    "E068": "Spark does not start",
    "E069": "Spark has failed",
    # E07x and E08x: events
    "E070": "the events cannot be read",
    "E071": "the line is too long",
    "E072": "the line is not text",
    "E073": "the line is not JSON",
    "E074": "the line is neither an event nor a silence",
    "E075": "a name is given twice",
    "E076": "unknown stream",
    "E077": "unknown column of an event",
    "E078": "wrong value",
    "E079": "wrong tick",
    "E080": "the event violates a CHECK",
    "E081": "the tick was declared silent",
    "E082": "another event has the same tick",
    "E083": "contradictory messages",
    "E084": "the log cannot be written",
    "E085": "damaged log",
    "E086": "log of a newer version",
    "E087": "log of other streams",
    "E088": "the events do not fit the log",
    "E089": "the log changed while it was read",
    # E09x: publishing and subscribing
    "E090": "not allowed",
    "E091": "no token, or a wrong one",
    "E092": "over a limit",
    "E093": "wrong request",
    "E094": "wrong resume token",
    "E095": "the view has ended",
    "E096": "wrong sequence number",
    "E097": "the log was truncated",
    "E098": "the broker is stopping",
    "E099": "wrong condition",
    # E10x: the broker and its clients
    "E100": "wrong setting",
    "E101": "the data directory is in use",
    "E102": "the program cannot be changed this way",
    "E103": "the broker cannot be reached",
    "E104": "origin refused",
    "E105": "damaged data directory",
    "E106": "the address cannot be used",
    "E107": "unsafe address to listen on",
    "E108": "timeout",
    "E109": "the view is paused",
    "E110": "a value of UNIQUE columns is used already",
    "E111": "a view is behind",
    "E112": "little disk space",
    "E113": "the views are not maintained",
    "E114": "out of memory",
    "E120": "a message that breaks the protocol of links",
    "E121": "the neighbour does not answer",
    "E122": "versions of the link protocol do not meet",
    "E123": "the import is not open",
    "E124": "the exported relation has another type",
    "E125": "rows of an import that cannot be used",
    "E126": "wrong name of a broker",
    "E127": "the imports go in a circle",
    "E128": "an imported stream takes no publications",
    "E129": "no broker advertises the stream",
    "E130": "producers of a stream have different types",
    "E131": "a link that cannot be changed",
    "E132": "no such link",
    "E135": "the broker is not an origin of the stream",
    "E136": "events of an origin that is not a member",
    "E137": "contradictory members of a stream",
    "E138": "the type of an imported relation is not known yet",
    # E14x: durable subscriptions
    "E140": "another subscriber has taken over the name",
    "E141": "the name belongs to another subscription",
    "E142": "the relation has no events",
    "E143": "there is no such durable subscription",
    "E144": "wrong stream of a table's changes",
    "E145": "the filter cannot be used",
    "E146": "the contents of a table are not known",
    # E147 to E157: PostgreSQL
    "E147": "the function leaves something to the commit",
    "E148": "a delivery is held up",
    "E149": "a function takes long",
    "E150": "wrong definition of an event type",
    "E151": "not advertised",
    "E152": "wrong expression",
    "E153": "no way to publish immediately",
    "E154": "no such object in the database",
    "E155": "the name is in use",
    "E156": "the table cannot be used",
    "E157": "the database cannot be used",
    "E158": "wrong publish/subscribe statement",
    "E159": "the database cannot be reached",
    "E160": "a connection that the proxy cannot relay",
    "E161": "the statement has nowhere to go",
    # E162 to E166: the service of a database
    "E162": "the database cannot be used by a service",
    "E163": "the event type cannot be a stream",
    "E164": "the log and the database disagree",
    "E165": "the table of a view cannot be maintained",
    "E166": "the database does not answer",
    # E167 to E170: packages, and projects of users
    "E167": "a library is not installed",
    "E168": "the program cannot be laid out",
    "E169": "the test file cannot be used",
    "E170": "the project cannot be made",
    # E171 to E174: a user's Spark session
    "E171": "wrong option of the data source",
    "E172": "the batch cannot be published once",
    "E173": "the session cannot run a program",
    "E174": "wrong input of a program",
    # E175 to E178: the registry
    "E175": "the condition of a publisher or query cannot be used",
    "E176": "key attributes and measurements of a condition depend on each other",
    "E177": "a producer restricts a measurement",
    "E178": "no query over a global stream",
    "E179": "the classes of Spark cannot be stored",
    # E18x: global streams, and E181: windows over rows
    "E180": "no global stream, or not read as one",
    "E181": "rows that are not final when they appear",
    "E182": "the producer is not advertised",
    "E183": "two brokers claim the same events",
    "E184": "no such producer",
    "E185": "the global stream is closed",
    "E186": "published outside of a closed epoch",
    "E187": "the global stream cannot be closed",
    "E188": "two producers have the same channels",
    "E189": "two declarations of a global stream",
    # E190 to E193: the console
    "E190": "there is no such row",
    "E191": "this is not a query",
    "E192": "too many queries",
    "E193": "the query has ended",
    # E194: sessions
    "E194": "the end of a session in the wrong place",
    # E195: the tour of a demo
    "E195": "the tour cannot be read",
    # E196: queries over global streams
    "E196": "the query reads events that the program does not receive",
    # E197 and E205: the past
    "E197": "the history does not reach so far back",
    "E205": "the past is not known yet",
    # E198: expressions and queries of other dialects
    "E198": "wrong pattern or format",
    "E199": "NOW() in the wrong place",
    "E200": "row number in the wrong place",
    # E201 to E209, but E205: connectors
    "E201": "the source cannot be read",
    "E202": "the file cannot be read",
    "E203": "a line is not complete",
    "E204": "the MQTT broker cannot be used",
    "E206": "the table cannot be kept equal to the view",
    "E207": "the receiver of a webhook does not take it",
    "E208": "there is no such dead letter",
    "E209": "the dead letters cannot be stored",
    # E21x: tables
    "E210": "wrong definition of a table",
    "E211": "the join does not equate the primary key of a table",
    "E212": "wrong row of VALUES",
    "E214": "the file of a table cannot be read",
    "E215": "the file of a table does not fit the table",
    # W: warnings
    "W001": "state without bound",
    "W002": "predicate decided by the types alone",
    "W003": "many windows for each row",
    "W004": "every pair of rows is compared",
    "W005": "a join keeps rows without a match",
}


EVENT_NUMBER = re.compile(r"^event (\d+)(?=:)")
"""How the message about an event of a publication begins. The first event has the number 1."""


@dataclass(frozen=True)
class Diagnostic:
    code: str
    message: str
    span: Span | None = None
    hint: str | None = None
    event: int | None = None
    """Of a refused publication, which of its events, counted from 1."""
    column: str | None = None
    """The column of the event that is wrong, if it is one."""

    @property
    def is_warning(self) -> bool:
        return self.code.startswith("W")


class SmileError(Exception):
    """One or more diagnostics: errors of a program, or an error at run time."""

    def __init__(self, diagnostics: Diagnostic | Sequence[Diagnostic]) -> None:
        self.diagnostics = [diagnostics] if isinstance(diagnostics, Diagnostic) else list(diagnostics)
        self.published = 0
        """Of a data frame or an iterator that is published in parts: how many events were published before. Continue
        after these."""
        super().__init__(self.message)

    def __str__(self) -> str:
        """For whoever gets the error from the client: each message, and below it what works."""
        return "\n".join(f"{d.message}\n  hint: {d.hint}" if d.hint else d.message for d in self.diagnostics)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code}: {self.message})"

    @property
    def message(self) -> str:
        """What is wrong, in one line: for messages and logs that quote it."""
        return "; ".join(d.message for d in self.diagnostics)

    @property
    def code(self) -> str:
        """The code of the first diagnostic."""
        return self.diagnostics[0].code

    @property
    def hint(self) -> str | None:
        """What works instead, if that is known."""
        return self.diagnostics[0].hint

    @property
    def index(self) -> int | None:
        """Of a refused publication: the index, from 0, of the first refused event in what was published. None if the
        error is not about one event."""
        number = EVENT_NUMBER.match(self.diagnostics[0].message)
        return int(number[1]) - 1 if number else None


def message_of(problem: BaseException) -> str:
    """What is wrong, for messages and logs that quote it."""
    return problem.message if isinstance(problem, SmileError) else str(problem)


def error(code: str, message: str, span: Span | None = None, hint: str | None = None) -> SmileError:
    assert code in CATALOGUE, code
    return SmileError(Diagnostic(code, message, span, hint))


def event_error(
    code: str, message: str, event: int | None, column: str | None = None, hint: str | None = None
) -> SmileError:
    """Why an event of a publication is refused."""
    assert code in CATALOGUE, code
    return SmileError(Diagnostic(code, message, hint=hint, event=event, column=column))


def memory_error() -> SmileError:
    """For a request that may succeed later, or with less data."""
    return error("E114", "there is not enough memory for this now", hint="Try again in a moment, with less at a time.")


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint with the candidate most similar to `name`, or None if none is similar."""
    folded = {c.casefold(): c for c in candidates}
    matches = get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f"Did you mean {folded[matches[0]]}?" if matches else None


def render(diagnostics: Sequence[Diagnostic], source: Source) -> str:
    """All diagnostics as text, each with `file:line:col`, the line and carets under it. Errors come before warnings,
    each in the order of the program's text; after `errors_shown_max` the rest are counted."""
    ordered = sorted(diagnostics, key=lambda d: (d.is_warning, d.span.start if d.span else 0))
    rendered = [_render_diagnostic(d, source) for d in ordered[: limits.errors_shown_max]]
    if len(ordered) > limits.errors_shown_max:
        rendered.append(f"… and {len(ordered) - limits.errors_shown_max} more")
    return "\n".join(rendered)


def _render_diagnostic(d: Diagnostic, source: Source) -> str:
    severity = "warning" if d.is_warning else "error"
    if d.span is None:
        lines = [f"{source.name}: {severity} {d.code}: {d.message}"]
    else:
        line_number, col = source.line_col(d.span.start)
        lines = [f"{source.name}:{line_number}:{col}: {severity} {d.code}: {d.message}"]
        text = source.line(line_number)
        width = max(1, min(d.span.end - d.span.start, len(text) - col + 1))
        lines += _excerpt(text, col - 1, width)
    if d.hint:
        lines.append(f"  hint: {d.hint}")
    return "\n".join(lines)


def _excerpt(text: str, caret: int, width: int) -> list[str]:
    """The line, and carets under it. A long line is shortened to a window around the caret."""
    first = max(0, caret - limits.excerpt_chars_max // 2) if len(text) > limits.excerpt_chars_max else 0
    window = text[first : first + limits.excerpt_chars_max]
    width = min(width, max(1, len(window) - (caret - first)))
    padding = "".join("\t" if c == "\t" else " " for c in window[: caret - first])
    printable = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in window)
    return [f"  {printable}", f"  {padding}{'^' * width}"]
