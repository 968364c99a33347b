"""States cut anew, for the same program in another number of partitions: each row goes to the partition where the new
plan reads it.

What a row is routed by stands beside it in every table, under the names that the transform's origins say. So all
partitions of the old plan together have all that those of the new one are to have.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.columns.values import Array, true_indices
from smile.engine.plan import Plan, TransformStates, partition_of
from smile.graph.stages import ColumnNames
from smile.kernels.transform import State, TableSource
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

StatesByPartition = Mapping[tuple[int, int], TransformStates]
"""What is remembered, by the number of a stage and a partition."""


def repartition_states(old: Plan, new: Plan, states: StatesByPartition) -> dict[tuple[int, int], TransformStates]:
    """What would be remembered now, had the new plan been there from the first."""
    old_states = _states_by_transform(old, states)
    new_states = {(stage.number, p): dict(stage.empty_states()) for stage in new.stages for p in range(new.partitions)}
    for stage in new.stages:
        for name, reads in stage.reads.items():
            transform = new.kernels.transforms[name]
            by = [read.columns for read in reads]
            parts: list[dict[str, StateTable]] = [{} for _ in range(new.partitions)]
            for table, schema in transform.table_schemas.items():
                rows = _concat_tables(schema, [state[table] for state in old_states[name]])
                targets = _target_partitions(
                    rows, transform.table_sources.get(table, TableSource()), by, new.partitions
                )
                for p, state in enumerate(parts):
                    state[table] = _build_table(schema, rows.take(true_indices(targets == p)))
            if transform.table_schemas:
                for p, state in enumerate(parts):
                    new_states[stage.number, p][name] = state
    return dict(new_states)


def _states_by_transform(old: Plan, states: StatesByPartition) -> dict[str, list[State]]:
    """What each transform remembers in each partition. Keys of what is to be forgotten have not all that they would be
    routed by, so nothing is left waiting: forgetting early tells nobody anything else."""
    by_transform: dict[str, list[State]] = {}
    for stage in old.stages:
        for p in range(old.partitions):
            partition_states = dict(states[stage.number, p])
            for rule in stage.expiry_rules:
                rule.expire_pending(partition_states)
            for name in stage.reads:
                if name in partition_states:
                    by_transform.setdefault(name, []).append(partition_states[name])
    return by_transform


def _concat_tables(schema: TableSchema, tables: Sequence[StateTable]) -> RowLookup:
    """All rows of tables that have no key in common."""
    combined = StateTable(schema, tuple(run for table in tables for run in table.runs))
    run_of, row_numbers, run_count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for table in tables:
        rows = table.scan()
        run_of.append(rows.run_numbers + run_count)
        row_numbers.append(rows.row_numbers)
        run_count += len(table.runs)
    return RowLookup(combined, np.concatenate(run_of), np.concatenate(row_numbers))


def _target_partitions(
    rows: RowLookup, origin: TableSource, reads: Sequence[ColumnNames | None], partitions: int
) -> Array:
    """The partition that each row goes to."""
    by = reads[origin.input_number]
    if partitions == 1 or by == ():
        return np.zeros(rows.row_count, np.int64)
    assert by is not None, "rows that are remembered are read by columns of theirs"
    return partition_of([rows[origin.stored_name(c)] for c in by], rows.row_count, partitions)


def _build_table(schema: TableSchema, rows: RowLookup) -> StateTable:
    """In one run. A column that no row has anything in is left out, as it was."""
    if not rows.row_count:
        return StateTable(schema)
    columns = {name: rows.stored_column_or_none(name) for name in schema.columns}
    return StateTable(schema).with_rows({name: column for name, column in columns.items() if column is not None})
