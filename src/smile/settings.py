"""Settings: each has a default, a meaning and a validated value. `SETTINGS` describes them once, for the file, the
environment, the flags of `smile serve` and the documentation.

They are read from one TOML file, then from the environment (SMILE_LISTEN), then from flags (--listen); each overrides
the previous ones.
"""

import ipaddress
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from smile import limits
from smile.errors import did_you_mean, error

Value = str | int | bool | tuple[str, ...] | None

VARIABLE_PREFIX = "SMILE_"
CONFIG_VARIABLE = VARIABLE_PREFIX + "CONFIG"
"""Names the settings file, if no flag does."""
OTHER_VARIABLES = {CONFIG_VARIABLE, "SMILE_URL", "SMILE_TOKEN", "SMILE_CA", "SMILE_DEBUG"}
"""Variables that are not settings of a broker."""

TOKEN_PREFIX = "smile_"
"""Makes tokens recognizable in any text, so that the broker's logs do not show them."""

ENGINES = ("spark", "local")
LOG_FORMATS = ("json", "text")
LOG_LEVELS = ("debug", "info", "warning", "error")
FOREVER = "forever"
UNITS_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}

T = TypeVar("T")


class InvalidSetting(ValueError):
    """A wrong value; the hint says what would be right."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__(message)


def _setting(default: T, placeholder: str, meaning: str) -> T:
    """A field; `placeholder` stands for its value in help texts."""
    return field(default=default, metadata={"sign": placeholder, "meaning": meaning})


@dataclass(frozen=True)
class Settings:
    data: str = _setting("smile-data", "DIR", "Directory of the log, the views' state, the tokens and the grants.")
    listen: str = _setting("127.0.0.1:7400", "HOST:PORT", "Address of HTTP and WebSocket; port 0 is any free one.")
    flight: str = _setting(
        "127.0.0.1:7401", "HOST:PORT", "Address of Arrow Flight; port 0 is any free one, empty text turns it off."
    )
    engine: str = _setting("spark", "ENGINE", "Where views are computed: spark, or local for the broker's own process.")
    master: str = _setting(
        "local[*]", "URL", "Where Spark runs: local[*] is this machine, spark://HOST:PORT a cluster."
    )
    partitions: int = _setting(1, "P", "Number of partitions of the work on Spark.")
    flush: bool = _setting(
        True, "", "Flush events to the disk before they are acknowledged. Without it, a power failure may lose some."
    )
    origin: int = _setting(0, "N", "Number of this broker among all that assign ticks to the same streams, up to 1023.")
    keep: str = _setting(
        FOREVER,
        "INTERVAL",
        "How long events stay in the log after no view needs them: forever, or an interval such as 7 days.",
    )
    silence_ms: int = _setting(
        100, "MS", "After an event on one stream, the horizons of the others follow within this time."
    )
    idle_ms: int = _setting(1_000, "MS", "How often horizons advance while nothing is published.")
    auth: bool | None = _setting(
        None, "", "Require a token from every client. Not set: only if the broker listens beyond loopback."
    )
    tls_cert: str = _setting("", "FILE", "Certificate chain (PEM); together with tls_key it turns TLS on.")
    tls_key: str = _setting("", "FILE", "Private key of the certificate (PEM), readable by the broker only.")
    insecure: bool = _setting(
        False,
        "",
        "Listen beyond loopback without TLS, and without tokens if auth is false: for trusted networks only.",
    )
    origins: tuple[str, ...] = _setting(
        (), "ORIGIN,…", "Origins of web pages that may call, besides the broker's own: https://floor.example.org."
    )
    hosts: tuple[str, ...] = _setting(
        (),
        "NAME,…",
        "Host names of the broker, besides the addresses it listens on; others are refused, "
        "unless tokens are required and no name is set.",
    )
    message_bytes_max: int = _setting(2**20, "BYTES", "Largest HTTP body and WebSocket message.")
    bulk_bytes_max: int = _setting(2**26, "BYTES", "Largest Arrow Flight batch.")
    connections_max: int = _setting(5_000, "N", "Most connections at a time.")
    subscriptions_max: int = _setting(20_000, "N", "Most subscriptions at a time, over all connections.")
    subscriptions_per_connection_max: int = _setting(10_000, "N", "Most subscriptions at a time on one connection.")
    snapshot_rows_max: int = _setting(1_000_000, "ROWS", "Most rows of a snapshot; larger ones must be filtered.")
    events_per_second_max: int = _setting(0, "N", "Most events per second of one principal; 0 is no limit.")
    requests_per_second_max: int = _setting(0, "N", "Most requests per second of one principal; 0 is no limit.")
    log_format: str = _setting("json", "FORMAT", "Format of the broker's own log: json (one object a line) or text.")
    log_level: str = _setting("info", "LEVEL", "Lowest level in that log: debug, info, warning or error.")

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            with _with_location(name):
                setting.check(getattr(self, name))
        if bool(self.tls_cert) != bool(self.tls_key):
            given, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise error("E100", f"{given} is set, but {missing} is not", hint="TLS needs both files.")

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
        return None if self.keep == FOREVER else parse_interval_us(self.keep)

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
    """Host and port of `127.0.0.1:7400` or `[::1]:7400`."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):([0-9]{1,5})", text)
    if not match or int(match[3]) > 65_535:
        raise InvalidSetting(f"{_quote(text)} is not HOST:PORT", "Write 127.0.0.1:7400, or [::1]:7400.")
    return match[1] or match[2], int(match[3])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"


