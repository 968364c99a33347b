"""Type analysis: infers the monotonic type of every relation of a program. Each operator infers its own type from the
types of its inputs."""

import math
from dataclasses import replace
from functools import lru_cache

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, stream_heading
from smile.algebra.time_forms import START, time_constraints
from smile.algebra.types import BOOL, TICK_MAX, TIME, DataType
from smile.analysis.headings import Headings
from smile.knowledge.aggregate_types import value_count
from smile.knowledge.column_values import narrow_columns
from smile.knowledge.expression_types import RANGED_TYPES
from smile.knowledge.functional_dependencies import FunctionalDependencies
from smile.knowledge.seals import Seal, TimeConstraints
from smile.knowledge.symbolic import MAXTIME, ONE, ZERO, Bound, Interval, end_symbol
from smile.knowledge.types import ColumnType, MaskType, RelationType
from smile.operators.catalogue import operator_of


def stream_type(stream: mmpl.StreamDef) -> RelationType:
    heading = stream_heading(stream)
    columns = {}
    for name, data in heading.columns.items():
        domain = "key" if name == stream.tick else "once"
        mask = MaskType() if data == BOOL else None
        columns[name] = ColumnType(data, domain, _open_range(name, data), nullable=name != stream.tick, mask=mask)
    for check in stream.checks:
        columns = narrow_columns(columns, check, or_null=True, in_every_row=True)
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
    dependencies = FunctionalDependencies().add([stream.tick], columns)
    for unique in stream.unique:
        dependencies = dependencies.add(unique, columns, needs_values=True)
    return RelationType(
        heading, columns, MaskType(), ticks, ONE, ticks, seals, constraints, reach, dependencies=dependencies,
        has_early_rows=stream.many_origins,
    )  # fmt: skip


def _open_range(column: str, data: DataType) -> Interval | None:
    """The range of a column without checks: symbols for the ends."""
    if data.name not in RANGED_TYPES:
        return None
    if data == TIME:
        return Interval(ZERO, Bound.symbol(MAXTIME, TICK_MAX))
    return Interval(end_symbol("MIN", column, -math.inf), end_symbol("MAX", column, math.inf))


class TypeAnalysis:
    """The types of all relational expressions of one program. Each is computed once. `headings` are those of the
    program, if they are known."""

    def __init__(self, program: mmpl.Program, headings: Headings | None = None) -> None:
        self.headings = Headings.from_program(program) if headings is None else headings
        self.relations: dict[str, RelationType] = {}
        self.bodies: dict[str, mmpl.Rel] = {}
        self._types: dict[mmpl.Rel, RelationType] = {}
        self.add_definitions(program)

    def add_definitions(self, program: mmpl.Program) -> None:
        """Adds the streams and views that the program has more than before."""
        for stream in program.input_streams:
            if stream.name not in self.relations:
                self.relations[stream.name] = stream_type(stream)
        for view in program.all_views:
            if view.name not in self.relations:
                self.bodies[view.name] = view.body
                self.relations[view.name] = self.relation_type(view.body)

    def heading_of(self, rel: mmpl.Rel) -> Heading:
        return self.headings.heading_of(rel)

    def relation_type(self, rel: mmpl.Rel) -> RelationType:
        relation_type = self._types.get(rel)
        if relation_type is None:
            operator = operator_of(rel)
            relation_type = operator.relation_type(rel, self)
            if relation_type.displacement is not None and not operator.keeps_displacement:
                relation_type = replace(relation_type, displacement=None)
            if relation_type.sessions is not None and not operator.keeps_sessions:
                relation_type = replace(relation_type, sessions=None)
            self._types[rel] = relation_type
        return relation_type

    def named_type(self, ref: mmpl.RelationRef) -> RelationType:
        return self.relations[ref.name]

    def imported_type(self, rel: mmpl.Imported) -> RelationType:
        return _imported_type(rel.source)

    def without_added_columns(self, rel: mmpl.Rel) -> mmpl.Rel:
        while True:
            if isinstance(rel, mmpl.RelationRef) and rel.name in self.bodies:
                rel = self.bodies[rel.name]
            elif operator_of(rel).only_adds_columns:
                (rel,) = trees.inputs_of(rel)
            else:
                return rel


@lru_cache(maxsize=1024)
def exporting_analysis(import_: mmpl.ImportDef) -> TypeAnalysis:
    """The types of the program that the import is defined in."""
    return TypeAnalysis(import_.exporting_program)


@lru_cache(maxsize=1024)
def _imported_type(import_: mmpl.ImportDef) -> RelationType:
    """The type at the exporting broker. The horizons have names of their own, so that they are never mixed with those
    of the same stream that comes another way. A row that is hidden there is absent here."""
    type_ = exporting_analysis(import_).relations[import_.relation_name]
    return replace(
        type_,
        seals={import_.horizon_name(s): seal for s, seal in type_.seals.items()},
        reach={import_.horizon_name(s): distances for s, distances in type_.reach.items()},
        can_become_absent=type_.can_become_absent or not type_.never_leaves,
    )
