"""Publishers and subscribers of a simulated broker. A publisher repeats what was not answered. A subscriber compares what
it has with the truth at every progress."""

import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from smile.algebra.types import Value
from smile.broker.publishing.publication import ProducerSequence, Publication, PublishResult, SilencePublication
from smile.broker.views.condition import ViewCondition
from smile.broker.views.view import Horizons, ViewFrame, ViewSubscription
from smile.errors import SmileError
from smile.gateway.frames import row_messages
from smile.horizons import HORIZON_MIN
from smile.knowledge.values.json import Json
from tests.engine.subscriber_knowledge import SubscriberKnowledge
from tests.simulation.programs import base_streams
from tests.simulation.scenario import PlannedPublication
from tests.simulation.scheduler import Alarm
from tests.simulation.truth import without_steps
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.brokers import SimulatedBroker

CHECKED_PROGRESS = 0.1
"""The share of frames without rows that are compared with the truth."""


class SimulatedPublisher:
    """Publishes everything of one broker, one publication after the other."""

    def __init__(self, world: World, broker: "SimulatedBroker", publications: Sequence[PlannedPublication]) -> None:
        self._world, self._broker, self._publications = world, broker, publications
        self.streams = [stream.name for stream in broker.program.streams]
        self.acknowledged: dict[str, dict[int, tuple[Value, ...]]] = {stream: {} for stream in self.streams}
        """The values of each event by its tick, as the broker has answered."""
        self._given_up: list[PlannedPublication] = []
        """What the broker has refused because it is no origin of the stream any more. A commit may have it all the
        same, if the broker was killed before it answered."""
        self._next, self._sequence = 0, 0
        self._future: Future[PublishResult] | None = None
        self._random = world.random("publisher", broker.number)
        self._alarm = Alarm(world.scheduler, f"{broker.name} publisher", self._step)

    @property
    def is_done(self) -> bool:
        return self._next == len(self._publications)

    @property
    def unanswered(self) -> Sequence[PlannedPublication]:
        """What was not acknowledged, but may be in the log."""
        return [*self._given_up, *self._publications[self._next : self._next + 1]]

    def wake(self) -> None:
        self._alarm.set(self._world.now)

    def broker_killed(self) -> None:
        self._future = None
        self._alarm.cancel()

    def _step(self) -> None:
        if self.is_done or self._future is not None or not self._broker.is_up:
            return
        planned, now = self._publications[self._next], self._world.now
        if max(planned.time, self._broker.frozen_until) > now:
            self._alarm.set(max(planned.time, self._broker.frozen_until))
            return
        publication: Publication | SilencePublication
        if planned.silence_to is not None:
            publication = SilencePublication(planned.stream, planned.silence_to)
        else:
            sequence = ProducerSequence("somebody", self._broker.name, self._sequence)
            publication = Publication(planned.stream, planned.rows, sequence)
        self._future = self._broker.broker.publish(publication)
        self._future.add_done_callback(lambda done: self._answered(planned, done))
        self._broker.schedule_commit()

    def _answered(self, planned: PlannedPublication, future: "Future[PublishResult]") -> None:
        if future is not self._future:
            return
        self._future = None
        problem = future.exception()
        if isinstance(problem, SmileError) and problem.diagnostics[0].code == "E135":
            self._refused_as_origin(planned)
            return
        if problem is not None:
            self._world.complain(f"{self._broker.name} refuses {planned}: {problem}")
            return
        if planned.silence_to is None:
            self._acknowledge(planned, future.result().ticks)
        self._next += 1
        self._alarm.set(self._world.now)

    def _refused_as_origin(self, planned: PlannedPublication) -> None:
        """The broker has not joined yet, or has left. It may join while its home is there."""
        home, published = self._world.scenario.streams[planned.stream][0], self._world.truth.streams[planned.stream]
        ends = [member.end for member in published.members.values() if member.broker == self._broker.name]
        has_left = any(end is not None for end in ends)
        can_join = not published.is_closed and home not in self._world.dead
        if has_left or not can_join:
            self._give_up(planned)
        self._alarm.set(self._world.now + 0.5)

    def _give_up(self, planned: PlannedPublication) -> None:
        self._given_up.append(planned)
        self._next += 1
        self._sequence += len(planned.rows)

    def _acknowledge(self, planned: PlannedPublication, ticks: Sequence[int]) -> None:
        definition = self._world.truth.streams[planned.stream].definition
        for tick, row in zip(ticks, planned.rows, strict=True):
            self._world.note(self._broker.name, f"acknowledges {planned.stream} at {tick}")
            self.acknowledged[planned.stream][tick] = row[1:] if definition.publisher_timed else row
        self._sequence += len(planned.rows)


