"""The brokers of a network as processes, with a proxy on each link, so that links can be cut."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from smile.demo.broker_process import BrokerProcess, example_program
from smile.demo.tcp_proxy import TcpProxy


@dataclass(frozen=True)
class NetworkLink:
    """A link that `caller` opens to `called`, to import relations from it."""

    caller: str
    called: str


@dataclass(frozen=True)
class NetworkPlan:
    """The programs of brokers by name, and the links between them. `options` are those of `smile serve` that one broker
    has besides."""

    programs: Mapping[str, Path]
    links: Sequence[NetworkLink]
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)


TRADE_FLOOR = NetworkPlan(
    {name: example_program(f"network/tradefloor/{name}.smile") for name in ("matches", "buys", "sells", "floor")},
    (
        NetworkLink("buys", "matches"),
        NetworkLink("sells", "matches"),
        NetworkLink("floor", "buys"),
        NetworkLink("floor", "sells"),
    ),
)

_SENSORS = ("hw", "ral", "cern")
_NEIGHBOURS = {"desk": _SENSORS, "r1": ("hw", "desk"), "r2": ("ral", "desk"), "r3": (*_SENSORS, "r1", "r2", "desk")}
GRID = NetworkPlan(
    {name: example_program(f"network/grid/{name}.smile") for name in (*_SENSORS, *_NEIGHBOURS)},
    tuple(NetworkLink(caller, called) for caller, neighbours in _NEIGHBOURS.items() for called in neighbours),
    {name: ("--origin", str(number)) for number, name in enumerate(_SENSORS, 2)},
)


@dataclass
class RunningNetwork:
    """Brokers and the proxies of their links, if it has proxies. `options` are those of `smile serve`. The brokers in
    `later` are started by `start_later`, when those that they call run."""

    plan: NetworkPlan
    folder: Path
    options: Sequence[str] = ()
    delay_s: float = 0.0
    has_proxies: bool = True
    later: Sequence[str] = ()
    brokers: dict[str, BrokerProcess] = field(default_factory=dict)
    proxies: dict[NetworkLink, TcpProxy] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.stop)
            # A broker needs those that it imports from; others start at the same time.
            waiting = {name: program for name, program in self.plan.programs.items() if name not in self.later}
            while waiting:
                called = {name: {link.called for link in self.plan.links if link.caller == name} for name in waiting}
                able = [name for name in waiting if not called[name] & waiting.keys()]
                processes = [self._prepare(stack, name, waiting.pop(name)) for name in able]
                with ThreadPoolExecutor() as threads:
                    list(threads.map(lambda process: process.start(), processes))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _prepare(self, stack: ExitStack, name: str, program: Path) -> BrokerProcess:
        variables = {}
        for link in self.plan.links:
            if link.caller == name:
                url = self.brokers[link.called].url
                if self.has_proxies:
                    port = urlsplit(url).port
                    assert port is not None
                    self.proxies[link] = stack.enter_context(TcpProxy(port, self.delay_s))
                    url = self.proxies[link].url
                variables[f"SMILE_BROKERS_{link.called.upper()}_URL"] = url
        data = self.folder / name
        data.mkdir()
        options = ["--name", name, "--listen", "127.0.0.1:0", "--flight", "", *self.options]
        options += self.plan.options.get(name, ())
        process = self.brokers[name] = BrokerProcess(program, data, options, variables)
        return process

    def start_later(self, name: str) -> None:
        self._prepare(self._stack, name, self.plan.programs[name]).start()

    def restart(self, name: str) -> None:
        """Starts a broker that was killed, with the data and the address that it had."""
        killed = self.brokers[name]
        address = killed.url.removeprefix("http://")
        process = BrokerProcess(
            killed.program, killed.data, [*killed.options, "--listen", address], killed.variables, url=killed.url
        )
        self.brokers[name] = process
        process.start()

    def stop(self) -> None:
        """Stops all brokers. Their data remains."""
        with ThreadPoolExecutor() as threads:
            list(threads.map(BrokerProcess.stop_if_running, self.brokers.values()))

    def wait_until_ready(self) -> None:
        for process in self.brokers.values():
            process.wait_until_ready()

    def urls(self) -> Mapping[str, str]:
        return {name: process.url for name, process in self.brokers.items()}
