"""Which hosts have producers of certain events. The assembly asks for each source and origin, so the answers are
remembered, and a producer that comes or goes changes only its own part of them."""

from collections.abc import Iterable

from smile.registry.conditions import every_row, is_consistent, parse_condition
from smile.registry.publishers import StreamPublisher
from smile.registry.schema import GlobalSchema

_Conditions = tuple[str, ...]


class ProducerHosts:
    """The producers of one global stream, by the hosts that they publish at. Conditions are texts; "" is true of every
    event."""

    def __init__(self, stream: GlobalSchema) -> None:
        self._stream = stream
        self._producers: dict[str, StreamPublisher] = {}
        self._names: dict[_Conditions, dict[str, set[str]]] = {}
        """The producers that may publish something that satisfies all of the conditions, by host."""
        self._asked: set[_Conditions] = set()
        """What was asked for since the last change. The rest is forgotten."""

    def change(self, gone: Iterable[str], new: Iterable[StreamPublisher]) -> None:
        """These producers have gone, if they were there, and these are new."""
        gone, new = list(gone), list(new)
        if not gone and not new:
            return
        self._names = {conditions: self._names[conditions] for conditions in self._asked}
        self._asked = set()
        for hosts in self._names.values():
            for name in gone:
                if name in self._producers:
                    hosts.get(self._producers[name].broker, set()).discard(name)
        for name in gone:
            self._producers.pop(name, None)
        for producer in new:
            self._producers[producer.name] = producer
            for conditions, hosts in self._names.items():
                self._add(producer, conditions, hosts)

    def has_producer(self, host: str, *conditions: str) -> bool:
        """Whether a producer at the host may publish something that satisfies each of these conditions."""
        if conditions not in self._names:
            hosts = self._names[conditions] = {}
            for producer in self._producers.values():
                self._add(producer, conditions, hosts)
        self._asked.add(conditions)
        return bool(self._names[conditions].get(host))

    def _add(self, producer: StreamPublisher, conditions: _Conditions, hosts: dict[str, set[str]]) -> None:
        parsed = (parse_condition(self._stream, text) if text else every_row(self._stream) for text in conditions)
        if all(is_consistent(producer.condition, condition) for condition in parsed):
            hosts.setdefault(producer.broker, set()).add(producer.name)
