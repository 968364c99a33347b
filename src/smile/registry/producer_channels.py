"""Which producers of a global stream may publish in the same channels: their conditions are consistent. Of two at
different brokers, the later one is held back, since nobody could order the events of such a channel."""

from collections.abc import Mapping
from typing import NamedTuple

from smile.errors import SmileError
from smile.registry.condition_index import ConditionIndex
from smile.registry.conditions import Condition, is_consistent, parse_condition
from smile.registry.schema import GlobalSchema


class RegisteredProducer(NamedTuple):
    """A producer, and when it was registered. They are compared in this order: the least one is the earliest."""

    version: int
    host: str
    name: str
    condition: str

    def __str__(self) -> str:
        return f"{self.name} at {self.host}"


class ProducerChannels:
    """The producers of one global stream that are known."""

    def __init__(self, stream: GlobalSchema) -> None:
        self.stream = stream
        self._index: ConditionIndex[RegisteredProducer] = ConditionIndex()
        self._conditions: dict[RegisteredProducer, Condition] = {}
        self._found: dict[str, list[RegisteredProducer]] = {}
        self._asked: ConditionIndex[str] = ConditionIndex()
        """The conditions for which producers were found, by their texts."""

    def update(self, producers: Mapping[tuple[str, str], RegisteredProducer]) -> None:
        """Takes in who has come and gone. `producers` are all, by host and name."""
        present = set(producers.values())
        for gone in self._conditions.keys() - present:
            self._forget(self._conditions.pop(gone))
            self._index.remove(gone)
        for new in present - self._conditions.keys():
            try:
                condition = parse_condition(self.stream, new.condition)
            except SmileError:
                continue  # Plans leave it out as well, and say why.
            self._conditions[new] = condition
            self._index.add(new, condition)
            self._forget(condition)

    def _forget(self, changed: Condition) -> None:
        """What was found for conditions that may share channels with this one."""
        for text in list(self._asked.candidates(changed)):
            self._asked.remove(text)
            del self._found[text]

    def find_rivals(self, host: str, condition: str) -> list[RegisteredProducer]:
        """Those at other brokers that may publish in a channel of this condition, the earliest first."""
        if condition not in self._found:
            parsed = parse_condition(self.stream, condition)
            candidates = self._index.candidates(parsed)
            self._found[condition] = sorted(p for p in candidates if is_consistent(parsed, self._conditions[p]))
            self._asked.add(condition, parsed)
        return [producer for producer in self._found[condition] if producer.host != host]
