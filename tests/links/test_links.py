"""Links over a network with faults: nothing false is handed on, and in the end everything arrives."""

import json
from math import inf
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from smile import limits
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN
from smile.links.curiosity import Curiosity
from smile.links.exports import SILENCE_WAIT_S_MAX, StreamExport, ViewExport, _MembersSender
from smile.links.imports import REFUSED_WAIT_S, STANDING_WAIT_S, Missing, StreamImport, ViewImport
from smile.links.link import DEAD_S, Link, LinkIdentity
from smile.links.messages import (
    PACKET_BYTES,
    VERSION,
    VERSION_MIN,
    Bundle,
    Curious,
    EventsMessage,
    Heartbeat,
    Hello,
    ImportOpened,
    ImportRefused,
    MembersMessage,
    OpenImport,
    Received,
    RowsMessage,
    SentRange,
    decode_message,
    decode_packet,
    encode_message,
    join_packets,
)
from smile.links.redial import WAIT_S_MAX, WAIT_S_MIN, Redial
from smile.links.send_window import HOLD_S_MAX, SendWindow
from tests.links.lossy_network import HOME, ExporterModel, Faults, ImporterModel, LossyNetwork, StreamModel
from tests.random_programs import SEED_ID, seeds


def publish_something(random: Random, exporter: ExporterModel) -> None:
    stream, view = exporter.stream, exporter.view
    if stream.starts and len(stream.starts) < 6 and random.random() < 0.1:
        stream.join(str(len(stream.starts)))
    for _ in range(random.randint(0, 6)):
        origin = random.choice(list(stream.starts) or "012")
        tick = stream.known.get(origin, -1) + random.randint(1, 5)
        stream.publish(origin, tick, random.choice([None, "x", "y" * random.randint(1, 50)]))
    if random.random() < 0.7:
        keys = random.sample("abcdefghijklmnopqrstuvwxyz", random.randint(0, 8))
        view.change({key: random.choice([None, *range(10)]) for key in keys}, view.horizon + random.randint(1, 3))
    if random.random() < 0.02:
        view.expire_hidden()


def random_faults(random: Random) -> Faults:
    def rate() -> float:
        return random.choice([0.0, 0.0, 0.05, 0.3])

    return Faults(rate(), rate(), rate(), random.choice([0.0, 0.1, 1.0]), has_bundles=random.random() < 0.5)


def run_with_faults(seed: int) -> None:
    """A history with faults, after which everything must have arrived and the network must become silent."""
    random = Random(seed)
    exporter = ExporterModel()
    exporter.view.change({}, 0)
    if random.random() < 0.5:
        exporter.stream.join(HOME)
    network = LossyNetwork(random, exporter, random_faults(random))
    for _ in range(random.randint(1, 60)):
        publish_something(random, exporter)
        if random.random() < 0.03:
            network.disconnect(random.uniform(0, 2))
            exporter.restart()
        network.run(random.choice([0.02, 0.1, 0.5]))
    network.faults = Faults()
    network.run(60)
    assert network.is_caught_up
    messages = network.figures.messages
    network.run(20)
    # Heartbeats, acknowledgements and questions about horizons that stand still.
    assert network.figures.messages - messages < 80, "the network does not become silent"


@pytest.mark.parametrize("seed", seeds(300), ids=SEED_ID)
def test_everything_arrives_and_nothing_false(seed: int) -> None:
    run_with_faults(seed)


def accept_any_order(imported: ViewImport, message: RowsMessage) -> bool:
    """Frames that were made earlier replace newer rows."""
    imported._last_number = 0
    return _can_accept(imported, message)


def forget_waiting(imported: StreamImport, inbox: Any, origin: str) -> None:
    """What has waited behind a gap counts as known, but is not handed on."""
    inbox.horizon = max([inbox.horizon, *(hi for hi, _ in inbox.waiting.values())])
    inbox.waiting.clear()


def accept_over_gap(imported: ViewImport, message: RowsMessage) -> bool:
    return message.epoch >= imported._epoch


