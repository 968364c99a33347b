"""The producers of global streams at one broker: which ones are registered, with versions, so that those who receive
their events know for which producers they have to wait.

Invariant: once a closed epoch is followed, no producer is registered whose events could be at or below its end.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import msgspec

from smile import limits
from smile.algebra import mmpl
from smile.algebra.parser import parse_expression
from smile.algebra.printer import print_expression
from smile.analysis.global_streams import ALWAYS, check_advertisement
from smile.broker.network.routing_file import ProducerView, RegisteredProducers, StoredRouting
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN, ORIGIN_MAX
from smile.links.messages import AdvertisementEntry
from smile.log.membership import START_MIN, StreamMember, StreamMembership
from smile.program import compile_condition
from smile.registry.epochs import ClosedEpoch, EpochMember, number_order
from smile.registry.producer_channels import ProducerChannels, RegisteredProducer
from smile.registry.schema import global_schema

PRODUCER, REPUBLISHER = "producer", "republisher"
"""The roles of those who publish a global stream."""
EPOCH = "epoch"
"""The role of who declares a closed epoch."""

ORIGIN_MIN = 2
"""The least number of a broker with producers. The first one says up to where a membership is known."""


@dataclass(frozen=True)
class LocalStream:
    """A stream that this broker publishes: its definition, which log it goes back to, and the origin whose events are
    logged here first. `logged` is its name in the log. `republishes` is what a republisher selects, and None for any
    other stream."""

    definition: mmpl.StreamDef
    history: str
    origin: str | None
    logged: str
    republishes: ProducerView | None = None

    @property
    def is_republisher(self) -> bool:
        return self.republishes is not None

    @property
    def is_producers_log(self) -> bool:
        return self.definition.is_global and not self.is_republisher


class OwnTicks(Protocol):
    """The ticks of the events that this broker publishes to a stream."""

    def horizon(self, stream: str) -> int:
        """All events that are published from now on are above this tick."""

    def end(self, stream: str) -> int:
        """A tick that is above all ticks which are given until now."""

    def begin(self, stream: str) -> int:
        """Nothing was published at or below this tick."""


class NoTicks:
    """Of a broker without a log."""

    def horizon(self, stream: str) -> int:
        return HORIZON_MIN

    def end(self, stream: str) -> int:
        return HORIZON_MIN

    def begin(self, stream: str) -> int:
        return HORIZON_MIN


class ProducerRegistry:
    """Used under the lock of its `Routing`. `clock` returns microseconds since 1970."""

    def __init__(self, broker: str, stored: StoredRouting, clock: Callable[[], int]) -> None:
        self._broker, self._stored, self._file, self._clock = broker, stored, stored.content, clock
        self._streams: Mapping[str, LocalStream] = {}
        self._in_program: Mapping[str, ProducerView] = {}
        self.on_producers: Callable[[Mapping[str, list[mmpl.Expr]], Mapping[str, str]], None] = lambda _, __: None
        """Called with the conditions of the producers of each global stream of this broker, when they have changed, and
        with why other producers of a stream are held back."""
        self.ticks: OwnTicks = NoTicks()
        self.problems: Mapping[str, SmileError] = {}
        """Why producers are not registered, by name."""
        self.held_back: Mapping[str, SmileError] = {}
        """Why registered producers may not publish, by name."""
        self._channels: dict[str, ProducerChannels] = {}
        """Those of the producers at other brokers, by global stream."""
        self._claims: Mapping[str, Mapping[EpochMember, int]] = {}
        """The other brokers as origins of each global stream, with the tick below which they have published nothing."""

    def set_program(self, program: mmpl.Program, streams: Mapping[str, LocalStream]) -> None:
        """Call `update` afterwards."""
        self._streams = streams
        self._in_program = _advertised_producers(program)

    def check_program(self, program: mmpl.Program) -> None:
        """Raises an error if a producer that is new in the program cannot be registered."""
        advertised = _advertised_producers(program).items()
        for name, producer in (item for item in advertised if self._in_program.get(item[0]) != item[1]):
            if (problem := self._problem(name, producer) or self._rivalry(name, producer)) is not None:
                raise problem

    # ── producers ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def producers(self) -> Mapping[str, ProducerView]:
        """The registered producers of global streams at this broker, by name."""
        return {name: p for name, p in self._wanted.items() if name not in self.problems}

    @property
    def _wanted(self) -> Mapping[str, ProducerView]:
        """Those of the program, and those of commands."""
        hosted = {name for name, local in self._streams.items() if local.definition.is_global}
        return {n: p for n, p in {**self._file.producers, **self._in_program}.items() if p.relation in hosted}

    def add(self, name: str, stream: LocalStream, where: str) -> None:
        """Adds a producer by a command. Call `update` afterwards."""
        relation = stream.definition.name
        if not stream.definition.is_global:
            raise error("E180", f"{relation} is not a global stream", hint=f"Use smile advertise {relation}.")
        _check_name(name)
        check_origin_number(stream.origin)
        condition = compile_condition(where, stream.definition) if where else ALWAYS
        advertised = mmpl.Advertisement(name, relation, condition)
        check_advertisement(advertised, stream.definition)
        if name in self._streams:
            raise error("E020", f"the program has a relation {name}")
        record = ProducerView(relation, print_expression(advertised.condition))
        if self._wanted.get(name, record) != record:
            raise error("E184", f"there is another producer {name}", hint="Withdraw it first, or choose another name.")
        if (problem := self._problem(name, record) or self._rivalry(name, record)) is not None:
            raise problem
        self._file.producers[name] = record
        self._stored.changed()

    def remove(self, name: str) -> None:
        """Removes a producer that a command has added. Call `update` afterwards."""
        if name not in self._file.producers:
            hint = f"Remove ADVERTISE … AS {name} from the program." if name in self._in_program else None
            raise error("E184", f"no command has added a producer {name[:100]}", hint=hint)
        del self._file.producers[name]
        self._stored.changed()

    # ── versions ────────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self) -> None:
        """A new version for each global stream whose producers have changed. It comes from the clock, so that no
        version is used twice, even if a file was lost."""
        for relation, known in self._file.registered.items():
            if known.begins == HORIZON_MIN and (begins := self.ticks.begin(relation)) != HORIZON_MIN:
                self._file.registered[relation] = msgspec.structs.replace(known, begins=begins)
                self._stored.changed()
        found = ((name, self._problem(name, p)) for name, p in self._wanted.items())
        self.problems = {name: problem for name, problem in found if problem is not None}
        producers = self.producers
        rivalries = ((name, self._rivalry(name, p)) for name, p in producers.items())
        self.held_back = {name: problem for name, problem in rivalries if problem is not None}
        for relation in sorted({*(p.relation for p in producers.values()), *self._file.registered}):
            content = {name: p.condition for name, p in producers.items() if p.relation == relation}
            known = self._file.registered.get(relation, RegisteredProducers())
            if content != known.producers:
                has_lost_any = any(content.get(name) != condition for name, condition in known.producers.items())
                end = self.ticks.end(relation) if has_lost_any else known.withdrawn_to
                version = max(known.version + 1, self._clock())
                begins = known.begins if known.version else self.ticks.begin(relation)
                self._file.registered[relation] = RegisteredProducers(version, content, end, begins)
                self._stored.changed()
        # After the version: whoever receives such an event knows that there is another producer.
        hosted = [name for name, local in self._streams.items() if local.is_producers_log]
        active = [p for name, p in producers.items() if name not in self.held_back]
        of_relation = {relation: [p for p in active if p.relation == relation] for relation in hosted}
        reasons = {producers[n].relation: f"{n} is held back: {p.message}" for n, p in sorted(self.held_back.items())}
        self.on_producers({r: [_read_condition(p.condition) for p in of_relation[r]] for r in hosted}, reasons)

    # ── channels ────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_others(self, entries: Iterable[AdvertisementEntry]) -> None:
        """The producers of other brokers that are known now. Call `update` afterwards."""
        hosted = {n: local for n, local in self._streams.items() if local.is_producers_log}
        known: dict[str, dict[tuple[str, str], RegisteredProducer]] = {name: {} for name in hosted}
        claims: dict[str, dict[EpochMember, int]] = {name: {} for name in hosted}
        for e in entries:
            if e.role == PRODUCER and e.relation in known:
                known[e.relation][e.host, e.stream] = RegisteredProducer(e.version, e.host, e.stream, e.condition)
            elif not e.role and e.relation in known:
                claims[e.relation][EpochMember(e.origin, e.host, e.history)] = e.begins
        self._claims = claims
        for relation, producers in known.items():
            stream = global_schema(hosted[relation].definition)
            if relation not in self._channels or self._channels[relation].stream != stream:
                self._channels[relation] = ProducerChannels(stream)
            self._channels[relation].update(producers)

    def _number_problem(self, relation: str) -> SmileError | None:
        """E183 if another broker has the number of this one."""
        own, claims = self._member(relation), self._claims.get(relation, {})
        if own is None or not (rivals := [member for member in claims if member.origin == own.origin]):
            return None
        epochs = [epoch] if (epoch := self._file.followed.get(relation)) is not None else []
        order = {member: number_order(member, claims[member], epochs) for member in rivals}
        holder = min(rivals, key=lambda member: order[member])
        if number_order(own, self.registered(relation).begins, epochs) < order[holder]:
            return None
        taken = {member.origin for member in claims}
        free = next(n for n in range(ORIGIN_MIN, ORIGIN_MAX + 2) if str(n) not in taken)
        hint = f"Set `origin` of this broker to {free}, and give it a new directory." if free <= ORIGIN_MAX else None
        return error("E183", f"this broker and {holder.host} are both origin {own.origin} of {relation}", hint=hint)

    def _rivalry(self, name: str, producer: ProducerView) -> SmileError | None:
        """E188 if an earlier producer at another broker may publish in a channel of this one; E183 if another broker
        has the number of this one."""
        if (problem := self._number_problem(producer.relation)) is not None:
            return problem
        if producer.relation not in self._channels:
            return None
        entry = self._file.state.own.get(name)
        is_registered = entry is not None and not entry.is_withdrawn and entry.condition == producer.condition
        version = entry.version if entry is not None and is_registered else END
        own = RegisteredProducer(version, self._broker, name, producer.condition)
        rivals = self._channels[producer.relation].find_rivals(self._broker, producer.condition)
        if not rivals or rivals[0] > own:
            return None
        message = f"producer {name} has channels of {producer.relation} that {rivals[0]} has: {rivals[0].condition}"
        hint = "Give them conditions on key columns that exclude each other, or withdraw one of them."
        return error("E188", message, hint=hint)

    # ── closed epochs ───────────────────────────────────────────────────────────────────────────────────────────────

    def declare(self, epoch: ClosedEpoch) -> None:
        """This broker says that the epoch is closed. Call `update` afterwards."""
        self._file.declared[epoch.relation] = epoch
        self._stored.changed()

    def follow(self, epochs: Iterable[ClosedEpoch]) -> bool:
        """Confirms the epochs that this broker is a member of, unless they contradict an earlier one. Returns whether
        there is a new one: store that before anybody is told, and call `update` afterwards."""
        has_changed = False
        for epoch in sorted(epochs, key=lambda e: (e.closed_to, e.digest)):
            known = self._file.followed.get(epoch.relation)
            if epoch != known and epoch.follows(known):
                self._file.followed[epoch.relation] = epoch
                self._stored.changed()
                has_changed = True
        return has_changed

    @property
    def needs_update(self) -> bool:
        """Whether the time that passes may change something."""
        return bool(self.problems) or any(r.begins == HORIZON_MIN for r in self._file.registered.values())

    def confirmed(self, relation: str) -> str:
        """The digest of the epoch that this broker has confirmed as a member."""
        epoch = self._file.followed.get(relation)
        return epoch.digest if epoch is not None and self._member(relation) in epoch.members else ""

    def _member(self, relation: str) -> EpochMember | None:
        local = self._streams.get(relation)
        return None if local is None else EpochMember(local.origin or "", self._broker, local.history)

    def _problem(self, name: str, producer: ProducerView) -> SmileError | None:
        """Why a producer cannot be registered now."""
        relation = producer.relation
        epoch, known = self._file.followed.get(relation), self.registered(relation)
        if epoch is None:
            return None
        if known.version and known.begins < epoch.closed_to and self._member(relation) not in epoch.members:
            message = f"{relation} was closed as epoch {epoch.digest} without this broker, which has published to it"
            hint = "Nobody who follows the epoch shows these events. Publish with a new broker after the epoch."
            return error("E186", message, hint=hint)
        if known.producers.get(name) == producer.condition or self.ticks.horizon(relation) >= epoch.closed_to:
            return None
        until = "for good" if epoch.is_for_good else f"up to tick {epoch.closed_to}"
        message = f"{relation} is closed {until}: producer {name} comes too late for epoch {epoch.digest}"
        hint = f"Its members are {', '.join(m.host for m in epoch.members)}, with the producers that they had."
        return error("E185", message, hint=hint if epoch.is_for_good else "Try again after this tick.")

    def registered(self, relation: str) -> RegisteredProducers:
        return self._file.registered.get(relation, RegisteredProducers())

    def is_host_of(self, relation: str) -> bool:
        """Whether a global stream has, or has had, producers here."""
        return relation in self._file.registered

    def membership(self, relation: str) -> StreamMembership | None:
        """This broker as the only origin of its events of a global stream."""
        local, version = self._streams.get(relation), self.registered(relation).version
        if local is None or local.origin is None:
            return None
        member = StreamMember(self._broker, local.history, START_MIN, registered=version)
        return StreamMembership(relation, local.history, version, {local.origin: member})

    def entries(self) -> Iterator[AdvertisementEntry]:
        """What neighbours are told of the producers, and of closed epochs."""
        for relation, epoch in sorted(self._file.declared.items()):
            name, content = f"{relation} {EPOCH}", epoch.encode().decode()
            yield AdvertisementEntry("", name, self._clock(), description=content, role=EPOCH, relation=relation)
        for name, producer in sorted(self.producers.items()):
            if name not in self._streams:
                yield AdvertisementEntry(
                    "", name, self._clock(), condition=producer.condition, role=PRODUCER, relation=producer.relation
                )


@lru_cache(maxsize=65_536)
def _read_condition(text: str) -> mmpl.Expr:
    return parse_expression(text)


def _advertised_producers(program: mmpl.Program) -> dict[str, ProducerView]:
    return {a.name: ProducerView(a.relation, print_expression(a.condition)) for a in program.advertisements}


def _check_name(name: str) -> None:
    """Others find a producer by `name@broker`."""
    if not re.fullmatch(r"[\w.+-]+", name) or len(name) > limits.link_name_chars_max:
        hint = "A name consists of letters, digits and . + - _"
        raise error("E093", f"{name[: limits.link_name_chars_max]!r} is not a name of a producer", hint=hint)


def check_origin_number(origin: str | None) -> None:
    """E183 unless the broker has a number of its own. Events of two brokers with one number would have equal ticks."""
    if origin is None or int(origin) < ORIGIN_MIN:
        hint = f"Give each broker with producers another number, from {ORIGIN_MIN} on: the setting `origin`."
        raise error("E183", "producers of a global stream need a broker with a number of its own", hint=hint)
