"""Branches of a UNION or a MERGE, made alike: the first one's names, by position, and the types they have in common."""

from collections.abc import Sequence

from smile.algebra import mmpl
from smile.algebra.coercions import common_type
from smile.algebra.heading import Heading
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.outputs import Output, projected
from smile.algebra.translate.pipeline import Catalog, Pipeline
from smile.algebra.translate.scope import Scope, free_name
from smile.algebra.types import NULL, STRING, DataType
from smile.errors import error
from smile.source import Span

BRANCH = "branch"


def aligned(
    what: str, rels: Sequence[mmpl.Rel], spans: Sequence[Span | None], catalog: Catalog, names: Sequence[str] = ()
) -> tuple[mmpl.Rel, ...]:
    """`names` are those of the result, if they are not to be the first branch's."""
    headings = [catalog.headings.of(r) for r in rels]
    names = names or headings[0].visible
    types = _common_types(what, headings, names, spans)
    result = []
    for rel, span in zip(rels, spans, strict=True):
        pipeline = Pipeline(rel, Scope(), catalog)
        casts = Expressions(Scope(), pipeline.column_type)
        outputs = []
        for name, column, type in zip(names, pipeline.heading.visible, types, strict=True):
            typed = Typed(mmpl.Column(column), pipeline.heading.columns[column])
            outputs.append(Output(name, Typed(casts.coerce(typed, type, span), type), span))
        result.append(projected(pipeline, outputs, span))
    return tuple(result)


def _common_types(
    what: str, headings: Sequence[Heading], names: Sequence[str], spans: Sequence[Span | None]
) -> list[DataType]:
    types = [headings[0].columns[c] for c in headings[0].visible]
    for heading, span in zip(headings, spans, strict=True):
        if len(heading.visible) != len(types):
            raise error("E044", f"{what} needs {len(types)} columns, this has {len(heading.visible)}", span)
        for i, c in enumerate(heading.visible):
            common = common_type(types[i], heading.columns[c])
            if common is None:
                message = f"{what} of {types[i]} and {heading.columns[c]} in column {names[i]}"
                raise error("E030", message, span)
            types[i] = common
    return [STRING if t == NULL else t for t in types]


def union_all(rels: Sequence[mmpl.Rel], spans: Sequence[Span | None], catalog: Catalog, span: Span | None) -> mmpl.Rel:
    """UNION ALL. MMPL names the hidden key column `branch`; whatever else has that name makes way."""
    names = catalog.headings.of(rels[0]).visible
    inner = [free_name("branch_", names) if n == BRANCH else n for n in names]
    branches = aligned("UNION", rels, spans, catalog, inner)
    hidden: dict[str, DataType] = {}
    apart = []
    for rel in branches:
        heading, new = catalog.headings.of(rel), {}
        for c in sorted(heading.hidden):
            type = heading.columns[c]
            taken = {*inner, *heading.columns, BRANCH, *(h for h, t in hidden.items() if t != type)}
            if c in inner or c == BRANCH or hidden.get(c, type) != type:
                new[c] = free_name(c, taken)
            hidden[new.get(c, c)] = type
        apart.append(mmpl.Rename(rel, tuple(new.items()), span=rel.span) if new else rel)
    union: mmpl.Rel = mmpl.Union(tuple(apart), span=span)
    if BRANCH not in names:
        return union
    outer = free_name("union.branch", catalog.headings.of(union).columns)
    return mmpl.Rename(union, ((BRANCH, outer), *((i, n) for i, n in zip(inner, names, strict=True) if i != n)))