def never_ask(curiosity: Curiosity, now: float) -> None:
    curiosity.deadline = now + 1e9


def skip_unsent(export: StreamExport, question: Curious) -> None:
    """The sender takes everything that was asked for as sent."""
    for origin, _, hi in question.ranges:
        export._sent[origin] = max(export._sent.get(origin, -1), min(hi, 2**62))


def take_in_without_members(imported: StreamImport, message: EventsMessage, body: bytes, now: float) -> None:
    """A range is taken in before the membership that it needs."""
    _receive(imported, replace(message, members=0), body, now)


def forget_members(imported: StreamImport, message: MembersMessage, body: bytes, now: float) -> None:
    """A membership counts as known, but is not handed on."""
    imported._members = message.version


_can_accept, _receive = ViewImport._can_accept, StreamImport.receive
PLANTED_BUGS: dict[str, tuple[type, str, Any]] = {
    "older frames replace newer ones": (ViewImport, "_can_accept", accept_any_order),
    "a gap between frames is ignored": (ViewImport, "_can_accept", accept_over_gap),
    "pieces behind a gap are forgotten": (StreamImport, "_hand_on_waiting", forget_waiting),
    "a gap is never asked for": (Curiosity, "noticed_gap", never_ask),
    "a lost end is never asked for": (Curiosity, "advanced", never_ask),
    "questions about streams are not answered": (StreamExport, "answer", lambda *_: None),
    "questions about views are not answered": (ViewExport, "answer", lambda *_: None),
    "what was asked for is skipped": (StreamExport, "answer", skip_unsent),
    "a horizon passes an origin that is not known": (StreamImport, "receive", take_in_without_members),
    "a membership is forgotten": (StreamImport, "receive_members", forget_members),
    "a lost membership is not sent again": (_MembersSender, "answer", lambda *_: None),
    "ranges do not say which membership they need": (StreamModel, "members", lambda _: (0, b"")),
    "the window never opens again": (SendWindow, "stored", lambda *_: None),
    "a greeting is never repeated": (Link, "_greet", lambda link, now: setattr(link, "_greet_at", now + 1e9)),
}


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, member, replacement = PLANTED_BUGS[bug]
    monkeypatch.setattr(owner, member, replacement)
    if bug == "the window never opens again":
        monkeypatch.setattr("smile.limits.link_window_bytes", 1000)
    for seed in range(500):
        try:
            run_with_faults(seed)
        except AssertionError:
            return
    pytest.fail(f"not found in 500 histories: {bug}")


def test_a_link_without_faults_sends_everything_once() -> None:
    exporter = ExporterModel()
    exporter.view.change({}, 0)
    network = LossyNetwork(Random(1), exporter, Faults())
    random = Random(2)
    for _ in range(200):
        publish_something(random, exporter)
        network.run(0.1)
    network.run(1)
    assert network.is_caught_up
    assert network.view_sink.resets <= 1 + exporter.view.expired_up_to
    assert all(i.figures.redundant == 0 for i in network.imports.values())


def test_after_a_broken_connection_only_what_is_new_is_sent() -> None:
    exporter = ExporterModel()
    exporter.view.change({str(n): n for n in range(1000)}, 1)
    for tick in range(1000):
        exporter.stream.publish("0", tick, "x" * 20)
    network = LossyNetwork(Random(1), exporter, Faults())
    network.run(5)
    assert network.is_caught_up
    first_bytes = network.figures.sent_bytes
    network.disconnect()
    exporter.view.change({"7": 70}, 2)
    exporter.stream.publish("0", 1000, "y")
    network.run(5)
    assert network.is_caught_up
    assert network.view_sink.resets == 1
    assert network.figures.sent_bytes - first_bytes < 2000


