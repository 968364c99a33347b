"""Settings: each has a type with constraints, which msgspec checks, a default and a meaning. `SETTINGS` describes them
for the file, the environment, the flags of `smile serve` and the documentation.

They are read from one TOML file, then from the environment (SMILE_LISTEN), then from flags (--listen); each overrides
the previous ones. Each neighbour has a table `[brokers.NAME]`, each source `[sources.NAME]`, each sink `[sinks.NAME]`,
and a database `[postgres]`; their settings have no flags.
"""

import ipaddress
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from smile import limits
from smile.errors import SmileError, did_you_mean, error
from smile.horizons import END

Value = str | int | bool | tuple[str, ...] | None

VARIABLE_PREFIX = "SMILE_"
CONFIG_VARIABLE = VARIABLE_PREFIX + "CONFIG"
"""Names the settings file, if no flag does."""
LINK_FAULTS_VARIABLE = "SMILE_LINK_FAULTS"
"""For tests: faults of links (`gateway.links.faulty_socket`)."""
OTHER_VARIABLES = {CONFIG_VARIABLE, "SMILE_URL", "SMILE_TOKEN", "SMILE_CA", "SMILE_DEBUG", LINK_FAULTS_VARIABLE}
"""Variables that are not settings of a broker."""

TOKEN_PREFIX = "smile_"
"""Makes tokens recognizable in any text, so that the broker's logs do not show them."""

FOREVER = "forever"
UNITS_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}

ADDRESS = (
    r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)
INTERVAL = rf" *([0-9]{{1,9}}) *((?i:{'|'.join(UNITS_S)}))(?i:s?) *"


