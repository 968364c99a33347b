"""Expiry of upstream state: removes rows after a restriction has permanently hidden everything that depends on them.

An append-only row that is joined to the single row of an aggregate occurs only once. When a restriction above the join
hides it permanently, neither the row nor its group is needed again, because there is no second event with its tick.
A row of a total relation is an exception: its default row can be joined before the row itself comes.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.algebra.heading import is_key_equated
from smile.columns import masks
from smile.columns.values import ValueColumn, concat, true_indices
from smile.graph.knowledge_graph import KnowledgeGraph, TransformObject
from smile.kernels.delta import Delta
from smile.kernels.row_encoding import stored_column
from smile.kernels.row_wise import RestrictTransform
from smile.kernels.transform import InputRelation, State, Transform
from smile.state.run import TableRows, TableSchema
from smile.state.table import StateTable


@dataclass(frozen=True)
class ExpiryTarget:
    """A table from which rows expire. `columns`: the columns of the restriction's input that give the table's key."""

    transform: str
    table: str
    columns: tuple[str, ...]


PENDING_KEYS = "keys"

PENDING_ROWS_MAX = 2_000
"""Expired keys are collected up to this number: deleting a few rows takes about as long as deleting many."""


@dataclass(frozen=True)
class ExpiryRule:
    """`source` is the relation that `restrict` reads. The keys of expired rows are collected in a table under `name`
    until there are enough of them."""

    name: str
    restrict: RestrictTransform
    source: str
    targets: tuple[ExpiryTarget, ...]
    schema: TableSchema

    def expire(self, states: MutableMapping[str, State], deltas: Mapping[str, Delta]) -> None:
        """Collects the keys of rows that no later batch needs. Deletes the rows from `states` if there are enough."""
        delta = deltas.get(self.source)
        if delta is None:
            return
        hidden_rows = true_indices(masks.is_permanently_hidden(self.restrict.compute_masks(delta)))
        if not len(hidden_rows):
            return
        pending = states[self.name][PENDING_KEYS]
        keys = {c: delta.fixed[c].take(hidden_rows) for c in self.schema.columns}
        if sum(len(run) for run in pending.runs) + len(hidden_rows) < PENDING_ROWS_MAX:
            states[self.name] = {PENDING_KEYS: pending.with_rows(keys)}
            return
        pending_rows = pending.scan()
        self._delete_rows(states, {c: concat([pending_rows[c], column]) for c, column in keys.items()})

    def expire_pending(self, states: MutableMapping[str, State]) -> None:
        """Deletes all collected rows now."""
        pending = states[self.name][PENDING_KEYS].scan()
        if pending.row_count:
            self._delete_rows(states, pending)

    def _delete_rows(self, states: MutableMapping[str, State], keys: TableRows) -> None:
        for target in self.targets:
            state = states[target.transform]
            key = [keys[c] for c in target.columns]
            states[target.transform] = {**state, target.table: _without_keys(state[target.table], key)}
        states[self.name] = {PENDING_KEYS: StateTable(self.schema)}


def _without_keys(table: StateTable, key: list[ValueColumn]) -> StateTable:
    is_present, rows = table.find(key)
    if not is_present.any():
        return table
    return table.without_rows(rows if is_present.all() else rows.take(true_indices(is_present)))


def find_expiry_rules(
    graph: KnowledgeGraph, inputs: Mapping[str, InputRelation], transforms: Mapping[str, Transform]
) -> tuple[ExpiryRule, ...]:
    """All expiry rules of a graph."""
    finder = _ExpiryRuleFinder(graph, inputs, transforms)
    rules = (finder.find_rule(t) for t in graph.transforms if isinstance(t.rel, mmpl.Restrict))
    return tuple(rule for rule in rules if rule is not None)


class _ExpiryRuleFinder:
    def __init__(
        self, graph: KnowledgeGraph, inputs: Mapping[str, InputRelation], transforms: Mapping[str, Transform]
    ) -> None:
        self.graph, self.inputs, self.transforms = graph, inputs, transforms
        self.reader_counts: dict[str, int] = {}
        for transform in graph.transforms:
            for name in transform.inputs:
                self.reader_counts[name] = self.reader_counts.get(name, 0) + 1

    def find_rule(self, restriction: TransformObject) -> ExpiryRule | None:
        restrict = self.transforms[restriction.output]
        assert isinstance(restrict, RestrictTransform)
        (source,) = restriction.inputs
        if restrict.predicate.kind == "exact":
            return None
        names = {c: c for c in self.inputs[source].layout.fixed}
        join, names = self._skip_row_wise(source, names)
        if join is None or not isinstance(join.rel, mmpl.Join):
            return None
        targets = self._join_targets(join, join.rel, names)
        if not targets:
            return None
        types = self.inputs[source].layout.fixed
        columns = {c: arrow_type(types[c]) for target in targets for c in target.columns}
        return ExpiryRule(f"{source} spent", restrict, source, targets, TableSchema(tuple(columns), columns))

    def _skip_row_wise(self, name: str, names: dict[str, str]) -> tuple[TransformObject | None, dict[str, str]]:
        """The first transform upstream that is not row-wise, if no other transform or subscription reads the relations
        in between; and for each of its columns, the column of the starting relation."""
        while self.reader_counts.get(name) == 1 and not self.graph.relations[name].subscribed:
            transform = self.graph.transform_by_output.get(name)
            if transform is None:
                return None, names
            match transform.rel:
                case mmpl.Rename():
                    old_names = {new: c for c, new in transform.rel.pairs}
                    names = {old_names.get(c, c): top for c, top in names.items()}
                case mmpl.Extend():
                    added = {c for c, _ in transform.rel.assignments}
                    names = {c: top for c, top in names.items() if c not in added}
                case mmpl.RelationRef() | mmpl.Restrict() | mmpl.Project():
                    pass
                case _:
                    return transform, names
            (name,) = transform.inputs
        return None, names

    def _join_targets(
        self, transform: TransformObject, rel: mmpl.Join, names: Mapping[str, str]
    ) -> tuple[ExpiryTarget, ...]:
        left, right = (self.inputs[i] for i in transform.inputs)
        on = dict(rel.on)
        has_whole_key = is_key_equated(right.type.heading, list(on.values()))
        if rel.kind not in ("inner", "left") or not has_whole_key or not left.type.is_append_only:
            return ()
        if left.type.heading.total and is_key_equated(left.type.heading, list(on)):
            # A row of the join can have the default row on the left, and the row that replaces it can still come.
            return ()
        if any(c not in names for c in left.layout.key):
            return ()
        targets = self._table_targets(transform.output, "left", [names[c] for c in left.layout.key])
        right_names = {b: names[a] for a, b in rel.on if a in names}
        if set(on) != set(left.type.heading.key) or any(c not in right_names for c in right.layout.key):
            # Other left rows can look up the same right row.
            return targets
        group, group_names = self._skip_row_wise(right.name, right_names)
        if group is None or not isinstance(group.rel, mmpl.Summarize):
            return targets
        per = [group_names[c] for c in group.rel.per if c in group_names]
        if len(per) < len(group.rel.per):
            return targets
        targets += self._table_targets(transform.output, "right", [right_names[c] for c in right.layout.key])
        schemas = self.transforms[group.output].table_schemas
        tables_by_key = [n for n, schema in schemas.items() if schema.key == tuple(map(stored_column, group.rel.per))]
        # If aggregates have more tables than the one row per group, the group does not expire: this only costs space.
        return targets + (
            self._table_targets(group.output, tables_by_key[0], per) if len(schemas) == len(tables_by_key) == 1 else ()
        )

    def _table_targets(self, transform: str, table: str, columns: list[str]) -> tuple[ExpiryTarget, ...]:
        if table not in self.transforms[transform].table_schemas:
            return ()
        return (ExpiryTarget(transform, table, tuple(columns)),)
