"""Events in JSON, CSV and Arrow, as sources give them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from smile.broker.publishing.publication import EventRows
from smile.connectors.sources.event_source import RefusedEvent
from smile.decoding.event_decoder import EventDecoder
from smile.decoding.stream_schema import EventRow
from smile.errors import SmileError, error


def _check_single(rows: Sequence[EventRow], what: str) -> EventRow:
    if len(rows) != 1:
        raise error("E073", f"{what} has {len(rows):,} events", hint="Write one event in each.")
    return rows[0]


def _python_value(value: pa.Scalar) -> Any:  # Any: of any type of Arrow
    if pa.types.is_timestamp(value.type):
        return value.cast(pa.string()).as_py()  # Python's own has no nanoseconds
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes().decode(errors="surrogateescape")


def _json_value(value: object) -> str:
    """Values of Arrow that JSON does not have, as the broker reads them."""
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class JsonEvents:
    """Each text is one event. `places` says where each is."""

    texts: Sequence[bytes]
    places: Sequence[str]

    def __len__(self) -> int:
        return len(self.texts)

    def decode(self, decoder: EventDecoder, stream: str, begin: int, end: int) -> EventRows:
        return [_check_single(decoder.decode_json(stream, text), "the text") for text in self.texts[begin:end]]

    text_format = "json"

    def content(self, index: int) -> bytes:
        return self.texts[index]

    def describe(self, index: int) -> str:
        return self.places[index]

    def refuse_all(self, decoder: EventDecoder, stream: str) -> None:
        """Each text has columns of its own."""


@dataclass(frozen=True)
class LineEvents:
    """Each line is an event in JSON, or a record in CSV if there is a `header`. None is blank. `row` is the number of
    the first one in the file at `path`."""

    lines: Sequence[bytes]
    path: str
    row: int
    header: bytes | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def decode(self, decoder: EventDecoder, stream: str, begin: int, end: int) -> EventRows:
        lines = self.lines[begin:end]
        if self.header is None:
            rows = decoder.decode_ndjson(stream, b"\n".join(lines))
        else:
            rows = decoder.decode_csv(stream, b"\n".join([self.header, *lines]))
        if len(rows) != len(lines):  # a record in CSV that looks like two
            raise error("E073", f"{len(lines):,} records have {len(rows):,} events")
        return rows

    @property
    def text_format(self) -> str:
        return "json" if self.header is None else "csv"

    def content(self, index: int) -> bytes:
        line = self.lines[index]
        return line if self.header is None else b"\n".join([self.header, line])

    def describe(self, index: int) -> str:
        return f"{self.path}, event {self.row + index + 1}"

    def refuse_all(self, decoder: EventDecoder, stream: str) -> None:
        """Lines are read one by one."""


@dataclass(frozen=True)
class ArrowEvents:
    batch: pa.RecordBatch
    path: str
    row: int

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def decode(self, decoder: EventDecoder, stream: str, begin: int, end: int) -> EventRows:
        return decoder.decode_batch(stream, self.batch.slice(begin, end - begin))

    text_format = "json"

    def content(self, index: int) -> bytes:
        """JSON that is the same event: what JSON does not have, such as NaN, is written as Python does, and refused."""
        columns = zip(self.batch.schema.names, self.batch.columns, strict=True)
        row = {name: _python_value(column[index]) for name, column in columns}
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_json_value)
        return text.encode(errors="surrogateescape")

    def describe(self, index: int) -> str:
        return f"{self.path}, event {self.row + index + 1}"

    def refuse_all(self, decoder: EventDecoder, stream: str) -> RefusedEvent | None:
        try:
            decoder.decode_batch(stream, self.batch.slice(0, 0))
        except SmileError as problem:
            place = f"{self.path}, events {self.row + 1} to {self.row + len(self)}"
            content = b"[" + b",\n".join(map(self.content, range(len(self)))) + b"]"
            return RefusedEvent(place, content, self.text_format, problem.diagnostics[0])
        return None