class InvalidSetting(ValueError):
    """A wrong value; the hint says what would be right."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__(message)


# ── types ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# A constraint has the message for values that violate it, and a hint or the choices.


def _between(low: int, high: int) -> Meta:
    return Meta(ge=low, le=high, extra={"problem": f"{{}} is not between {low} and {high}"})


def _matching(pattern: str, problem: str, hint: str) -> Meta:
    return Meta(pattern=f"^(?:{pattern})$", extra={"problem": f"{{}} {problem}", "hint": hint})


def _one_of(*choices: str) -> Meta:
    problem = f"{{}} is none of {', '.join(choices)}"
    return Meta(pattern=f"^({'|'.join(choices)})$", extra={"problem": problem, "choices": choices})


def _about(placeholder: str, meaning: str) -> Meta:
    """The description of a setting; `placeholder` stands for its value in help texts."""
    return Meta(description=meaning, extra={"placeholder": placeholder})


_NO_ADDRESS = "is not HOST:PORT", "Write 127.0.0.1:7400, or [::1]:7400."
_NO_INTERVAL = "is neither forever nor an interval", "Write 12 hours, or 7 days."
_NO_ORIGIN = "is not an origin", "Write https://floor.example.org:8443, without a path."
_NO_HOST = "is not the name of a host", "Write floor.example.org, without a port."
_NO_BROKER_NAME = "is not a name of a broker", "Write a letter, then letters, digits and underscores: buys, floor_2."
_NO_URL = "is not a URL of a broker", "Write https://buys.example.org:7400, without a path."
_NO_DATABASE = Meta(  # The text is not shown: it may have a password.
    pattern=r"^(postgres(ql)?://\S+|\w+ *=.*)?$",
    extra={
        "problem": "it is not a connection string of PostgreSQL",
        "hint": "Write postgresql://user@host:5432/database. The password is better in the environment.",
    },
)
# The token is not shown.
_NO_TOKEN = Meta(pattern="^[!-~]*$", extra={"problem": "it has characters that are not allowed in a token"})

NonEmpty = Annotated[str, Meta(min_length=1, extra={"problem": "it must not be empty"})]
Address = Annotated[str, _matching(ADDRESS, *_NO_ADDRESS)]
OptionalAddress = Annotated[str, _matching(f"({ADDRESS})?", *_NO_ADDRESS)]
Retention = Annotated[str, _matching(f"{FOREVER}|{INTERVAL}", *_NO_INTERVAL)]
WebOrigin = Annotated[str, _matching(r"https?://(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(:[0-9]{1,5})?", *_NO_ORIGIN)]
HostName = Annotated[str, _matching(r"[\w.-]+|\[?[0-9A-Fa-f:.]+\]?", *_NO_HOST)]
BrokerName = Annotated[str, _matching(r"[A-Za-z][A-Za-z0-9_]{0,99}", *_NO_BROKER_NAME)]
_PORT = r"(6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]\d{4}|\d{1,4})"
BrokerUrl = Annotated[str, _matching(rf"https?://(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(:{_PORT})?", *_NO_URL)]
Token = Annotated[str, _NO_TOKEN]
DatabaseUrl = Annotated[str, _NO_DATABASE]
SourceKind = Annotated[str, _one_of("directory", "mqtt")]
SinkKind = Annotated[str, _one_of("parquet", "delta", "webhook")]
Changes = Annotated[str, _one_of("final", "all")]
EngineName = Annotated[str, _one_of("spark", "local")]
LogFormat = Annotated[str, _one_of("auto", "json", "text")]
LogLevel = Annotated[str, _one_of("debug", "info", "warning", "error")]
PartitionCount = Annotated[int, _between(1, limits.partitions_max)]
OriginNumber = Annotated[int, _between(0, limits.origin_max)]
Count = Annotated[int, _between(1, limits.setting_max)]
Rate = Annotated[int, _between(0, limits.setting_max)]


class NeighbourSettings(Struct, frozen=True, kw_only=True):
    """How to reach another broker: a table `[brokers.NAME]`. The token is never displayed."""

    url: Annotated[
        tuple[BrokerUrl, ...],
        _about(
            "URL,…",
            "Where this broker opens a link, or several: each has all imports, and one is enough. Without it, only the "
            "other broker can open one.",
        ),
    ] = ()
    token: Annotated[Token, _about("TOKEN", "The token that the other broker has given to this one.")] = ""
    ca: Annotated[str, _about("FILE", "Certificates to trust in addition to the system's (PEM).")] = ""
    types: Annotated[
        str,
        _about(
            "FILE",
            "Without a url: the types of what is imported from it, as smile explain PROGRAM --as exports --broker NAME "
            "prints them.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        _check_table(self, NEIGHBOUR_SETTINGS)

    def __repr__(self) -> str:
        return f"NeighbourSettings(url={self.url!r}, ca={self.ca!r}, types={self.types!r})"


class SourceSettings(Struct, frozen=True, kw_only=True):
    """Events from elsewhere that are logged in a stream: a table `[sources.NAME]`. The password is never displayed."""

    kind: Annotated[
        SourceKind,
        _about("KIND", "What it reads: the files of a directory, or the messages of mqtt."),
    ]
    url: Annotated[
        NonEmpty,
        _about(
            "URL",
            "Of directory: a path, or a URL such as s3://bucket/folder, with files in CSV, NDJSON or Parquet. Of mqtt: "
            "mqtt://HOST:PORT, or mqtts:// for TLS.",
        ),
    ]
    stream: Annotated[NonEmpty, _about("STREAM", "The stream that takes the events.")]
    topic: Annotated[str, _about("FILTER", "Of mqtt: the topics, such as sensors/+/temperature.")] = ""
    topic_column: Annotated[
        str, _about("COLUMN", "Of mqtt: the column of the stream that has the topic of the message; none if empty.")
    ] = ""
    username: Annotated[str, _about("NAME", "Of mqtt: the user.")] = ""
    password: Annotated[str, _about("PASSWORD", "Of mqtt: the user's password; better in the environment.")] = ""
    ca: Annotated[str, _about("FILE", "Of mqtts: certificates to trust instead of the system's (PEM).")] = ""

    def __post_init__(self) -> None:
        _check_table(self, SOURCE_SETTINGS)
        is_mqtt = self.kind == "mqtt"
        if is_mqtt and not self.topic:
            raise error("E100", "topic: it is missing", hint='Write topic = "sensors/#".')
        if is_mqtt and not re.fullmatch(r"mqtts?://(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(:[0-9]{1,5})?", self.url):
            raise error("E100", "url: it is not the URL of an MQTT broker", hint="Write mqtt://host:1883.")
        given = [name for name in _MQTT_ONLY if getattr(self, name)]
        if given and not is_mqtt:
            raise error("E100", f"{given[0]}: a source of kind {self.kind} does not have it")

    def __repr__(self) -> str:
        return f"SourceSettings(kind={self.kind!r}, stream={self.stream!r})"


class SinkSettings(Struct, frozen=True, kw_only=True):
    """What is kept equal to a view, or receives its rows: a table `[sinks.NAME]`. The secret is never displayed."""

    kind: Annotated[
        SinkKind,
        _about("KIND", "What it is: a parquet file, a delta table, or a webhook."),
    ]
    url: Annotated[
        NonEmpty,
        _about("URL", "Of parquet: the file; of delta: the folder; each a path or a URL. Of webhook: http(s)://…"),
    ]
    view: Annotated[NonEmpty, _about("VIEW", "The view. The program must subscribe to it.")]
    knowledge: Annotated[
        bool,
        _about("", "Of tables: also the bounds of values that evolve, and whether they and the row are final."),
    ] = False
    times: Annotated[
        bool,
        _about(
            "",
            "Of tables: ticks are timestamps in UTC. Switch it off if publishers give ticks that are no times.",
        ),
    ] = True
    changes: Annotated[
        Changes, _about("CHANGES", "Of webhook: final for rows that never change again, all for every change.")
    ] = "final"
    secret: Annotated[
        str, _about("SECRET", "Of webhook: the key of its signatures; better in the environment. None if empty.")
    ] = ""

    def __post_init__(self) -> None:
        _check_table(self, SINK_SETTINGS)
        if self.kind == "webhook" and not re.fullmatch(r"https?://[^\s@]+", self.url):
            raise error("E100", "url: it is not the URL of a receiver", hint="Write https://example.org/hook.")
        if self.kind == "webhook" and self.knowledge:
            raise error("E100", "knowledge: a webhook always has it")
        if self.kind != "webhook" and (self.secret or self.changes != "final"):
            raise error("E100", f"{'secret' if self.secret else 'changes'}: only a webhook has it")

    def __repr__(self) -> str:
        return f"SinkSettings(kind={self.kind!r}, view={self.view!r})"


class PostgresSettings(Struct, frozen=True, kw_only=True):
    """The database whose event types are streams of this broker: the table `[postgres]`. The URL is never displayed: it
    may have a password."""

    url: Annotated[
        DatabaseUrl,
        _about(
            "URL",
            "Connection string of a PostgreSQL database in which `smile postgres install` has installed the schema. "
            "Its event types become streams, and its subscriptions are served.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        for name, setting in POSTGRES_SETTINGS.items():
            with _with_location(f"{POSTGRES_TABLE}.{name}"):
                setting.convert(getattr(self, name))

    def __repr__(self) -> str:
        return f"PostgresSettings(url={'…' if self.url else ''!r})"


class Settings(Struct, frozen=True, kw_only=True):
    name: Annotated[BrokerName, _about("NAME", "Name of this broker among its neighbours.")] = "broker"
    data: Annotated[NonEmpty, _about("DIR", "Directory of the log, the views' state, the tokens and the grants.")] = (
        "smile-data"
    )
    listen: Annotated[Address, _about("HOST:PORT", "Address of HTTP and WebSocket; port 0 is any free one.")] = (
        "127.0.0.1:7400"
    )
    flight: Annotated[
        OptionalAddress,
        _about("HOST:PORT", "Address of Arrow Flight; port 0 is any free one, empty text turns it off."),
    ] = "127.0.0.1:7401"
    engine: Annotated[
        EngineName, _about("ENGINE", "Where views are computed: spark, or local for the broker's own process.")
    ] = "spark"
    master: Annotated[
        NonEmpty, _about("URL", "Where Spark runs: local[*] is this machine, spark://HOST:PORT a cluster.")
    ] = "local[*]"
    partitions: Annotated[PartitionCount, _about("P", "Number of partitions of the work on Spark.")] = 1
    flush: Annotated[
        bool,
        _about("", "Flush events to the disk before they are acknowledged. Without it, a power failure may lose some."),
    ] = True
    origin: Annotated[
        OriginNumber,
        _about(
            "N",
            "Number of this broker among all that assign ticks to the same streams, up to 1023. A stream with many"
            " origins has numbers of its own, from its home.",
        ),
    ] = 0
    keep: Annotated[
        Retention,
        _about(
            "INTERVAL",
            "How long events stay in the log after no view needs them: forever, or an interval such as 7 days.",
        ),
    ] = FOREVER
    away_max: Annotated[
        Retention,
        _about(
            "INTERVAL",
            "How long the log keeps what a neighbour that imports a stream, or a durable subscription, still needs "
            "while it is away.",
        ),
    ] = "7 days"
    lease: Annotated[
        Retention,
        _about(
            "INTERVAL",
            "How long the producers of a broker that cannot be reached stay in the plans of global streams.",
        ),
    ] = "1 minute"
    silence_ms: Annotated[
        Count, _about("MS", "After an event on one stream, the horizons of the others follow within this time.")
    ] = 100
    idle_ms: Annotated[Count, _about("MS", "How often horizons advance while nothing is published.")] = 1_000
    auth: Annotated[
        bool | None,
        _about("", "Require a token from every client. Not set: only if the broker listens beyond loopback."),
    ] = None
    tls_cert: Annotated[str, _about("FILE", "Certificate chain (PEM); together with tls_key it turns TLS on.")] = ""
    tls_key: Annotated[str, _about("FILE", "Private key of the certificate (PEM), readable by the broker only.")] = ""
    insecure: Annotated[
        bool,
        _about(
            "", "Listen beyond loopback without TLS, and without tokens if auth is false: for trusted networks only."
        ),
    ] = False
    origins: Annotated[
        tuple[WebOrigin, ...],
        _about("ORIGIN,…", "Origins of web pages that may call, besides the broker's own: https://floor.example.org."),
    ] = ()
    tour: Annotated[
        str, _about("FILE", "Steps that the console shows beside the views, as GET /tour returns them (JSON).")
    ] = ""
    hosts: Annotated[
        tuple[HostName, ...],
        _about(
            "NAME,…",
            "Host names of the broker, besides the addresses it listens on; others are refused, "
            "unless tokens are required and no name is set.",
        ),
    ] = ()
    message_bytes_max: Annotated[Count, _about("BYTES", "Largest HTTP body and WebSocket message.")] = 2**20
    bulk_bytes_max: Annotated[Count, _about("BYTES", "Largest Arrow Flight batch.")] = 2**26
    connections_max: Annotated[Count, _about("N", "Most connections at a time.")] = 5_000
    connections_per_address_max: Annotated[
        Count, _about("N", "Most connections at a time from one address; raise it behind a proxy.")
    ] = 1_000
    subscriptions_max: Annotated[Count, _about("N", "Most subscriptions at a time, over all connections.")] = 20_000
    subscriptions_per_connection_max: Annotated[
        Count, _about("N", "Most subscriptions at a time on one connection.")
    ] = 10_000
    snapshot_rows_max: Annotated[Count, _about("ROWS", "Most rows of a snapshot; larger ones must be filtered.")] = (
        1_000_000
    )
    lag_s_max: Annotated[
        Count, _about("S", "A view that shows what was known longer ago than this is a trouble of the broker.")
    ] = 30
    disk_free_min: Annotated[
        Rate, _about("BYTES", "Less free space than this in the data directory is a trouble of the broker.")
    ] = 100_000_000
    memory_max: Annotated[
        Rate,
        _about(
            "BYTES",
            "Most memory of the broker's process, and of each Python worker of Spark; 0 is no limit. Requests that "
            "need more are refused, and views that need more are paused.",
        ),
    ] = 0
    view_memory_max: Annotated[
        Rate, _about("BYTES", "Largest estimated state of one view; larger ones are paused; 0 is no limit.")
    ] = 0
    events_per_second_max: Annotated[Rate, _about("N", "Most events per second of one principal; 0 is no limit.")] = 0
    requests_per_second_max: Annotated[
        Rate, _about("N", "Most requests per second of one principal; 0 is no limit.")
    ] = 0
    advertise: Annotated[
        bool,
        _about("", "Advertise every stream of the program to neighbours that may subscribe to it."),
    ] = True
    log_format: Annotated[
        LogFormat,
        _about(
            "FORMAT",
            "Format of the broker's own log: json (one object a line), text, or auto: text on a terminal, else json.",
        ),
    ] = "auto"
    log_level: Annotated[LogLevel, _about("LEVEL", "Lowest level in that log: debug, info, warning or error.")] = "info"
    brokers: Mapping[str, NeighbourSettings] = {}
    """The neighbours, by name."""
    sources: Mapping[str, SourceSettings] = {}
    """The sources of events, by name."""
    sinks: Mapping[str, SinkSettings] = {}
    """The sinks of views, by name."""
    postgres: PostgresSettings = msgspec.field(default_factory=PostgresSettings)
    """The database; none if it has no URL."""

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            with _with_location(name):
                setting.convert(getattr(self, name))
        if bool(self.tls_cert) != bool(self.tls_key):
            given, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise error("E100", f"{given} is set, but {missing} is not", hint="TLS needs both files.")
        if self.name in self.brokers:
            hint = "Every broker of a network has a name of its own."
            raise error("E100", f"brokers.{self.name}: this broker has the same name", hint=hint)

    @property
    def tls(self) -> bool:
        return bool(self.tls_cert)

    @property
    def is_on_loopback(self) -> bool:
        """Whether the broker can be reached from this machine only."""
        return all(is_loopback(parse_address(text)[0]) for text in (self.listen, self.flight) if text)

    @property
    def requires_tokens(self) -> bool:
        """Whether every client needs a token."""
        return not self.is_on_loopback if self.auth is None else self.auth

    @property
    def retention_us(self) -> int | None:
        """Microseconds that events stay in the log at least; None means forever."""
        return None if self.keep == FOREVER else _interval_us(self.keep)

    @property
    def away_us_max(self) -> int:
        """Microseconds that a neighbour may be away before the log keeps nothing for it."""
        return END if self.away_max == FOREVER else _interval_us(self.away_max)

    @property
    def lease_us(self) -> int:
        """Microseconds that a broker may be out of reach before plans do not ask its producers."""
        return END if self.lease == FOREVER else _interval_us(self.lease)

    def require_files(self) -> None:
        """E100 if a file of a neighbour cannot be read. A link that is opened later would only say so then."""
        for name, neighbour in self.brokers.items():
            for setting, path in (("ca", neighbour.ca), ("types", neighbour.types)):
                try:
                    if path:
                        Path(path).read_bytes()
                except OSError as problem:
                    message = f"brokers.{name}.{setting}: {path} cannot be read: {problem.strerror or problem}"
                    raise error("E100", message) from None

    def require_safe(self) -> None:
        """E107 if others could read the traffic, or do everything without a token."""
        if self.is_on_loopback or self.insecure:
            return
        exposed = ", ".join(a for a in (self.listen, self.flight) if a and not is_loopback(parse_address(a)[0]))
        if not self.tls:
            hint = "Set tls_cert and tls_key, listen on 127.0.0.1, or use --insecure in a trusted network."
            raise error("E107", f"{exposed} is not a loopback address, and there is no TLS", hint=hint)
        if not self.requires_tokens:
            hint = "Remove the setting auth, or use --insecure if every client may do everything."
            raise error("E107", f"{exposed} is not a loopback address, and auth is false", hint=hint)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of an address such as `127.0.0.1:7400` or `[::1]:7400`."""
    match = re.fullmatch(ADDRESS, text)
    assert match, text
    return match[1] or match[2], int(match[3])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"


