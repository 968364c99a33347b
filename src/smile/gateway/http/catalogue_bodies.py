"""The JSON bodies of the catalogue: lists and descriptions of streams and views, the graph, checks of programs."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from smile import limits
from smile.gateway.http.bodies import ColumnBody, Count, Horizon, KnowledgeBody, OriginBody, Tick

Bound = int | float | str
"""The end of a range; text if it is a formula, or beyond 2^53."""
Range = Annotated[list[Bound], Meta(min_length=2, max_length=2)]


class StreamColumnBody(Struct):
    name: str
    type: str
    role: Annotated[Literal["tick", "key", "value"], Meta(description="key: in UNIQUE columns.")]
    nullable: bool
    range: Range | None


class StreamSummaryBody(Struct):
    name: str
    mmpl: Annotated[str, Meta(description="Its definition, as the log has it.")]
    columns: list[StreamColumnBody]
    checks: Annotated[list[str], Meta(description="Conditions in MMPL that no event makes false.")]
    unique: list[list[str]]
    publisher_timed: bool
    origins: Annotated[list[OriginBody], Meta(description="Of a stream with many origins.")]
    horizon: Horizon | None
    truncated_to: Annotated[Tick | None, Meta(description="Events up to this tick were removed from the log.")]
    events: Annotated[int, Meta(ge=0, description="Events in the log, with those removed since the broker started.")]
    rate: Annotated[float, Meta(ge=0, description="Events per second, over the last seconds.")]
    publishable: Annotated[bool, Meta(description="The caller may publish to it.")]
    source: Literal["program", "table", "import"]
    from_: Annotated[list[str], Meta(description="The brokers that it is imported from.")] = field(name="from")
    readers: Annotated[list[str], Meta(description="The views that are computed from it.")]


class StreamsBody(Struct):
    streams: list[StreamSummaryBody]


class EventBody(Struct):
    stream: str
    at: Tick
    origin: str
    event: dict[str, Any]


class StreamDescriptionBody(StreamSummaryBody):
    newest: Annotated[
        list[EventBody] | None, Meta(description="The newest events first; null without SUBSCRIBE or READ on it.")
    ]


class ViewColumnBody(Struct):
    name: str
    type: str
    domain: str
    range: Range | None
    steps: Bound
    direction: str
    evolves: bool
    nullable: bool
    hidden: Annotated[bool, Meta(description="A column of the key that was not selected.")]


class OrderBody(Struct):
    column: str
    descending: bool


class ViewSummaryBody(Struct):
    """The figures of a view without subscription are null or 0."""

    name: str
    key: list[str]
    order: Annotated[list[OrderBody], Meta(description="The order of ORDER BY … LIMIT; empty if there is none.")]
    columns: list[ViewColumnBody]
    rows: Count | None
    changes_per_s: Annotated[float, Meta(ge=0)] | None
    lag_s: float | None
    subscribers: Count
    subscribed: Annotated[bool, Meta(description="The program subscribes to it, so that it is maintained.")]
    state: Annotated[
        Literal["live", "starting", "filling", "paused", "waiting", "unsubscribed"],
        Meta(description="starting: the engine is not up yet. waiting: for the description of an import."),
    ]
    streams: Annotated[list[str], Meta(description="The streams that it is computed from.")]


class ViewsBody(Struct):
    views: list[ViewSummaryBody]


class RememberedBody(Struct):
    what: str
    until: str
    endless: str | UnsetType | None = UNSET


class ViewDescriptionBody(ViewSummaryBody):
    """What needs ADMIN is null without it: from `sql` to `waits_for`."""

    sql: Annotated[str | None, Meta(description="The statement that defines it; null in a program in MMPL.")]
    mmpl: str | None
    reads: Annotated[list[str] | None, Meta(description="The relations that its definition names.")]
    remembers: list[RememberedBody] | None
    final_early: list[str] | None
    waits_for: str | None
    mask: dict[str, Any] | None
    seals: Annotated[dict[str, str | None], Meta(description="By stream: the last tick that affects a row, or null.")]
    state_bytes: Count
    horizons: dict[str, Horizon]


class NodeBody(Struct):
    id: str
    kind: Literal["stream", "import", "transform", "view", "link"]
    name: Annotated[str | None, Meta(description="null for an intermediate result.")]
    label: str | None
    operator: Annotated[str | None, Meta(description="The transform that computes it, as a line of MMPL.")]
    view: Annotated[str | None, Meta(description="The stream or view that it is part of.")]
    stage: int | None
    stored: Annotated[str | None, Meta(description="Why its rows are stored; null if they are not.")]
    remembers: list[RememberedBody]
    subscribed: bool
    rate: Annotated[
        float | None, Meta(description="Events, changes of rows, or rows received, per second; null: not measured.")
    ]
    lag_s: Annotated[float | None, Meta(description="How old what it shows is; of a link, what was received.")]
    state_bytes: int | None
    rows: int | None
    state: Annotated[Literal["up", "down"] | None, Meta(description="Of a link.")]
    problem: Annotated[str | None, Meta(description="Why a link is down.")]


class ExchangeBody(Struct):
    by: Annotated[list[str] | None, Meta(description="The columns that decide the partition; null: any.")]


class EdgeBody(Struct):
    from_: str = field(name="from")
    to: str
    exchange: Annotated[ExchangeBody | None, Meta(description="Rows are sent to a later stage.")]


class StageBody(Struct):
    number: int
    by: list[str]


class GraphBody(Struct):
    nodes: list[NodeBody]
    edges: list[EdgeBody]
    stages: list[StageBody]
    subscriptions: list[str]


Severity = Literal["error", "warning"]


class DiagnosticBody(Struct):
    severity: Severity
    code: str
    message: str
    hint: str | UnsetType = UNSET
    line: int | UnsetType = UNSET
    col: int | UnsetType = UNSET
    length: int | UnsetType = UNSET


class ProgramCheckBody(Struct):
    ok: bool
    diagnostics: list[DiagnosticBody]


class StreamQuery(Struct):
    newest: Annotated[
        int, Meta(ge=0, le=limits.newest_events_max, description="How many of the newest events are wanted.")
    ] = 20


class SaidTickBody(Struct):
    tick: Tick


class WaitBody(Struct):
    kind: Annotated[
        Literal["window", "horizon", "end", "neighbour", "gap", "maintenance", "paused", "open"],
        Meta(description="window: a period has to end. end: only the end of the stream. Others: what holds it back."),
    ]
    stream: str
    origin: Annotated[str | None, Meta(description="Of a stream with many origins.")]
    needs_tick: Annotated[Tick | None, Meta(description="The horizon that makes the row final; null: never.")]
    now_tick: Horizon
    text: Annotated[str, Meta(description="Times of brokers in UTC.")]
    parts: Annotated[list[str | SaidTickBody], Meta(description="The same text, with ticks in place of times.")]


class CellBody(Struct):
    knowledge: KnowledgeBody
    waits_for: list[WaitBody]


class FinalityBody(Struct):
    view: str
    key: dict[str, Any]
    final: bool
    stays: bool
    cells: Annotated[dict[str, CellBody], Meta(description="The columns that evolve.")]
    waits_for: list[WaitBody]
    epochs: Annotated[dict[str, str], Meta(description="Of global streams: the closed epoch that it depends on.")]
    earliest: Annotated[Tick | None, Meta(description="Final from this tick on, whatever else happens; null: never.")]
    text: str


class FinalityQuery(Struct):
    key: Annotated[str, Meta(description='The key of the row as a JSON object: {"issue":"IBM"}.')] = "{}"
    column: Annotated[str, Meta(description="Only this column.")] = ""


class OpenedQueryBody(Struct):
    """`view` is the name of the temporary view."""

    view: str
    key: list[str]
    order: Annotated[list[OrderBody], Meta(description="The order of ORDER BY … LIMIT; empty if there is none.")]
    columns: dict[str, ColumnBody]
    progress: Annotated[dict[str, Horizon], Meta(description="The horizons of the log now: for `after.STREAM`.")]