class SimulatedSubscriber:
    """`pause_s` is the time between two reads, None for a witness that reads at once. Others go away at times, and come
    back with their resume tokens."""

    def __init__(self, world: World, broker: "SimulatedBroker", view: str, pause_s: float | None) -> None:
        self._world, self._broker, self.view, self._pause_s = world, broker, view, pause_s
        self.rows: dict[str, Json] = {}
        self._knowledge = SubscriberKnowledge()
        self._digest = ""
        self._token: str | None = None
        self._progress: Horizons = {}
        self._subscription: ViewSubscription | None = None
        self._name = f"{broker.name} {view} {'witness' if pause_s is None else 'subscriber'}"
        self._random = world.random("subscriber", self._name, pause_s)
        self._alarm = Alarm(world.scheduler, self._name, self._step)
        if pause_s is not None:
            self._alarm.set(self._random.uniform(0, 5))

    def broker_killed(self, has_lost_everything: bool) -> None:
        """One that has no token, or does not show it, may be shown older rows than before."""
        self._subscription = None
        if has_lost_everything or self._random.random() < 0.2:
            self._forget()

    def _forget(self) -> None:
        self._token, self._progress, self._knowledge = None, {}, SubscriberKnowledge()

    def _step(self) -> None:
        assert self._pause_s is not None
        self._alarm.set(self._world.now + self._pause_s * self._random.uniform(0.5, 1.5))
        if self._broker.is_up and self._broker.frozen_until <= self._world.now:
            if self._subscription is not None and self._random.random() < 0.1:
                self._subscription.close()
                self._subscription = None
                return
            self.read()

    def read(self) -> None:
        """Reads everything there is."""
        subscription = self._subscribe() if self._subscription is None else self._subscription
        if subscription is None:
            return
        rows_max = self._random.choice((1, 3, 100))
        while subscription.ended is None and (frame := subscription.next_frame(rows_max)) is not None:
            self._receive(frame)
        if subscription.ended is not None:
            self._subscription = None

    def _subscribe(self) -> ViewSubscription | None:
        view = self._broker.broker.views.get(self.view)
        if view is None:
            return None
        if view.digest != self._digest:
            self._forget()
            self._digest = view.digest
        try:
            self._subscription = view.subscribe(ViewCondition(), lambda: None, self._token)
        except SmileError as problem:
            self._world.note(self._name, f"is refused: {problem}")
            self._forget()
        return self._subscription

    def _receive(self, frame: ViewFrame) -> None:
        if frame.reset:
            self.rows.clear()
        for text in row_messages(frame):
            message: Json = json.loads(text)
            self._world.complain_all(self._knowledge.receive(message), f"{self._name}: ")
            if message.get("deleted"):
                self.rows.pop(str(message["key"]), None)
            else:
                self.rows[str(message["key"])] = message
        if frame.progress is None:
            return
        for stream, tick in self._progress.items():
            if frame.progress.get(stream, HORIZON_MIN) < tick:
                self._world.complain(
                    f"{self._name}: the progress of {stream} goes back from {tick} to {frame.progress}"
                )
        self._progress, self._token = frame.progress, frame.resume
        if frame.row_count or frame.reset or self._random.random() < CHECKED_PROGRESS:
            self.compare()

    def compare(self) -> None:
        """What is shown is exactly what is true at the progress."""
        if all(tick == HORIZON_MIN for tick in self._progress.values()):
            return  # nothing was computed yet
        program, text = self._broker.view_program(self.view)
        for name, base in base_streams(program).items():
            who = f"{self._name}: {name}"
            self._world.complain_all(self._world.truth.announce_all(base, name, self._progress, who))
        expected = self._world.truth.snapshot(program, text, self.view, self._progress)
        for key in sorted(expected.keys() | self.rows.keys()):
            shown = without_steps(self.rows[key]) if key in self.rows else None
            if shown != expected.get(key) and not _is_less_final(shown, expected.get(key)):
                where = f"{self._name} at {dict(self._progress)}"
                self._world.complain(f"{where}:\n    shows {shown}\n    truth {expected.get(key)}")
                return
        for message in self._knowledge.shown():
            if (message["final"] or message.get("stays")) and str(message["key"]) not in self.rows:
                self._world.complain(f"{self._name}: a row that was to stay is gone: {message}")
                return

    def find_early_finality(self, upstream: "SimulatedSubscriber", has_condition: bool) -> list[str]:
        """Rows that are final here, but not at the broker that they come from, or are others there. That one has come
        at least as far. The condition of an import may hide rows for good that are shown there."""
        final = [m for m in self._knowledge.last.values() if m["final"]]
        problems = list[str]()
        for message in final:
            other = upstream.rows.get(str(message["key"]))
            if message.get("deleted"):
                if other is not None and not has_condition:
                    problems.append(f"a row is hidden for good, and shown upstream: {message}")
            elif other is None or {**without_steps(other), "view": self.view} != without_steps(message):
                problems.append(f"a row is final that is not final upstream: {message}, there {other}")
        return problems


def _is_less_final(shown: Json | None, expected: Json | None) -> bool:
    """Whether only the finality of a row is not known yet. The reference sees more often that no row can match in an
    outer join."""
    return shown is not None and expected is not None and {**shown, "final": True} == expected
