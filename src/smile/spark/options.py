"""The options of the data source `smile`, and the errors that its users see.

Spark shows users only the text of an exception. So the text has the code and the hint.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from smile import limits
from smile.client.address import BrokerAddress
from smile.errors import SmileError, did_you_mean, error

NAMES = (
    "url",
    "token",
    "ca",
    "view",
    "stream",
    "where",
    "final",
    "knowledge",
    "times",
    "batch",
    "message_bytes_max",
    "flight",
)
OTHER_NAMES = ("path", "checkpointlocation", "queryname", "mergeschema")
"""Options that Spark adds, or that users give to every source."""

FLIGHT_PORT = 7401
"""The port of Arrow Flight, unless the broker has another."""


class DataSourceError(Exception):
    """An error of SMILE as text."""


@contextmanager
def shown_errors() -> Iterator[None]:
    """Raises a SmileError of the block with its codes and hints."""
    try:
        yield
    except SmileError as problem:
        lines = [f"{d.code}: {d.message}{f'. {d.hint}' if d.hint else ''}" for d in problem.diagnostics]
        raise DataSourceError("\n".join(lines)) from None


@dataclass(frozen=True)
class SourceOptions:
    """`where` is a condition on columns that never change. `only_final` leaves out rows that are not final.
    `knowledge` adds the bounds of what evolves, and `times` gives ticks as timestamps. `batch` names what `df.write`
    publishes. `message_bytes_max` is the broker's setting, and `flight` the address of its Arrow Flight."""

    address: BrokerAddress
    view: str | None = None
    stream: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    only_final: bool = False
    knowledge: bool = True
    times: bool = False
    batch: str | None = None
    message_bytes_max: int = limits.client_message_bytes_max
    flight: str | None = None

    @staticmethod
    def parse(options: Mapping[str, str]) -> "SourceOptions":
        """Spark gives the names of options in lower case."""
        for name in options:
            if name not in (*NAMES, *OTHER_NAMES) and (hint := did_you_mean(name, NAMES)):
                raise error("E171", f"there is no option {name[:100]}", hint=hint)
        return SourceOptions(
            BrokerAddress.resolve(options.get("url"), options.get("token"), options.get("ca")),
            options.get("view"),
            options.get("stream"),
            _parse_where(options.get("where")),
            _parse_switch("final", options.get("final", "false")),
            _parse_switch("knowledge", options.get("knowledge", "true")),
            _parse_switch("times", options.get("times", "false")),
            options.get("batch"),
            _parse_size(options.get("message_bytes_max")),
            options.get("flight"),
        )

    @property
    def reads_stream(self) -> bool:
        """Whether events of a stream are read, and not a view. E171 if that is not clear."""
        if self.stream is None:
            return False
        if self.view is not None:
            raise error("E171", "there are both a view and a stream", hint="Read one of them.")
        if self.where or self.only_final:
            hint = "Leave where and final out, and filter the DataFrame: all events are final."
            raise error("E171", "the events of a stream are read without a condition", hint=hint)
        return True

    @property
    def flight_location(self) -> str:
        """Where the log is read."""
        if self.flight is not None:
            return self.flight
        url = urlsplit(self.address.url)
        host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
        return f"{'grpc+tls' if url.scheme == 'https' else 'grpc'}://{host}:{FLIGHT_PORT}"

    @property
    def required_view(self) -> str:
        if self.view is None:
            hint = 'Name what to read: .option("view", "NAME"), or .option("stream", "NAME") for events.'
            raise error("E171", "the option view is missing", hint=hint)
        return self.view

    @property
    def required_stream(self) -> str:
        if self.stream is None:
            hint = 'Name the stream to publish to: .option("stream", "NAME").'
            raise error("E171", "the option stream is missing", hint=hint)
        return self.stream


def _parse_where(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        condition = json.loads(text)
    except ValueError:
        condition = None
    if not isinstance(condition, dict):
        hint = """Write it as a JSON object: .option("where", '{"issue":"IBM"}')."""
        raise error("E171", "the option where is not a JSON object", hint=hint)
    return condition


def _parse_switch(name: str, text: str) -> bool:
    if text.casefold() not in ("true", "false"):
        raise error("E171", f"the option {name} is neither true nor false")
    return text.casefold() == "true"


def _parse_size(text: str | None) -> int:
    if text is None:
        return limits.client_message_bytes_max
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 18 and int(text)):
        raise error("E171", "the option message_bytes_max is not a number of bytes")
    return int(text)
