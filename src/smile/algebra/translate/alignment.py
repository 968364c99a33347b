"""Branches of a UNION or a MERGE, made alike: the first one's names, by position, and the types they have in common."""

from collections.abc import Sequence

from smile.algebra import mmpl
from smile.algebra.coercions import common_type
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.outputs import Output, projected
from smile.algebra.translate.pipeline import Catalog, Pipeline
from smile.algebra.translate.scope import Scope, free_name
from smile.algebra.types import NULL, STRING, DataType
from smile.errors import error
from smile.source import Span

Shape = Sequence[tuple[str, DataType]]
"""The visible columns of a branch."""

BRANCH = "branch"


def shape_of(rel: mmpl.Rel, catalog: Catalog) -> Shape:
    heading = catalog.headings.of(rel)
    return [(c, heading.columns[c]) for c in heading.visible]


def common_types(what: str, shapes: Sequence[Shape], spans: Sequence[Span | None]) -> list[DataType]:
    names = [name for name, _ in shapes[0]]
    types = [type for _, type in shapes[0]]
    for shape, span in zip(shapes, spans, strict=True):
        if len(shape) != len(types):
            raise error("E044", f"{what} needs {len(types)} columns, this has {len(shape)}", span)
        for i, (_, type) in enumerate(shape):
            common = common_type(types[i], type)
            if common is None:
                raise error("E030", f"{what} of {types[i]} and {type} in column {names[i]}", span)
            types[i] = common
    return [STRING if t == NULL else t for t in types]


def aligned(
    rel: mmpl.Rel, names: Sequence[str], types: Sequence[DataType], span: Span | None, catalog: Catalog
) -> mmpl.Rel:
    """A branch with these names and types."""
    pipeline = Pipeline(rel, Scope(), catalog)
    casts = Expressions(Scope(), pipeline.column_type)
    outputs = []
    for name, (column, own), type in zip(names, shape_of(rel, catalog), types, strict=True):
        outputs.append(Output(name, Typed(casts.coerce(Typed(mmpl.Column(column), own), type, span), type), span))
    return projected(pipeline, outputs, span)


def inner_names(names: Sequence[str]) -> list[str]:
    """What a UNION's columns are called inside it: MMPL has a hidden column `branch` there."""
    return [free_name("branch_", names) if n == BRANCH else n for n in names]


def union_all(branches: Sequence[mmpl.Rel], names: Sequence[str], catalog: Catalog, span: Span | None) -> mmpl.Rel:
    """UNION ALL of branches that have the inner names; hidden columns that would clash are told apart."""
    inner = inner_names(names)
    hidden: dict[str, DataType] = {}
    apart = []
    for rel in branches:
        heading, new = catalog.headings.of(rel), {}
        for c in sorted(heading.hidden):
            type = heading.columns[c]
            if c in inner or c == BRANCH or hidden.get(c, type) != type:
                new[c] = free_name(c, {*inner, *heading.columns, *hidden, BRANCH})
            hidden[new.get(c, c)] = type
        apart.append(mmpl.Rename(rel, tuple(new.items()), span=rel.span) if new else rel)
    union: mmpl.Rel = mmpl.Union(tuple(apart), span=span)
    if BRANCH not in names:
        return union
    outer = free_name("union.branch", catalog.headings.of(union).columns)
    return mmpl.Rename(union, ((BRANCH, outer), *((i, n) for i, n in zip(inner, names, strict=True) if i != n)))
