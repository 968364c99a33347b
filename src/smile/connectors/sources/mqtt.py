"""A source: the messages of an MQTT broker (version 5). Each message is one event in JSON.

The session is persistent, and a message is acknowledged when its event is in the log. It is received with QoS 1: a
message that the broker repeats, because it does not know that it was taken, is recognized by `MessageWindow`. So each
message of QoS 1 or 2 that reaches the MQTT broker is logged once, as long as the broker keeps the session.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from smile.connectors.sources.encoded_events import JsonEvents
from smile.connectors.sources.event_source import FindPosition, SourceBatch
from smile.connectors.sources.mqtt_window import ENTRIES_MAX, Entry, MessageWindow, message_digest
from smile.errors import Diagnostic, error

QOS: Final = 1
MESSAGES_MAX: Final = 100
"""The receive maximum of the session, and the most messages of a batch."""
UNCONFIRMED_MAX: Final = ENTRIES_MAX - MESSAGES_MAX
"""More messages than these are not logged before the MQTT broker knows that earlier ones were: so everything that it
may repeat is in the window."""
_NOT_SUBSCRIBED: Final = "smile/nothing"
KEEPALIVE_S: Final = 20
ANSWER_S_MAX: Final = 10.0
WAIT_S: Final = 0.2
SESSION_EXPIRY_S: Final = 7 * 86_400
"""How long the MQTT broker keeps messages for a source that is away."""


@dataclass(frozen=True)
class MqttAddress:
    """`topic` is a filter, which may have wildcards. `client_id` names the session. With `topic_column`, that column of
    the event is the topic."""

    url: str
    topic: str
    client_id: str
    username: str = ""
    password: str = ""
    ca: str = ""
    topic_column: str = ""


@dataclass(frozen=True)
class _Answer:
    """What the network's thread tells the source's: the connection or the subscription was accepted or refused, or the
    connection is lost."""

    kind: str
    is_ok: bool
    text: str = ""
    has_session: bool = False


class MqttSource:
    """`warn` is told once of each loss."""

    def __init__(self, address: MqttAddress, warn: Callable[[str], None]) -> None:
        self._address, self._warn = address, warn
        self._client: Client | None = None
        self._window, self._next = MessageWindow(), 0
        self._arrived: SimpleQueue[MQTTMessage | _Answer] = SimpleQueue()
        self._aside: deque[MQTTMessage] = deque()
        """Messages that have arrived, before those of `_arrived`."""
        self._unacknowledged: list[int] = []
        self._acknowledged = self._confirmed = self._barrier = 0
        """Messages that were acknowledged on this connection, those of which the MQTT broker knows it, and those of
        which it will when it has answered."""
        self._has_barrier = False
        self._has_connected = False
        self._repeated = self._lost_sessions = 0

    # ── connecting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, find_position: FindPosition) -> None:
        self._arrived = SimpleQueue()
        self._aside.clear()
        self._unacknowledged = []
        self._acknowledged = self._confirmed = self._barrier = 0
        self._has_barrier = False
        logged = find_position(self._address.client_id)
        self._window = MessageWindow() if logged is None else MessageWindow(logged.note)
        self._next = 0 if logged is None else logged.number + 1
        self._client = client = self._create_client()
        host, port = self._host()
        try:
            client.connect(host, port, KEEPALIVE_S, clean_start=False, properties=_session())
        except (OSError, ValueError) as problem:
            raise error("E204", f"{host}:{port} cannot be reached: {problem}") from None
        client.loop_start()
        answer = self._wait_for("connected")
        if not answer.has_session:
            self._window.clear()
            if logged is not None or self._has_connected:
                self._report_lost_session()
        self._has_connected = True
        # A retained message was published before: it would come again with each subscription.
        options = SubscribeOptions(QOS, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        client.subscribe(self._address.topic, options=options)
        if not answer.has_session:
            self._wait_for("subscribed")

    def _report_lost_session(self) -> None:
        self._lost_sessions += 1
        url = self._address.url
        self._warn(f"{url} has no session any more: messages that came while this broker was away may be lost")

    def _create_client(self) -> Client:
        address = self._address
        client = Client(
            CallbackAPIVersion.VERSION2,
            address.client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        if address.username:
            client.username_pw_set(address.username, address.password or None)
        if urlsplit(address.url).scheme == "mqtts":
            client.tls_set(ca_certs=address.ca or None)
        arrived = self._arrived

        def on_connect(_: Client, __: Any, flags: ConnectFlags, code: ReasonCode, ___: Any) -> None:
            arrived.put(_Answer("connected", not code.is_failure, str(code), flags.session_present))

        def on_subscribe(_: Client, __: Any, ___: int, codes: list[ReasonCode], ____: Any) -> None:
            failed = [str(code) for code in codes if code.is_failure or code.value < QOS]
            arrived.put(_Answer("subscribed", not failed, ", ".join(failed)))

        def on_unsubscribe(_: Client, __: Any, ___: int, ____: list[ReasonCode], _____: Any) -> None:
            arrived.put(_Answer("confirmed", True))

        def on_disconnect(_: Client, __: Any, ___: DisconnectFlags, code: ReasonCode, ____: Any) -> None:
            arrived.put(_Answer("disconnected", False, str(code)))

        def on_message(_: Client, __: Any, message: MQTTMessage) -> None:
            arrived.put(message)

        client.on_connect, client.on_subscribe, client.on_disconnect = on_connect, on_subscribe, on_disconnect
        client.on_message, client.on_unsubscribe = on_message, on_unsubscribe
        return client

    def _host(self) -> tuple[str, int]:
        parts = urlsplit(self._address.url)
        default = 8883 if parts.scheme == "mqtts" else 1883
        return unquote(parts.hostname or ""), parts.port or default

    def _wait_for(self, kind: str) -> _Answer:
        """Messages that arrive meanwhile are put aside."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                arrived = self._arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise error("E204", f"{self._address.url} does not answer") from None
            if isinstance(arrived, MQTTMessage):
                self._aside.append(arrived)
                continue
            self._take_answer(arrived)
            if arrived.kind == kind:
                return arrived

    def _take_answer(self, answer: _Answer) -> None:
        if not answer.is_ok:
            raise error("E204", f"{self._address.url}: {answer.kind}: {answer.text}")
        if answer.kind == "confirmed":
            self._confirmed = self._barrier
            self._has_barrier = False

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.loop_stop()

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_batch(self) -> SourceBatch | None:
        messages = self._take_messages()
        if not messages:
            self._acknowledge()  # repeated ones
            return None
        received_at = time.time()
        texts = [_event_text(message, self._address.topic_column) for message in messages]
        places = [f"{m.topic}, message {m.mid} received at {received_at:.6f}" for m in messages]
        entries, before = [_entry(message) if message.qos else None for message in messages], self._window.note()

        def note(end: int) -> str:
            window = MessageWindow(before)
            window.add(entry for entry in entries[:end] if entry is not None)
            return window.note()

        self._window.add(entry for entry in entries if entry is not None)
        first, self._next = self._next, self._next + len(messages)
        return SourceBatch(self._address.client_id, first, JsonEvents(texts, places), note)

    def _take_messages(self) -> list[MQTTMessage]:
        """The messages that have arrived and are not in the log. An MQTT broker repeats messages in their order: when a
        new one comes, everything in the window that may be repeated later was repeated on this connection."""
        while self._acknowledged - self._confirmed > UNCONFIRMED_MAX:
            self._wait_for("confirmed")
            self._send_barrier()
        messages, taken, wait_s = list[MQTTMessage](), 0, WAIT_S
        while taken < MESSAGES_MAX:
            try:
                arrived = self._aside.popleft() if self._aside else self._arrived.get(timeout=wait_s)
            except Empty:
                break
            wait_s = 0.0
            if isinstance(arrived, _Answer):
                self._take_answer(arrived)
                self._send_barrier()
                continue
            taken += 1
            if arrived.qos:
                self._unacknowledged.append(arrived.mid)
            if arrived.dup and self._window.contains(entry := _entry(arrived)):
                self._repeated += 1
                self._window.add([entry])  # it is one of the newest again: it may be repeated once more
            else:
                messages.append(arrived)
        return messages

    def accept(self, batch: SourceBatch) -> None:
        self._acknowledge()

    def _acknowledge(self) -> None:
        """In the order in which the messages came."""
        assert self._client is not None
        packets, self._unacknowledged = self._unacknowledged, []
        for packet in packets:
            if self._client.ack(packet, QOS) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise error("E204", f"the connection to {self._address.url} is lost")
        self._acknowledged += len(packets)
        self._send_barrier()

    def _send_barrier(self) -> None:
        """Asks for something that is answered after the acknowledgements before it were processed: nothing can be
        repeated then that they acknowledge. Some brokers have more messages on their way than the receive maximum."""
        if not self._has_barrier and self._acknowledged > self._confirmed:
            assert self._client is not None
            self._has_barrier, self._barrier = True, self._acknowledged
            self._client.unsubscribe(_NOT_SUBSCRIBED)

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def problems(self) -> Mapping[str, Diagnostic]:
        return {}

    def status(self) -> Mapping[str, Any]:
        return {"repeated_messages": self._repeated, "lost_sessions": self._lost_sessions}


def _session() -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # as the library has it
    properties.SessionExpiryInterval = SESSION_EXPIRY_S
    properties.ReceiveMaximum = MESSAGES_MAX
    return properties


def _entry(message: MQTTMessage) -> Entry:
    return message.mid, message_digest(message.topic, bytes(message.payload))


def _event_text(message: MQTTMessage, topic_column: str) -> bytes:
    """The payload, with the topic as one more member if asked for. What is not an object stays as it is: the decoder
    explains it."""
    payload = bytes(message.payload)
    if not topic_column:
        return payload
    begin = payload.lstrip()
    if not begin.startswith(b"{"):
        return payload
    member = msgspec.json.encode({topic_column: message.topic})[:-1]
    rest = begin[1:].lstrip()
    return member + (b"" if rest.startswith(b"}") else b",") + rest