@pytest.mark.parametrize("has_missed_something", [False, True])
def test_a_view_of_a_restarted_broker_begins_anew_only_if_something_was_missed(has_missed_something: bool) -> None:
    exporter = ExporterModel()
    exporter.view.change({"a": 1}, 1)
    network = LossyNetwork(Random(1), exporter, Faults())
    network.run(5)
    network.disconnect()
    if has_missed_something:
        exporter.view.change({"b": 1}, 2)
    exporter.restart()
    exporter.view.change({"a": None}, 3)
    network.run(5)
    assert network.is_caught_up
    assert network.view_sink.resets == 1 + has_missed_something


def test_the_neighbour_sends_no_more_while_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smile.limits.link_window_bytes", 1000)
    exporter = ExporterModel()
    for tick in range(1000):
        exporter.stream.publish("0", tick, "x" * 20)
    network = LossyNetwork(Random(1), exporter, Faults())
    network.connect()
    network.importer.can_store = False
    network.run(5)
    assert len(network.stream_sink.events["0"]) < 100
    network.importer.can_store = True
    network.run(5)
    assert network.is_caught_up


def test_a_dropped_import_is_closed_and_released() -> None:
    exporter = ExporterModel()
    exporter.stream.publish("0", 1, "x")
    network = LossyNetwork(Random(1), exporter, Faults())
    network.run(10)
    assert "stream" in exporter.acknowledged
    del network.imports[0]
    network.run(1)
    assert "stream" not in exporter.acknowledged
    assert network.links[1].exported_relations == ["view"]


def test_a_broker_refuses_itself_and_its_namesakes() -> None:
    for run, message in (("1", "has called itself"), ("2", "both brokers")):
        with pytest.raises(SmileError, match=message) as caught:
            new_link().receive(encode_message(Hello(VERSION, VERSION, "a", run)), 0.0)
        assert caught.value.diagnostics[0].code == "E126"


def test_what_cannot_be_used_ends_one_import_only() -> None:
    exporter = ExporterModel()
    network = LossyNetwork(Random(1), exporter, Faults())

    def refuse(origin: str, lo: int, hi: int, body: bytes, members: int) -> None:
        raise error("E125", "nonsense")

    network.stream_sink.append = refuse  # type: ignore[method-assign]
    network.run(1)
    exporter.stream.publish("0", 1, "x")
    exporter.view.change({"a": 1}, 1)
    network.run(5)
    assert network.imports[0].figures.state == "refused"
    assert network.links[1].exported_relations == ["view"]
    assert network.view_sink.rows == {"a": 1}


def test_an_export_of_another_type_is_refused_until_somebody_repairs_it() -> None:
    exporter = ExporterModel()
    network = LossyNetwork(Random(1), exporter, Faults())
    network.run(0.1)
    wrong = StreamImport(2, OpenImport(2, "stream", "wrong"), network.stream_sink, Random(1), network.now)
    network.imports[2] = wrong
    network.run(5)
    assert wrong.figures.state == "refused"
    assert wrong.figures.problem is not None and wrong.figures.problem.diagnostics[0].code == "E124"
    assert network.imports[0].figures.state == "live"
    wrong._request = OpenImport(2, "stream", "right")  # somebody has repaired it
    network.run(2 * REFUSED_WAIT_S)
    assert wrong.figures.state == "live"


def test_events_that_were_removed_are_gone() -> None:
    exporter = ExporterModel()
    exporter.stream.publish("0", 1, "x")
    exporter.stream.removed_to = 1
    exporter.stream.publish("0", 5, "y")
    network = LossyNetwork(Random(1), exporter, Faults())
    network.run(5)
    assert network.imports[0].figures.state == "gone"
    assert network.imports[1].figures.state == "live"


def new_link(now: float = 0.0) -> Link:
    return Link(LinkIdentity("a", "1"), ImporterModel(), ExporterModel(), now)


def test_a_neighbour_that_is_silent_is_given_up() -> None:
    link = new_link()
    link.poll(DEAD_S - 0.1)
    with pytest.raises(SmileError, match="silent"):
        link.poll(DEAD_S)


