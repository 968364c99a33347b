"""Messages that are deep, large, or have many elements, on every entry: they are refused, and the broker goes on."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyarrow import flight

from smile.algebra import mmpl
from smile.analysis.export_description import describe_export, read_definition
from smile.analysis.recorded_types import parse_recorded_types
from smile.broker.network.descriptions import _parse_description
from smile.broker.views.resume_token import parse_resume_token
from smile.client.address import BrokerAddress
from smile.decoding.event_decoder import EventDecoder
from smile.errors import CATALOGUE, SmileError
from smile.gateway.client_messages import parse_message, parse_silence
from smile.gateway.flight.calls import decode_message
from smile.gateway.flight.service import BatchSequence, SilenceRequest, TicketKind, ViewTicket
from smile.gateway.links.neighbour_calls import answer_error
from smile.kernels.point_codec import decode_point
from smile.links.messages import decode_message as decode_link_message
from smile.log.membership import StreamMembership
from smile.log.storage.remote import LogRequest, LogTicket
from smile.program import compile_program
from smile.source import Source
from tests.brokers import PROGRAM, BrokerProcess, bid
from tests.processes import WAIT_S, free_port

DEEP = 29_000
"""A level of a decoder that recurses takes about 300 bytes of its stack, which has eight megabytes."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker in a process of its own, which a stack overflow would end; and the address of its Arrow Flight."""
    folder = tmp_path_factory.mktemp("deep")
    (folder / "floor.smile").write_text(PROGRAM)
    port = free_port()
    with BrokerProcess(folder, options=["--flight", f"127.0.0.1:{port}"]) as broker:
        broker.wait_for_line("Arrow Flight on ")
        yield broker, f"grpc://127.0.0.1:{port}"


@pytest.mark.parametrize(
    "message",
    [
        '{"subscribe":"Totals","id":1,"where":{"issue":%s}}',
        '{"subscribe":"Totals","id":1,"where":%s}',
        '{"subscribe":"Totals","id":1,"after":{"Bids":%s}}',
        '{"subscribe":"Totals","id":1,"resume":%s}',
        '{"publish":"Bids","events":%s}',
        '{"publish":"Bids","events":[{"issue":%s}]}',
        '{"ping":%s}',
        '{"unknown":%s}',
        "%s",
    ],
)
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_a_deep_websocket_message(served: tuple[BrokerProcess, str], message: str, opening: str, closing: str) -> None:
    broker, _ = served
    with broker.websocket() as client:
        client.send(message % (opening * DEEP + "1" + closing * DEEP))
        assert client.receive()["error"]["code"] in CATALOGUE
        assert client.ask({"ping": "alive"}) == {"pong": "alive"}


