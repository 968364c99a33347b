"""The wire format of Arrow Flight, where pyarrow has no functions for it: the data of a stream, and errors.

Arrow's Flight.proto defines the messages. pyarrow reads and writes those of simple calls (`Ticket.deserialize`,
`FlightInfo.serialize`); a message with data is a few fields around an Arrow IPC message, and is read without a copy.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import grpc
import msgspec
import pyarrow as pa

from smile import limits
from smile.errors import SmileError, error
from smile.log.storage.remote import FlightErrorInfo, WireError

SERVICE: Final = "/arrow.flight.protocol.FlightService/"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""The wire types of Protocol Buffers."""
_DESCRIPTOR, _HEADER, _METADATA, _BODY = 1, 2, 3, 1000
"""The fields of FlightData."""
_CONTINUATION_BYTES: Final = 8
"""Before the metadata of an IPC message in a buffer: a mark of four bytes, and the length."""


# ── data ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class FlightData(NamedTuple):
    """A message of a stream: the metadata and the body of an IPC message, and the application's metadata. Empty parts
    are missing. The first message of a publication has a descriptor."""

    header: memoryview
    body: memoryview
    metadata: memoryview
    descriptor: memoryview


def parse_flight_data(message: bytes) -> FlightData:
    """E093 if it is malformed."""
    parts = dict.fromkeys((_HEADER, _BODY, _METADATA, _DESCRIPTOR), memoryview(b""))
    view, position = memoryview(message), 0
    while position < len(view):
        tag, position = _read_varint(view, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, position = _read_varint(view, position)
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire_type)
        if wire_type == _BYTES:
            size, position = _read_varint(view, position)
        if size is None or position + size > len(view):
            raise _malformed_error()
        if wire_type == _BYTES and tag >> 3 in parts:
            parts[tag >> 3] = view[position : position + size]
        position += size
    return FlightData(parts[_HEADER], parts[_BODY], parts[_METADATA], parts[_DESCRIPTOR])


def encode_schema(schema: pa.Schema) -> bytes:
    """The first message of an answer."""
    return _encode_ipc(schema.serialize(), b"")


def encode_batch(batch: pa.RecordBatch, metadata: bytes) -> bytes:
    return _encode_ipc(batch.serialize(), metadata)


def encode_put_result(metadata: bytes) -> bytes:
    """The acknowledgement of a published batch."""
    return b"".join(_encode_field(1, metadata))


def encode_action_type(name: str, description: str) -> bytes:
    return b"".join([*_encode_field(1, name.encode()), *_encode_field(2, description.encode())])


def _encode_ipc(message: pa.Buffer, metadata: bytes) -> bytes:
    view = memoryview(message)
    end = _CONTINUATION_BYTES + int.from_bytes(view[4:_CONTINUATION_BYTES], "little")
    fields = [*_encode_field(_HEADER, view[_CONTINUATION_BYTES:end]), *_encode_field(_METADATA, metadata)]
    return b"".join([*fields, *_encode_field(_BODY, view[end:])])


def _encode_field(number: int, data: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(data)), data


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """The number, and the position after it."""
    number = 0
    for shift, byte in zip(range(0, 70, 7), view[position : position + 10], strict=False):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position + shift // 7 + 1
    raise _malformed_error()


def _malformed_error() -> SmileError:
    return error("E093", "this is not a message of Arrow Flight")


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_STATUS_CODES: Final[Mapping[str, tuple[grpc.StatusCode, str]]] = {
    "E090": (grpc.StatusCode.PERMISSION_DENIED, "Unauthorized"),
    "E091": (grpc.StatusCode.UNAUTHENTICATED, "Unauthenticated"),
    "E098": (grpc.StatusCode.UNAVAILABLE, "Unavailable"),
    "E108": (grpc.StatusCode.DEADLINE_EXCEEDED, "TimedOut"),
}
"""The status of gRPC, and Arrow's name of it, by error code."""
_OTHER_ERROR: Final = (grpc.StatusCode.UNKNOWN, "Failed")
_IO_ERROR: Final = "5"
"""The code of `IOError` in Arrow, which all errors of Flight have."""


class FlightStatus(NamedTuple):
    """The end of a call with an error, as gRPC sends it."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]


def flight_status(problem: SmileError) -> FlightStatus:
    """Clients of Arrow see a text that starts with the error's code; `extra_info` has all of the error as JSON."""
    first = problem.diagnostics[0]
    message, hint = _shorten(first.message), first.hint and _shorten(first.hint)
    code, name = _STATUS_CODES.get(first.code, _OTHER_ERROR)
    text = f"{first.code}: {message}"
    metadata = (
        ("grpc-status-details-bin", msgspec.json.encode(FlightErrorInfo(WireError(first.code, message, hint)))),
        ("x-arrow-status", _IO_ERROR),
        ("x-arrow-status-detail-bin", name.encode()),
        ("x-arrow-status-message-bin", text.encode(errors="replace")),
    )
    return FlightStatus(code, text.encode(errors="replace").decode(), metadata)


def _shorten(text: str) -> str:
    """Limits the bytes of a text, because headers are limited in bytes. Each byte may be encoded as three."""
    bytes_max = limits.flight_error_chars_max
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= bytes_max else encoded[:bytes_max].decode(errors="ignore") + "…"
