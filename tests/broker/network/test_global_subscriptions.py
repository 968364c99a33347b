"""Global subscriptions between brokers: every event of every producer that can be reached once and in order, whatever
happens to links and brokers; and only what is granted is known and received."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.errors import SmileError
from smile.links.messages import VERSION, VERSION_MIN, Hello, RoutingUpdate, SubscriptionEntry, encode_message
from smile.links.routing.names import RoutedStream
from smile.source import Source
from tests.broker.network.cables import BrokerNetwork, CableFaults, network_in, publish, rows_of
from tests.broker.test_durable_subscriptions import Receiver, column_of

QUOTES = "CREATE STREAM Quotes (t: time -> issue: string, price: int CHECK (price >= 0));\n"
OTHER = "CREATE STREAM Other (t: time -> v: int);\nCREATE VIEW Sum AS SELECT SUM(v) AS s FROM Other;\n"
GLOBAL = {"scope": "global"}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def wait_until_advertised(network: BrokerNetwork, broker: str, stream: str, count: int = 1) -> None:
    routing = network.brokers[broker].routing
    network.run_until(lambda: len(routing.advertised_by(stream)) == count, f"{broker} does not learn of {stream}")


def wait_for(network: BrokerNetwork, receiver: Receiver, count: int, column: str = "price") -> list[Any]:
    received: list[Any] = []

    def has_come() -> bool:
        received.extend(receiver.values(column))
        return len(received) >= count

    network.run_until(has_come, f"{count} events do not come, but {received}")
    return received


def imported(network: BrokerNetwork, broker: str) -> set[str]:
    return set(network.brokers[broker].import_records.routed)


class Grants:
    """The principals that may subscribe to a relation; everybody to those that are not named."""

    def __init__(self, **allowed: set[str]) -> None:
        self.allowed = allowed

    def can_import(self, principal: str, relation: str) -> bool:
        return principal in self.allowed.get(relation, {principal})

    def can_publish(self, principal: str, stream: str) -> bool:
        return True

    def can_act_as(self, principal: str, broker: str) -> bool:
        return True


def test_events_of_a_broker_that_is_not_a_neighbour(network: BrokerNetwork) -> None:
    db1, db2, db3 = network.start("db1", QUOTES), network.start("db2", OTHER), network.start("db3", OTHER)
    network.connect("db1", "db2")
    network.connect("db3", "db2")
    publish(db1, "Quotes", ("IBM", 1), ("SUN", 2))
    with pytest.raises(SmileError, match="no broker advertises Quotes"):
        Receiver(db3, "Quotes", options=GLOBAL)
    wait_until_advertised(network, "db3", "Quotes")
    receiver = Receiver(db3, "Quotes", options=GLOBAL)
    assert wait_for(network, receiver, 2) == [1, 2]
    publish(db1, "Quotes", ("IBM", 3))
    assert wait_for(network, receiver, 1) == [3]
    assert imported(network, "db2") == imported(network, "db3") == {"Quotes@db1"}
    assert db3.compiled.source.text == OTHER, "the text of the program has not changed"
    publish(db2, "Other", (5,))
    network.wait_for_rows("db2", "Sum", {(): 5})


def test_two_producers_of_one_name(network: BrokerNetwork) -> None:
    """A broker that publishes the stream itself receives its own events and those of the other one."""
    db1, db2 = network.start("db1", QUOTES), network.start("db2", QUOTES)
    network.connect("db1", "db2")
    publish(db1, "Quotes", ("IBM", 1))
    publish(db2, "Quotes", ("IBM", 2))
    receiver, local = Receiver(db2, "Quotes", options=GLOBAL), Receiver(db2, "Quotes", SubscriptionKey("local", "own"))
    assert Counter(wait_for(network, receiver, 2)) == Counter([1, 2])
    publish(db1, "Quotes", ("IBM", 3))
    assert wait_for(network, receiver, 1) == [3]
    assert local.values("price") == [2]
    assert imported(network, "db1") == set(), "nobody wants the events of db2 there"


def test_a_position_is_continued_and_the_import_dropped_in_the_end(
    network: BrokerNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smile.limits.routing_drop_s", 0.2)
    db1 = network.start("db1", QUOTES)
    network.start("db2", OTHER)
    network.connect("db1", "db2")
    wait_until_advertised(network, "db2", "Quotes")
    publish(db1, "Quotes", *(("IBM", n) for n in range(4)))
    receiver = Receiver(network.brokers["db2"], "Quotes", options=GLOBAL)
    assert wait_for(network, receiver, 4) == [0, 1, 2, 3]
    receiver.acknowledge_all()
    network.stop("db2")
    publish(db1, "Quotes", ("IBM", 4))
    db2 = network.start("db2", None)
    assert imported(network, "db2") == {"Quotes@db1"}, "what is imported is known without the neighbour"
    again = Receiver(db2, "Quotes", options=GLOBAL)
    network.connect("db1", "db2")
    assert wait_for(network, again, 1) == [4]
    status = db2.subscriptions.status()["local/billing"]
    assert status["scope"] == "global" and status["producers"] == 1
    with pytest.raises(SmileError, match="belongs to a subscription"):
        Receiver(db2, "Quotes", options={**GLOBAL, "where": {"issue": "IBM"}})
    db2.subscriptions.drop(SubscriptionKey("local", "billing"))
    network.run_until(lambda: not imported(network, "db2"), "the import stays")
    network.run_until(lambda: not db1.status()["routed_subscriptions"], "the subscription stays at db1")


def test_conditions_are_evaluated_by_the_host(network: BrokerNetwork) -> None:
    db1, db2, db3 = network.start("db1", QUOTES), network.start("db2", OTHER), network.start("db3", OTHER)
    network.connect("db1", "db2")
    network.connect("db2", "db3")
    wait_until_advertised(network, "db3", "Quotes")
    receiver = Receiver(db3, "Quotes", options={**GLOBAL, "where": {"issue": "IBM"}})
    publish(db1, "Quotes", *((issue, n) for n in range(10) for issue in ("IBM", "SUN")))
    assert wait_for(network, receiver, 10) == list(range(10))
    (relation,) = imported(network, "db2")
    assert relation.startswith("Quotes@db1.")
    (logged,) = [s for s in db2.log.streams if s.startswith("Quotes@")]
    assert db2.log.count_rows(logged, "0", -1) == 10, "the others are not sent"
    everything = Receiver(db3, "Quotes", SubscriptionKey("local", "all"), options=GLOBAL)
    assert len(wait_for(network, everything, 20)) == 20
    assert receiver.values("price") == []


def test_a_covered_subscription_is_not_forwarded(network: BrokerNetwork) -> None:
    """It shares the import of one that receives everything, also when that one is dropped."""
    db1, db2 = network.start("db1", QUOTES), network.start("db2", OTHER)
    network.connect("db1", "db2")
    wait_until_advertised(network, "db2", "Quotes")
    everything = Receiver(db2, "Quotes", options=GLOBAL)
    covered_options = {**GLOBAL, "where": {"issue": "SUN"}}
    covered = Receiver(db2, "Quotes", SubscriptionKey("local", "sun"), options=covered_options)
    publish(db1, "Quotes", ("IBM", 1), ("SUN", 2))
    assert (wait_for(network, everything, 2), wait_for(network, covered, 1)) == ([1, 2], [2])
    covered.acknowledge_all()
    assert imported(network, "db2") == {"Quotes@db1"}
    db2.subscriptions.drop(SubscriptionKey("local", "billing"))
    again = Receiver(db2, "Quotes", SubscriptionKey("local", "sun"), options=covered_options)
    publish(db1, "Quotes", ("IBM", 3), ("SUN", 4))
    assert wait_for(network, again, 1) == [4]
    assert imported(network, "db2") == {"Quotes@db1"}


def test_another_path_replaces_one_that_fails(network: BrokerNetwork) -> None:
    """A square: when the path is cut, the events come over the other one, each once."""
    brokers = {name: network.start(name, QUOTES if name == "a" else OTHER) for name in "abcd"}
    cables = {pair: network.connect(*pair) for pair in ("ab", "ac", "bd", "cd")}
    wait_until_advertised(network, "d", "Quotes")
    receiver, expected = Receiver(brokers["d"], "Quotes", options=GLOBAL), 0
    received: list[int] = []
    for pair in ("bd", "cd", "bd", "ab"):
        for _ in range(5):
            publish(brokers["a"], "Quotes", ("IBM", expected))
            expected += 1
        received += wait_for(network, receiver, expected - len(received))
        network.cut(cables[pair])
        publish(brokers["a"], "Quotes", ("IBM", expected))
        expected += 1
        received += wait_for(network, receiver, expected - len(received))
        cables[pair] = network.connect(*pair)
        network.run(0.1)
    assert received == list(range(expected))


def test_only_granted_streams_are_known(network: BrokerNetwork) -> None:
    db1 = network.start("db1", QUOTES + "CREATE STREAM Secret (t: time -> v: int);")
    db2, db3 = network.start("db2", OTHER), network.start("db3", OTHER)
    db1.network.access, db2.network.access = Grants(Secret=set()), Grants(Quotes={"db9"})
    network.connect("db2", "db1")
    network.connect("db3", "db2")
    wait_until_advertised(network, "db2", "Quotes")
    network.run(0.3)
    assert db2.routing.advertised_by("Secret") == [] == db3.routing.advertised_by("Quotes")
    receiver = Receiver(db2, "Quotes", options=GLOBAL)
    publish(db1, "Quotes", ("IBM", 1))
    assert wait_for(network, receiver, 1) == [1]
    db1.network.access = Grants(Quotes=set())
    publish(db1, "Quotes", ("IBM", 2))
    network.run_until(lambda: not db2.routing.advertised_by("Quotes"), "a revoked stream is still advertised")
    assert receiver.values("price") == []


HOSPITAL = """
CREATE STREAM Prescriptions (t: time -> drug: string, dosage: int, patient: string, controlled: bool);
CREATE VIEW ForPharmacy AS SELECT t, drug, dosage FROM Prescriptions;
CREATE VIEW ForAuditor AS SELECT t, drug, dosage FROM Prescriptions WHERE controlled;
CREATE VIEW Doses AS SELECT drug, SUM(dosage) AS total FROM Prescriptions GROUP BY drug;
"""


def test_the_pharmacy_sees_less_than_the_hospital(network: BrokerNetwork) -> None:
    hospital = network.start("hospital", HOSPITAL)
    hospital.network.access = Grants(
        Prescriptions={"ward"}, ForPharmacy={"pharmacy"}, ForAuditor={"auditor"}, Doses={"auditor"}
    )
    for name in ("ward", "pharmacy", "auditor", "visitor"):
        network.start(name, OTHER)
        network.connect(name, "hospital")
    events = [("aspirin", 1, "Ann", False), ("morphine", 2, "Bob", True), ("aspirin", 3, "Cy", False)]
    publish(hospital, "Prescriptions", *events)
    receivers = {}
    for name in ("ward", "pharmacy", "auditor"):
        wait_until_advertised(network, name, "Prescriptions")
        receivers[name] = Receiver(network.brokers[name], "Prescriptions", options=GLOBAL)
    with pytest.raises(SmileError, match="no broker advertises"):
        Receiver(network.brokers["visitor"], "Prescriptions", options=GLOBAL)
    with pytest.raises(SmileError, match="no column patient"):
        Receiver(
            network.brokers["pharmacy"],
            "Prescriptions",
            SubscriptionKey("local", "x"),
            options={**GLOBAL, "where": {"patient": "Ann"}},
        )
    found: dict[str, list[Any]] = {}

    def has_come(name: str, count: int) -> bool:
        frame = receivers[name].frame()
        if frame is not None:
            columns = [c for c in ("drug", "dosage", "patient") if c in frame.rows.fixed]
            rows = zip(*(column_of(frame, column) for column in columns), strict=True)
            found.setdefault(name, []).extend(rows)
        return len(found.get(name, ())) >= count

    for name, count in (("ward", 3), ("pharmacy", 3), ("auditor", 1)):
        network.run_until(lambda name=name, count=count: has_come(name, count), f"{name}: {found}")  # type: ignore[misc]
    assert found["ward"] == [("aspirin", 1, "Ann"), ("morphine", 2, "Bob"), ("aspirin", 3, "Cy")]
    assert found["pharmacy"] == [("aspirin", 1), ("morphine", 2), ("aspirin", 3)]
    assert found["auditor"] == [("morphine", 2)]
    logged = network.brokers["pharmacy"].log.schemas["Prescriptions@hospital"].stream
    assert [name for name, _ in logged.columns] == ["drug", "dosage"], "the patient never leaves the hospital"
    # When the auditor may have less, nothing more is sent of what it had.
    hospital.network.access = Grants(Prescriptions=set(), ForPharmacy=set(), ForAuditor=set(), Doses=set())
    publish(hospital, "Prescriptions", ("opium", 9, "Di", True))
    network.run(0.5)
    assert not has_come("auditor", 2) and not has_come("ward", 4)


def test_producers_of_another_type_are_refused_and_reported(network: BrokerNetwork) -> None:
    db1 = network.start("db1", QUOTES)
    db2 = network.start("db2", "CREATE STREAM Quotes (t: time -> issue: string, price: string);")
    db3 = network.start("db3", QUOTES)
    network.connect("db1", "db3")
    network.connect("db2", "db3")
    wait_until_advertised(network, "db3", "Quotes", 2)
    receiver = Receiver(db3, "Quotes", options=GLOBAL)
    publish(db2, "Quotes", ("IBM", "a lot"))
    publish(db1, "Quotes", ("IBM", 1))
    assert wait_for(network, receiver, 1) == [1]
    network.run_until(lambda: db3.status()["routing_problems"], "nothing is reported")
    assert db3.status()["routing_problems"]["Quotes@db2"]["code"] == "E130"


def test_advertising_is_a_choice(network: BrokerNetwork) -> None:
    db1, db2 = network.start("db1", QUOTES, advertise=False), network.start("db2", OTHER)
    network.connect("db1", "db2")
    network.run(0.2)
    assert db2.routing.advertised_by("Quotes") == []
    db1.routing.advertise("Quotes", "price > 10")
    wait_until_advertised(network, "db2", "Quotes")
    publish(db1, "Quotes", ("IBM", 5), ("IBM", 50))
    receiver = Receiver(db2, "Quotes", options=GLOBAL)
    assert wait_for(network, receiver, 1) == [50]
    for wrong, message in (("colour = 1", "no column colour"), ("price >", "expected an expression")):
        with pytest.raises(SmileError, match=message):
            db1.routing.advertise("Quotes", wrong)
    with pytest.raises(SmileError, match="does not publish Totals"):
        db1.routing.advertise("Totals")
    db1.routing.unadvertise("Quotes")
    wait_until_advertised(network, "db2", "Quotes", 0)
    network.stop("db1")
    again = network.start("db1", None)
    assert again.routing.router.own == {}, "what was decided is stored"


def test_a_stream_that_the_program_imports_is_not_imported_twice(network: BrokerNetwork) -> None:
    db1 = network.start("db1", QUOTES)
    db2 = network.start("db2", "IMPORT Quotes FROM db1;\n" + OTHER)
    network.connect("db1", "db2")
    wait_until_advertised(network, "db2", "Quotes")
    receiver = Receiver(db2, "Quotes", options=GLOBAL)
    publish(db1, "Quotes", ("IBM", 1))
    assert wait_for(network, receiver, 1) == [1]
    network.run(0.6)
    assert imported(network, "db2") == set()


def test_the_program_changes_while_streams_are_routed(network: BrokerNetwork) -> None:
    db1, db2 = network.start("db1", QUOTES), network.start("db2", OTHER)
    network.connect("db1", "db2")
    wait_until_advertised(network, "db2", "Quotes")
    receiver = Receiver(db2, "Quotes", options=GLOBAL)
    publish(db1, "Quotes", ("IBM", 1))
    assert wait_for(network, receiver, 1) == [1]
    publish(db2, "Other", (7,))
    network.apply("db2", OTHER + "CREATE VIEW Double AS SELECT s * 2 AS d FROM Sum;")
    network.wait_for_rows("db2", "Double", {(): 14})
    publish(db1, "Quotes", ("IBM", 2))
    assert wait_for(network, receiver, 1) == [2]
    assert imported(network, "db2") == {"Quotes@db1"}
    assert rows_of(db2, "Sum") == {(): 7}


def test_events_that_were_removed_before_are_not_missed(network: BrokerNetwork) -> None:
    """A producer that has removed old events: a new subscriber begins with the oldest that are left."""
    db1 = network.start(
        "db1",
        QUOTES + "CREATE VIEW Last AS SELECT issue, MAX(price) AS p FROM Quotes GROUP BY issue;",
        keep="0 seconds",
    )
    db2 = network.start("db2", OTHER)
    network.connect("db1", "db2")
    ticks = publish(db1, "Quotes", ("IBM", 1), ("IBM", 2))
    network.wait_for_tick("db1", "Last", {"Quotes": ticks[-1]})

    def is_truncated() -> bool:
        db1.truncate_log()
        return bool(db1.log.truncated_ticks("Quotes"))

    network.run_until(is_truncated, "the log is not truncated")
    publish(db1, "Quotes", ("IBM", 3))
    wait_until_advertised(network, "db2", "Quotes")
    receiver = Receiver(db2, "Quotes", options=GLOBAL)
    assert wait_for(network, receiver, 1)[-1] == 3


def test_what_was_delivered_is_acknowledged_to_the_host(network: BrokerNetwork) -> None:
    """The log of the host need not keep what the subscriber has acknowledged, although views run at its broker."""
    db1, db2 = network.start("db1", QUOTES), network.start("db2", OTHER)
    network.connect("db1", "db2")
    publish(db2, "Other", (1,))
    network.wait_for_rows("db2", "Sum", {(): 1})
    wait_until_advertised(network, "db2", "Quotes")
    receiver = Receiver(db2, "Quotes", options=GLOBAL)
    ticks = publish(db1, "Quotes", ("IBM", 1), ("IBM", 2))
    assert wait_for(network, receiver, 2) == [1, 2]
    network.run(0.3)
    db2.truncate_log()
    network.run(0.2)
    assert db1.network.neighbours.status()["db2"]["Quotes"] < ticks[0], "the subscriber has acknowledged nothing"
    receiver.acknowledge_all()

    def is_acknowledged() -> bool:
        db2.truncate_log()
        return db1.network.neighbours.status()["db2"]["Quotes"] >= ticks[-1]

    network.run_until(is_acknowledged, "nothing is acknowledged to db1")


@pytest.mark.parametrize("seed", range(3))
def test_random_networks_deliver_everything_once(tmp_path: Path, seed: int) -> None:
    """Links that are cut and connected again, messages that are lost, brokers that restart: in the end each subscriber
    has each event of each producer once, and those of each producer in order."""
    random = Random(seed)
    with network_in(tmp_path, seed) as network:
        names = ["a", "b", "c", "d"]
        for name in names:
            network.start(name, QUOTES if name in "ab" else OTHER)
        faults = CableFaults(lost=0.05, repeated=0.05, swapped=0.1)
        pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
        for pair in pairs:
            network.connect(*pair, faults)
        for name in "cd":
            wait_until_advertised(network, name, "Quotes", 2)
        receivers = {name: Receiver(network.brokers[name], "Quotes", options=GLOBAL) for name in names}
        received: dict[str, list[int]] = {name: [] for name in names}
        published = 0

        def read() -> None:
            for name, receiver in receivers.items():
                received[name] += receiver.values("price")

        for _ in range(12):
            action = random.randrange(4)
            if action == 0 and len(network.cables) > 3:
                network.cut(random.choice(network.cables))
            elif action == 1:
                name = random.choice(names)
                read()
                for receiver in receivers.values():
                    receiver.acknowledge_all()
                network.stop(name)
                network.start(name, None)
                receivers[name] = Receiver(network.brokers[name], "Quotes", options=GLOBAL)
            linked = [{broker.settings.name for broker in cable.brokers} for cable in network.cables]
            for pair in pairs:
                if set(pair) not in linked and random.random() < 0.5:
                    network.connect(*pair, faults)
            for name in "ab":
                publish(
                    network.brokers[name], "Quotes", *((name, 2 * (published + i) + (name == "b")) for i in range(3))
                )
            published += 3
            network.run(0.1 * random.random())
            read()
        linked = [{broker.settings.name for broker in cable.brokers} for cable in network.cables]
        for pair in pairs:
            if set(pair) not in linked:
                network.connect(*pair, faults)

        def is_complete() -> bool:
            read()
            return all(len(values) >= 2 * published for values in received.values())

        network.run_until(is_complete, f"events are missing of {2 * published}")
        for name, values in received.items():
            for parity in (0, 1):
                own = [value for value in values if value % 2 == parity]
                assert own == list(range(parity, 2 * published, 2)), f"{name} has {own}"


def test_a_broker_that_imports_the_stream_itself_passes_it_on(network: BrokerNetwork) -> None:
    db1 = network.start("db1", QUOTES)
    network.start("db2", "IMPORT Quotes FROM db1;\n" + OTHER)
    db3 = network.start("db3", OTHER)
    network.connect("db1", "db2")
    network.connect("db2", "db3")
    wait_until_advertised(network, "db3", "Quotes")
    receiver = Receiver(db3, "Quotes", options=GLOBAL)
    publish(db1, "Quotes", ("IBM", 1))
    assert wait_for(network, receiver, 1) == [1]


def test_a_view_of_an_own_stream_releases_nothing_of_another_host(network: BrokerNetwork) -> None:
    """db2 and db1 publish a stream of one name. At db2, db3 may have a view of it: not the stream of db1."""
    db1 = network.start("db1", QUOTES)
    db2 = network.start("db2", QUOTES + "CREATE VIEW Cheap AS SELECT t, issue, price FROM Quotes WHERE price < 10;")
    network.start("db3", OTHER)
    db2.network.access = Grants(Quotes=set())
    network.connect("db2", "db1")
    network.connect("db3", "db2")
    wait_until_advertised(network, "db3", "Quotes")
    wait_until_advertised(network, "db2", "Quotes")
    assert [entry.host for entry in network.brokers["db3"].routing.advertised_by("Quotes")] == ["db2"]
    # A neighbour that subscribes nevertheless is ignored.
    link, now = db2.network.connect(None, "db4", time.monotonic(), lambda: None), time.monotonic()
    link.receive(encode_message(Hello(VERSION, VERSION_MIN, "db4", "run")), now)
    wanted = (SubscriptionEntry("Quotes", "db1"), SubscriptionEntry("Quotes", "db2"))
    link.receive(encode_message(RoutingUpdate(1, wanted)), now)
    network.run(0.6)
    assert imported(network, "db2") == set()
    (kept,) = db2.routing.router.subscribed_filters().items()
    assert kept == (("Quotes", ""), frozenset({"db4"}))
    db1_relation, own_relation = RoutedStream("Quotes", "db1"), RoutedStream("Quotes", "db2")
    with pytest.raises(SmileError, match="may not import Quotes"):
        db2.routing.check_release("db4", db1_relation, "")
    exported = db2.routing.find_export("db4", own_relation.relation)
    assert exported is not None and exported.condition is not None
    db2.network.disconnect(link, None, now)
    assert publish(db1, "Quotes", ("IBM", 1))


def test_what_cannot_be_imported_does_not_prevent_the_rest(network: BrokerNetwork) -> None:
    """db3 has a view with the name that the stream of db1 would have."""
    db1, db2 = network.start("db1", QUOTES), network.start("db2", QUOTES)
    db3 = network.start("db3", OTHER + 'CREATE VIEW "Quotes@db1" AS SELECT SUM(v) AS s FROM Other;')
    network.connect("db1", "db3")
    network.connect("db2", "db3")
    wait_until_advertised(network, "db3", "Quotes", 2)
    receiver = Receiver(db3, "Quotes", options=GLOBAL)
    publish(db1, "Quotes", ("IBM", 1))
    publish(db2, "Quotes", ("IBM", 2))
    assert wait_for(network, receiver, 1) == [2]
    network.run_until(lambda: db3.status()["routing_problems"], "nothing is reported")
    assert db3.status()["routing_problems"]["Quotes@db1"]["code"] == "E020"


def test_a_program_that_takes_the_name_of_a_routed_stream(network: BrokerNetwork) -> None:
    db1, db2 = network.start("db1", QUOTES), network.start("db2", OTHER)
    network.connect("db1", "db2")
    wait_until_advertised(network, "db2", "Quotes")
    receiver = Receiver(db2, "Quotes", options=GLOBAL)
    publish(db1, "Quotes", ("IBM", 1))
    assert wait_for(network, receiver, 1) == [1]
    source = Source("db2.smile", OTHER + 'CREATE VIEW "Quotes@db1" AS SELECT SUM(v) AS s FROM Other;')
    done = network.run_in_background(lambda: db2.apply(source))
    network.run_until(done.is_set, "db2 does not change its program")
    assert imported(network, "db2") == set() and "Quotes@db1" in db2.views
    network.run_until(lambda: "Quotes@db1" in db2.status()["routing_problems"], "nothing is reported")
    network.apply("db2", OTHER)
    publish(db1, "Quotes", ("IBM", 2))
    assert wait_for(network, receiver, 1) == [2]