@pytest.mark.parametrize(("version", "version_min"), [(9, 7), (VERSION_MIN - 1, 1)])
def test_versions_that_do_not_meet_are_refused(version: int, version_min: int) -> None:
    with pytest.raises(SmileError, match=f"knows versions {version_min} to {version}") as caught:
        new_link().receive(encode_message(Hello(version, version_min, "b", "1")), 0.0)
    assert caught.value.diagnostics[0].code == "E122"


def test_an_older_broker_can_read_the_greeting() -> None:
    """The first packet of a link is a single message, as in all versions: a header and its length."""
    (packet,) = new_link().take_packets()
    length = int.from_bytes(packet[:4], "big")
    assert json.loads(packet[4:])["kind"] == "hello" and len(packet) == 4 + length


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\0",
        b"\0\0\0\5{}",
        b"\xff\xff\xff\xff{}",
        encode_message(Heartbeat(1))[:-1],
        b"\0\0\0\4[[[[",
        encode_message(Bundle((3,)), b"12"),
        encode_message(Bundle((2,)), b"12"),
        encode_message(Bundle((20, 9)), encode_message(Bundle(()))),
    ],
)
def test_nonsense_is_refused(packet: bytes) -> None:
    with pytest.raises(SmileError) as caught:
        new_link().receive(packet, 0.0)
    assert caught.value.diagnostics[0].code == "E120"


def test_a_deeply_nested_header_is_refused() -> None:
    header = b'{"kind":"heartbeat","n":1,"more":' + b"[" * 100_000
    with pytest.raises(SmileError, match="wrong message"):
        decode_message(len(header).to_bytes(4, "big") + header)


def silence(n: int, origin: str, lo: int, hi: int, members: int = 0) -> EventsMessage:
    return EventsMessage(n, 5, (SentRange(origin, lo, hi),), members)


def test_ranges_with_wrong_sizes_are_refused() -> None:
    network = LossyNetwork(Random(1), ExporterModel(), Faults())
    imported = StreamImport(5, OpenImport(5, "stream", "right"), network.stream_sink, Random(1), 0.0)
    message = EventsMessage(1, 5, (SentRange("0", -1, 9, 1, 3),))
    with pytest.raises(SmileError, match="sizes are wrong"):
        imported.receive(message, b"12", 0.0)


def test_what_came_over_another_link_is_not_asked_for() -> None:
    network = LossyNetwork(Random(1), ExporterModel(), Faults())
    imported = StreamImport(5, OpenImport(5, "stream", "right"), network.stream_sink, Random(1), 0.0)
    imported.opened(ImportOpened(5), 0.0)
    network.stream_sink.append("0", -1, 9, b"", 0)
    assert imported._question().ranges == (("0", 9, END),)
    opened_later = StreamImport(6, OpenImport(6, "stream", "right"), network.stream_sink, Random(1), 0.0)
    network.stream_sink.append("0", 9, 20, b"", 0)
    assert opened_later.request().horizons == {"stream": {"0": 20}}


def test_an_origin_that_stands_still_here_is_not_asked_for_if_it_came_over_another_link() -> None:
    network = LossyNetwork(Random(1), ExporterModel(), Faults())
    network.stream_sink.append("1", -1, 3, b"", 0)
    imported = StreamImport(5, OpenImport(5, "stream", "right"), network.stream_sink, Random(1), 0.0)
    imported.opened(ImportOpened(5), 0.0)
    imported.receive(silence(1, "0", -1, 9), b"", STANDING_WAIT_S - 0.1)
    network.stream_sink.append("1", 3, 20, b"", 0)
    imported.poll(STANDING_WAIT_S)
    (question,) = imported.outgoing
    assert isinstance(question, Curious) and question.ranges == (("1", 20, END),)


