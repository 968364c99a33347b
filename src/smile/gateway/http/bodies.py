"""The JSON bodies and the query parameters of the HTTP interface, as types. The OpenAPI document is generated from them
(`openapi.py`)."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from smile import limits
from smile.broker.health import HealthWord
from smile.horizons import END, HORIZON_MIN

Tick = Annotated[
    int | str,
    Meta(
        description="A tick. Beyond 2^53 it is text, so that no digit is lost.",
        extra_json_schema={
            "oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,19}$"}]
        },
    ),
]
"""In requests, its value is checked by `parse_tick`."""

Count = Annotated[int, Meta(ge=0)]

# ── responses ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ErrorBody(Struct):
    code: Annotated[str, Meta(pattern="^[EW][0-9]{3}$")]
    message: str
    hint: str | UnsetType = UNSET
    line: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    col: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    length: Count | UnsetType = UNSET
    event: Annotated[int, Meta(ge=1, description="Of a publication: which event, counted from 1.")] | UnsetType = UNSET
    column: str | UnsetType = UNSET


class FailureBody(Struct):
    """The first error; for a program, also all of its errors."""

    error: ErrorBody
    errors: list[ErrorBody] | UnsetType = UNSET


class WarningBody(Struct):
    """A column that may be NULL, and is absent from events."""

    column: str
    events: Annotated[Count, Meta(description="How many of the events lack it.")]
    message: str


class PublishedBody(Struct, omit_defaults=True):
    ticks: list[Tick]
    repeated: Annotated[int, Meta(description="How many of the events, the first ones, were already logged.")]
    warnings: list[WarningBody] = field(default_factory=list)


class SilentBody(Struct):
    silent: Tick


class DurableSubscriptionBody(Struct):
    """A durable subscription. The fields after `resume` are those of events."""

    principal: str
    name: str
    relation: str
    where: dict[str, Any]
    filter: Annotated[str | None, Meta(description="The predicate that its events satisfy.")]
    delivers: Literal["events", "rows"]
    scope: Annotated[Literal["local", "global"], Meta(description="global: of all brokers that publish the stream.")]
    connected: bool
    seen_s: Annotated[float, Meta(description="Seconds since it was connected last.")]
    resume: Annotated[str | None, Meta(description="The token of what was acknowledged.")]
    position: Annotated[dict[str, Tick], Meta(description="The acknowledged tick of each origin.")] | UnsetType = UNSET
    lag_s: Annotated[float | None, Meta(description="How old the first event is that it may lack.")] | UnsetType = UNSET
    waiting_events: (
        Annotated[int, Meta(ge=0, description="Events of the stream that it has not acknowledged.")] | UnsetType
    ) = UNSET
    gone: Annotated[bool, Meta(description="Events that it has not acknowledged were removed.")] | UnsetType = UNSET
    producers: (
        Annotated[int, Meta(ge=0, description="With global scope: how many producers have events here.")] | UnsetType
    ) = UNSET


class DurableSubscriptionsBody(Struct):
    subscriptions: list[DurableSubscriptionBody]


class AcknowledgedBody(Struct):
    acknowledged: Annotated[str, Meta(description="The token of the position that is stored now.")]


class DroppedBody(Struct):
    dropped: str


class DeadLetterBody(Struct):
    """An event that a stream has refused, or a row that a receiver has refused, with the reason."""

    id: Annotated[int, Meta(ge=1)]
    connector: Annotated[str, Meta(description="`source NAME` or `sink NAME`.")]
    subject: Annotated[str, Meta(description="Which event or row it is.")]
    format: Literal["json", "csv"]
    body: Annotated[str, Meta(description="The event or the row, in this format.")]
    code: Annotated[str, Meta(pattern="^E[0-9]{3}$")]
    message: str
    at: Annotated[float, Meta(description="When it was stored, in seconds since 1970.")]


class DeadLettersBody(Struct):
    """The oldest ones after `after`. `next` is where to continue, if there may be more."""

    letters: list[DeadLetterBody]
    next: int | None


class RetriedLetterBody(Struct):
    retried: int


class DroppedLetterBody(Struct):
    dropped: int


class LiveBody(Struct):
    live: bool


class HealthBody(Struct):
    health: Annotated[
        HealthWord,
        Meta(description="degraded: some views are not up to date. failing: publishing, or all views, do not work."),
    ]
    troubles: Annotated[list[str], Meta(description="The kinds of the current troubles; /status has the details.")]


class TourStepBody(Struct):
    """A step: what to look at in a view, and why. `page` is another page of the console, such as program."""

    title: str
    text: str
    view: str | None = None
    column: str | None = None
    page: Literal["views", "streams", "program", "ask", "operations"] | UnsetType = UNSET


class TourBody(Struct):
    title: str = ""
    steps: Annotated[list[TourStepBody], Meta(description="Empty if there is no tour.")] = []
    running: Annotated[int, Meta(ge=0, description="The step that the demo is at, from 0.")] | UnsetType = UNSET


class PauseBody(Struct):
    """Why a view is paused, and since when."""

    code: Annotated[str, Meta(pattern="^E[0-9]{3}$")]
    message: str
    since: Annotated[float, Meta(description="Seconds since 1970.")]
    temporary: Annotated[bool, Meta(description="The broker resumes the view by itself.")]
    hint: str | UnsetType = UNSET


class OriginBody(Struct):
    """`horizon` is up to where the origin is known at this broker. `holds_back`: nothing is final above it, although
    other origins are further."""

    origin: str
    broker: str
    state: Literal["member", "left", "fenced"]
    start: Tick
    end: Tick | None
    horizon: Tick | None
    holds_back: bool


class OriginsBody(Struct):
    """`origin` is the number of this broker; null if it is none of the origins."""

    stream: str
    home: str | None
    origin: str | None
    version: int
    origins: list[OriginBody]


class ResumedBody(Struct):
    """The view is being resumed: it continues from where it was paused."""

    view: str
    paused: PauseBody | None


class KnowledgeBody(Struct, forbid_unknown_fields=True):
    exactly: Any = UNSET
    at_least: Any = UNSET
    at_most: Any = UNSET
    between: Annotated[list[Any], Meta(min_length=2, max_length=2)] | UnsetType = UNSET
    latest: Any = UNSET
    at: Tick | UnsetType = UNSET
    source: Annotated[int, Meta(ge=1, description="Of two events at one tick, the greater is later.")] | UnsetType = (
        UNSET
    )
    rows: (
        Annotated[
            list[Literal["final", "stays", "shown"]], Meta(description="The state of each row of a nested relation.")
        ]
        | UnsetType
    ) = UNSET
    open: Annotated[bool, Meta(description="Rows may still come or leave.")] | UnsetType = UNSET
    unknown: Literal[True] | UnsetType = UNSET


class RowBody(Struct):
    """Everything that is known about a row now."""

    view: str
    key: dict[str, Any]
    row: dict[str, Any]
    knowledge: dict[str, KnowledgeBody]
    final: Annotated[bool, Meta(description="The row will never change again.")]
    steps: Count
    stays: Annotated[bool, Meta(description="The row will always be shown.")] | UnsetType = UNSET


Horizon = Annotated[
    int | str,
    Meta(
        extra_json_schema={
            "oneOf": [{"type": "integer", "minimum": HORIZON_MIN}, {"type": "string", "pattern": "^[0-9]{1,19}$"}]
        }
    ),
]


class SnapshotBody(Struct):
    view: str
    rows: list[RowBody]
    progress: Annotated[
        dict[str, Horizon], Meta(description="The tick of each stream up to which everything is known.")
    ]
    resume: Annotated[str | None, Meta(description="The token to subscribe to changes from here on.")]
    epochs: Annotated[
        dict[str, str] | UnsetType,
        Meta(description="The closed epochs of global streams with respect to which rows are final, if there are any."),
    ] = UNSET


class ChangeEvent(Struct):
    """A server-sent event."""

    event: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    data: str | UnsetType = UNSET


class StreamBody(Struct):
    tick: str
    columns: dict[str, str]
    publisher_timed: bool


class ColumnBody(Struct):
    type: str
    domain: str
    evolves: bool
    nullable: bool


class ViewBody(Struct):
    subscribed: bool
    key: list[str]
    columns: dict[str, ColumnBody]


class ProgramBody(Struct):
    program: str
    streams: dict[str, StreamBody]
    views: dict[str, ViewBody]


class AdvertisementBody(Struct):
    """An advertised stream. `from` is the neighbour over which it is reached; null for a stream of this broker."""

    stream: str
    where: Annotated[str, Meta(description="What is true of all events; empty if nothing is said.")]
    from_: Annotated[str | None, Meta(description="The neighbour; null if this broker publishes the stream.")] = field(
        name="from"
    )
    hosts: Annotated[list[str], Meta(description="The brokers that publish it.")]
    reachable: bool
    releases: Annotated[list[str], Meta(description="The views that select from it, for neighbours without it.")]


class RoutedSubscriptionBody(Struct):
    stream: str
    where: str
    from_: Annotated[list[str], Meta(description="Neighbours; empty text stands for this broker's own.")] = field(
        name="from"
    )


class AdvertisementsBody(Struct):
    advertisements: list[AdvertisementBody]
    subscriptions: list[RoutedSubscriptionBody]


class LinkBody(Struct):
    """A neighbour that this broker calls."""

    name: str
    url: list[str]
    ca: str | None
    has_token: bool
    from_settings: Annotated[bool, Meta(description="It is one of the settings, and cannot be changed here.")]


class LinksBody(Struct):
    links: list[LinkBody]


# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


class SilenceBody(Struct, forbid_unknown_fields=True):
    to: Tick


class AdvertiseBody(Struct, forbid_unknown_fields=True):
    where: Annotated[str, Meta(description="Only events that satisfy this condition are for neighbours.")] | None = None
    producer: Annotated[str, Meta(description="The name of a producer of the global stream.")] | None = None


class UnadvertiseQuery(Struct):
    producer: Annotated[str, Meta(description="A producer of the global stream that is withdrawn.")]


class PublisherBody(Struct):
    """A producer or republisher of a global stream that this broker knows."""

    name: str
    broker: str
    role: Literal["producer", "republisher"]
    where: str
    load: Annotated[int, Meta(description="About how many subscriptions a republisher has: a power of two, or 0.")]
    problem: Annotated[str | None, Meta(description="Why it cannot be used; null if it can.")] = None


class EpochBody(Struct):
    """A closed epoch of a global stream: its members publish the stream up to a tick, and nobody else."""

    epoch: str
    closed_to: Tick
    for_good: bool
    members: list[str]
    waiting: Annotated[list[str], Meta(description="Members that have not confirmed it, as far as it is known here.")]


class CloseBody(Struct, forbid_unknown_fields=True):
    to: Annotated[
        Tick | Literal["now"] | None, Meta(description="Close it up to this tick, or up to now; null: for good.")
    ] = None


class GlobalStreamBody(Struct):
    """What is final is so with respect to `closed`."""

    stream: str
    channel: list[str]
    columns: dict[str, str]
    registrations: Annotated[str, Meta(description="Identifies the registrations that this broker knows.")]
    closed: EpochBody | None
    closing: list[EpochBody]
    publishers: list[PublisherBody]
    held_back: Annotated[list[str], Meta(description="Brokers whose number as an origin is that of another one.")]
    outside: Annotated[list[str], Meta(description="Brokers that have published before its end without being members.")]


class PlanSourceBody(Struct):
    broker: str
    stream: str
    where: str


class PlanBody(Struct):
    """How this broker receives what a view or a republisher needs of a global stream."""

    name: str
    stream: str
    where: str
    republisher: bool
    views: Annotated[list[str], Meta(description="The views that read it.")]
    meta_plan: str
    epoch: Annotated[str | None, Meta(description="The closed epoch with respect to which rows become final.")]
    sources: list[PlanSourceBody]
    absent: Annotated[list[PlanSourceBody], Meta(description="Sources that are not asked: their lease has ended.")]
    ending: Annotated[list[PlanSourceBody], Meta(description="Sources of earlier plans that still run.")]
    origins: dict[str, Tick]
    problem: str | None


class RegistryBody(Struct):
    global_streams: list[GlobalStreamBody]
    plans: list[PlanBody]


class PlanExplanationBody(Struct):
    name: str
    query: str
    meta_plan: str
    plan: Annotated[list[str], Meta(description="What each source is asked for.")]
    publishers: Annotated[dict[str, str], Meta(description="Why each publisher is in the plan, or not.")]


class HierarchyArrowBody(Struct):
    """From a publisher to a republisher that may feed from it."""

    source: str
    target: str
    runs: Annotated[bool, Meta(description="It does. Plans of other brokers are those that this one would choose.")]


class RegistryExplanationBody(Struct):
    plans: list[PlanExplanationBody]
    hierarchy: list[HierarchyArrowBody]


class QueryPlanBody(PlanExplanationBody):
    """`name` is that of the global stream. `received_for` are the views of the program for which the broker receives
    the same events: the plan is then the one that runs."""

    received_for: list[str]


class QueryExplanationBody(Struct):
    plans: list[QueryPlanBody]


class LinkRequestBody(Struct, forbid_unknown_fields=True):
    url: str
    token: Annotated[str, Meta(description="With which the neighbour knows this broker.")] | None = None
    ca: Annotated[str, Meta(description="A file with certificates to trust, at the broker.")] | None = None


class PositionBody(Struct, forbid_unknown_fields=True):
    resume: Annotated[str, Meta(description="The token of the last event, or progress, that was processed.")]


# The queries and headers below are not decoded with these types: they say which parameters there are, all of them
# optional.


class NoQuery(Struct):
    pass


class OpenQueryQuery(Struct):
    as_of: Annotated[Tick, Meta(description="The rows as they were at this tick. They do not change.")]


class EndOriginQuery(Struct):
    fence: Annotated[bool, Meta(description="The home fences another origin.")]
    at: Annotated[Tick, Meta(description="With fence: the greatest tick that any broker has of the origin.")]


WHERE_PREFIX: Final = "where."
AFTER_PREFIX: Final = "after."

Conditions = Annotated[
    Any,
    Meta(
        description="`where.COLUMN=VALUE`: only rows that have this value; the column must be one that never changes in"
        " a row. `after.STREAM=TICK`: wait until the view includes everything up to this tick of the stream.",
        extra_json_schema={
            "type": "object",
            "patternProperties": {
                r"^where\..+$": {"type": "string"},
                r"^after\..+$": {
                    "type": "string",
                    "pattern": f"^({HORIZON_MIN}|[0-9]{{1,18}}|[1-8][0-9]{{18}}|{END})$",
                },
            },
            "additionalProperties": False,
        },
    ),
]
"""Parameters whose names begin with one of the prefixes."""


OnlyFinal = Annotated[
    Literal["true", "false"], Meta(description="Only rows that are final; among changes, each row once, when it is.")
]


class SnapshotQuery(Struct):
    format: Annotated[Literal["json", "ndjson", "csv", "arrow"], Meta(description="Overrides the header Accept.")]
    conditions: Conditions
    final: OnlyFinal = "false"
    times: Annotated[
        Literal["true", "false"], Meta(description="In CSV, ticks as timestamps in UTC, to the microsecond.")
    ] = "false"
    wait_ms: Annotated[
        int, Meta(ge=0, le=limits.wait_ms_max, description="How long to wait for the ticks of `after.STREAM`.")
    ] = limits.wait_ms_default


_NAME: Final = (
    "The name of a durable subscription: the broker stores what is acknowledged under it. A selection of a stream then "
    "delivers its events."
)


class ChangesQuery(Struct):
    resume: Annotated[str, Meta(description="The id of the last progress event, to continue from there.")]
    conditions: Conditions
    name: Annotated[str, Meta(description=_NAME)]
    deliver: Annotated[Literal["events", "rows"], Meta(description="What a durable subscription delivers.")]
    final: OnlyFinal = "false"
    start: Annotated[
        Literal["all", "kept", "new"],
        Meta(description="Where new durable subscriptions to events begin: all events, those in the log, or new ones."),
    ] = "all"
    scope: Annotated[
        Literal["local", "global"],
        Meta(description="global: the events of all brokers that publish a stream of this name, with a name only."),
    ] = "local"
    window: Annotated[int, Meta(ge=1, le=limits.window_max, description="Events that may be unacknowledged.")] = (
        limits.durable_window_events
    )
    filter: Annotated[str, Meta(description="Only events that satisfy this predicate in SmileSQL.")] = ""


class SubscriptionsQuery(Struct):
    all: Annotated[
        Literal["true", "false"], Meta(description="Those of all principals; it needs ADMIN ON program.")
    ] = "false"


class DeadLettersQuery(Struct):
    after: Annotated[str, Meta(description="List the letters after the one with this id.")] = "0"


class DropQuery(Struct):
    principal: Annotated[str, Meta(description="Whose subscription it is; another's needs ADMIN ON program.")]


class ProgramQuery(Struct):
    format: Annotated[Literal["text", "json"], Meta(description="The text, or a description.")] = "text"


class ApplyQuery(Struct):
    dry_run: Annotated[Literal["true", "false"], Meta(description="Only return the difference.")] = "false"


_PRODUCER: Final = "The producer. With a sequence number, repeated events are not logged again."
_SEQUENCE: Final = "The sequence number of the first event; the others have consecutive numbers."


class PublishHeaders(Struct, rename={"producer": "Smile-Producer", "sequence": "Smile-Sequence"}):
    producer: Annotated[str, Meta(min_length=1, max_length=limits.producer_chars_max, description=_PRODUCER)]
    sequence: Annotated[int, Meta(ge=0, le=limits.sequence_max, description=_SEQUENCE)]


class ChangesHeaders(Struct, rename={"last_event_id": "Last-Event-ID"}):
    last_event_id: Annotated[str, Meta(description="As `resume`.")]
