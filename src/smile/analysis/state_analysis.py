"""The state of every transform of a program, as its operators describe it. A transform without an entry keeps none."""

from smile.algebra import mmpl, trees
from smile.analysis.type_analysis import TypeAnalysis, exporting_analysis
from smile.knowledge.state_retention import StateRetention, UnboundedState, unbounded_columns
from smile.knowledge.types import RelationType
from smile.operators.catalogue import operator_of


class StateAnalysis:
    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis) -> None:
        self.analysis = analysis
        self.bodies = {v.name: v.body for v in program.all_views}
        self.subscribed = {self.bodies[n] for n in program.subscriptions if n in self.bodies}
        self.readers: dict[mmpl.Rel, list[mmpl.Rel]] = {}
        for view in program.all_views:
            for node in trees.walk(view.body):
                for source in trees.inputs_of(node):
                    self.readers.setdefault(self.resolve_ref(source), []).append(node)

    def state_of(self, rel: mmpl.Rel) -> list[StateRetention]:
        return operator_of(rel).state(rel, self)

    def relation_type(self, rel: mmpl.Rel) -> RelationType:
        return self.analysis.relation_type(rel)

    def resolve_ref(self, rel: mmpl.Rel) -> mmpl.Rel:
        while isinstance(rel, mmpl.RelationRef) and rel.name in self.bodies:
            rel = self.bodies[rel.name]
        return rel

    def row_state(self, description: str, rel: mmpl.Rel, stream: str) -> StateRetention:
        if self.is_transient(rel):
            return StateRetention(description, "it is hidden for good")
        return StateRetention(description, "the end", self.unbounded_rows(rel, stream))

    def unbounded_rows(self, rel: mmpl.Rel, stream: str) -> UnboundedState | None:
        type_ = self.relation_type(rel)
        return None if self.has_stored_groups(rel) else unbounded_columns(type_, type_.heading.key, stream)

    def has_stored_groups(self, rel: mmpl.Rel) -> bool:
        rel = self.resolve_ref(rel)
        while operator_of(rel).has_rows_of_input:
            rel = self.resolve_ref(trees.inputs_of(rel)[0])
        return operator_of(rel).stores_groups and all(s.until == "the end" for s in self.state_of(rel))

    def is_transient(self, rel: mmpl.Rel) -> bool:
        mask = self.relation_type(rel).mask
        return mask.falls_for_good and (not mask.can_be_final_true or self._has_expiring_rows(rel))

    def _has_expiring_rows(self, rel: mmpl.Rel) -> bool:
        """Whether every row is hidden as time passes."""
        rel = self.resolve_ref(rel)
        if isinstance(rel, mmpl.Imported):
            exporting = StateAnalysis(rel.source.exporting_program, exporting_analysis(rel.source))
            return exporting._has_expiring_rows(mmpl.RelationRef(rel.source.relation_name))
        return operator_of(rel).has_expiring_rows(rel, [self._has_expiring_rows(i) for i in trees.inputs_of(rel)])

    def hiding_condition(self, rel: mmpl.Rel, of_group: bool = False) -> str | None:
        readers = list(dict.fromkeys(self.readers.get(rel, [])))
        if rel in self.subscribed or len(readers) != 1:
            return None
        (reader,) = readers
        return operator_of(reader).hiding_condition(reader, rel, of_group, self)

    def view_name(self, rel: mmpl.Rel) -> str:
        node = rel
        while node not in self.bodies.values():
            node = self.readers[node][0]
        return next(n for n, b in self.bodies.items() if b == node)