def test_a_gap_that_another_link_has_closed_is_none() -> None:
    """Also where nothing can follow any more."""
    network = LossyNetwork(Random(1), ExporterModel(), Faults())
    imported = StreamImport(5, OpenImport(5, "stream", "right"), network.stream_sink, Random(1), 0.0)
    imported.opened(ImportOpened(5), 0.0)
    imported.receive(silence(2, "0", 9, END), b"", 1.0)

    def missing() -> Missing | None:
        return imported.missing

    assert missing() == Missing("gap", 1.0)
    network.stream_sink.append("0", -1, END, b"", 0)
    imported.poll(2.0)
    assert missing() is None and not imported.outgoing
    imported.receive(silence(3, "1", -1, 9, members=1), b"", 3.0)  # the membership is missing
    imported.poll(4.0)
    assert missing() == Missing("gap", 3.0) and len(imported.outgoing) == 1


def test_what_an_import_misses_and_since_when() -> None:
    """A gap from when it was noticed; what follows a horizon that stands still from when that has advanced last."""
    network = LossyNetwork(Random(1), ExporterModel(), Faults())
    imported = StreamImport(5, OpenImport(5, "stream", "right"), network.stream_sink, Random(1), 0.0)
    imported.opened(ImportOpened(5), 0.0)

    def missing() -> Missing | None:
        return imported.missing

    imported.receive(silence(1, "0", -1, 9), b"", 1.0)
    imported.poll(1.1)
    assert missing() is None
    imported.poll(100.0)
    assert missing() == Missing("horizon", 1.0)
    imported.receive(silence(3, "0", 20, 30), b"", 101.0)
    assert missing() == Missing("gap", 1.0)
    imported.receive(silence(2, "0", 9, 20), b"", 102.0)
    assert missing() is None
    imported.receive(silence(5, "0", 40, 50), b"", 103.0)
    imported.poll(110.0)
    assert missing() == Missing("gap", 103.0)
    imported.refused(ImportRefused(5, "E090", "no grant"), 111.0)
    assert missing() is None


def test_a_closed_window_stops_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour that confirms nothing is sent only as much as fits into the window."""
    monkeypatch.setattr("smile.limits.link_window_bytes", 1000)
    exporter = ExporterModel()
    for tick in range(1000):
        exporter.stream.publish("0", tick, "x" * 20)
    link = Link(LinkIdentity("up", "1"), ImporterModel(), exporter, 0.0)
    link.receive(encode_message(Hello(VERSION, VERSION, "down", "2", has_heard=True)), 0.0)
    link.receive(encode_message(OpenImport(0, "stream", "right")), 0.0)
    for _ in range(10):
        link.poll(0.0)
    assert sum(map(len, link.outgoing)) < 2000


def test_the_number_of_a_message_is_said_again_while_others_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last message is lost, and has filled the window. The neighbour learns of it, although this side always sends
    something else that does not say it."""
    monkeypatch.setattr("smile.limits.link_window_bytes", 10)
    exporter = ExporterModel()
    exporter.stream.publish("0", 1, "x" * 20)
    link = Link(LinkIdentity("up", "1"), ImporterModel(), exporter, 0.0)
    link.receive(encode_message(Hello(VERSION, VERSION, "down", "2", has_heard=True)), 0.0)
    link.receive(encode_message(OpenImport(0, "stream", "right")), 0.0)
    link.poll(0.0)
    link.outgoing.clear()
    for step in range(1, 13):
        now = 0.25 * step
        link.receive(encode_message(OpenImport(0, "stream", "right")), now)  # it is answered
        link.poll(now)
    said = [decode_message(packet)[0] for packet in link.outgoing]
    assert [message for message in said if isinstance(message, Heartbeat)] == [Heartbeat(1)]
    link.receive(encode_message(Received(1)), 3.0)
    assert link.deadline > 3.0


