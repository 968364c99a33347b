"""RENAME: other names for columns, all at once."""

from collections.abc import Mapping
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.heading import Heading, check_columns_exist, check_unique
from smile.knowledge.types import RelationType
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, RowWiseOperator, TypeLookup


class RenameOperator(RowWiseOperator[mmpl.Rename]):
    keeps_displacement = True
    keeps_sessions = True

    def heading(self, rel: mmpl.Rename, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist((old for old, _ in rel.pairs), heading, rel.span)
        check_unique((old for old, _ in rel.pairs), rel.span)
        new_names = dict(rel.pairs)
        names = tuple(new_names.get(c, c) for c in heading.columns)
        check_unique(names, rel.span)
        return Heading(
            dict(zip(names, heading.columns.values(), strict=True)),
            tuple(new_names.get(c, c) for c in heading.key),
            frozenset(new_names.get(c, c) for c in heading.hidden),
            tuple(new_names.get(c, c) for c in heading.tick),
            heading.total,
        )

    def relation_type(self, rel: mmpl.Rename, lookup: TypeLookup) -> RelationType:
        source, new_names = lookup.relation_type(rel.input), dict(rel.pairs)
        return replace(
            source,
            heading=lookup.heading_of(rel),
            columns={new_names.get(n, n): c for n, c in source.columns.items()},
            seals={s: seal.rename(new_names) for s, seal in source.seals.items()},
            constraints=source.constraints.rename(new_names),
            dependencies=source.dependencies.rename(new_names),
            displacement=source.displacement and source.displacement.rename(new_names),
            sessions=source.sessions and source.sessions.rename(new_names),
            reach={s: {new_names.get(c, c): d for c, d in distances.items()} for s, distances in source.reach.items()},
        )

    def bottom_row(self, rel: mmpl.Rename, lookup: BottomRowLookup) -> BottomRow:
        new_names = dict(rel.pairs)
        return {new_names.get(c, c): cell for c, cell in lookup.bottom_row(rel.input).items()}

    def new_names(self, rel: mmpl.Rename) -> Mapping[str, str]:
        return dict(rel.pairs)