@pytest.mark.parametrize(
    ("path", "content_type", "body"),
    [
        ("/streams/Bids/events", "application/json", "%s"),
        ("/streams/Bids/events", "application/json", '[{"issue":%s}]'),
        ("/streams/Bids/events", "application/x-ndjson", '{"issue":%s}\n'),
        ("/streams/Bids/events", "application/vnd.apache.arrow.stream", "%s"),
        ("/streams/Bids/silence", "application/json", '{"to":%s}'),
        ("/views", "text/plain", "CREATE VIEW w AS SELECT issue FROM Bids WHERE price = %s;"),
    ],
)
def test_a_deep_body(served: tuple[BrokerProcess, str], path: str, content_type: str, body: str) -> None:
    broker, _ = served
    with broker.http() as client:
        for nested in ("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "(" * DEEP + ")" * DEEP):
            answer = client.post(path, content=body % nested, headers={"content-type": content_type})
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["code"] in CATALOGUE
        assert client.get("/health").status_code == 200


def test_deep_messages_over_flight(served: tuple[BrokerProcess, str]) -> None:
    broker, address = served
    options = flight.FlightCallOptions(timeout=WAIT_S)
    nested = "[" * DEEP + "]" * DEEP
    with flight.FlightClient(address) as client:
        for ticket in ('{"view":"Totals","where":{"issue":%s}}', '{"log":%s}', '{"x":%s}', "%s"):
            with pytest.raises((flight.FlightError, pa.ArrowException), match="E09"):
                client.do_get(flight.Ticket((ticket % nested).encode()), options).read_all()
        for action in ("silence", "log/newest"):
            with pytest.raises((flight.FlightError, pa.ArrowException), match="E09"):
                list(client.do_action(flight.Action(action, nested.encode()), options))
        batch = pa.RecordBatch.from_pydict({"issue": ["IBM"]})
        writer, _ = client.do_put(flight.FlightDescriptor.for_path("streams", "Bids"), batch.schema, options)
        with pytest.raises((flight.FlightError, pa.ArrowException), match="E093"):  # noqa: PT012
            writer.write_with_metadata(batch, nested.encode())
            writer.close()
    broker.publish("Bids", bid())


def _deep_schema(depth: int) -> bytes:
    data: pa.DataType = pa.int64()
    for _ in range(depth):
        data = pa.list_(data)
    return bytes(pa.schema([pa.field("issue", data)]).serialize())


def test_arrow_with_a_deep_type(served: tuple[BrokerProcess, str]) -> None:
    broker, _ = served
    with broker.http() as client:
        for depth in (10, 60, 120, 2_000):
            headers = {"content-type": "application/vnd.apache.arrow.stream"}
            answer = client.post("/streams/Bids/events", content=_deep_schema(depth), headers=headers)
            assert answer.status_code == 400, answer.text


def test_deep_settings_and_tokens(tmp_path_factory: pytest.TempPathFactory) -> None:
    for nested in (b"[" * DEEP, b'{"Bids":' * DEEP):
        token = "0." + base64.urlsafe_b64encode(nested).decode()[: 2**16 - 10]
        with pytest.raises(SmileError, match="not a resume token"):
            parse_resume_token(token)


# ── decoders one by one ─────────────────────────────────────────────────────────────────────────────────────────────

STREAMS: list[mmpl.StreamDef] = list(compile_program(Source("floor.smile", PROGRAM)).original.streams)
EVENTS = EventDecoder(STREAMS)
DESCRIPTION = describe_export(compile_program(Source("floor.smile", PROGRAM)).rewritten, "Totals")


def digested(data: bytes) -> dict[str, str]:
    """A definition with its right digest."""
    return {"definition": data.decode(), "digest": hashlib.sha256(data).hexdigest()}


def json_or_none(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def decode_point_or_refuse(data: bytes) -> None:
    with suppress(ValueError):
        decode_point(data)


DECODERS: dict[str, Callable[[bytes], object]] = {
    "a WebSocket message": lambda data: parse_message(data.decode(errors="replace")),
    "silence": parse_silence,
    "events as JSON": lambda data: EVENTS.decode_json("Bids", data),
    "events as NDJSON": lambda data: EVENTS.decode_ndjson("Bids", data),
    "events as Arrow": lambda data: EVENTS.decode_arrow("Bids", data),
    "a recorded line": EVENTS.decode_line,
    "a message of a link": lambda data: decode_link_message(len(data).to_bytes(4, "big") + data),
    "a membership": lambda data: StreamMembership.decode("S", 1, data),
    "a description": lambda data: _parse_description(data.decode(), "b", "Totals"),
    "recorded types": lambda data: parse_recorded_types(data.decode(), "f"),
    "a definition": lambda data: read_definition(DESCRIPTION | digested(data), "Totals"),
    "a type in a description": lambda data: read_definition(DESCRIPTION | {"type": json_or_none(data)}, "Totals"),
    "an answer of a neighbour": lambda data: answer_error("b", BrokerAddress("http://b", None, None), 400, data),
    "a point of knowledge": decode_point_or_refuse,
    "a resume token": lambda data: parse_resume_token("0." + base64.urlsafe_b64encode(data).decode()),
    **{
        f"a {message_type.__name__} over Arrow Flight": partial(decode_message, "it", message_type=message_type)
        for message_type in (TicketKind, ViewTicket, LogTicket, LogRequest, SilenceRequest, BatchSequence)
    },
}
NAMES = [
    "kind", "members", "history", "definition", "sources", "ranges", "error", "n",
    "subscribe", "where", "after", "resume", "publish", "events", "producer", "id", "seq", "ping", "to", "stream", "at",
    "event", "silence_to", "issue", "price", "weight", "view", "log", "position", "horizons", "start", "streams",
]  # fmt: skip
leaves = st.sampled_from([None, True, 0, -1, 2**63, 1e300, "", "Bids", "Totals", "x" * 1000])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """JSON that is deep or wide at some place, perhaps cut off."""
    text = json.dumps(draw(leaves))
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.sampled_from([0, 1, 2, 150, 300, 3_000, 50_000]))
        name = json.dumps(draw(st.sampled_from(NAMES)))
        wrap = draw(st.sampled_from(["deep list", "deep object", "list", "object", "member"]))
        if wrap == "deep list":
            text = "[" * size + text + "]" * size
        elif wrap == "deep object":
            text = f"{{{name}:" * size + text + "}" * size
        elif wrap == "list" and len(text) * size < 10**6:
            text = f"[{','.join([text] * size)}]"
        elif wrap == "object" and len(text) * size < 10**6:
            text = "{" + ",".join(f'"c{n}":{text}' for n in range(size)) + "}"
        else:
            text = f"{{{name}:{text}}}"
    return text[: draw(st.sampled_from([len(text), len(text) // 2])) or None].encode()


@pytest.mark.parametrize("decoder", DECODERS)
@settings(suppress_health_check=list(HealthCheck))
@given(data=texts())
def test_whatever_the_shape_a_decoder_answers(decoder: str, data: bytes) -> None:
    with suppress(SmileError):
        DECODERS[decoder](data)


# ── what neighbours send ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "members",
    [
        {"9" * 5_000: {}},
        {"01": {}},
        {"x" * 10_000: {}},
        {"2000": {}},
        {"1": {"broker": "b" * 100_000}},
        {str(n): {} for n in range(1, 3_000)},
    ],
    ids=["many digits", "leading zero", "text", "too great", "long name", "many members"],
)
def test_large_memberships_are_refused(members: dict[str, dict[str, object]]) -> None:
    entry = {"broker": "b", "log": "l", "start": 0}
    text = json.dumps({"history": "h", "members": {origin: entry | more for origin, more in members.items()}})
    with pytest.raises(SmileError) as refusal:
        StreamMembership.decode("S", 1, text.encode())
    (problem,) = refusal.value.diagnostics
    assert problem.code == "E125" and len(problem.message) < 1_000


@pytest.mark.parametrize(
    "point",
    [
        b"[" * 100_000,
        b'["nested",[[1,' * 3_000,
        b'["masked",' * 500 + b"null" + b"]" * 500,
        b'["range"]',
        b'["range",["decimal","x"],1,"no",1]',
        b'["range",1,1,"?",1]',
        b'["latest",1,[1],["range",1,1,"no",1]]',
        b'[["range"]]',
        b'["row",3]',
        b'{"a":1}',
    ],
    ids=range(10),
)
def test_wrong_points_of_knowledge_are_refused(point: bytes) -> None:
    """A neighbour's rows have them. They must not come into the log."""
    with pytest.raises(ValueError, match=r"."):
        decode_point(point)
