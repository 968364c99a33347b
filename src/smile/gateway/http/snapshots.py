"""Snapshots: all rows of a view at one moment, with its progress.

A snapshot is encoded in parts, each when the client has read the one before it. So a client that does not read costs
the memory of a part, and is disconnected after a time. The number of snapshots in progress is limited, and so are the
bytes that they keep in memory.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from smile import limits
from smile.algebra.coercions import cast, to_text
from smile.algebra.types import TIME, TIMESTAMP, DataType
from smile.broker.views.condition import ViewCondition
from smile.broker.views.view import View, ViewFrame, check_streams
from smile.errors import error
from smile.gateway.access import Right
from smile.gateway.frames import frame_batch, progress_fields, progress_json, row_messages
from smile.gateway.gateway import Gateway
from smile.gateway.http.bodies import AFTER_PREFIX, WHERE_PREFIX, SnapshotQuery
from smile.gateway.http.publish import ARROW
from smile.gateway.http.request import parse_count, parse_query, parse_ticks, read_header
from smile.gateway.http.response import HttpError, encode
from smile.gateway.uvicorn_internals import HttpConnection
from smile.knowledge.values.json import plain_json

CONTENT_TYPES: Final[Mapping[str, str]] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "arrow": ARROW,
}


async def snapshot(gateway: Gateway, request: Request) -> Response:
    """All rows that the view shows now."""
    name = request.path_params["view"]
    gateway.require(request.user, Right.subscribe, name)
    query = parse_query(request, SnapshotQuery)
    chosen_format = query.get("format") or _accepted_format(read_header(request, b"accept") or "*/*")
    if chosen_format not in CONTENT_TYPES:
        raise error(
            "E093", f"there is no format {chosen_format[:100]!r}", hint=f"There are {', '.join(CONTENT_TYPES)}."
        )
    with_times = _parse_bool(query, "times")
    if with_times and chosen_format != "csv":
        raise error("E093", f"times is not for the format {chosen_format}", hint="Only CSV can have ticks as times.")
    view = gateway.broker.view(name)
    condition = parse_condition(view, query)
    after = parse_ticks(select_prefix(query, AFTER_PREFIX))
    wait_ms = parse_count(query.get("wait_ms", str(limits.wait_ms_default)), "wait_ms", limits.wait_ms_max)
    if after:
        await _wait_until_reached(gateway, view, after, wait_ms)

    def begin() -> tuple[ViewFrame, bytes, Iterator[bytes] | None]:
        frame = view.snapshot(condition)
        rows_max = gateway.settings.snapshot_rows_max
        if frame.row_count > rows_max:
            hint = "Add conditions (where.COLUMN=VALUE), or subscribe to the view."
            message = f"the snapshot has {frame.row_count:,} rows; at most {rows_max:,} are allowed"
            raise HttpError(413, "E092", message, hint)
        ends = _part_ends(frame)
        encode_frame = partial(_encode_csv, with_times=True) if with_times else _ENCODERS[chosen_format]
        parts = encode_frame(frame, _frame_parts(frame, ends))
        if len(ends) > 1:
            gateway.snapshots.require_free(frame)  # before anything is encoded
            return frame, next(parts), parts
        whole = b"".join(parts)
        return frame, whole, None if len(whole) <= limits.snapshot_bytes_small else iter(())

    frame, first_part, others = await gateway.run_in_thread(begin)
    headers = {"content-type": CONTENT_TYPES[chosen_format]}
    if view.pause is not None:
        headers["smile-paused"] = view.pause.code
    if chosen_format in ("csv", "arrow") and frame.progress is not None and frame.resume is not None:
        headers |= {"smile-progress": progress_json(frame).decode("latin-1"), "smile-resume": frame.resume}
        headers |= {"smile-epochs": encode(frame.epochs).decode("latin-1")} if frame.epochs else {}
    if others is None:
        return Response(first_part, headers=headers)
    gateway.snapshots.require_free(frame)  # others may have begun meanwhile
    return SnapshotResponse(gateway, frame, first_part, others, headers)


class SnapshotResponse(StreamingResponse):
    """A snapshot that is sent in parts. The connection is closed if its client does not read, or reads too slowly."""

    def __init__(
        self,
        gateway: Gateway,
        frame: ViewFrame,
        first_part: bytes,
        others: Iterator[bytes],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(self._all_parts(first_part, others), headers=headers)
        self._gateway = gateway
        self._frame = frame

    async def _all_parts(self, first_part: bytes, others: Iterator[bytes]) -> AsyncIterator[bytes]:
        part: bytes | None = first_part
        while part is not None:
            yield part
            part = await self._gateway.run_in_thread(lambda: next(others, None))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"][HttpConnection.EXTENSION].set_response_seconds(limits.snapshot_s_max)
        with self._gateway.snapshots.hold(self._frame):
            await super().__call__(scope, receive, send)


def parse_condition(view: View, query: Mapping[str, str]) -> ViewCondition:
    """The condition of parameters such as `where.issue=IBM` and `final=true`. Values are written as the column's type
    requires."""
    where = parse_values(view.source.type.heading.columns, select_prefix(query, WHERE_PREFIX))
    return view.condition(where, _parse_bool(query, "final"))


def parse_values(columns: Mapping[str, DataType], texts: Mapping[str, str]) -> dict[str, Any]:
    """The values of a condition, as in JSON."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        type_name = columns[name].name if name in columns else ""
        values[name] = (
            _BOOLS.get(text, text) if type_name == "bool" else _parse_float(text) if type_name == "float" else text
        )
    return values


