"""What an operator of a simulated network does about the origins of streams, with the product's own commands: brokers leave
a stream, join again, and are fenced."""

from collections.abc import Sequence
from functools import partial

from smile.horizons import END, HORIZON_MIN
from smile.log.membership import HOME_ORIGIN
from tests.simulation.brokers import SimulatedBroker, Targets
from tests.simulation.cables import SimulatedLink
from tests.simulation.programs import base_streams, broker_number
from tests.simulation.scenario import FENCE_WAIT_S, Fault
from tests.simulation.world import World

HASTY = 2
"""One of so many fences is made at once, although the broker may live, and others may know more of it than the one that
was asked."""
TRIES_MAX = 60


class Operator:
    def __init__(self, world: World, brokers: Sequence[SimulatedBroker], links: Sequence[SimulatedLink]) -> None:
        self._world, self._brokers, self._links = world, brokers, links

    def _hosted_streams(self, broker: SimulatedBroker) -> list[str]:
        streams = self._world.truth.streams
        return [stream for stream in broker.publisher.streams if streams[stream].has_many_origins]

    def _present_origin(self, broker: SimulatedBroker, stream: str) -> str | None:
        """The origin that a broker is, unless it has left or was fenced."""
        published = self._world.truth.streams[stream]
        for origin, member in published.members.items():
            if member.broker == broker.name and member.end is None and published.origin(origin).horizon < END:
                return origin
        return None

    # ── leaving and joining ─────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, broker: SimulatedBroker) -> None:
        for stream in self._hosted_streams(broker):
            origin = self._present_origin(broker, stream)
            if origin is not None:
                broker.run_origin_command(lambda commands, s=stream, o=origin: commands.leave(s, o))  # type: ignore[misc]

    def join_again(self, broker: SimulatedBroker) -> None:
        for stream in self._hosted_streams(broker):
            if not broker.is_home_of(stream):
                broker.run_origin_command(lambda commands, s=stream: commands.join(s))  # type: ignore[misc]

    # ── fencing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_fence(self, broker: SimulatedBroker, fault: Fault) -> None:
        """A hasty operator fences a broker that does not answer at once. Another one waits until nothing can come from
        it any more, and asks all other brokers first."""
        if fault.seed % HASTY == 0:
            self._fence(broker, is_hasty=True)
            return
        broker.kill(fault.end - fault.start)
        self._world.scheduler.at(self._world.now + FENCE_WAIT_S, "operator", partial(self._try_fence, broker, 0))

    def _try_fence(self, broker: SimulatedBroker, tries: int) -> None:
        if broker.is_up or tries == TRIES_MAX:
            return
        others = [other for other in self._brokers if other is not broker and not other.is_dead]
        is_silent = not any(link.cables for link in self._links if broker in link.brokers)
        if is_silent and all(other.is_up and other.frozen_until <= self._world.now for other in others):
            self._fence(broker)
        else:
            self._world.scheduler.at(self._world.now + 0.5, "operator", partial(self._try_fence, broker, tries + 1))

    def _fence(self, broker: SimulatedBroker, is_hasty: bool = False) -> None:
        """At the greatest tick that anybody has, for each stream. A hasty operator asks one broker that has anything."""
        for stream in self._hosted_streams(broker):
            origin = self._present_origin(broker, stream)
            home = self._brokers[self._world.scenario.streams[stream][0]]
            if origin is None or origin == HOME_ORIGIN or self._world.truth.streams[stream].is_closed:
                continue
            known = [self.known_horizon(other, stream, origin) for other in self._brokers if other is not broker]
            start = self._world.truth.streams[stream].members[origin].start
            at = min((tick for tick in known if tick > start), default=max(known)) if is_hasty else max(known)
            self._world.note("operator", f"fences origin {origin} of {stream} at {at}")
            home.run_origin_command(lambda commands, s=stream, o=origin, t=at: commands.fence(s, o, t))  # type: ignore[misc]

    def known_horizon(self, broker: SimulatedBroker, stream: str, origin: str) -> int:
        """Up to where a broker has an origin, under any name of the stream."""
        if not broker.is_up:
            return HORIZON_MIN
        horizons = [
            broker.broker.log.stream_horizons(name).get(origin, HORIZON_MIN)
            for name, base in base_streams(broker.broker.program).items()
            if base == stream and name in broker.broker.log.schemas
        ]
        return max(horizons, default=HORIZON_MIN)

    def fence_dead(self) -> bool:
        """Fences the origins of dead brokers, so that everything becomes final. Returns whether there were any."""
        before = {name: dict(stream.members) for name, stream in self._world.truth.streams.items()}
        for number in sorted(self._world.dead):
            self._fence(self._brokers[number])
        return before != {name: dict(stream.members) for name, stream in self._world.truth.streams.items()}

    # ── what everybody must know in the end ─────────────────────────────────────────────────────────────────────────

    def find_targets(self) -> Targets:
        """Of a dead broker nothing is expected that only it has had."""
        targets = dict[str, dict[tuple[int, str], int]]()
        for name, published in self._world.truth.streams.items():
            home = self._world.scenario.streams[name][0]
            targets[name] = {}
            for origin in published.origins:
                host = broker_number(published.members[origin].broker) if published.has_many_origins else home
                if host not in self._world.dead:
                    targets[name][host, origin] = published.target(origin)
                elif published.has_many_origins and self._is_everywhere(name, origin):
                    targets[name][host, origin] = END
        return targets

    def _is_everywhere(self, stream: str, origin: str) -> bool:
        """Whether all brokers that have a stream have everything of an origin that has ended."""
        member = self._world.truth.streams[stream].members[origin]
        end = member.end
        importers = [
            broker
            for broker in self._brokers
            if broker.is_up and any(stream == i.relation for i in broker.program.imports if i.stream is not None)
        ]
        return end is not None and all(self.known_horizon(b, stream, origin) >= end for b in importers)

    def find_stopped_streams(self) -> set[str]:
        """Streams of which a broker has imported events of an origin above the tick at which it was fenced; and those
        of which a broker does not know that it was fenced, and its home cannot say so any more."""
        stopped = set[str]()
        for name, published in self._world.truth.streams.items():
            is_home_dead = self._world.scenario.streams[name][0] in self._world.dead
            for origin, member in published.members.items():
                end, host = published.end(origin), self._brokers[broker_number(member.broker)]
                others = [broker for broker in self._brokers if broker.is_up and broker is not host]
                has_later = any(self._has_later_events(other, name, origin, end) for other in others)
                if end < END and (has_later or (is_home_dead and not host.is_dead)):
                    stopped.add(name)
        return stopped

    def _has_later_events(self, broker: SimulatedBroker, stream: str, origin: str, end: int) -> bool:
        horizon = self.known_horizon(broker, stream, origin)
        published = self._world.truth.streams[stream]
        later = [t for t in published.events if t > end and published.origin_of(t) == origin]
        return horizon < END and any(t <= horizon for t in later)
