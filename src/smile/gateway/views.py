"""Snapshots: all that a view shows at one moment, with how far everything is known then."""

import asyncio
import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from smile import limits
from smile.algebra.coercions import to_text
from smile.algebra.types import DataType
from smile.broker.told import Told
from smile.broker.view import Condition, View
from smile.errors import error
from smile.gateway.access import Right
from smile.gateway.answers import Answer, Refused, encode
from smile.gateway.calls import Call, ticks, whole
from smile.gateway.gateway import Gateway
from smile.gateway.publish import ARROW
from smile.knowledge.json import plain_json

WHERE: Final = "where."
AFTER: Final = "after."

KINDS: Final[Mapping[str, str]] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "arrow": ARROW,
}


async def snapshot(call: Call) -> Answer:
    call.require(Right.subscribe, call.name)
    query = call.query(("format", "wait_ms"), (WHERE, AFTER))
    form = query.get("format") or _accepted(call.header(b"accept") or "*/*")
    if form not in KINDS:
        raise error("E093", f"there is no format {form[:100]!r}", hint=f"There are {', '.join(KINDS)}.")
    view = call.gateway.broker.view(call.name)
    condition = condition_of(view, query)
    after = ticks(prefixed(query, AFTER))
    wait_ms = whole(query.get("wait_ms", str(limits.wait_ms_default)), "wait_ms", limits.wait_ms_max)
    if after:
        await _reached(call.gateway, view, after, wait_ms)

    def made() -> Answer:
        told = view.snapshot(condition)
        most = call.gateway.settings.snapshot_rows_max
        if told.rows > most:
            hint = "Put conditions on it (where.COLUMN=VALUE), or subscribe to it."
            raise Refused(413, "E092", f"the snapshot has {told.rows:,} rows, the most is {most:,}", hint)
        headers: list[tuple[bytes, bytes]] = []
        if form in ("csv", "arrow") and told.progress is not None and told.resume is not None:
            headers = [(b"smile-progress", told.progress_json), (b"smile-resume", told.resume.encode())]
        return Answer(_MAKERS[form](told), 200, KINDS[form].encode(), headers)

    answer: Answer = await call.in_thread(made)
    return answer


def condition_of(view: View, query: Mapping[str, str]) -> Condition:
    """From `where.issue=IBM`: each value as its column's type writes it."""
    columns = view.source.type.heading.columns
    found: dict[str, Any] = {}
    for name, text in prefixed(query, WHERE).items():
        kind = columns[name].name if name in columns else ""
        found[name] = _BOOLS.get(text, text) if kind == "bool" else _number(text) if kind == "float" else text
    return view.condition(found)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


_BOOLS: Final = {"true": True, "false": False}


def prefixed(query: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in query.items() if name.startswith(prefix)}


def _accepted(header: str) -> str:
    """The best of the formats that the caller takes."""
    wanted: list[tuple[float, str]] = []
    for part in header.split(","):
        kind, *parameters = [piece.strip().lower() for piece in part.split(";")]
        given = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        with suppress(ValueError):
            wanted.append((float(given), kind))
    for quality, kind in sorted(wanted, key=lambda one: -one[0]):
        for form, offered in KINDS.items():
            if quality > 0 and kind in ("*/*", offered, f"{offered.split('/')[0]}/*"):
                return form
    raise Refused(406, "E093", "there is no such format", f"There are {', '.join(KINDS.values())}.")


class Waiter:
    """A subscriber that waits in a task of its own."""

    def __init__(self, gateway: Gateway) -> None:
        self.woken = False
        self._gateway = gateway
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._gateway.rounds.wake(self)

    @property
    def place(self) -> tuple[int, int]:
        return 0, 0

    def deliver(self) -> bool:
        self._event.set()
        return False

    async def wait(self, seconds: float) -> bool:
        """Whether it was woken."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


async def _reached(gateway: Gateway, view: View, after: Mapping[str, int], wait_ms: int) -> None:
    """E108 if the view does not come so far in time."""
    if view.is_reached(after):
        return
    waiter = Waiter(gateway)
    subscription = view.subscribe(view.condition({}), waiter.wake, None, after)
    end = gateway.loop.time() + wait_ms / 1000
    try:
        while subscription.take(1) is None:
            if subscription.ended:
                raise subscription.ended
            gateway.require_running()
            if not await waiter.wait(max(0.0, end - gateway.loop.time())):
                hint = "Ask again, or with a larger wait_ms."
                raise error("E108", f"{view.name} did not come so far within {wait_ms:,} ms", hint=hint)
    finally:
        subscription.close()


# ── formats ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _json(told: Told) -> bytes:
    return b'{"view":%b,"rows":[%b],%b' % (encode(told.source.name), told.json(), _end(told))


def _ndjson(told: Told) -> bytes:
    return told.lines() + b"{" + _end(told) + b"\n"


def _end(told: Told) -> bytes:
    progress = told.progress_json if told.progress is not None else b"{}"
    return b'"progress":%b,"resume":%b}' % (progress, encode(told.resume))


def _csv(told: Told) -> bytes:
    """The view's columns, and nothing of what is known of them."""
    heading = told.source.type.heading
    batch = told.arrow()
    names = dict.fromkeys((*heading.key, *heading.values))
    table = pa.table({name: _plain(batch.column(name), heading.columns[name]) for name in names})
    out = io.BytesIO()
    pa.csv.write_csv(table, out)
    return out.getvalue()


def _plain(column: pa.Array, data: DataType) -> pa.Array:
    """As JSON has it: moments and bytes as the language writes them. A relation is JSON."""
    if data.name not in ("bytes", "relation", "timestamp", "date"):
        return column
    write = _relation_text if data.name == "relation" else to_text
    return pa.array([None if value is None else write(value, data) for value in column.to_pylist()], pa.string())


def _relation_text(rows: Any, data: DataType) -> str:
    columns = dict(data.columns)
    return encode([{c: plain_json(value, columns[c]) for c, value in row.items()} for row in rows]).decode()


def _arrow(told: Told) -> bytes:
    out = io.BytesIO()
    batch = told.arrow()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


_MAKERS: Final[Mapping[str, Callable[[Told], bytes]]] = {
    "json": _json,
    "ndjson": _ndjson,
    "csv": _csv,
    "arrow": _arrow,
}
