"""Type analysis: infers the monotonic type of every relation of a program. Each operator infers its own type from the
types of its inputs."""

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, stream_heading
from smile.algebra.types import BOOL
from smile.analysis.headings import Headings
from smile.knowledge.aggregate_types import value_count
from smile.knowledge.constraints import column_range, time_constraints
from smile.knowledge.seals import START, Seal, TimeConstraints
from smile.knowledge.symbolic import ONE
from smile.knowledge.types import ColumnType, MaskType, RelationType
from smile.operators.catalogue import operator_of


def stream_type(stream: mmpl.StreamDef) -> RelationType:
    heading = stream_heading(stream)
    non_null = {c.args[0] for c in stream.checks if isinstance(c, mmpl.Call) and c.function == "is not null"}
    columns = {}
    for name, data in heading.columns.items():
        nullable = name != stream.tick and mmpl.ColumnRef(name) not in non_null
        domain = "key" if name == stream.tick else "once"
        range_ = column_range(name, data, stream.checks)
        mask = MaskType() if data == BOOL else None
        columns[name] = ColumnType(data, domain, range_, ONE, nullable=nullable, mask=mask)
    nulls = {c: c for c, t in columns.items() if t.nullable}
    constraints = TimeConstraints().with_constraints(
        (t for check in stream.checks for t in time_constraints(check, heading.columns)), nulls
    )
    ticks = value_count(columns[stream.tick])
    tick_range = columns[stream.tick].range
    if tick_range is not None and isinstance(tick_range.hi.number, int):
        constraints = constraints.with_constraints([(stream.tick, START, tick_range.hi.number)])
    reach = constraints.extend_reach({stream.name: {stream.tick: 0}}, columns)
    seals = {stream.name: Seal.from_column(stream.tick)}
    return RelationType(heading, columns, MaskType(), ticks, ONE, ticks, seals, constraints, reach)


class TypeAnalysis:
    """The types of all relational expressions of one program. Each is computed once."""

    def __init__(self, program: mmpl.Program) -> None:
        self.headings = Headings.from_program(program)
        self.relations = {s.name: stream_type(s) for s in program.streams}
        self.bodies = {v.name: v.body for v in program.views}
        self._types: dict[mmpl.Rel, RelationType] = {}
        for view in program.views:
            self.relations[view.name] = self.relation_type(view.body)

    def heading_of(self, rel: mmpl.Rel) -> Heading:
        return self.headings.heading_of(rel)

    def relation_type(self, rel: mmpl.Rel) -> RelationType:
        relation_type = self._types.get(rel)
        if relation_type is None:
            relation_type = self._types[rel] = operator_of(rel).relation_type(rel, self)
        return relation_type

    def named_type(self, ref: mmpl.RelationRef) -> RelationType:
        return self.relations[ref.name]

    def without_added_columns(self, rel: mmpl.Rel) -> mmpl.Rel:
        while True:
            if isinstance(rel, mmpl.RelationRef) and rel.name in self.bodies:
                rel = self.bodies[rel.name]
            elif operator_of(rel).only_adds_columns:
                (rel,) = trees.inputs_of(rel)
            else:
                return rel