def _parse_float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _parse_bool(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in _BOOLS:
        raise error("E093", f"{name} is true or false, not {text[:100]!r}")
    return _BOOLS[text]


_BOOLS: Final = {"true": True, "false": False}


def select_prefix(query: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in query.items() if name.startswith(prefix)}


def _accepted_format(header: str) -> str:
    """The format that the caller prefers among those it accepts."""
    accepted: list[tuple[float, str]] = []
    for part in header.split(","):
        media_type, *parameters = [piece.strip().lower() for piece in part.split(";")]
        quality_text = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        with suppress(ValueError):
            accepted.append((float(quality_text), media_type))
    for quality, media_type in sorted(accepted, key=lambda entry: -entry[0]):
        for name, offered in CONTENT_TYPES.items():
            if quality > 0 and media_type in ("*/*", offered, f"{offered.split('/')[0]}/*"):
                return name
    raise HttpError(406, "E093", "there is no such format", f"There are {', '.join(CONTENT_TYPES.values())}.")


class TaskSubscriber:
    """A subscriber that waits in its own task."""

    cursor = None
    tables: Iterable[str] = ()

    def __init__(self, gateway: Gateway) -> None:
        self.is_scheduled = False
        self._gateway = gateway
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._gateway.scheduler.schedule(self)

    @property
    def delivery_key(self) -> tuple[int, int]:
        return 0, 0

    def deliver(self) -> bool:
        self._event.set()
        return False

    async def wait(self, seconds: float) -> bool:
        """Returns whether there is news, or False after the given time."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


async def _wait_until_reached(gateway: Gateway, view: View, after: Mapping[str, int], wait_ms: int) -> None:
    """E076 if there is no such stream, E108 if the view does not reach these ticks in time, E109 if it is paused."""
    check_streams(after, view.log_horizons())
    if view.is_reached(after):
        return
    subscriber = TaskSubscriber(gateway)
    subscription = view.subscribe(view.condition({}), subscriber.wake, None, after)
    deadline = gateway.loop.time() + wait_ms / 1000
    try:
        while subscription.next_frame(1) is None:
            if subscription.ended:
                raise subscription.ended
            if view.pause is not None:
                raise view.pause.to_error(view.name)
            gateway.require_running()
            if not await subscriber.wait(max(0.0, deadline - gateway.loop.time())):
                hint = "Try again, or use a larger wait_ms."
                raise error("E108", f"{view.name} did not reach the ticks within {wait_ms:,} ms", hint=hint)
    finally:
        subscription.close()


# ── formats ─────────────────────────────────────────────────────────────────────────────────────────────────────────


_ROW_BYTES: Final = 128
"""About the size of an encoded row without its texts."""


def _part_ends(frame: ViewFrame) -> list[int]:
    """For each part of the frame, the number of rows up to its end; at least one part."""
    total = (frame.rows.text_bytes() + _ROW_BYTES).cumsum()
    ends = [0]
    while ends[-1] < frame.row_count:
        begin = ends[-1]
        bytes_before = int(total[begin - 1]) if begin else 0
        end = int(total.searchsorted(bytes_before + limits.snapshot_part_bytes, side="right"))
        ends.append(max(begin + 1, min(end, begin + limits.snapshot_part_rows_max)))
    return ends[1:] or [0]


def _frame_parts(frame: ViewFrame, ends: Iterable[int]) -> Iterator[ViewFrame]:
    begin = 0
    for end in ends:
        rows = np.arange(begin, end)
        yield replace(frame, rows=frame.rows.take(rows), change_numbers=frame.change_numbers[rows])
        begin = end


def _encode_json(frame: ViewFrame, parts: Iterator[ViewFrame]) -> Iterator[bytes]:
    before = b'{"view":%b,"rows":[' % encode(frame.source.name)
    for part in parts:
        yield before + b",".join(row_messages(part))
        before = b","
    yield b"]," + _encode_trailer(frame)


def _encode_ndjson(frame: ViewFrame, parts: Iterator[ViewFrame]) -> Iterator[bytes]:
    for part in parts:
        yield b"".join(message + b"\n" for message in row_messages(part))
    yield b"{" + _encode_trailer(frame) + b"\n"


def _encode_trailer(frame: ViewFrame) -> bytes:
    return b'%b,"resume":%b}' % (progress_fields(frame), encode(frame.resume))


def _encode_csv(frame: ViewFrame, parts: Iterator[ViewFrame], with_times: bool = False) -> Iterator[bytes]:
    """The values of the view's columns, without the knowledge about them. `with_times`: ticks as timestamps."""
    heading = frame.source.type.heading
    names = dict.fromkeys((*heading.key, *heading.value_columns))
    for number, part in enumerate(parts):
        batch = frame_batch(part)
        table = pa.table({name: _plain_column(batch.column(name), heading.columns[name], with_times) for name in names})
        out = io.BytesIO()
        pa.csv.write_csv(table, out, pa.csv.WriteOptions(include_header=number == 0))
        yield out.getvalue()


def _plain_column(column: pa.Array, data: DataType, with_times: bool) -> pa.Array:
    """Values as in JSON: times and bytes in the language's notation, a relation and an array as JSON."""
    if data.name not in ("bytes", "relation", "array", "timestamp", "date") and not (with_times and data == TIME):
        return column

    def text(value: Any) -> str | None:
        plain = _plain_value(value, data, with_times)
        return encode(plain).decode() if isinstance(plain, list) else plain

    return pa.array(map(text, column.to_pylist()), pa.string())


def _plain_value(value: Any, data: DataType, with_times: bool) -> Any:
    if value is None:
        return None
    if data.name == "relation":
        columns = dict(data.columns)
        return [{c: _plain_value(cell, columns[c], with_times) for c, cell in row.items()} for row in value]
    if data.name == "array":
        return [_plain_value(element, data.element, with_times) for element in value]
    if with_times and data == TIME:
        return to_text(cast(value, TIME, TIMESTAMP), TIMESTAMP)
    return plain_json(value, data)


def _encode_arrow(_: ViewFrame, parts: Iterator[ViewFrame]) -> Iterator[bytes]:
    out, writer = io.BytesIO(), None
    for part in parts:
        batch = frame_batch(part)
        writer = writer or pa.ipc.new_stream(out, batch.schema)
        writer.write_batch(batch)
        yield _take_bytes(out)
    assert writer is not None
    writer.close()
    yield _take_bytes(out)


def _take_bytes(out: io.BytesIO) -> bytes:
    data = out.getvalue()
    out.seek(0)
    out.truncate()
    return data


_ENCODERS: Final[Mapping[str, Callable[[ViewFrame, Iterator[ViewFrame]], Iterator[bytes]]]] = {
    "json": _encode_json,
    "ndjson": _encode_ndjson,
    "csv": _encode_csv,
    "arrow": _encode_arrow,
}
