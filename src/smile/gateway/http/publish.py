"""Publishing over HTTP. Events are on the disk when their ticks are returned; a refused publication was not logged."""

from concurrent.futures import Future
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from smile import limits
from smile.broker.publishing.publication import ProducerSequence, Publication, PublishResult, SilencePublication
from smile.decoding.event_decoder import EventDecoder
from smile.decoding.stream_schema import AbsentColumns
from smile.errors import SmileError, error
from smile.gateway.access import Right
from smile.gateway.client_messages import parse_silence
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http.bodies import NoQuery, PublishedBody, SilentBody, WarningBody
from smile.gateway.http.request import parse_query, parse_silence_tick, read_body, read_content_type, read_header
from smile.gateway.http.response import HttpError, JsonResponse
from smile.knowledge.values.json import tick_json

ARROW: Final = "application/vnd.apache.arrow.stream"
PARQUET: Final = "application/vnd.apache.parquet"
_DECODE: Final = {
    "application/json": EventDecoder.decode_json,
    "application/x-www-form-urlencoded": EventDecoder.decode_json,  # what `curl -d` says of any body
    "application/x-ndjson": EventDecoder.decode_ndjson,
    "text/csv": EventDecoder.decode_csv,
    ARROW: EventDecoder.decode_arrow,
    PARQUET: EventDecoder.decode_parquet,
}


def submit_events(
    gateway: Gateway, caller: Caller, stream: str, content_type: str, body: bytes, sequence: ProducerSequence | None
) -> Future[PublishResult]:
    """Decodes events and submits them to the broker."""
    gateway.require_running()
    gateway.require(caller, Right.publish, stream)
    broker = gateway.broker
    absent: AbsentColumns = {}
    try:
        rows = _DECODE[content_type](broker.decoder, stream, body, absent)
    except SmileError as problem:
        first = problem.diagnostics[0]
        if first.code == "E092":
            raise HttpError(413, first.code, first.message, first.hint) from None
        hint = _hint_on_content_type(content_type, body) if first.code == "E073" else None
        raise (problem if hint is None else error(first.code, first.message, hint=hint)) from None
    gateway.event_limiter.spend(caller.principal, len(rows))
    gateway.counts["events"] += len(rows)
    return broker.publish(Publication(stream, rows, sequence, absent))


def _hint_on_content_type(content_type: str, body: bytes) -> str | None:
    """If the body would be events in another format: which header says so."""
    if _DECODE[content_type] is not EventDecoder.decode_json:
        return None
    lines = [line.strip() for line in body[: limits.body_bytes_small].splitlines() if line.strip()]
    if len(lines) > 1 and all(line[:1] == b"{" for line in lines):
        return "Send lines of JSON with the header Content-Type: application/x-ndjson (and curl --data-binary)."
    if lines and lines[0][:1] not in b'{["' and (len(lines) > 1 or b"," in lines[0]):
        return "Send a table in CSV with the header Content-Type: text/csv (and curl --data-binary)."
    return None


def submit_silence(gateway: Gateway, caller: Caller, stream: str, to: int) -> Future[PublishResult]:
    gateway.require_running()
    gateway.require(caller, Right.publish, stream)
    return gateway.broker.publish(SilencePublication(gateway.broker.decoder.schema(stream).name, to))


def producer_sequence(caller: str, producer: str | None, seq: int | None) -> ProducerSequence | None:
    """`caller` is the principal of the call."""
    if producer is None and seq is None:
        return None
    if producer is None or seq is None:
        raise error("E093", "a producer and a sequence number belong together: give both, or none")
    if not 0 < len(producer) <= limits.producer_chars_max or not producer.isprintable():
        raise error("E093", f"a producer's name must have 1 to {limits.producer_chars_max} printable characters")
    return ProducerSequence(caller, producer, seq)


def published_body(result: PublishResult) -> PublishedBody:
    return PublishedBody([tick_json(t) for t in result.ticks], result.repeated, absent_column_warnings(result))


def absent_column_warnings(result: PublishResult) -> list[WarningBody]:
    return [
        WarningBody(column, events, f"{events:,} event{'s' * (events != 1)} had no {column}, which is NULL there")
        for column, events in result.absent.items()
    ]


async def publish(gateway: Gateway, request: Request) -> Response:
    """Publish events. They are on the disk when the response with their ticks is sent."""
    parse_query(request, NoQuery)
    content_type = read_content_type(request, "application/json")
    if content_type not in _DECODE:
        hint = f"Send {', '.join(_DECODE)}."
        raise HttpError(415, "E093", f"events cannot be read from {content_type[:100]!r}", hint)
    producer, seq = read_header(request, b"smile-producer"), read_header(request, b"smile-sequence")
    sequence = producer_sequence(request.user.principal, producer, _parse_sequence(seq))
    body = await read_body(request, gateway.settings.message_bytes_max)
    stream = request.path_params["stream"]
    if len(body) <= limits.body_bytes_small:
        future = submit_events(gateway, request.user, stream, content_type, body, sequence)
        return JsonResponse(published_body(await gateway.pending_publications.wait(future)))
    # It may have hundreds of thousands of events: nobody else waits for their decoding.
    future = await gateway.run_in_thread(
        lambda: submit_events(gateway, request.user, stream, content_type, body, sequence)
    )
    result = await gateway.pending_publications.wait(future)
    return await gateway.run_in_thread(lambda: JsonResponse(published_body(result)))


async def silence(gateway: Gateway, request: Request) -> Response:
    """Declare that nothing more happens up to a tick, in a stream whose publishers supply the ticks."""
    parse_query(request, NoQuery)
    to = parse_silence_tick(parse_silence(await read_body(request, gateway.settings.message_bytes_max)))
    await gateway.pending_publications.wait(submit_silence(gateway, request.user, request.path_params["stream"], to))
    return JsonResponse(SilentBody(tick_json(to)))


def _parse_sequence(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= limits.sequence_max and len(text) <= 20):
        hint = f"Send a whole number up to {limits.sequence_max}."
        raise error("E093", "the header Smile-Sequence is not a sequence number", hint=hint)
    return int(text)