def _interval_us(text: str) -> int:
    """Microseconds of `7 days`."""
    match = re.fullmatch(INTERVAL, text)
    assert match, text
    return int(match[1]) * UNITS_S[match[2].casefold()] * 1_000_000


@dataclass(frozen=True)
class Setting:
    """The description of one setting. `type` has its constraints, `kind` is the type without them: str, int, bool,
    bool | None or a tuple of texts."""

    name: str
    type: Any
    kind: Any
    default: Value
    placeholder: str
    meaning: str
    is_required: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.upper()

    @property
    def is_switch(self) -> bool:
        return self.kind in (bool, bool | None)

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) is tuple

    def convert(self, value: object) -> Value:
        """The value of a TOML file or of a field, if it is allowed."""
        for text in value if isinstance(value, list | tuple) else [value]:
            # The text is not shown: it may be a key that was pasted instead of the name of its file.
            if isinstance(text, str) and not (text.isprintable() and len(text) <= limits.setting_chars_max):
                raise InvalidSetting("it is too long, or has unprintable characters")
        try:
            converted: Value = msgspec.convert(value, self.type)
        except msgspec.ValidationError:
            raise self._explain(value) from None
        return converted

    def convert_text(self, text: str) -> Value:
        """The value of a variable or of a flag."""
        if self.is_list:
            return self.convert([part for part in (part.strip() for part in text.split(",")) if part])
        if self.is_switch:
            if text.casefold() not in ("true", "false"):
                raise InvalidSetting(f"{_quote(text)} is neither true nor false")
            return self.convert(text.casefold() == "true")
        if self.kind is int:
            if not re.fullmatch(r"-?[0-9]{1,18}", text):
                raise InvalidSetting(f"{_quote(text)} is not a whole number")
            return self.convert(int(text))
        return self.convert(text)

    def _explain(self, value: Any) -> InvalidSetting:
        """Why the value is not allowed: it has another type, or violates the constraint."""
        if self.is_switch:
            return InvalidSetting("it must be true or false, without quotes")
        constrained = self.type
        if self.is_list:
            if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
                return InvalidSetting("it must be a list of text", 'Write ["a", "b"].')
            constrained = get_args(self.kind)[0]
            value = next(text for text in value if not _is_allowed(text, constrained))
        elif self.kind is int and type(value) is not int:
            return InvalidSetting("it must be a whole number, without quotes")
        elif self.kind is str and not isinstance(value, str):
            return InvalidSetting("it must be text, in quotes")
        extra = get_args(constrained)[1].extra
        hint = did_you_mean(value, extra["choices"]) if "choices" in extra else extra.get("hint")
        return InvalidSetting(extra["problem"].format(_quote(value) if isinstance(value, str) else value), hint)