def parse_interval_us(text: str) -> int:
    """Microseconds of `7 days`."""
    match = re.fullmatch(r"([0-9]{1,9}) *([a-z]+?)s?", text.strip().casefold())
    if not match or match[2] not in UNITS_S:
        raise InvalidSetting(f"{_quote(text)} is neither forever nor an interval", "Write 12 hours, or 7 days.")
    return int(match[1]) * UNITS_S[match[2]] * 1_000_000


@dataclass(frozen=True)
class Setting:
    """The description of one setting."""

    name: str
    kind: object
    """str, int, bool, bool | None or tuple[str, ...]"""
    default: Value
    placeholder: str
    meaning: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.upper()

    @property
    def is_switch(self) -> bool:
        return self.kind in (bool, bool | None)

    def from_toml(self, value: object) -> Value:
        if self.kind == tuple[str, ...]:
            if isinstance(value, list) and all(isinstance(v, str) for v in value):
                return tuple(value)
            raise InvalidSetting("it must be a list of text", 'Write ["a", "b"].')
        if self.is_switch and not isinstance(value, bool):
            raise InvalidSetting("it must be true or false, without quotes")
        if self.kind is int and (not isinstance(value, int) or isinstance(value, bool)):
            raise InvalidSetting("it must be a whole number, without quotes")
        if self.kind is str and not isinstance(value, str):
            raise InvalidSetting("it must be text, in quotes")
        return cast(Value, value)

    def from_text(self, text: str) -> Value:
        if self.kind == tuple[str, ...]:
            return tuple(part for part in (part.strip() for part in text.split(",")) if part)
        if self.is_switch:
            if text.casefold() not in ("true", "false"):
                raise InvalidSetting(f"{_quote(text)} is neither true nor false")
            return text.casefold() == "true"
        if self.kind is int:
            if not re.fullmatch(r"-?[0-9]{1,18}", text):
                raise InvalidSetting(f"{_quote(text)} is not a whole number")
            return int(text)
        return text

    def check(self, value: Value) -> None:
        """Checks a value that has the right type."""
        for text in value if isinstance(value, tuple) else [value]:
            # The text is not shown: it may be a key that was pasted instead of the name of its file.
            if isinstance(text, str) and not (text.isprintable() and len(text) <= limits.setting_chars_max):
                raise InvalidSetting("it is too long, or has unprintable characters")
        CHECKS.get(self.name, CHECK_COUNT if self.kind is int else str)(value)


def _quote(text: str) -> str:
    chars_max = limits.excerpt_chars_max
    return json.dumps(text if len(text) <= chars_max else text[:chars_max] + "…", ensure_ascii=False)


def _check_between(low: int, high: int) -> Callable[[int], None]:
    def check(value: int) -> None:
        if not low <= value <= high:
            raise InvalidSetting(f"{value} is not between {low} and {high}")

    return check


