"""Routing of advertisements and subscriptions: Figure 5 of the PostgreSQL-PS paper step by step, and random networks
whose links open and close while messages are lost, against an oracle."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest

from smile.links.messages import AdvertisementEntry, RoutingEntry, RoutingUpdate, SubscriptionEntry
from smile.links.routing.exchange import RESEND_S, RoutingExchange
from smile.links.routing.names import RoutedStream
from smile.links.routing.router import LOCAL, Router
from tests.random_programs import SEED_ID, seeds


@dataclass
class RoutedNetwork:
    """Routers that are connected by links. A message is lost or repeated with some probability."""

    random: Random = field(default_factory=lambda: Random(1))
    lost: float = 0.0
    routers: dict[str, Router] = field(default_factory=dict)
    exchanges: dict[tuple[str, str], RoutingExchange] = field(default_factory=dict)
    wires: dict[tuple[str, str], deque[object]] = field(default_factory=dict)
    now: float = 0.0
    messages: int = 0
    clock: int = 0

    def add(self, *names: str) -> None:
        self.routers |= {name: Router(name) for name in names}

    def connect(self, a: str, b: str) -> None:
        for here, there in ((a, b), (b, a)):
            router, link = self.routers[here], (here, there)
            router.open_link(link, there)
            self.exchanges[link] = RoutingExchange(
                lambda router=router, there=there: router.table_for(there),  # type: ignore[misc]
                lambda router=router: router.version,  # type: ignore[misc]
                lambda router=router, there=there: router.known_table(there),  # type: ignore[misc]
                lambda table, router=router, link=link: router.receive_table(link, table),  # type: ignore[misc]
            )
            self.wires[link] = deque()

    def cut(self, a: str, b: str) -> None:
        for link in ((a, b), (b, a)):
            self.routers[link[0]].close_link(link)
            del self.exchanges[link], self.wires[link]

    def restart(self, name: str) -> None:
        """The broker has only what is stored; all its links are closed."""
        for here, there in list(self.exchanges):
            if here == name:
                self.cut(here, there)
        old = self.routers[name]
        self.routers[name] = Router(name, old.state)
        self.routers[name].set_subscriptions(old._subscriptions)

    def version(self) -> int:
        self.clock += 1
        return self.clock

    def advertise(self, name: str, stream: str = "t", condition: str = "") -> None:
        description, history = f"type of {stream}", f"log of {name}"
        self.routers[name].advertise(
            AdvertisementEntry(name, stream, self.version(), False, condition, description, history)
        )

    def step(self) -> bool:
        """Sends and delivers. Returns whether anything was sent."""
        has_sent = False
        for (here, there), exchange in list(self.exchanges.items()):
            for update in exchange.poll(self.now):
                has_sent = True
                self._transmit(here, there, update)
        for (here, there), wire in list(self.wires.items()):
            while wire and (there, here) in self.exchanges:
                message = wire.popleft()
                receiver = self.exchanges[there, here]
                if isinstance(message, RoutingUpdate):
                    confirmation = receiver.receive(message)
                    if confirmation is not None:
                        self._transmit(there, here, confirmation)
                else:
                    receiver.receive_confirmation(message)  # type: ignore[arg-type]
        return has_sent

    def _transmit(self, here: str, there: str, message: object) -> None:
        self.messages += 1
        if self.random.random() >= self.lost:
            self.wires[here, there].append(message)
        if self.random.random() < self.lost:
            self.wires[here, there].append(message)

    def settle(self) -> None:
        """Until nothing is sent any more, and everything has arrived."""
        quiet = 0
        for _ in range(20_000):
            # An update that was lost is repeated after a while.
            quiet = 0 if self.step() or any(self.wires.values()) else quiet + 1
            self.now += RESEND_S / 2
            for router in self.routers.values():
                router.set_ready(
                    {r for r, d in router.desired_imports().items() if d.is_ready} & set(router.desired_imports())
                )
            if quiet >= 10:
                return
        raise AssertionError("messages are sent for ever")

    def reachable(self, name: str) -> set[str]:
        reached, pending = {name}, [name]
        while pending:
            here = pending.pop()
            for a, b in self.exchanges:
                if a == here and b not in reached:
                    reached.add(b)
                    pending.append(b)
        return reached


def figure_5() -> RoutedNetwork:
    network = RoutedNetwork()
    network.add(*(f"DB{i}" for i in range(1, 7)))
    for a, b in (("DB1", "DB3"), ("DB2", "DB3"), ("DB3", "DB4"), ("DB4", "DB5"), ("DB4", "DB6")):
        network.connect(a, b)
    network.settle()
    return network


def advertised(network: RoutedNetwork) -> dict[str, set[str]]:
    """From where each database has an advertisement of t, besides its own."""
    paths = {name: router.advertised_filters().get(("t", ""), {}) for name, router in network.routers.items()}
    return {name: set(sources) - {LOCAL} for name, sources in paths.items() if set(sources) - {LOCAL}}


def subscribed(network: RoutedNetwork) -> dict[str, set[str]]:
    """From where each database has a subscription to t, besides its own."""
    found = {name: router.subscribed_filters().get(("t", ""), frozenset()) for name, router in network.routers.items()}
    return {name: set(sources) - {LOCAL} for name, sources in found.items() if set(sources) - {LOCAL}}


def test_figure_5_step_by_step() -> None:
    network = figure_5()
    network.advertise("DB1")  # a1, by App1
    network.settle()
    a1 = {"DB2": {"DB3"}, "DB3": {"DB1"}, "DB4": {"DB3"}, "DB5": {"DB4"}, "DB6": {"DB4"}}
    assert advertised(network) == a1, "a1 is stored by DB2 to DB6"

    network.advertise("DB2")  # a2
    network.settle()
    del a1["DB2"]  # it advertises t itself now
    assert advertised(network) == {**a1, "DB3": {"DB1", "DB2"}}, "a2 is stored by DB3 only"

    network.routers["DB6"].set_subscriptions({("t", "")})  # s6
    network.settle()
    s6 = {"DB4": {"DB6"}, "DB3": {"DB4"}, "DB1": {"DB3"}, "DB2": {"DB3"}}
    assert subscribed(network) == s6, "s6 is stored by DB1 to DB4"

    before = network.messages
    network.routers["DB3"].set_subscriptions({("t", "")})  # s3, by App3
    network.settle()
    assert subscribed(network) == s6, "DB1 and DB2 have this filter of DB3 already"
    assert network.messages == before, "a covered subscription is not forwarded"

    # An event of App1 goes to App3 and to DB6, and so does one of DB2.
    for host in ("DB1", "DB2"):
        imports = {name: set(router.desired_imports()) for name, router in network.routers.items()}
        assert {name for name, relations in imports.items() if f"t@{host}" in relations} == {"DB3", "DB4", "DB6"}


def test_a_withdrawn_advertisement_uncovers_the_others() -> None:
    network = figure_5()
    network.advertise("DB1")
    network.advertise("DB2")
    network.settle()
    network.routers["DB1"].withdraw("t", network.version())
    network.settle()
    a2 = {"DB1": {"DB3"}, "DB3": {"DB2"}, "DB4": {"DB3"}, "DB5": {"DB4"}, "DB6": {"DB4"}}
    assert advertised(network) == a2
    assert {key for router in network.routers.values() for key in router.routes} == {("DB2", "t")}


def test_a_late_repeat_does_not_revive_a_withdrawn_advertisement() -> None:
    network = figure_5()
    network.advertise("DB1")
    network.settle()
    network.cut("DB4", "DB6")
    network.routers["DB1"].withdraw("t", network.version())
    network.settle()
    assert ("DB1", "t") in network.routers["DB6"].routes
    network.connect("DB5", "DB6")
    network.settle()
    assert all(not router.routes for router in network.routers.values())
    network.advertise("DB1")
    network.settle()
    assert all(("DB1", "t") in router.routes for name, router in network.routers.items() if name != "DB1")


def test_membership_reaches_everybody_whatever_is_covered() -> None:
    network = figure_5()
    network.advertise("DB1")
    network.advertise("DB2")
    network.routers["DB1"].set_subscriptions({("t", "")})
    network.settle()
    assert set(network.routers["DB6"].routes) == {("DB1", "t"), ("DB2", "t")}
    assert set(network.routers["DB1"].desired_imports()) == {"t@DB2"}, "a host receives what the others publish"


def test_a_subscription_that_ends_is_removed_everywhere() -> None:
    network = figure_5()
    network.advertise("DB1")
    network.routers["DB6"].set_subscriptions({("t", ""), ("t", "x = 1")})
    network.settle()
    assert set(network.routers["DB4"].desired_imports()) == {"t@DB1", RoutedStream("t", "DB1", "x = 1").relation}
    network.routers["DB6"].set_subscriptions(set())
    network.settle()
    assert subscribed(network) == {}
    assert all(not router.desired_imports() for router in network.routers.values())


def test_a_neighbour_learns_only_what_is_released() -> None:
    router = Router("DB1")
    router.advertise(AdvertisementEntry("DB1", "t", 1))
    router.advertise(AdvertisementEntry("DB1", "secret", 2))
    router.withdraw("secret", 3)
    table = router.table_for("DB2", lambda entry: entry if entry.stream == "t" else None)
    assert [e.stream for e in table.values() if isinstance(e, AdvertisementEntry)] == ["t"]


def test_the_state_survives_a_restart() -> None:
    network = figure_5()
    network.advertise("DB1")
    network.routers["DB6"].set_subscriptions({("t", "")})
    network.settle()
    imports = network.routers["DB4"].desired_imports()
    network.restart("DB4")
    assert network.routers["DB4"].desired_imports() == imports
    assert not network.routers["DB4"].routes["DB1", "t"].is_live


def test_a_table_that_the_neighbour_has_is_not_sent_again() -> None:
    network = figure_5()
    network.advertise("DB1")
    network.settle()
    network.cut("DB4", "DB6")
    network.restart("DB6")
    network.connect("DB4", "DB6")
    sent = [
        exchange.poll(network.now)[0] for link, exchange in network.exchanges.items() if set(link) == {"DB4", "DB6"}
    ]
    assert [(update.n, update.entries) for update in sent] == [(1, ()), (1, ())]
    network.now += RESEND_S
    before = network.messages
    network.settle()
    assert network.messages - before <= 6, "digests, their confirmations, and that the path is open again"
    assert network.routers["DB6"].routes["DB1", "t"].is_live
    network.cut("DB4", "DB6")
    network.advertise("DB2")
    network.settle()
    network.connect("DB4", "DB6")
    network.settle()
    assert ("DB2", "t") in network.routers["DB6"].routes


def test_a_neighbour_that_is_forgotten_leaves_nothing() -> None:
    network = figure_5()
    network.advertise("DB1")
    network.routers["DB6"].set_subscriptions({("t", "")})
    network.settle()
    network.cut("DB4", "DB6")
    network.routers["DB4"].forget("DB6")
    network.settle()
    assert subscribed(network) == {}


def test_wrong_paths_are_not_used() -> None:
    router = Router("DB1")
    router.open_link("link", "DB2")
    wrong = [
        AdvertisementEntry("DB3", "a", 1, path=("DB3",)),  # not by this neighbour
        AdvertisementEntry("DB3", "b", 1, path=("DB4", "DB2")),  # not from its host
        AdvertisementEntry("DB1", "c", 1, path=("DB1", "DB2")),  # of this broker itself
        AdvertisementEntry("DB3", "d", 1, path=()),
    ]
    right = AdvertisementEntry("DB3", "e", 1, path=("DB3", "DB2"))
    unasked = SubscriptionEntry("z", "DB9")
    entries: list[RoutingEntry] = [*wrong, right, unasked]
    router.receive_table("link", {entry.key: entry for entry in entries})
    assert set(router.routes) == {("DB3", "e")}
    assert not router.desired_imports()


def test_when_a_link_is_closed_the_table_of_the_next_one_counts() -> None:
    """A neighbour that has restarted calls again before its old link is noticed to be broken."""
    router = Router("DB1")
    entry = AdvertisementEntry("DB2", "e", 1, path=("DB2",))
    router.open_link("old", "DB2")
    router.receive_table("old", {})
    router.open_link("new", "DB2")
    router.receive_table("new", {entry.key: entry})
    router.close_link("old")
    assert set(router.routes) == {("DB2", "e")}


def check_network(
    network: RoutedNetwork, wanted: dict[str, set[tuple[str, str]]], published: set[tuple[str, str]]
) -> None:
    """Each subscriber imports each stream of each host that it can reach, over a path that ends at the host."""
    for name, filters in wanted.items():
        reachable = network.reachable(name)
        imports = network.routers[name].desired_imports()
        expected = {
            RoutedStream(stream, host, where).relation
            for stream, where in filters
            for host, other in published
            if other == stream and host in reachable and host != name
        }
        live = {r for r, d in imports.items() if network.routers[name].routes[d.stream.host, d.stream.stream].is_live}
        assert expected <= live, f"{name} lacks {expected - live}"
        for relation in expected:
            seen, here = set[str](), name
            while here != imports[relation].stream.host:
                desired = network.routers[here].desired_imports()[relation]
                assert here not in seen and desired.is_ready, f"{relation}: {here} waits, after {seen}"
                seen.add(here)
                here = desired.neighbour
    hosts = {name for name in network.routers if any(host == name for host, _ in published)}
    for name, router in network.routers.items():
        stale = {key for key, route in router.routes.items() if key not in published and route.is_live}
        assert not stale, f"{name} knows {stale} of {hosts}"


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_random_networks(seed: int) -> None:
    """Links that open and close, brokers that restart, advertisements and subscriptions that come and go, messages that
    are lost and repeated: whenever it is quiet, every subscriber is connected with every host that it can reach."""
    random = Random(seed)
    network = RoutedNetwork(random, lost=random.choice((0.0, 0.1, 0.3)))
    names = [f"B{i}" for i in range(random.randint(2, 8))]
    network.add(*names)
    wanted: dict[str, set[tuple[str, str]]] = {name: set() for name in names}
    published: set[tuple[str, str]] = set()
    pairs = [(a, b) for a in names for b in names if a < b]
    for _ in range(60):
        match random.randrange(8):
            case 0 | 1 | 2:
                a, b = random.choice(pairs)
                if (a, b) not in network.exchanges:
                    network.connect(a, b)
            case 3:
                open_links = [(a, b) for a, b in network.exchanges if a < b]
                if open_links:
                    network.cut(*random.choice(open_links))
            case 4:
                name, stream = random.choice(names), random.choice("tu")
                if (name, stream) in published:
                    network.routers[name].withdraw(stream, network.version())
                else:
                    network.advertise(name, stream)
                published ^= {(name, stream)}
            case 5:
                name = random.choice(names)
                wanted[name] ^= {(random.choice("tu"), random.choice(("", "x = 1")))}
                network.routers[name].set_subscriptions(wanted[name])
            case 6:
                network.restart(random.choice(names))
            case 7:
                network.settle()
                check_network(network, wanted, published)
        for _ in range(random.randrange(4)):
            network.step()
            network.now += RESEND_S * random.random()
    network.settle()
    check_network(network, wanted, published)
    for name in names:
        wanted[name] = set()
        network.routers[name].set_subscriptions(set())
    for a, b in pairs:
        if (a, b) not in network.exchanges:
            network.connect(a, b)
    network.settle()
    check_network(network, wanted, published)
    assert not any(router.desired_imports() for router in network.routers.values())
    assert not any(router.subscribed_filters() for router in network.routers.values())
    before = network.messages
    network.settle()
    assert network.messages == before, "nothing is sent when nothing changes"


def test_an_unconfirmed_update_waits_until_it_is_repeated() -> None:
    """A link whose neighbour does not answer does not poll in vain, also when the table is to be computed again."""
    exchange = RoutingExchange(dict, lambda: 1, dict, lambda _: None)
    now = 0.0
    for _ in range(5):
        assert exchange.poll(now)
        assert exchange.deadline == now + RESEND_S
        assert not exchange.poll(now + RESEND_S / 2)
        now = exchange.deadline