def _is_allowed(value: object, type_: Any) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


def _quote(text: str) -> str:
    chars_max = limits.excerpt_chars_max
    return json.dumps(text if len(text) <= chars_max else text[:chars_max] + "…", ensure_ascii=False)


def _describe_settings(struct: type[Struct]) -> Iterator[Setting]:
    types = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        if field.name not in TABLES:
            type_ = types[field.name]
            kind, *_, about = get_args(type_)
            default = None if field.required else field.default
            placeholder, meaning = about.extra["placeholder"], about.description
            yield Setting(field.name, type_, kind, default, placeholder, meaning, field.required)


NEIGHBOURS_TABLE = "brokers"
POSTGRES_TABLE = "postgres"
SOURCES_TABLE, SINKS_TABLE = "sources", "sinks"
TABLES = (NEIGHBOURS_TABLE, SOURCES_TABLE, SINKS_TABLE, POSTGRES_TABLE)
_MQTT_ONLY = ("topic", "topic_column", "username", "password", "ca")
SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _describe_settings(Settings)}
NEIGHBOUR_SETTINGS: Mapping[str, Setting] = {s.name: s for s in _describe_settings(NeighbourSettings)}
SOURCE_SETTINGS: Mapping[str, Setting] = {s.name: s for s in _describe_settings(SourceSettings)}
SINK_SETTINGS: Mapping[str, Setting] = {s.name: s for s in _describe_settings(SinkSettings)}
POSTGRES_SETTINGS: Mapping[str, Setting] = {s.name: s for s in _describe_settings(PostgresSettings)}
_BROKER_NAME = SETTINGS["name"]


