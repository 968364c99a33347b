"""Publishing over HTTP. What is answered with ticks is on the disk; whatever is refused, nothing of it was logged."""

from concurrent.futures import Future
from typing import Final

from smile import limits
from smile.broker.publication import Numbered, Publication, Published, Silence
from smile.errors import SmileError, error
from smile.gateway.access import Right
from smile.gateway.answers import Answer, Refused, encode
from smile.gateway.calls import Call, silence_tick
from smile.gateway.gateway import Gateway, Visitor
from smile.gateway.json import to_silence
from smile.knowledge.json import tick_json
from smile.log.publishing import rows_of_arrow, rows_of_json, rows_of_ndjson

ARROW: Final = "application/vnd.apache.arrow.stream"
_READERS: Final = {
    "application/json": rows_of_json,
    "application/x-ndjson": rows_of_ndjson,
    ARROW: rows_of_arrow,
}


def submitted(
    gateway: Gateway, visitor: Visitor, stream: str, kind: str, body: bytes, numbered: Numbered | None
) -> Future[Published]:
    """Checked, and on its way to the log."""
    gateway.require_running()
    gateway.require(visitor, Right.publish, stream)
    broker = gateway.broker
    shape = broker.shape(stream)
    try:
        rows = _READERS[kind](shape, body, shape.stream.publisher_timed)
    except SmileError as problem:
        first = problem.diagnostics[0]
        raise (Refused(413, first.code, first.message, first.hint) if first.code == "E092" else problem) from None
    gateway.events.spend(visitor.principal, len(rows))
    gateway.counts["events"] += len(rows)
    return broker.publish(Publication(shape.name, rows, numbered))


def silenced(gateway: Gateway, visitor: Visitor, stream: str, to: int) -> Future[Published]:
    gateway.require_running()
    gateway.require(visitor, Right.publish, stream)
    return gateway.broker.publish(Silence(gateway.broker.shape(stream).name, to))


def numbered_by(producer: str | None, seq: int | None) -> Numbered | None:
    if producer is None and seq is None:
        return None
    if producer is None or seq is None:
        raise error("E093", "a producer and a sequence number go together: give both, or none")
    if not 0 < len(producer) <= limits.producer_chars_max or not producer.isprintable():
        raise error("E093", f"a producer's name has 1 to {limits.producer_chars_max} characters that can be printed")
    return Numbered(producer, seq)


def published_json(published: Published) -> dict[str, object]:
    return {"ticks": [tick_json(t) for t in published.ticks], "repeated": published.repeated}


async def publish(call: Call) -> Answer:
    call.query(())
    kind = (call.header(b"content-type") or "application/json").partition(";")[0].strip().lower()
    if kind not in _READERS:
        hint = f"Send {', '.join(_READERS)}."
        raise Refused(415, "E093", f"events cannot be read from {kind[:100]!r}", hint)
    numbered = numbered_by(call.header(b"smile-producer"), _sequence(call.header(b"smile-sequence")))
    body = await call.body(call.gateway.settings.message_bytes_max)
    future = submitted(call.gateway, call.visitor, call.name, kind, body, numbered)
    return Answer(encode(published_json(await call.gateway.returns.wait(future))))


async def silence(call: Call) -> Answer:
    call.query(())
    body = await call.body(call.gateway.settings.message_bytes_max)
    to = silence_tick(to_silence(body))
    await call.gateway.returns.wait(silenced(call.gateway, call.visitor, call.name, to))
    return Answer(encode({"silent": tick_json(to)}))


def _sequence(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= limits.sequence_max and len(text) <= 20):
        hint = f"It is a whole number up to {limits.sequence_max}."
        raise error("E093", "the header Smile-Sequence is no sequence number", hint=hint)
    return int(text)
