"""States cut anew, for the same program in another number of partitions: each row goes to the partition where the new
plan reads it.

What a row is routed by stands beside it in every table, under the names that the transform's origins say. So all
partitions of the old plan together have all that those of the new one are to have.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.columns.values import Array, places_of
from smile.engine.plan import Plan, States, partition_of
from smile.graph.stages import Columns
from smile.kernels.transform import Origin, State
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

Places = Mapping[tuple[int, int], States]
"""What is remembered, by the number of a stage and a partition."""


def repartitioned(old: Plan, new: Plan, states: Places) -> dict[tuple[int, int], States]:
    """What would be remembered now, had the new plan been there from the first."""
    remembered = _by_transform(old, states)
    found = {(work.number, p): dict(work.nothing()) for work in new.stages for p in range(new.partitions)}
    for work in new.stages:
        for name, reads in work.reads.items():
            transform = new.kernels.transforms[name]
            by = [read.by for read in reads]
            cut: list[dict[str, Table]] = [{} for _ in range(new.partitions)]
            for table, shape in transform.shapes.items():
                rows = _together(shape, [state[table] for state in remembered[name]])
                targets = _targets(rows, transform.origins.get(table, Origin()), by, new.partitions)
                for p, state in enumerate(cut):
                    state[table] = _table(shape, rows.take(places_of(targets == p)))
            if transform.shapes:
                for p, state in enumerate(cut):
                    found[work.number, p][name] = state
    return dict(found)


def _by_transform(old: Plan, states: Places) -> dict[str, list[State]]:
    """What each transform remembers in each partition. Keys of what is to be forgotten have not all that they would be
    routed by, so nothing is left waiting: forgetting early tells nobody anything else."""
    found: dict[str, list[State]] = {}
    for work in old.stages:
        for p in range(old.partitions):
            here = dict(states[work.number, p])
            for forgetful in work.forgetful:
                forgetful.forget_waiting(here)
            for name in work.reads:
                if name in here:
                    found.setdefault(name, []).append(here[name])
    return found


def _together(shape: Shape, tables: Sequence[Table]) -> Gathered:
    """All rows of tables that have no key in common."""
    whole = Table(shape, tuple(run for table in tables for run in table.runs))
    run_of, place, runs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for table in tables:
        rows = table.scan()
        run_of.append(rows.run_of + runs)
        place.append(rows.place)
        runs += len(table.runs)
    return Gathered(whole, np.concatenate(run_of), np.concatenate(place))


def _targets(rows: Gathered, origin: Origin, reads: Sequence[Columns | None], partitions: int) -> Array:
    """The partition that each row goes to."""
    by = reads[origin.input]
    if partitions == 1 or by == ():
        return np.zeros(len(rows), np.int64)
    assert by is not None, "rows that are remembered are read by columns of theirs"
    return partition_of([rows[origin.column(c)] for c in by], len(rows), partitions)


def _table(shape: Shape, rows: Gathered) -> Table:
    """In one run. A column that no row has anything in is left out, as it was."""
    if not len(rows):
        return Table(shape)
    columns = {name: rows.get(name) for name in shape.columns}
    return Table(shape).updated({name: column for name, column in columns.items() if column is not None})