def table_variable(table: str, name: str, setting: Setting) -> str:
    """The variable of a setting of a named table, such as SMILE_BROKERS_BUYS_TOKEN."""
    return f"{VARIABLE_PREFIX}{table}_{name}_{setting.name}".upper()


def postgres_variable(setting: Setting) -> str:
    """The variable of a setting of the database: SMILE_POSTGRES_URL."""
    return f"{VARIABLE_PREFIX}{POSTGRES_TABLE}_{setting.name}".upper()


def read_settings(
    config: str | None, environment: Mapping[str, str], flags: Mapping[str, str | bool | None]
) -> Settings:
    """Reads the file, the environment and the flags; flags that were not given are None. E100 says where a wrong value
    is. A variable such as SMILE_PORT that resembles no setting is ignored."""
    path = config or environment.get(CONFIG_VARIABLE)
    table = _read_file(path) if path else {}
    named_tables: dict[str, Mapping[str, Struct]] = {}
    for named in (_NEIGHBOURS, _SOURCES, _SINKS):
        fields = _tables_from_file(named, table.pop(named.name, {}), f"{path}, {named.name}")
        _add_from_environment(named, fields, environment)
        named_tables[named.name] = _create_structs(named, fields)
    postgres = _postgres_settings(table.pop(POSTGRES_TABLE, {}), f"{path}, {POSTGRES_TABLE}", environment)
    values: dict[str, Any] = dict(_from_table(table, SETTINGS, f"{path}, "))
    values[POSTGRES_TABLE] = postgres
    values |= named_tables
    for variable, text in environment.items():
        name = variable.removeprefix(VARIABLE_PREFIX).casefold()
        if variable != VARIABLE_PREFIX + name.upper() or variable in OTHER_VARIABLES:
            continue
        if name.startswith(tuple(f"{table_name}_" for table_name in TABLES)):
            continue
        location = f"environment, {variable}"
        if name in SETTINGS:
            values[name] = _read_value(SETTINGS[name].convert_text, text, location)
        elif hint := did_you_mean(name, SETTINGS):
            raise error("E100", f"{location}: there is no such setting", hint=hint)
    for name, flag in flags.items():
        if isinstance(flag, bool):
            values[name] = flag
        elif flag is not None:
            values[name] = _read_value(SETTINGS[name].convert_text, flag, SETTINGS[name].flag)
    return msgspec.convert(values, Settings)


