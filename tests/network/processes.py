"""Brokers of a network, each with a folder, settings and a program of its own: as processes, or in this process."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from smile.settings import NeighbourSettings
from tests.brokers import Broker, BrokerProcess, InProcessBroker
from tests.processes import WAIT_S, free_port, wait_until

Json = dict[str, Any]


@dataclass
class NetworkProcesses:
    """Brokers by name. A broker that was killed is started again with the same port and data."""

    folder: Path
    brokers: dict[str, BrokerProcess] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def port(self, name: str) -> int:
        """The port of a broker, also of one that is not started yet."""
        return self.ports.setdefault(name, free_port())

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port(name)}"

    def create(
        self, name: str, program: str, neighbours: Mapping[str, Any] | None = None, **settings: Any
    ) -> BrokerProcess:
        """A broker that is not started. `neighbours` has the addresses of the brokers that it calls, or the settings of
        each of them as a mapping."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.smile").write_text(program)
        tables = {n: v if isinstance(v, Mapping) else {"url": v} for n, v in (neighbours or {}).items()}
        chosen = {"name": name, "silence_ms": 10, "idle_ms": 50, "log_format": "text", **settings}
        engine, variables = chosen.pop("engine", "local"), chosen.pop("variables", {})
        lines = [f"{key} = {json.dumps(value)}" for key, value in chosen.items()]
        for neighbour, table in tables.items():
            lines += [f"[brokers.{neighbour}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        (folder / "smile.toml").write_text("\n".join(lines) + "\n")
        broker = BrokerProcess(
            folder,
            f"{name}.smile",
            ("--config", "smile.toml"),
            engine=engine,
            port_given=self.port(name),
            variables=variables,
        )
        self.brokers[name] = broker
        return broker

    def start(
        self, name: str, program: str, neighbours: Mapping[str, Any] | None = None, **settings: Any
    ) -> BrokerProcess:
        broker = self.create(name, program, neighbours, **settings)
        self._stack.enter_context(broker)
        return broker

    def start_here(self, name: str, program: str, neighbours: Mapping[str, Sequence[str]] | None = None) -> Broker:
        """A broker in this process: it starts sooner, but cannot be killed."""
        brokers = {n: NeighbourSettings(url=tuple(urls)) for n, urls in (neighbours or {}).items()}
        broker = InProcessBroker(
            self.folder / name,
            program,
            broker_name=name,
            brokers=brokers,
            listen=f"127.0.0.1:{self.port(name)}",
            silence_ms=10,
            idle_ms=50,
        )
        return self._stack.enter_context(broker)


def status(broker: Broker, token: str | None = None) -> Json:
    with broker.http(token) as client:
        answer = client.get("/status")
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


def import_status(broker: Broker, name: str) -> Json:
    body: Json = status(broker)["imports"][name]
    return body


def link_status(broker: Broker, neighbour: str) -> list[Json]:
    return [link for link in status(broker)["links"] if link["neighbour"] == neighbour]


def wait_for_import(broker: Broker, name: str, state: str = "live", seconds: float = WAIT_S) -> Json:
    def find() -> Json | None:
        found = import_status(broker, name)
        return found if found["state"] == state else None

    found = wait_until(find, f"{name} does not become {state}", seconds)
    assert found is not None
    return found


def shown_rows(broker: Broker, view: str) -> dict[Any, Any]:
    """The values of the rows that a view shows, by key. Single values are not in tuples."""

    def single(values: list[Any]) -> Any:
        return values[0] if len(values) == 1 else tuple(values)

    return {single(list(row["key"].values())): single(list(row["row"].values())) for row in broker.rows(view)}


def wait_for_rows(broker: Broker, view: str, expected: Mapping[Any, Any], seconds: float = WAIT_S) -> None:
    shown: list[Mapping[Any, Any]] = [{}]

    def is_reached() -> bool:
        shown[0] = shown_rows(broker, view)
        return shown[0] == expected

    try:
        wait_until(is_reached, f"{view} does not become {expected}", seconds)
    except AssertionError as problem:
        raise AssertionError(f"{problem}: it is {shown[0]}; {status(broker)['imports']}") from None
