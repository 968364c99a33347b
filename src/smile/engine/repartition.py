"""Repartitions state: moves each row of the old partitions to the partition where the new plan reads it.

Every table contains the columns that its rows are routed by, under the names in the transform's `table_sources`.
So the union of all old partitions is the union of all new ones.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra.heading import ColumnNames
from smile.columns.values import Array, true_indices
from smile.engine.plan import Plan, TransformStates, partition_of
from smile.kernels.transform import State, TableSource
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

StatesByPartition = Mapping[tuple[int, int], TransformStates]
"""States by stage number and partition."""


def repartition_states(old: Plan, new: Plan, states: StatesByPartition) -> dict[tuple[int, int], TransformStates]:
    """The states as they would be if the new plan had been used from the beginning."""
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
    """The state of each transform in each partition. Keys that wait for expiry lack routing columns, so they cannot be
    moved. They are expired here instead; expiring early does not change any output."""
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
    """All rows of several tables, which have no key in common."""
    combined = StateTable(schema, tuple(run for table in tables for run in table.runs))
    run_of, row_numbers, run_count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for table in tables:
        rows = table.scan()
        run_of.append(rows.run_numbers + run_count)
        row_numbers.append(rows.row_numbers)
        run_count += len(table.runs)
    return RowLookup(combined, np.concatenate(run_of), np.concatenate(row_numbers))


def _target_partitions(
    rows: RowLookup, source: TableSource, reads: Sequence[ColumnNames | None], partitions: int
) -> Array:
    """The target partition of each row."""
    by = reads[source.input_number]
    if partitions == 1 or by == ():
        return np.zeros(rows.row_count, np.int64)
    assert by is not None, "the input of a transform with state is partitioned by columns"
    return partition_of([rows[source.stored_name(c)] for c in by], rows.row_count, partitions)


def _build_table(schema: TableSchema, rows: RowLookup) -> StateTable:
    """A table with one run. A column that is absent from all rows stays absent."""
    if not rows.row_count:
        return StateTable(schema)
    columns = {name: rows.stored_column_or_none(name) for name in schema.columns}
    return StateTable(schema).with_rows({name: column for name, column in columns.items() if column is not None})
