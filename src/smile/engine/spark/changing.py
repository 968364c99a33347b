"""Views come and go while a pipeline runs.

A view that is added is filled from the log by a pipeline of its own, beside the one that goes on. Once it has caught
up, both stop where the other is, their states become one, and one pipeline goes on from there. A view that is dropped
takes with it what no other needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from smile.engine.spark.job import Generation
from smile.engine.spark.pipeline import Pipeline
from smile.engine.spark.standing import Standing, states_at
from smile.engine.spark.task import tables_of
from smile.errors import error
from smile.log.position import Position

FILLING = "filling"


def added(pipeline: Pipeline, generation: Generation) -> None:
    """The pipeline goes on with these views too. What they come to is delivered while they are filled; the others go on
    meanwhile, but for a moment in the end."""
    taken = {view for g in pipeline.job.generations for view in g.wanted}
    twice = sorted(taken & set(generation.wanted))
    if twice or generation.name in pipeline.job.plans:
        raise error("E020", f"the pipeline has {', '.join(twice) or generation.name} already")
    standing = Standing(f"{pipeline.standing.uri}/{FILLING}")
    if standing.generations() not in (None, (generation,)):
        # Left by one that was given up.
        standing.clear()
    job = standing.job(
        (generation,), pipeline.job.partitions, pipeline.job.log, pipeline.job.limit, pipeline.on_trouble
    )
    filling = Pipeline(pipeline.spark, standing, job, pipeline.deliver, pipeline.on_trouble, pipeline.turn)
    filling.start()
    try:
        filling.finish()
        filling.stop()
        pipeline.stop()
        last = max((pipeline.offset.position, filling.offset.position), key=lambda position: position.commit)
        for one in (pipeline, filling):
            _run_to(one, last)
        assert pipeline.offset.horizons == filling.offset.horizons, "both have taken in the same commits"
        both = (*pipeline.job.generations, generation)
        states = _together(states_at(pipeline.job, pipeline.offset), states_at(filling.job, filling.offset))
        _become(pipeline, both, states)
    finally:
        filling.stop()
        if not pipeline.is_running:
            pipeline.start()
    standing.clear()


def dropped(pipeline: Pipeline, views: Sequence[str]) -> None:
    """The pipeline goes on without these views."""
    unknown = sorted(set(views) - set(pipeline.views))
    if unknown:
        raise error("E021", f"the pipeline has no view {', '.join(unknown)}")
    kept = []
    for generation in pipeline.job.generations:
        wanted = tuple(view for view in generation.wanted if view not in views)
        if wanted:
            left = tuple(view for view in generation.kept if view in wanted)
            kept.append(replace(generation, wanted=wanted, kept=left))
    pipeline.stop()
    try:
        _become(pipeline, tuple(kept), states_at(pipeline.job, pipeline.offset))
    finally:
        pipeline.start()


def _run_to(pipeline: Pipeline, position: Position) -> None:
    """To this commit, and no further."""
    if pipeline.offset.position.commit < position.commit:
        pipeline.job = replace(pipeline.job, until=position.commit)
        try:
            pipeline.start(available_now=True)
            while not pipeline.wait():
                pass
        finally:
            pipeline.job = replace(pipeline.job, until=None)


States = Mapping[tuple[int, int], Mapping[str, Any]]


def _together(some: States, others: States) -> States:
    return {place: {**some.get(place, {}), **others.get(place, {})} for place in {*some, *others}}


def _become(pipeline: Pipeline, generations: tuple[Generation, ...], states: States) -> None:
    """A job of these generations, which remembers of these states what it needs, and goes on from where this one is."""
    offset = pipeline.offset
    job = replace(pipeline.job, generations=generations, state=pipeline.standing.next_folder())
    for (stage, partition), store in job.stores().items() if offset.number else ():
        found = tables_of(states.get((stage, partition), {}))
        store.save(offset.number, offset.horizons, {name: found[name] for name in job.shapes(stage)})
    pipeline.standing.settle(job)
    pipeline.job = job