def test_after_a_small_message_the_next_changes_wait_and_are_sent_together() -> None:
    """Until the neighbour has stored it, but no longer than a bound."""
    exporter = ExporterModel()
    exporter.view.change({"a": 0}, 0)
    link = Link(LinkIdentity("up", "1"), ImporterModel(), exporter, 0.0)
    link.receive(encode_message(Hello(VERSION, VERSION, "down", "2", has_heard=True)), 0.0)
    link.receive(encode_message(OpenImport(1, "view", "right")), 0.0)

    def poll(now: float) -> list[RowsMessage]:
        link.outgoing.clear()
        link.poll(now)
        messages = [decode_message(packet)[0] for packet in link.outgoing]
        return [message for message in messages if isinstance(message, RowsMessage)]

    (first,) = poll(0.0)
    for value in range(1, 6):
        exporter.view.change({"a": value}, value)
        assert not poll(0.01 * value)
    assert link.deadline <= HOLD_S_MAX
    link.receive(encode_message(Received(first.n)), 0.06)
    (second,) = poll(0.06)
    assert (second.first, second.last) == (first.last, first.last + 5)
    exporter.view.change({"a": 6}, 6)
    assert not poll(0.06 + HOLD_S_MAX / 2)
    assert len(poll(0.06 + HOLD_S_MAX)) == 1


class Exported:
    """The messages that one export sends, without a window."""

    def __init__(self, stream: StreamModel) -> None:
        self.export = StreamExport(1, stream, {}, HORIZON_MIN)

    def send(self, now: float) -> list[list[tuple[str, int, int, int]]]:
        """The ranges of each message."""
        messages: list[EventsMessage] = []

        def append(make_header: Any, body: bytes) -> None:
            messages.append(make_header(0))
            assert sum(sent.bytes for sent in messages[-1].ranges) == len(body)

        while self.export.send_next(append, now):
            pass
        return [[(r.origin, r.lo, r.hi, r.rows) for r in message.ranges] for message in messages]


def test_silence_of_many_origins_is_sent_together() -> None:
    """It waits for a quarter of the time in which its origin has advanced, and no longer than a bound."""
    stream = StreamModel()
    exported = Exported(stream)
    for origin in "012":
        stream.publish(origin, 0, None)
    assert exported.send(0.0) == [[(origin, HORIZON_MIN, 0, 0) for origin in "012"]]
    stream.publish("1", 10, None)
    assert not exported.send(0.4) and exported.export.deadline == pytest.approx(0.4 + 0.1)
    stream.publish("0", 11, None)
    stream.publish("1", 12, None)
    assert not exported.send(0.45) and exported.export.deadline == pytest.approx(0.4 + 0.1)
    assert exported.send(0.5) == [[("1", 0, 12, 0), ("0", 0, 11, 0)]]
    assert not exported.send(9.0) and exported.export.deadline == inf
    stream.publish("2", 20, None)
    assert not exported.send(100.0) and exported.export.deadline == 100.0 + SILENCE_WAIT_S_MAX


def test_silence_is_sent_with_events_and_when_it_is_asked_for() -> None:
    stream = StreamModel()
    exported = Exported(stream)
    for origin in "01":
        stream.publish(origin, 0, None)
    exported.send(0.0)
    stream.publish("0", 5, None)
    assert not exported.send(1.0)
    stream.publish("1", 7, "x")
    assert exported.send(1.01) == [[("1", 0, 7, 1), ("0", 0, 5, 0)]]
    stream.publish("0", 9, None)
    assert not exported.send(2.0)
    exported.export.answer(Curious(1, (("0", 5, END),)))
    assert exported.send(2.01) == [[("0", 5, 9, 0)]]


def test_events_continue_where_silence_was_held_back() -> None:
    stream = StreamModel()
    exported = Exported(stream)
    stream.publish("0", 0, None)
    exported.send(0.0)
    stream.publish("0", 5, None)
    assert not exported.send(1.0)
    stream.publish("0", 6, "x")
    assert exported.send(1.01) == [[("0", 0, 6, 1)]]


