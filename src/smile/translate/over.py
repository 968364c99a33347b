"""Adds aggregates OVER rows to a pipeline. Aggregates of the same rows share one operator.

Other windows of the same query may add columns that evolve. A window is computed over the rows without these where that
makes a difference, and joined by the tick: so windows combine, and none is final later than alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from smile.algebra import mmpl, trees
from smile.source import Span
from smile.translate.expressions import TypedExpr
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import Scope, free_name


@dataclass(frozen=True)
class OverFrame:
    """The rows that are aggregated for each row: those of its partition in a range of time before it, or at the
    `positions` from the first to the last."""

    partition: tuple[TypedExpr, ...]
    by: str
    range: int | None = None
    positions: tuple[int, int] | None = None
    span: Span | None = None


def add_over(pipeline: QueryPipeline, frame: OverFrame, aggregates: Sequence[tuple[str, mmpl.Aggregate]]) -> list[str]:
    """The columns of the aggregates, each preferably with the name beside it."""
    read = [*(p.expr for p in frame.partition), *(a.arg for _, a in aggregates if a.arg is not None)]
    nested = {c for _, a in aggregates for c in a.columns}
    rows = pipeline.rows_with({frame.by, *nested, *(c for e in read for c in trees.columns_in(e))})
    if not _is_better_alone(pipeline, rows, frame):
        return _add_columns(pipeline, frame, aggregates)
    source = QueryPipeline(rows, Scope(), pipeline.catalog)
    added = _add_columns(source, frame, aggregates)
    source.rel = mmpl.Project(source.rel, tuple(dict.fromkeys((frame.by, *added))), span=frame.span)
    taken = set(pipeline.heading.columns)
    new_names: dict[str, str] = {}
    for column in source.heading.columns:
        new_names[column] = free_name(column, taken)
        taken.add(new_names[column])
    right = mmpl.Rename(source.rel, tuple(new_names.items()), span=frame.span)
    on = ((frame.by, new_names[frame.by]),)
    pipeline.rel = mmpl.Join("inner", pipeline.rel, right, on, span=frame.span)
    pipeline.value_spans.add(frame.span)
    return [new_names[column] for column in added]


def _is_better_alone(pipeline: QueryPipeline, rows: mmpl.Rel, frame: OverFrame) -> bool:
    """Whether a window is computed over `rows`, and not over those of the pipeline, which have more columns. Positions
    need rows that are final when they appear. Ranges are final when their rows are."""
    if pipeline.catalog.types is None or rows == pipeline.rel or pipeline.heading.tick[:1] != (frame.by,):
        return False
    types = pipeline.catalog.types()
    with_windows, alone = types.relation_type(pipeline.rel), types.relation_type(rows)
    if frame.positions is not None:
        return alone.is_append_only and not with_windows.is_append_only
    return any(s.is_never for s in with_windows.seals.values()) and not any(s.is_never for s in alone.seals.values())


def _add_columns(
    pipeline: QueryPipeline, frame: OverFrame, aggregates: Sequence[tuple[str, mmpl.Aggregate]]
) -> list[str]:
    per = tuple(dict.fromkeys(pipeline.extend_all([("partition", p) for p in frame.partition])))
    return [_add_column(pipeline, frame, per, aggregate, wanted) for wanted, aggregate in aggregates]


def _add_column(
    pipeline: QueryPipeline, frame: OverFrame, per: tuple[str, ...], aggregate: mmpl.Aggregate, wanted: str
) -> str:
    previous = pipeline.rel
    over: mmpl.Over | mmpl.OverRows
    if frame.positions is None:
        over = mmpl.Over(previous, per, frame.by, frame.range, (), span=frame.span)
    else:
        over = mmpl.OverRows(previous, per, frame.by, *frame.positions, (), span=frame.span)
    if isinstance(previous, mmpl.Over | mmpl.OverRows) and replace(previous, input=over.input, aggregates=()) == over:
        existing = next((n for n, a in previous.aggregates if a == aggregate), None)
        if existing is not None:
            return existing
        over = replace(over, input=previous.input, aggregates=previous.aggregates)
    name = free_name(wanted or aggregate.function, pipeline.heading.columns)
    pipeline.rel = replace(over, aggregates=(*over.aggregates, (name, aggregate)))
    return name
