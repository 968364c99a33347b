"""Views come and go while a pipeline runs.

A view that is added is filled from the log by a pipeline of its own, beside the one that goes on. Once it has caught
up, both stop where the other is, their states become one, and one pipeline goes on from there. A view that is dropped
takes with it what no other needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from smile.engine.generation import Generation
from smile.engine.spark.pipeline import Pipeline
from smile.engine.spark.planning import Offset
from smile.engine.spark.standing import Standing, States, states_at
from smile.errors import error
from smile.log.position import Log, Position

FILLING = "filling"


@dataclass
class Filling:
    """Views on their way to a pipeline that goes on meanwhile: `own` is the pipeline that fills them."""

    pipeline: Pipeline
    generation: Generation
    own: Pipeline

    @staticmethod
    def begun(pipeline: Pipeline, generation: Generation) -> "Filling":
        """It goes on from where an earlier try to fill the same views had come."""
        standing, job = Standing(f"{pipeline.standing.uri}/{FILLING}"), pipeline.job
        if standing.generations() not in (None, (generation,)):
            # Left by one that was given up.
            standing.clear()
        own = standing.job((generation,), job.partitions, job.log, job.limit, pipeline.on_trouble)
        filling = Pipeline(pipeline.spark, standing, own, pipeline.deliver, pipeline.on_trouble, pipeline.turn)
        return Filling(pipeline, generation, filling)

    def look(self) -> bool:
        """Whether it has caught up; trouble of either pipeline is met."""
        self.pipeline.look()
        self.own.look()
        return self.own.is_done

    def join(self) -> None:
        """Both stop where the other is, and one goes on for both."""
        pipeline, own = self.pipeline, self.own
        own.stop()
        pipeline.stop()
        last = max((pipeline.offset.position, own.offset.position), key=lambda position: position.commit)
        for one in (pipeline, own):
            _run_to(one, last)
        assert pipeline.offset.horizons == own.offset.horizons, "both have taken in the same commits"
        states = _together(states_at(pipeline.job, pipeline.offset), states_at(own.job, own.offset))
        generations = (*pipeline.job.generations, self.generation)
        pipeline.job = pipeline.standing.become(pipeline.job, pipeline.offset, generations, states)
        pipeline.start()
        own.standing.clear()

    def give_up(self) -> None:
        self.own.stop()
        self.own.standing.clear()


def added(pipeline: Pipeline, generation: Generation) -> None:
    """The pipeline goes on with these views too. What they come to is delivered while they are filled; the others go on
    meanwhile, but for a moment in the end."""
    refuse_twice(pipeline.job.generations, generation)
    filling = Filling.begun(pipeline, generation)
    filling.own.start()
    try:
        while not filling.look():
            filling.own.await_move(0.2)
        filling.join()
    finally:
        filling.own.stop()
        if not pipeline.is_running:
            pipeline.start()


def refuse_twice(generations: Sequence[Generation], generation: Generation) -> None:
    """A view, or a generation's name, that there is already."""
    twice = sorted({view for g in generations for view in g.wanted} & set(generation.wanted))
    if twice or generation.name in {g.name for g in generations}:
        raise error("E020", f"the pipeline has {', '.join(twice) or generation.name} already")


def widened(pipeline: Pipeline, log: Log) -> None:
    """The pipeline goes on with this log, which may have more streams."""
    pipeline.job = replace(pipeline.job, log=log)
    if set(log.streams) == set(pipeline.offset.position.horizons):
        return
    pipeline.stop()
    offset = pipeline.offset
    pipeline.offset = Offset(offset.number, log.resumed(offset.horizons) if offset.number else log.start())
    pipeline.start()


def dropped(pipeline: Pipeline, views: Sequence[str]) -> None:
    """The pipeline goes on without these views."""
    unknown = sorted(set(views) - set(pipeline.views))
    if unknown:
        raise error("E021", f"the pipeline has no view {', '.join(unknown)}")
    pipeline.stop()
    try:
        kept, states = without(pipeline.job.generations, views), states_at(pipeline.job, pipeline.offset)
        pipeline.job = pipeline.standing.become(pipeline.job, pipeline.offset, kept, states)
    finally:
        pipeline.start()


def without(generations: Sequence[Generation], views: Sequence[str]) -> tuple[Generation, ...]:
    """What is left of generations once these views are dropped."""
    left = []
    for generation in generations:
        wanted = tuple(view for view in generation.wanted if view not in views)
        if wanted:
            kept = tuple(view for view in generation.kept if view in wanted)
            left.append(replace(generation, wanted=wanted, kept=kept))
    return tuple(left)


def _run_to(pipeline: Pipeline, position: Position) -> None:
    """To this commit, and no further."""
    if not pipeline.offset.number or pipeline.offset.position.commit < position.commit:
        pipeline.job = replace(pipeline.job, until=position.commit)
        try:
            pipeline.start(available_now=True)
            while not pipeline.wait():
                pass
        finally:
            pipeline.job = replace(pipeline.job, until=None)


def _together(some: States, others: States) -> States:
    return {place: {**some.get(place, {}), **others.get(place, {})} for place in {*some, *others}}