def test_what_one_import_sends_takes_the_silence_of_others_along() -> None:
    """In one packet."""
    exporter = ExporterModel()
    exporter.stream.publish("0", 0, None)
    exporter.view.change({"a": 0}, 0)
    link = Link(LinkIdentity("up", "1"), ImporterModel(), exporter, 0.0)
    link.receive(encode_message(Hello(VERSION, VERSION, "down", "2", has_heard=True)), 0.0)
    for import_id, relation in enumerate(("stream", "view")):
        link.receive(encode_message(OpenImport(import_id, relation, "right")), 0.0)

    def poll(now: float) -> list[str]:
        link.poll(now)
        packets = [decode_packet(packet) for packet in link.take_packets()]
        assert len(packets) <= 1
        kinds = [str(message.__struct_config__.tag) for packet in packets for message, _ in packet]
        link.receive(encode_message(Received(link._window.last_number)), now)
        return [kind for kind in kinds if kind in ("events", "rows")]

    assert poll(0.0) == ["events", "rows"]
    exporter.stream.publish("0", 5, None)
    assert poll(1.0) == []
    assert link.holds_data and link.deadline == pytest.approx(1.0 + SILENCE_WAIT_S_MAX)
    exporter.view.change({"a": 1}, 1)
    assert poll(1.01) == ["rows", "events"]
    assert not link.holds_data


def test_a_heavy_origin_does_not_make_a_message_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smile.links.exports.EVENTS_BYTES", 100)
    stream = StreamModel()
    for origin in "012":
        stream.publish(origin, 0, "x" * 60)
    assert [len(ranges) for ranges in Exported(stream).send(0.0)] == [2, 1]


def test_an_origin_that_is_gone_does_not_hold_others_up() -> None:
    """They are sent before the import ends."""
    stream = StreamModel()
    stream.publish("0", 5, "x")
    stream.publish("1", 5, "x")
    read = stream.read

    def read_one(origin: str, lo: int, hi: int) -> Any:
        if origin == "1":
            raise error("E097", "removed")
        return read(origin, lo, hi)

    stream.read = read_one  # type: ignore[method-assign]
    exported, sent = Exported(stream), list[Any]()
    assert exported.export.send_next(lambda make, _: sent.append(make(0)), 0.0)
    assert [r.origin for r in sent[0].ranges] == ["0"]
    with pytest.raises(SmileError, match="removed"):
        exported.send(0.0)


def test_packets_have_bounded_sizes_and_keep_the_order() -> None:
    messages = [Heartbeat(n) for n in range(3)]
    large = b"x" * PACKET_BYTES
    packets = [encode_message(m) for m in messages] + [
        encode_message(Heartbeat(3), large),
        encode_message(Heartbeat(4)),
    ]
    joined = join_packets(packets)
    assert [len(decode_packet(packet)) for packet in joined] == [3, 1, 1]
    assert [m for packet in joined for m, _ in decode_packet(packet)] == [Heartbeat(n) for n in range(5)]
    assert decode_packet(joined[1])[0][1] == large
    many = join_packets([encode_message(Heartbeat(1))] * (limits.link_bundle_messages_max + 1))
    assert [len(decode_packet(packet)) for packet in many] == [limits.link_bundle_messages_max, 1]
    assert join_packets([]) == []


def test_a_message_of_an_older_frame_never_replaces_newer_rows() -> None:
    exporter = ExporterModel()
    exporter.view.change({"a": 1, "b": 1}, 1)
    network = LossyNetwork(Random(1), exporter, Faults())
    network.run(1)
    exporter.view.change({"a": 2}, 2)
    network.run(1)
    before = dict(network.view_sink.rows)
    old = RowsMessage(1, 1, 1, 0, 2, {"S": {"0": 1}})
    network.links[0].receive(encode_message(old, b'{"a": 1}'), network.now)
    assert network.view_sink.rows == before


def test_a_neighbour_that_keeps_failing_is_called_less_and_less() -> None:
    redial = Redial(Random(1))
    waits = [redial.wait_s(0) for _ in range(12)]
    assert max(waits[:3]) < 1
    assert waits[5] >= 0.75 * WAIT_S_MIN
    assert 0.75 * WAIT_S_MAX <= waits[-1] <= 1.25 * WAIT_S_MAX
    assert redial.wait_s(100) < 1
