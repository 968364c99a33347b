"""Gives the branches of a UNION or MERGE the same columns, by position: the names of the first and the common types."""

from collections.abc import Sequence

from smile.algebra import mmpl
from smile.algebra.coercions import common_type
from smile.algebra.types import NULL, STRING, DataType
from smile.errors import error
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.outputs import SelectOutput, project_outputs
from smile.translate.pipeline import Catalog, QueryPipeline
from smile.translate.scope import Scope, free_name

BranchColumns = Sequence[tuple[str, DataType]]
"""The visible columns of a branch."""

BRANCH_COLUMN = "branch"


def visible_columns(rel: mmpl.Rel, catalog: Catalog) -> BranchColumns:
    heading = catalog.headings.heading_of(rel)
    return [(c, heading.columns[c]) for c in heading.visible]


def common_types(operator: str, branches: Sequence[BranchColumns], spans: Sequence[Span | None]) -> list[DataType]:
    names = [name for name, _ in branches[0]]
    types = [type for _, type in branches[0]]
    for columns, span in zip(branches, spans, strict=True):
        if len(columns) != len(types):
            raise error("E044", f"{operator} needs {len(types)} columns, but this relation has {len(columns)}", span)
        for i, (_, type) in enumerate(columns):
            common = common_type(types[i], type)
            if common is None:
                raise error("E030", f"{operator} of {types[i]} and {type} in column {names[i]}", span)
            types[i] = common
    return [STRING if t == NULL else t for t in types]


def align_branch(
    rel: mmpl.Rel, names: Sequence[str], types: Sequence[DataType], span: Span | None, catalog: Catalog
) -> mmpl.Rel:
    """The branch with these names and types of its columns."""
    pipeline = QueryPipeline(rel, Scope(), catalog)
    translator = ExpressionTranslator(Scope(), pipeline.column_type)
    outputs = []
    for name, (column, own_type), type in zip(names, visible_columns(rel, catalog), types, strict=True):
        outputs.append(
            SelectOutput(
                name, TypedExpr(translator.coerce(TypedExpr(mmpl.ColumnRef(column), own_type), type, span), type), span
            )
        )
    return project_outputs(pipeline, outputs, span)


def names_inside_union(names: Sequence[str]) -> list[str]:
    """The names of the columns within a UNION, where MMPL has a hidden column `branch`."""
    return [free_name("branch_", names) if n == BRANCH_COLUMN else n for n in names]


def union_with_branch(
    branches: Sequence[mmpl.Rel], names_inside: Sequence[str], catalog: Catalog, span: Span | None
) -> mmpl.Union:
    """All rows of the branches, with the hidden column `branch`. Clashing hidden columns are renamed."""
    hidden: dict[str, DataType] = {}
    renamed = []
    for rel in _with_fixed_keys(branches, names_inside, catalog):
        heading, new_names = catalog.headings.heading_of(rel), {}
        for c in sorted(heading.hidden):
            type = heading.columns[c]
            if c in names_inside or c == BRANCH_COLUMN or hidden.get(c, type) != type:
                new_names[c] = free_name(c, {*names_inside, *heading.columns, *hidden, BRANCH_COLUMN})
            hidden[new_names.get(c, c)] = type
        renamed.append(mmpl.Rename(rel, tuple(new_names.items()), span=rel.span) if new_names else rel)
    return mmpl.Union(tuple(renamed), span=span)


def _with_fixed_keys(branches: Sequence[mmpl.Rel], names: Sequence[str], catalog: Catalog) -> list[mmpl.Rel]:
    """Where a column evolves in one branch and is part of the key of another, the key has a hidden copy of it."""
    if catalog.types is None:
        return list(branches)
    types = [catalog.types().relation_type(rel) for rel in branches]
    evolving = [n for n in names if any(t.columns[n].evolves for t in types)]
    fixed: list[mmpl.Rel] = []
    for rel, type in zip(branches, types, strict=True):
        pipeline = QueryPipeline(rel, Scope(), catalog)
        copies = {n: pipeline.add_copy(n, n, rel.span) for n in evolving if n in type.heading.key}
        outputs = [
            SelectOutput(n, TypedExpr(mmpl.ColumnRef(copies.get(n, n)), type.heading.columns[n]), rel.span)
            for n in names
        ]
        fixed.append(project_outputs(pipeline, outputs, rel.span) if copies else rel)
    return fixed


def union_all(branches: Sequence[mmpl.Rel], names: Sequence[str], catalog: Catalog, span: Span | None) -> mmpl.Rel:
    """UNION ALL of branches with the names of `names_inside_union`."""
    names_inside = names_inside_union(names)
    union = union_with_branch(branches, names_inside, catalog, span)
    if BRANCH_COLUMN not in names:
        return union
    outer = free_name("union.branch", catalog.headings.heading_of(union).columns)
    return mmpl.Rename(
        union, ((BRANCH_COLUMN, outer), *((i, n) for i, n in zip(names_inside, names, strict=True) if i != n))
    )
