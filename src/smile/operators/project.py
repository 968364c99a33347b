"""PROJECT: some of the columns. Key columns that are not among them become hidden."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.heading import Heading, check_columns_exist, check_unique
from smile.knowledge.types import RelationType
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, RowWiseOperator, TypeLookup, input_cells


class ProjectOperator(RowWiseOperator[mmpl.Project]):
    keeps_displacement = True
    keeps_sessions = True

    def heading(self, rel: mmpl.Project, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_unique(rel.columns, rel.span)
        check_columns_exist(rel.columns, heading, rel.span)
        hidden = [c for c in heading.key if c not in rel.columns]
        columns = {c: heading.columns[c] for c in (*rel.columns, *hidden)}
        return replace(heading, columns=columns, hidden=frozenset(hidden))

    def relation_type(self, rel: mmpl.Project, lookup: TypeLookup) -> RelationType:
        """Seals are expressed by the columns that do not evolve."""
        source, heading = lookup.relation_type(rel.input), lookup.heading_of(rel)
        projected = {c: source.columns[c] for c in heading.columns}
        fixed = [c for c, t in projected.items() if not t.evolves]
        seals = {s: source.constraints.express_seal(seal, fixed) for s, seal in source.seals.items()}
        constraints, reach = source.constraints.project(fixed), source.constraints.extend_reach(source.reach, fixed)
        return replace(
            source, heading=heading, columns=projected, seals=seals, constraints=constraints, reach=reach,
            dependencies=source.dependencies.project(fixed, source.nullable_columns),
            displacement=source.displacement and source.displacement.project(projected),
            sessions=source.sessions and source.sessions.project(projected),
        )  # fmt: skip

    def bottom_row(self, rel: mmpl.Project, lookup: BottomRowLookup) -> BottomRow:
        return input_cells(rel, lookup)