def _check_one_of(choices: Iterable[str]) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in choices:
            raise InvalidSetting(f"{_quote(value)} is none of {', '.join(choices)}", did_you_mean(value, choices))

    return check


def _check_not_empty(value: str) -> None:
    if not value:
        raise InvalidSetting("it must not be empty")


def _check_web_origins(value: Iterable[str]) -> None:
    for origin in value:
        if not re.fullmatch(r"https?://(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(:[0-9]{1,5})?", origin):
            raise InvalidSetting(
                f"{_quote(origin)} is not an origin", "Write https://floor.example.org:8443, without a path."
            )


def _check_host_names(value: Iterable[str]) -> None:
    for host in value:
        if not re.fullmatch(r"[\w.-]+|\[?[0-9A-Fa-f:.]+\]?", host):
            raise InvalidSetting(
                f"{_quote(host)} is not the name of a host", "Write floor.example.org, without a port."
            )


CHECK_COUNT = _check_between(1, limits.setting_max)

CHECKS: Mapping[str, Callable[[Any], object]] = {  # Any: the setting's type
    "data": _check_not_empty,
    "listen": parse_address,
    "flight": lambda text: text and parse_address(text),
    "engine": _check_one_of(ENGINES),
    "master": _check_not_empty,
    "partitions": _check_between(1, limits.partitions_max),
    "origin": _check_between(0, limits.origin_max),
    "keep": lambda text: text == FOREVER or parse_interval_us(text),
    "origins": _check_web_origins,
    "hosts": _check_host_names,
    "events_per_second_max": _check_between(0, limits.setting_max),
    "requests_per_second_max": _check_between(0, limits.setting_max),
    "log_format": _check_one_of(LOG_FORMATS),
    "log_level": _check_one_of(LOG_LEVELS),
}
"""For settings that do not accept every value of their type; any other number is a count, from 1."""

SETTINGS: Mapping[str, Setting] = {
    f.name: Setting(f.name, kind, cast(Value, f.default), f.metadata["sign"], f.metadata["meaning"])
    for f, kind in zip(fields(Settings), get_type_hints(Settings).values(), strict=True)
}


def read_settings(
    config: str | None, environment: Mapping[str, str], flags: Mapping[str, str | bool | None]
) -> Settings:
    """Reads the file, the environment and the flags; flags that were not given are None. E100 says where a wrong value
    is. A variable such as SMILE_PORT that resembles no setting is ignored."""
    path = config or environment.get(CONFIG_VARIABLE)
    values = dict(_from_file(path)) if path else {}
    for variable, text in environment.items():
        name = variable.removeprefix(VARIABLE_PREFIX).casefold()
        if variable != VARIABLE_PREFIX + name.upper() or variable in OTHER_VARIABLES:
            continue
        location = f"environment, {variable}"
        if name in SETTINGS:
            values[name] = _read_value(SETTINGS[name], SETTINGS[name].from_text, text, location)
        elif hint := did_you_mean(name, SETTINGS):
            raise error("E100", f"{location}: there is no such setting", hint=hint)
    for name, flag in flags.items():
        if isinstance(flag, bool):
            values[name] = flag
        elif flag is not None:
            values[name] = _read_value(SETTINGS[name], SETTINGS[name].from_text, flag, SETTINGS[name].flag)
    return Settings(**values)  # type: ignore[arg-type]  # each was read as its field's kind


def _from_file(path: str) -> Iterator[tuple[str, Value]]:
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
    for name, value in table.items():
        location = f"{path}, {name}"
        if name not in SETTINGS:
            hint = did_you_mean(name, SETTINGS) or "See docs/running.md for all of them."
            raise error("E100", f"{location}: there is no such setting", hint=hint)
        yield name, _read_value(SETTINGS[name], SETTINGS[name].from_toml, value, location)


def _read_value(setting: Setting, reader: Callable[[Any], Value], raw: object, location: str) -> Value:
    with _with_location(location):
        value = reader(raw)
        setting.check(value)
        return value


@contextmanager
def _with_location(location: str) -> Iterator[None]:
    """Adds the location to the message of an invalid setting."""
    try:
        yield
    except InvalidSetting as problem:
        raise error("E100", f"{location}: {problem}", hint=problem.hint) from None
