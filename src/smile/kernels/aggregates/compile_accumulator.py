"""Chooses the accumulator of an aggregate: append-only if members never leave and their values never change."""

from collections.abc import Mapping

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.columns.knowledge import ColumnKind
from smile.kernels.aggregates.accumulator import Accumulator
from smile.kernels.aggregates.averages import AppendOnlyAverage, RetractableAverage
from smile.kernels.aggregates.contributions import AggregateArgument
from smile.kernels.aggregates.count_distinct import AppendOnlyCountDistinct, RetractableCountDistinct
from smile.kernels.aggregates.counts import AppendOnlyCount, RetractableCount
from smile.kernels.aggregates.latest import AppendOnlyLatest, RetractableLatest
from smile.kernels.aggregates.min_max import AppendOnlyMinMax, RetractableMinMax
from smile.kernels.aggregates.nested_group import NestedGroupAccumulator
from smile.kernels.aggregates.sums import AppendOnlySum, RetractableSum
from smile.kernels.layout import EvolvingColumnLayout
from smile.kernels.transform import InputRelation, OutputRelation
from smile.knowledge.values.cells import to_range


def compile_accumulator(
    number: int,
    name: str,
    aggregate: mmpl.Aggregate,
    per: Mapping[str, pa.DataType],
    source: InputRelation,
    output: OutputRelation,
) -> Accumulator:
    """`number` is the position of the aggregate in its operator; `per` are the grouping columns."""
    prefix = f"{number}:"
    if aggregate.function == "group":
        return NestedGroupAccumulator(aggregate.columns, source.layout)
    argument = None if aggregate.arg is None else AggregateArgument(aggregate.arg, source)
    append_only = source.layout.certain and (argument is None or argument.is_fixed)
    if aggregate.function == "count":
        return AppendOnlyCount(prefix, argument) if append_only else RetractableCount(prefix, argument)
    assert argument is not None
    match aggregate.function:
        case "sum":
            return AppendOnlySum(prefix, argument) if append_only else RetractableSum(prefix, argument)
        case "avg":
            return AppendOnlyAverage(prefix, argument) if append_only else RetractableAverage(prefix, argument)
        case "max" | "min":
            is_max = aggregate.function == "max"
            return (AppendOnlyMinMax if append_only else RetractableMinMax)(prefix, argument, is_max)
        case "count_distinct":
            return (AppendOnlyCountDistinct if append_only else RetractableCountDistinct)(prefix, argument, per)
        case _:
            tick, bottom = source.type.heading.tick, to_range(output.bottoms[name])
            as_latest = output.type.columns[name].domain == "latest"
            kind = AppendOnlyLatest if append_only else RetractableLatest
            return kind(prefix, argument, tick, bottom, as_latest)


def aggregate_column(name: str, aggregate: mmpl.Aggregate, output: OutputRelation) -> EvolvingColumnLayout:
    """The layout of the aggregate's column in the output."""
    data = output.type.heading.columns[name]
    kind: ColumnKind = "mask" if data == BOOL else "range"
    if aggregate.function == "group":
        kind = "object"
    elif aggregate.function == "latest" and output.type.columns[name].domain == "latest":
        kind = "latest"
    return EvolvingColumnLayout(kind, data)