def _read_file(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            table = tomllib.loads(file.read(limits.settings_file_bytes_max + 1).decode())
            if file.tell() > limits.settings_file_bytes_max:
                raise error("E100", f"{path} is larger than {limits.settings_file_bytes_max:,} bytes")
    except OSError as problem:
        raise error("E100", f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        reason = problem if isinstance(problem, tomllib.TOMLDecodeError) else "it is not valid text"
        raise error("E100", f"{path} is not TOML: {reason}", hint='A line is: listen = "127.0.0.1:7400"') from None
    return table


def _from_table(
    table: Mapping[str, object], settings: Mapping[str, Setting], prefix: str
) -> Iterator[tuple[str, Value]]:
    """The values of a table in the file. `prefix` says where it is."""
    for name, value in table.items():
        location = f"{prefix}{name}"
        if name not in settings:
            hint = did_you_mean(name, settings) or "See docs/running.md for all of them."
            raise error("E100", f"{location}: there is no such setting", hint=hint)
        yield name, _read_value(settings[name].convert, value, location)


@dataclass(frozen=True)
class _NamedTables:
    """Tables `[name.NAME]`. `hint` shows how to write one."""

    name: str
    struct: type[Struct]
    settings: Mapping[str, Setting]
    hint: str


_NEIGHBOURS = _NamedTables(
    NEIGHBOURS_TABLE,
    NeighbourSettings,
    NEIGHBOUR_SETTINGS,
    'Write a table for each broker: [brokers.buys], and below it url = "https://buys.example.org:7400".',
)
_SOURCES = _NamedTables(
    SOURCES_TABLE,
    SourceSettings,
    SOURCE_SETTINGS,
    'Write a table for each source: [sources.orders], and below it kind = "directory".',
)
_SINKS = _NamedTables(
    SINKS_TABLE,
    SinkSettings,
    SINK_SETTINGS,
    'Write a table for each sink: [sinks.totals], and below it kind = "delta".',
)


def _check_name(named: _NamedTables, name: str, location: str) -> None:
    if named is _NEIGHBOURS:
        _read_value(_BROKER_NAME.convert, name, location)
    elif not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name):
        hint = "Write a letter, then letters, digits and underscores."
        raise error("E100", f"{location}: {_quote(name)} is not a name", hint=hint)


def _tables_from_file(named: _NamedTables, tables: object, location: str) -> dict[str, dict[str, Any]]:
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise error("E100", f"{location}: it must be a table of tables", hint=named.hint)
    fields = {}
    for name, table in tables.items():
        _check_name(named, name, f"{location}.{name[: limits.excerpt_chars_max]}")
        for key, setting in named.settings.items():
            if setting.is_list and isinstance(table.get(key), str):
                table[key] = [table[key]] if table[key] else []
        fields[name] = dict(_from_table(table, named.settings, f"{location}.{name}."))
    return fields


def _create_structs(named: _NamedTables, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Struct]:
    structs = {}
    for name, fields in tables.items():
        for setting in named.settings.values():
            if setting.is_required and setting.name not in fields:
                raise error("E100", f"{named.name}.{name}: it has no {setting.name}", hint=setting.meaning)
        try:
            structs[name] = named.struct(**fields)
        except SmileError as problem:
            raise error("E100", f"{named.name}.{name}.{problem}", hint=problem.hint) from None
    return structs


def _postgres_settings(table: object, location: str, environment: Mapping[str, str]) -> PostgresSettings:
    if not isinstance(table, dict):
        hint = 'Write [postgres], and below it url = "postgresql://user@host/database".'
        raise error("E100", f"{location}: it must be a table", hint=hint)
    values: dict[str, Any] = dict(_from_table(table, POSTGRES_SETTINGS, f"{location}."))
    known = {postgres_variable(setting): setting for setting in POSTGRES_SETTINGS.values()}
    for variable, text in environment.items():
        if variable in known:
            values[known[variable].name] = _read_value(known[variable].convert_text, text, f"environment, {variable}")
        elif variable.startswith(f"{VARIABLE_PREFIX}{POSTGRES_TABLE}_".upper()):
            hint = f"There is {', '.join(known)}."
            raise error("E100", f"environment, {variable}: there is no such setting", hint=hint)
    return PostgresSettings(**values)


def _add_from_environment(
    named: _NamedTables, tables: dict[str, dict[str, Any]], environment: Mapping[str, str]
) -> None:
    """Variables such as SMILE_BROKERS_BUYS_TOKEN. A name that is not in the file is in lower case."""
    prefix = f"{VARIABLE_PREFIX}{named.name}_".upper()
    for variable, text in environment.items():
        if not variable.startswith(prefix):
            continue
        rest = variable.removeprefix(prefix).casefold()
        setting_name = next((name for name in named.settings if rest.endswith(f"_{name}")), None)
        if setting_name is None or len(rest) == len(setting_name) + 1:
            names = [f"{prefix}NAME_{name.upper()}" for name in named.settings]
            hint = f"Write {', '.join(names[:-1])} or {names[-1]}."
            raise error("E100", f"environment, {variable}: there is no such setting", hint=hint)
        text_of_name = rest.removesuffix(f"_{setting_name}")
        name = next((n for n in tables if n.casefold() == text_of_name), text_of_name)
        _check_name(named, name, f"environment, {variable}")
        value = _read_value(named.settings[setting_name].convert_text, text, f"environment, {variable}")
        tables.setdefault(name, {})[setting_name] = value


def _check_table(table: Struct, settings: Mapping[str, Setting]) -> None:
    for name, setting in settings.items():
        with _with_location(name):
            setting.convert(getattr(table, name))


def _read_value(convert: Callable[[Any], Value], raw: object, location: str) -> Value:
    with _with_location(location):
        return convert(raw)


@contextmanager
def _with_location(location: str) -> Iterator[None]:
    """Adds the location to the message of an invalid setting."""
    try:
        yield
    except InvalidSetting as problem:
        raise error("E100", f"{location}: {problem}", hint=problem.hint) from None
