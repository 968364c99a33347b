"""Ordered delivery from an engine that returns to earlier versions and repeats the events in other batches: the result
is the same, and nothing that was delivered is withdrawn."""

from pathlib import Path
from random import Random

import pytest

from smile.algebra import mmpl
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.local import LocalEngine
from smile.engine.plan import StageResult
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit, Position
from smile.log.storage.durable import DurableLog
from tests.broker.maintenance import Publishing, RecordingListener, differences, generation, messages, without_steps
from tests.engine.invariants import small
from tests.messages import key_text
from tests.random_programs import SEED_ID, random_program, seeds


class RestartingEngine:
    """An engine that delivers each batch, and sometimes returns to an earlier version."""

    def __init__(self, program: mmpl.Program, log: DurableLog, random: Random) -> None:
        self.views, self.log, self.random = program.subscriptions, log, random
        self.plan = generation("0", program, self.views).plan(1)
        self.engine = LocalEngine(self.plan.kernels, stage=self.plan.stages[0])
        self.position = log.start()
        self.inputs = {view: self.plan.kernels.inputs[view] for view in self.views}
        self.listener = RecordingListener(self.inputs)
        self.delivery = OrderedDelivery(self.listener)
        self.before = [(self.engine.state, self.position)]
        # What is shown before anything has happened comes first.
        self._advance(self.position)

    def advance(self, commits: int) -> None:
        self._advance(self.log.after(self.position, BatchLimit(commits=commits)))

    def _advance(self, end: Position) -> None:
        start, work = self.engine.state.horizons, self.plan.stages[0]
        read = {s: self.log.read(s, self.position, end) for s in work.streams}
        batch = self.engine.advance(InputBatch({s: e for s, e in read.items() if e.num_rows}, end.named_horizons()))
        changes = dict(work.view_deltas(0, StageResult(self.engine.state.states, batch.deltas)))
        self.position = end
        self.before.append((self.engine.state, end))
        self.delivery.deliver(self.views, start, batch.horizons, changes, self.engine.snapshot)

    def shown(self) -> dict[str, dict[str, Json]]:
        horizons = self.engine.state.horizons
        return {
            view: {key_text(m): without_steps(m) for m in messages(source, self.engine.snapshot(view), horizons)}
            for view, source in self.inputs.items()
        }

    def go_back(self) -> None:
        kept = self.random.randint(1, len(self.before))
        self.before = self.before[:kept]
        self.engine.state, self.position = self.before[-1]
        if self.engine.state.version:
            self.delivery.restore(self.views, self.engine.state.horizons, self.engine.snapshot)
        else:
            self._advance(self.position)


@pytest.mark.parametrize("seed", seeds(100), ids=SEED_ID)
def test_whoever_goes_back_takes_nothing_back(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    program = random_program(random, 3)
    log = DurableLog.open_or_create(str(tmp_path / "log"), program.streams, flush=False)
    try:
        with small(random):
            Publishing(program, random, log).publish(16)
            going = RestartingEngine(program, log, random)
            for _ in range(12):
                if random.random() < 0.3:
                    going.go_back()
                else:
                    going.advance(random.randint(1, 4))
            going.advance(1000)
    except NotImplementedError:
        return  # an outer join whose rows would share a key: refused, and said so
    assert differences(going.listener, going.shown()) == []


def test_nothing_is_told_after_the_end(tmp_path: Path) -> None:
    random = Random(1)
    program = random_program(random, 1)
    log = DurableLog.open_or_create(str(tmp_path / "log"), program.streams, flush=False)
    going = RestartingEngine(program, log, random)
    going.delivery.close()
    before = dict(going.listener.horizons)
    Publishing(program, random, log).publish(5)
    going.advance(1000)
    assert going.listener.horizons == before
